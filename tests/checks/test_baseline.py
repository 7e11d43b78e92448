"""The baseline check against a small «vllm» of our own, and against the real one."""

from __future__ import annotations

from pathlib import Path

import pytest

from ascendport.checkout import vllm
from ascendport.checkout.tree import Checkout, recognise
from ascendport.checks import baseline
from ascendport.checks.outcome import CheckResult, Outcome
from ascendport.checks.subject import Options, Subject
from ascendport.errors import UserError
from ascendport.ports.manifest import load
from tests.conftest import ReleaseTree
from tests.evil import texts
from tests.evil.build import BASELINE, subject

pytestmark = pytest.mark.ascend

# vllm-core's part: a module that cannot be imported whole, with the same launcher in it.
CORE = {
    "vllm/v1/scaling.py": """\
import a_module_that_no_environment_has
from vllm.triton_utils import tl, triton
from vllm.v1.tiles import tile_for
from vllm.v1.request import Request

TILE = tile_for(2)


@triton.jit
def _scale_kernel(out_ptr, out_stride, x_ptr, x_stride, factor, columns, TILE_: tl.constexpr):
    row = tl.program_id(0)
    lane = tl.program_id(1) * TILE_ + tl.arange(0, TILE_)
    x = tl.load(x_ptr + row * x_stride + lane, mask=lane < columns).to(tl.float32)
    tl.store(out_ptr + row * out_stride + lane, x * factor, mask=lane < columns)


def scale(out, x, factor: Request):
    rows, columns = x.shape
    grid = (rows, triton.cdiv(columns, TILE))
    _scale_kernel[grid](
        out, out.stride(0), x, x.stride(0), factor, columns, TILE_=TILE, num_warps=4
    )
""",
    "vllm/v1/tiles.py": "import another_missing_module\n\ndef tile_for(n):\n    return 32 * n\n",
}


class Source:
    version = "9.9.9"
    origin = "a test"

    def __init__(self, files: dict[str, str]) -> None:
        self.files = files

    def read(self, path: str) -> bytes | None:
        text = self.files.get(path)
        return None if text is None else text.encode()


def run(
    folder: Path, kernel: str, monkeypatch: pytest.MonkeyPatch, core: dict[str, str] = CORE
) -> CheckResult:
    monkeypatch.setattr(vllm, "pinned_version", lambda checkout: "9.9.9")
    monkeypatch.setattr(vllm, "open_source", lambda version, progress: Source(core))
    options = Options(cases=("rows-3", "rows-5", "no-rows"), timeout_s=60.0)
    return baseline.run(subject(folder, kernel, baseline=BASELINE, options=options))


def test_equal_kernels_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = run(tmp_path, texts.RIGHT, monkeypatch)
    assert result.outcome is Outcome.PASSED, result.reason
    assert [case.outcome for case in result.cases] == [Outcome.PASSED] * 3
    assert result.cases[0].figures["baseline"] == "vllm 9.9.9 (a test)"
    assert result.cases[0].figures["baseline_against_reference"] == "same"


@pytest.mark.parametrize("name", ["zeros", "raises", "does-nothing"])
def test_evil_kernel_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    result = run(tmp_path, texts.EVIL[name], monkeypatch)
    assert result.outcome is Outcome.FAILED
    assert result.cases[1].outcome is Outcome.FAILED


def test_core_that_differs_from_a_right_kernel_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    core = {**CORE, "vllm/v1/scaling.py": CORE["vllm/v1/scaling.py"].replace("x * f", "x + f")}
    result = run(tmp_path, texts.RIGHT, monkeypatch, core)
    assert result.outcome is Outcome.FAILED
    assert "by vllm-core" in result.reason
    assert "expected" in str(result.cases[0].figures["baseline_against_reference"])


def test_core_that_does_not_run_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = CORE["vllm/v1/scaling.py"].replace("rows, columns = x.shape", "raise OSError")
    core = {**CORE, "vllm/v1/scaling.py": broken}
    result = run(tmp_path, texts.RIGHT, monkeypatch, core)
    assert result.outcome is Outcome.NOT_RUN
    assert "vllm-core's kernel did not run on it: OSError" in result.reason


def test_a_case_without_a_defined_answer_is_not_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cases = texts.changed(
        '"dtype": "bf16"}),', '"dtype": "bf16"}, undefined="reads past the end"),', texts.CASES
    )
    monkeypatch.setattr(vllm, "pinned_version", lambda checkout: "9.9.9")
    monkeypatch.setattr(vllm, "open_source", lambda version, progress: Source(CORE))
    options = Options(cases=("rows-3", "rows-5"), timeout_s=60.0)
    wrong = texts.EVIL["crashes"]  # on rows-5
    given = subject(tmp_path, wrong, baseline=BASELINE, options=options, cases=cases)
    result = baseline.run(given)
    assert [case.outcome for case in result.cases] == [Outcome.PASSED, Outcome.NOT_RUN]
    assert result.cases[1].reason == "vllm-core has no defined answer: reads past the end"


def test_symbol_that_vllm_lacks_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = run(tmp_path, texts.RIGHT, monkeypatch, {"vllm/v1/scaling.py": "other = 1\n"})
    assert result.outcome is Outcome.NOT_RUN
    assert "vllm/v1/scaling.py does not define scale" in result.reason


def test_no_vllm_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(checkout: Checkout) -> str:
        raise UserError("no index answers", next="try later")

    monkeypatch.setattr(vllm, "pinned_version", refuse)
    result = baseline.run(subject(tmp_path, texts.RIGHT, baseline=BASELINE))
    assert result.outcome is Outcome.NOT_RUN
    assert "no index answers" in result.reason


def test_port_without_baseline_is_not_run(tmp_path: Path) -> None:
    assert baseline.run(subject(tmp_path, texts.RIGHT)).outcome is Outcome.NOT_RUN


@pytest.mark.network
@pytest.mark.parametrize(
    ("release", "variant"), [("0.26.0rc1", "worker-v2"), ("0.30.0rc2", "packed")]
)
def test_real_release_against_real_vllm(
    release_tree: ReleaseTree, release: str, variant: str
) -> None:
    checkout = recognise(release_tree(release))
    grammar = load(Path(__file__).parents[2] / "kernels" / "grammar_bitmask")
    form = next(form for form in grammar.manifest.variants if form.name == variant)
    file = form.targets[0].file
    text = checkout.read(file)
    assert text is not None
    options = Options(cases=("vocab-1000", "rows-reversed"), timeout_s=120.0)
    result = baseline.run(Subject(checkout, grammar, form, {file: text}, {file: text}, options))
    assert result.outcome is Outcome.PASSED, result.reason
