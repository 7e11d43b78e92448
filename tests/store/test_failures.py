"""What the failure tests' outcomes mean, and a port's mends one by one."""

from __future__ import annotations

from pathlib import Path

import pytest

from ascendport.checks import failures, mutations
from ascendport.checks.outcome import CheckResult, Outcome
from ascendport.checks.subject import Subject
from ascendport.errors import UserError
from ascendport.harness.pytest_child import Outcomes
from ascendport.ports.manifest import Port, load
from ascendport.store.failures import Shown, judged
from ascendport.store.fixes import Fix, fixes_of, without
from tests.patching.conftest import KERNEL, KERNEL_TEXT, Spec, make_checkout, make_port

ONE, TWO = "tests.test_a.TestA::test_one", "tests.test_a.TestA::test_two"
RIGHT = "tests.test_a.TestA::test_right"


def verdict(before: Shown, raw: Shown, after: Shown, *, mends: bool = True) -> CheckResult:
    return failures.judge(before, raw, after, mends=mends)


BEFORE = Shown(frozenset({RIGHT}), {ONE: "a1", TWO: "b2"})
RAW = Shown(frozenset({RIGHT}), {}, {ONE: "no", TWO: "no"})
AFTER = Shown(frozenset({RIGHT, ONE, TWO}))


def test_red_before_and_green_after() -> None:
    result = verdict(BEFORE, RAW, AFTER)
    assert result.outcome is Outcome.PASSED
    assert result.reason.startswith("2 tests show 2 defects before, all gone with the port")
    assert [case.case for case in result.cases] == ["defect a1", "defect b2", failures.REST]


def test_tests_alone_are_expected_to_fail() -> None:
    result = verdict(BEFORE, RAW, BEFORE, mends=False)
    assert result.outcome is Outcome.PASSED
    assert "each expected to fail" in result.reason


@pytest.mark.parametrize(
    ("before", "raw", "after", "case", "said"),
    [
        pytest.param(
            BEFORE,
            Shown(frozenset({RIGHT, TWO}), {}, {ONE: "no"}),
            AFTER,
            "defect b2",
            "nothing is wrong with test_two",
            id="expected-to-fail-but-fine",
        ),
        pytest.param(
            BEFORE,
            RAW,
            Shown(frozenset({RIGHT, TWO}), {ONE: "a1"}),
            "defect a1",
            "test_one is still expected to fail",
            id="not-mended",
        ),
        pytest.param(
            BEFORE,
            RAW,
            Shown(frozenset({RIGHT, TWO}), {}, {ONE: "1 != 2"}),
            "defect a1",
            "test_one does not pass: 1 != 2",
            id="mended-wrong",
        ),
        pytest.param(
            BEFORE,
            RAW,
            Shown(frozenset({RIGHT, TWO}), {}, {}, {ONE: "no server"}),
            "defect a1",
            "test_one does not pass: no server",
            id="skipped-after",
        ),
        pytest.param(
            BEFORE,
            RAW,
            Shown(frozenset({ONE, TWO})),
            failures.REST,
            "passed before, and not after: test_right",
            id="a-test-gone",
        ),
        pytest.param(
            Shown(frozenset({RIGHT}), {ONE: "a1", TWO: "b2"}, {"x::test_x": "boom"}),
            RAW,
            AFTER,
            failures.REST,
            "before: test_x: boom",
            id="red-where-nobody-expects-it",
        ),
        pytest.param(
            BEFORE,
            RAW,
            Shown(frozenset({RIGHT, ONE, TWO}), {"x::test_x": "c3"}),
            failures.REST,
            "expected to fail only after: test_x",
            id="a-new-defect",
        ),
        pytest.param(Shown(), Shown(), Shown(), failures.REST, "no test passes", id="nothing-ran"),
    ],
)
def test_what_fails_the_check(
    before: Shown, raw: Shown, after: Shown, case: str, said: str
) -> None:
    result = verdict(before, raw, after)
    assert result.outcome is Outcome.FAILED
    assert said in {one.case: one.reason for one in result.cases}[case]


def test_tests_that_do_not_come_to_an_end() -> None:
    result = verdict(BEFORE, RAW, Shown(problem="no end after 600 s"))
    assert result.outcome is Outcome.FAILED
    assert result.reason == "after: no end after 600 s"


def test_outcomes_are_sorted() -> None:
    found = judged(
        Outcomes(
            {"a": "passed", "b": "xfailed", "c": "xfailed", "d": "failed", "e": "skipped"},
            why={"b": "defect c3", "c": "flaky", "d": "1 != 2", "e": "no zmq"},
        )
    )
    assert found.passed == {"a"}
    assert found.expected == {"b": "c3"}
    assert found.broken == {"c": "expected to fail for no named defect: flaky", "d": "1 != 2"}
    assert found.skipped == {"e": "no zmq"}


# --- mends one by one ---

