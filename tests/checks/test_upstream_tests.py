from __future__ import annotations

from pathlib import Path

import pytest

from ascendport.checks import upstream_tests
from ascendport.checks.outcome import Outcome
from ascendport.checks.subject import Options, Subject
from ascendport.checks.upstream_tests import judge
from ascendport.harness.pytest_child import Outcomes
from ascendport.store import upstream
from tests.conftest import ReleaseTree

PREFIX = "tests.ut.distributed.ascend_store"


def _outcomes(**found: str) -> Outcomes:
    return Outcomes(
        {f"{PREFIX}.{name.replace('__', '.')}::test": how for name, how in found.items()}
    )


def test_what_passed_and_passes() -> None:
    before = _outcomes(test_a__One="passed", test_a__Two="failed", test_b__One="skipped")
    result = judge(before, before)
    assert result.outcome is Outcome.PASSED
    assert "1 tests pass" in result.reason
    assert "1 fail before as after" in result.reason
    assert {case.case: case.outcome for case in result.cases} == {
        "test_a": Outcome.PASSED,
        "test_b": Outcome.NOT_RUN,
    }


@pytest.mark.parametrize("after", ["failed", "skipped", "error"])
def test_what_passed_and_does_not_pass(after: str) -> None:
    result = judge(_outcomes(test_a__One="passed"), _outcomes(test_a__One=after))
    assert result.outcome is Outcome.FAILED
    assert "1 tests that passed do not pass" in result.reason


def test_a_test_that_is_gone_did_not_pass() -> None:
    before = _outcomes(test_a__One="passed", test_b__One="passed")
    result = judge(before, _outcomes(test_a__One="passed"))
    assert result.outcome is Outcome.FAILED


def test_no_end_or_no_test_before_is_not_run() -> None:
    assert judge(Outcomes({}, "no end after 5 s"), Outcomes({})).outcome is Outcome.NOT_RUN
    assert judge(_outcomes(test_a__One="failed"), Outcomes({})).outcome is Outcome.NOT_RUN
    passing = _outcomes(test_a__One="passed")
    assert judge(passing, Outcomes({}, "no end after 5 s")).outcome is Outcome.FAILED


def test_a_tree_without_tests_is_not_run(tmp_path: Path) -> None:
    assert "has no tests/ut" in upstream.missing(tmp_path)


def _own_tree(root: Path) -> None:
    """A checkout of our own with one test of a function."""
    tests = root / upstream.TESTS
    tests.mkdir(parents=True)
    for folder in (tests, tests.parent, tests.parent.parent, tests.parent.parent.parent):
        (folder / "__init__.py").write_text("")
    (tests / "_mock_deps.py").write_text("")
    (tests / "test_own.py").write_text(
        "from vllm_ascend.own import answer\n\n\ndef test_answer():\n    assert answer() == 7\n"
    )
    (root / "vllm_ascend").mkdir()
    (root / "vllm_ascend/__init__.py").write_text("")
    (root / "vllm_ascend/own.py").write_text("def answer():\n    return 7\n")


@pytest.mark.skipif(
    bool(upstream.missing(Path())) and "needs" in upstream.missing(Path()), reason="-"
)
@pytest.mark.parametrize(("returned", "how"), [("7", "passed"), ("8", "failed")])
def test_the_copy_holds_the_files_of_the_side(tmp_path: Path, returned: str, how: str) -> None:
    _own_tree(tmp_path)
    files = {"vllm_ascend/own.py": f"def answer():\n    return {returned}\n".encode()}
    with upstream.running(tmp_path, files, 120) as running:
        found = running.outcomes()
    assert list(found.tests.values()) == [how], found
    assert (tmp_path / "vllm_ascend/own.py").read_text().endswith("7\n")


@pytest.mark.slow
@pytest.mark.network
@pytest.mark.parametrize("release", ["0.24.0rc1", "0.30.0rc2"])
def test_a_release_keeps_its_tests(release: str, release_tree: ReleaseTree) -> None:
    from ascendport.checkout.tree import recognise
    from ascendport.patching.images import images
    from ascendport.ports.catalogue import catalogue

    port = next(port for port in catalogue() if port.name == "tp_mismatch")
    checkout = recognise(release_tree(release))
    made = images(checkout, port)
    subject = Subject(checkout, port, made.variant, made.before, made.after, Options())
    result = upstream_tests.run(subject)
    assert result.outcome is Outcome.PASSED, result.reason
    assert {"test_pool_worker", "test_kv_transfer", "test_backend"} <= {
        case.case for case in result.cases if case.outcome is Outcome.PASSED
    }
