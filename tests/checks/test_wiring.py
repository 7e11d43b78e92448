from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from textwrap import dedent

import pytest

from ascendport.checkout.tree import Checkout, Layout
from ascendport.checks import wiring
from ascendport.checks.outcome import CheckResult, Outcome
from ascendport.checks.subject import Subject
from ascendport.errors import UserError
from ascendport.ports.manifest import Kind, Manifest, Port, Target, Variant
from ascendport.wiring import analysis
from tests.wiring.pairs import ASCEND, PATCH, VLLM, summarised

FILE = "vllm_ascend/ops/fast.py"
WIRE = "import vllm.core as c\nfrom vllm_ascend.ops.fast import fast\nc.{} = fast"


def subject(
    checkout: Checkout,
    file: str,
    symbols: tuple[str, ...],
    before: Mapping[str, bytes],
    after: Mapping[str, bytes],
) -> Subject:
    target = Target(file=file, source="kernel.py", add=symbols)
    variant = Variant(name="only", targets=(target,))
    manifest = Manifest(
        name="example",
        kind=Kind.KERNEL,
        summary="an example",
        task="https://example.org",
        variants=(variant,),
    )
    return Subject(checkout, Port(manifest=manifest, folder=checkout.root), variant, before, after)


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., CheckResult]:
    """Runs the check on our own small pair; ``patch`` is the text of its one patch file."""
    monkeypatch.setenv("ASCENDPORT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(analysis, "vllm_summaries", lambda *args, **named: summarised(VLLM))
    root = tmp_path / "tree"

    def run(patch: str, *symbols: str, after: str | None = None) -> CheckResult:
        for path, text in {**ASCEND, PATCH: patch}.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(dedent(text))
        (root / "Dockerfile").write_text("ARG VLLM_TAG=v1.2.0\n")
        data = dedent(ASCEND[FILE]).encode()
        new = data if after is None else dedent(after).encode()
        checkout = Checkout(root=root, layout=Layout.SOURCE)
        return wiring.run(subject(checkout, FILE, symbols, {FILE: data}, {FILE: new}))

    return run


def test_a_wired_symbol_passes_with_its_route(small: Callable[..., CheckResult]) -> None:
    result = small(WIRE.format("work"), "fast", "helper")
    assert result.outcome is Outcome.PASSED, result
    figures = result.cases[0].figures
    assert figures["assignment"] == "c.work"
    assert figures["file"] == f"{PATCH}:3"
    assert figures["verdict"] == "live"
    assert str(figures["read by"]).startswith("vllm/core.py:")
    assert "live assignments" not in figures
    assert result.cases[1].figures == {"read by": "used by fast"}


def test_several_assignments_are_counted_and_the_dead_ones_named(
    small: Callable[..., CheckResult],
) -> None:
    result = small(WIRE.format("work") + "\nc.run = fast\nc.wrok = fast", "fast")
    assert result.outcome is Outcome.PASSED, result
    figures = result.cases[0].figures
    assert figures["dead assignments"] == 2
    assert figures["dead"] == "c.run, c.wrok"
    assert "live assignments" not in figures
    result = small(WIRE.format("work") + "\nimport vllm.late as d\nd.dotted = fast", "fast")
    assert result.cases[0].figures["live assignments"] == 2
    assert "dead assignments" not in result.cases[0].figures


def test_a_dead_assignment_fails_and_names_what_vllm_reads(
    small: Callable[..., CheckResult],
) -> None:
    result = small(WIRE.format("wrok"), "fast")
    assert result.outcome is Outcome.FAILED
    assert "c.wrok" in result.cases[0].reason
    assert "work" in result.cases[0].reason
    assert "1.2.0" in result.cases[0].reason


def test_a_port_that_was_never_wired_fails(small: Callable[..., CheckResult]) -> None:
    result = small(WIRE.format("work"), "lonely")
    assert result.outcome is Outcome.FAILED
    assert result.cases[0].reason == f"nothing refers to lonely of {FILE}"


def test_the_tree_after_is_judged_and_not_the_disk(small: Callable[..., CheckResult]) -> None:
    after = "def fast(x): return brand_new(x)\ndef brand_new(x): return x\ndef serve(): pass"
    assert small(WIRE.format("work"), "brand_new", after=after).outcome is Outcome.PASSED
    result = small(WIRE.format("work"), "helper", after=ASCEND[FILE].replace("helper(x)", "x", 1))
    assert result.outcome is Outcome.FAILED


def test_no_vllm_is_not_run(
    small: Callable[..., CheckResult], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: object, **named: object) -> None:
        raise UserError("no index could be reached")

    monkeypatch.setattr(analysis, "vllm_summaries", refuse)
    result = small(WIRE.format("work"), "fast")
    assert result.outcome is Outcome.NOT_RUN
    assert "no index could be reached" in result.reason


def test_broken_python_fails(small: Callable[..., CheckResult]) -> None:
    result = small(WIRE.format("work"), "fast", after="def (")
    assert result.outcome is Outcome.FAILED
    assert f"{FILE}:1" in result.cases[0].reason


@pytest.mark.network
@pytest.mark.parametrize(
    ("release", "outcome"),
    [("0.25.1rc1", Outcome.PASSED), ("0.30.0rc2", Outcome.FAILED)],
    ids=str,
)
def test_real_release(release: str, outcome: Outcome, release_tree: Callable[[str], Path]) -> None:
    """The same symbol is reached in one release and not in a later one."""
    from ascendport.checkout.tree import recognise

    checkout = recognise(release_tree(release))
    file = "vllm_ascend/worker/v2/sample/logprob.py"
    data = checkout.read(file)
    assert data is not None
    result = wiring.run(
        subject(checkout, file, ("compute_topk_logprobs",), {file: data}, {file: data})
    )
    assert result.outcome is outcome, result
    if outcome is Outcome.FAILED:
        assert "compute_topk_scores" in result.cases[0].reason
