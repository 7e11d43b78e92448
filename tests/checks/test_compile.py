"""compile: what fits passes; overflow, refusal, crash, hang and oversized grids do not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ascendport.ascend import toolchain
from ascendport.checkout.tree import recognise
from ascendport.checks import compile as check
from ascendport.checks import compiled
from ascendport.checks.outcome import CheckResult, Outcome
from ascendport.checks.subject import Options, Subject
from ascendport.patching.images import images
from ascendport.ports.catalogue import catalogue
from tests.conftest import ReleaseTree
from tests.evil import texts
from tests.evil.build import subject

pytestmark = pytest.mark.ascend

ONE = Options(socs=("Ascend910B3",), timeout_s=120.0)


def _failed(result: CheckResult) -> dict[str, str]:
    return {c.case: c.reason for c in result.cases if c.outcome is Outcome.FAILED}


def test_the_control_compiles_for_all_three(tmp_path: Path) -> None:
    result = check.run(subject(tmp_path, texts.RIGHT))
    assert result.outcome is Outcome.PASSED, result.reason
    assert [case.case for case in result.cases] == [
        "rows-3 Ascend910B3",
        "rows-3 Ascend910_9391",
        "rows-3 Ascend950PR_9589",
        "grids",
    ]
    figures = result.cases[0].figures
    assert figures["before"] == "ok"
    assert str(figures["UB KiB"]).endswith("/192")
    assert figures["locks"] == "0"


@pytest.mark.parametrize(
    ("text", "case", "said"),
    [
        pytest.param(texts.OVERFLOWS, "rows-3 Ascend910B3", "Unified Buffer", id="overflow"),
        pytest.param(
            texts.changed("* factor, mask", "* nothing, mask"),
            "rows-3 Ascend910B3",
            "nothing",
            id="name-error-in-the-kernel",
        ),
        pytest.param(texts.EVIL["raises"], "rows-3 Ascend910B3", "the launch failed", id="raises"),
        pytest.param(texts.EVIL["leaves"], "rows-3 Ascend910B3", "SystemExit", id="leaves"),
        pytest.param(
            texts.EVIL["unknown-option"], "rows-3 Ascend910B3", "multibufer", id="unknown-option"
        ),
        pytest.param(texts.EVIL["too-many-programs"], "grids", "at most 65535", id="grid"),
    ],
)
def test_evil_ports_are_caught(tmp_path: Path, text: str, case: str, said: str) -> None:
    result = check.run(subject(tmp_path, text, options=ONE))
    assert result.outcome is Outcome.FAILED
    assert said in _failed(result)[case]


def test_an_overflow_of_before_is_shown_and_does_not_fail_the_port(tmp_path: Path) -> None:
    given = subject(tmp_path, texts.RIGHT, options=ONE, before=texts.OVERFLOWS)
    result = check.run(given)
    assert result.outcome is Outcome.PASSED
    assert "Unified Buffer" in str(result.cases[0].figures["before"])


def test_a_child_that_dies_fails_the_check(tmp_path: Path) -> None:
    result = check.run(subject(tmp_path, texts.EVIL["exits"], options=ONE))
    assert (result.outcome, result.reason) == (
        Outcome.FAILED,
        "after: the child process died",
    )


def test_a_child_that_hangs_is_stopped_and_the_other_side_is_kept(tmp_path: Path) -> None:
    hangs = texts.changed("def scale", "while True:\n    pass\n\n\ndef scale", texts.VICTIM)
    options = Options(socs=("Ascend910B3",), timeout_s=20.0)
    result = check.run(subject(tmp_path, texts.RIGHT, options=options, before=hangs))
    assert result.outcome is Outcome.PASSED, result.reason
    assert "no answer" in str(result.cases[0].figures["before"])


def test_without_the_toolchain_it_is_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(toolchain, "missing", lambda: "no compiler")
    result = check.run(subject(tmp_path, texts.RIGHT, options=ONE))
    assert (result.outcome, result.reason) == (Outcome.NOT_RUN, "no compiler")


def test_a_compiler_that_takes_everything_fails_the_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ascendport.ascend.canary import CanaryResult

    dead = CanaryResult(False, "a kernel that cannot fit was accepted")
    monkeypatch.setattr("ascendport.ascend.canary.prove", lambda parts: dead)
    given = subject(tmp_path, texts.RIGHT, options=ONE)
    side = compiled.compile_side(given, "after", ("Ascend910B3",))
    assert side.canary == dead.reason

    def sides(*_: object) -> dict[str, compiled.Side | str]:
        return {"before": compiled.Side(), "after": side}

    monkeypatch.setattr(check, "compile_sides", sides)
    result = check.run(given)
    assert result.outcome is Outcome.FAILED
    assert "canary" in result.reason


def test_a_tree_that_needs_more_of_vllm_is_not_run(tmp_path: Path) -> None:
    text = "from vllm.config import VllmConfig\n" + texts.RIGHT
    result = check.run(subject(tmp_path, text, options=ONE))
    assert result.outcome is Outcome.NOT_RUN
    assert "vllm.config" in result.reason


@pytest.fixture(scope="module")
def grammar(release_tree: ReleaseTree) -> Iterator[CheckResult]:
    tree = recognise(release_tree("0.26.0rc1"))
    port = next(port for port in catalogue() if port.name == "grammar_bitmask")
    made = images(tree, port)
    yield check.run(Subject(tree, port, made.variant, made.before, made.after))


@pytest.mark.network
def test_grammar_bitmask_fits_everywhere(grammar: CheckResult) -> None:
    assert grammar.outcome is Outcome.PASSED, grammar.reason
    assert len(grammar.cases) == 3 * 3 + 1


@pytest.mark.network
def test_grammar_bitmask_ends_the_scalar_loop_and_the_stray_lanes(grammar: CheckResult) -> None:
    figures = grammar.cases[0].figures
    assert figures["scalar loops"] == "1 (1024) → 1 (16)"
    assert figures["stray stores"] == "1 → 0"
    assert "largest grid 65537 → 40, programs to compile 6 → 3" in grammar.reason