PATCH = b"""def _guarded(function):
    return function


def shift(rows, step):
    return _stepped(rows, step)


def _stepped(rows, step):
    return list(map(step.__add__, rows))
"""

FIXES = """
[shift]
defects = ["a1"]
why = "one"
symbols = ["shift", "_stepped"]
tests = ["test_a.py::TestA::test_one"]

[guard]
defects = ["b2", "b3"]
why = "two"
symbols = ["scale", "_guarded"]
tests = ["test_a.py::TestA::test_two"]
"""


def port(tmp_path: Path, fixes: str = FIXES, text: bytes = PATCH) -> Port:
    spec = Spec(
        KERNEL,
        text,
        ["shift"],
        ["_stepped", "_guarded"],
        KERNEL_TEXT,
        {"scale": "_guarded"},
    )
    made = make_port(tmp_path / "zz_mends", "zz_mends", {"only": [spec]})
    (made.folder / "fixes.toml").write_text(fixes)
    return load(made.folder)


def subject(tmp_path: Path, made: Port) -> Subject:
    checkout = make_checkout(tmp_path / "tree")
    (variant,) = made.manifest.variants
    return Subject(checkout, made, variant, {KERNEL: KERNEL_TEXT}, {})


def test_one_mend_is_left_out(tmp_path: Path) -> None:
    made = port(tmp_path)
    shift, guard = fixes_of(made)
    assert (guard.name, guard.defects) == ("guard", ("b2", "b3"))
    given = subject(tmp_path, made)
    files = without(given, shift)
    assert b"_stepped" not in files[KERNEL] and b"@_guarded" in files[KERNEL]
    files = without(given, guard)
    assert b"_stepped" in files[KERNEL] and b"_guarded" not in files[KERNEL]


def test_a_mend_that_another_leans_on(tmp_path: Path) -> None:
    text = PATCH.replace(b"return function\n", b"return _stepped(function, 1)\n")
    made = port(tmp_path, text=text)
    shift = fixes_of(made)[0]
    with pytest.raises(UserError, match="_stepped"):
        without(subject(tmp_path, made), shift)


@pytest.mark.parametrize(
    ("fixes", "said"),
    [
        pytest.param(FIXES.replace('"scale", ', '"scale", "shift", '), "share shift", id="shared"),
        pytest.param(FIXES.replace('"scale", ', ""), "scale belongs to no mend", id="forgotten"),
        pytest.param(FIXES.replace('"scale", ', '"scale", "x", '), "x is no symbol", id="strange"),
        pytest.param(FIXES.replace('why = "two"\n', ""), "not a table of mends", id="no-reason"),
        pytest.param("[", "not a table of mends", id="no-toml"),
    ],
)
def test_tables_that_are_refused(tmp_path: Path, fixes: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        fixes_of(port(tmp_path, fixes))


FIX = Fix("shift", ("a1",), "one", frozenset({"shift"}), ("test_a.py::TestA::test_one",))
WHOLE = Shown(frozenset({RIGHT, ONE, TWO}))


@pytest.mark.parametrize(
    ("mutant", "outcome", "said"),
    [
        pytest.param(
            Shown(frozenset({RIGHT, TWO}), {}, {ONE: "no"}), Outcome.PASSED, "", id="named"
        ),
        pytest.param(
            Shown(frozenset({RIGHT, TWO}), {}, {f"{ONE}[x]": "no"}),
            Outcome.FAILED,
            "no test fails without it",
            id="fails-with-the-mend-too",
        ),
        pytest.param(
            Shown(frozenset({RIGHT, ONE}), {}, {TWO: "no"}),
            Outcome.FAILED,
            "not named with it: test_two",
            id="another",
        ),
        pytest.param(WHOLE, Outcome.FAILED, "no test fails without it", id="none"),
        pytest.param(
            Shown(problem="no end after 600 s"), Outcome.FAILED, "no end after 600 s", id="hangs"
        ),
    ],
)
def test_a_mutant_is_noticed_by_a_test_that_is_named(
    mutant: Shown, outcome: Outcome, said: str
) -> None:
    case = mutations.judge(FIX, WHOLE, mutant)
    assert case.outcome is outcome
    assert said in case.reason
    assert case.figures["defects"] == "a1"


def test_names_with_parameters_and_without_a_class() -> None:
    whole = Shown(frozenset({"tests.ut.test_a::test_x[1-2]", "tests.ut.test_aa::test_x"}))
    fix = Fix("f", ("a1",), "w", frozenset({"f"}), ("test_a.py::test_x",))
    hit = mutations.judge(fix, whole, Shown(broken={"tests.ut.test_a::test_x[1-2]": "no"}))
    assert hit.outcome is Outcome.PASSED
    other = mutations.judge(fix, whole, Shown(broken={"tests.ut.test_aa::test_x": "no"}))
    assert other.outcome is Outcome.FAILED
