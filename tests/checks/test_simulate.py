"""simulate: what is right and clean passes; wrong values, stray lanes and conflicts do not."""

from __future__ import annotations

from pathlib import Path

import pytest

from ascendport.ascend import toolchain
from ascendport.checkout.tree import recognise
from ascendport.checks import simulate
from ascendport.checks.outcome import CheckResult, Outcome
from ascendport.checks.subject import Options, Subject
from ascendport.patching.images import images
from ascendport.ports.catalogue import catalogue
from tests.conftest import ReleaseTree
from tests.evil import texts
from tests.evil.build import subject

pytestmark = pytest.mark.ascend

ONE = Options(socs=("Ascend910B3",), cases=("rows-3", "rows-5"), timeout_s=120.0)


def _failed(result: CheckResult) -> dict[str, str]:
    return {c.case: c.reason for c in result.cases if c.outcome is Outcome.FAILED}


def test_the_control_is_right_and_clean_on_a2_and_a3(tmp_path: Path) -> None:
    options = Options(timeout_s=120.0)
    result = simulate.run(subject(tmp_path, texts.RIGHT, options=options))
    assert result.outcome is Outcome.PASSED, result.reason
    ran = [case.case for case in result.cases if case.outcome is Outcome.PASSED]
    assert ran[:2] == ["rows-3 Ascend910B3", "rows-3 Ascend910_9391"]
    assert result.cases[0].figures["findings"] == "0 → 0"
    left = [case for case in result.cases if case.outcome is Outcome.NOT_RUN]
    assert [case.case for case in left] == ["rows-60"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param(texts.EVIL["zeros"], "expected", id="zeros"),
        pytest.param(texts.EVIL["does-nothing"], "left untouched", id="does-nothing"),
        pytest.param(texts.EVIL["past-the-row"], "out-of-bounds write", id="past-the-row"),
        pytest.param(texts.EVIL["neighbour-row"], "conflict between programs", id="neighbour-row"),
        pytest.param(texts.OVERFLOWS, "Unified Buffer", id="overflow"),
        pytest.param(texts.EVIL["raises"], "the launch failed", id="raises"),
    ],
)
def test_evil_ports_are_caught(tmp_path: Path, text: str, said: str) -> None:
    result = simulate.run(subject(tmp_path, text, options=ONE))
    assert result.outcome is Outcome.FAILED
    assert said in " ".join(_failed(result).values())


def test_tensors_that_the_launcher_makes_are_followed(tmp_path: Path) -> None:
    given = subject(
        tmp_path,
        texts.RETURNS,
        before=texts.RETURNS,
        cases=texts.RETURNING_CASES,
        options=Options(socs=("Ascend910B3",), cases=("rows-3", "rows-5", "no-rows")),
    )
    result = simulate.run(given)
    assert result.outcome is Outcome.PASSED, result.reason
    assert result.cases[0].figures["before"] == "same, clean"
    # x is read as float32 and once more as the product, which is written twice.
    moved = 2 * 3 * 300 * 4 / 1e6
    assert float(str(result.cases[0].figures["MB written"]).split("→")[1]) == pytest.approx(moved)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param(name, said, id=name)
        for name, said in (
            ("never-writes-its-result", "got nan"),
            ("wrong-in-torch", "expected"),
            ("launches-by-results", "another kernel is launched when results are there"),
            ("fails-on-results", "ValueError: results"),
        )
    ],
)
def test_evil_launchers_are_caught(tmp_path: Path, text: str, said: str) -> None:
    kernel = texts.EVIL_RETURNS[text]
    cases = texts.RETURNING_CASES
    given = subject(tmp_path, kernel, before=texts.RETURNS, cases=cases, options=ONE)
    result = simulate.run(given)
    assert result.outcome is Outcome.FAILED
    assert said in " ".join(_failed(result).values())


def test_what_is_wrong_before_is_a_figure(tmp_path: Path) -> None:
    given = subject(tmp_path, texts.RIGHT, options=ONE, before=texts.EVIL["past-the-row"])
    result = simulate.run(given)
    assert result.outcome is Outcome.PASSED, result.reason
    assert "out-of-bounds write" in str(result.cases[0].figures["before"])


def test_a_child_that_dies_is_not_run(tmp_path: Path) -> None:
    result = simulate.run(subject(tmp_path, texts.EVIL["exits"], options=ONE))
    assert result.outcome is Outcome.NOT_RUN
    assert "died" in result.reason


def test_a5_is_not_run(tmp_path: Path) -> None:
    options = Options(socs=("Ascend950PR_9589",))
    result = simulate.run(subject(tmp_path, texts.RIGHT, options=options))
    assert (result.outcome, "A5" in result.reason) == (Outcome.NOT_RUN, True)


def test_without_the_toolchain_it_is_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(toolchain, "missing", lambda: "no compiler")
    result = simulate.run(subject(tmp_path, texts.RIGHT, options=ONE))
    assert (result.outcome, result.reason) == (Outcome.NOT_RUN, "no compiler")


@pytest.mark.network
def test_grammar_bitmask_is_clean_and_moves_only_what_it_must(release_tree: ReleaseTree) -> None:
    tree = recognise(release_tree("0.30.0rc2"))
    port = next(port for port in catalogue() if port.name == "grammar_bitmask")
    made = images(tree, port)
    names = ("all-bf16", "none-bf16", "random-fp32", "positions-dropped", "offset-over-2-31")
    options = Options(socs=("Ascend910B3",), cases=names)
    given = Subject(tree, port, made.variant, made.before, made.after, options)
    result = simulate.run(given)
    assert result.outcome is Outcome.PASSED, result.reason
    figures = {case.case.split()[0]: case.figures for case in result.cases}
    # All tokens allowed: the logits (3 × 32001 × 2 bytes) are neither read nor written.
    assert figures["all-bf16"]["MB written"] == "0.197 → 0"
    assert float(str(figures["all-bf16"]["MB read"]).split("→")[1]) < 0.013
    # None allowed: every token is written once, and read once with its bits.
    assert str(figures["none-bf16"]["MB written"]).endswith("→ 0.192")
    assert float(str(figures["none-bf16"]["MB read"]).split("→")[1]) < 0.192 * 17 / 16 + 0.001
    # Upstream's kernel leaves its rows.
    assert "out-of-bounds" in str(figures["random-fp32"]["before"])
