"""The oracle passes a right kernel and refuses each of the evil ones."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from ascendport.checks import oracle
from ascendport.checks.outcome import CheckResult, Outcome
from ascendport.checks.subject import Options, Subject
from ascendport.errors import UserError
from ascendport.harness.inputs import draw
from ascendport.harness.portcode import load_port
from ascendport.ports.manifest import load
from tests.conftest import ReleaseTree
from tests.evil import texts
from tests.evil.build import subject

pytestmark = pytest.mark.ascend


def reasons(result: CheckResult) -> dict[str, str]:
    return {case.case: case.reason for case in result.cases if case.outcome is Outcome.FAILED}


def listing(root: Path) -> dict[str, str]:
    return {
        str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def test_right_kernel_passes_and_leaves_the_checkout_alone(tmp_path: Path) -> None:
    told: list[tuple[str, int, int]] = []
    given = subject(tmp_path, texts.RIGHT)
    given = Subject(**{**vars(given), "progress": lambda *line: told.append(line)})
    kept = listing(given.checkout.root)
    result = oracle.run(given)
    assert result.outcome is Outcome.PASSED, result.reason
    assert [case.case for case in result.cases] == ["rows-3", "rows-5", "no-rows", "rows-60"]
    assert [case.figures["before"] for case in result.cases] == ["same"] * 4
    assert [case.figures.get("second_seed") for case in result.cases] == [1, 1, 1, None]
    assert result.cases[0].figures["seed"] == 0
    assert result.cases[3].figures["programs"] == 40
    assert [done for _, done, _ in told] == [1, 2, 3, 4]
    assert listing(given.checkout.root) == kept


# What the reason for case rows-5 must say; None: another case shows it.
SAYS = {
    "zeros": "expected",
    "does-nothing": "left untouched",
    "neighbour-row": "out: row",
    "past-the-row": "out: row 0, column 40 (1 past the row's end) changed",
    "before-the-rows": "out: 3 before the first element changed",
    "renamed-argument": None,
    "raises": "ValueError: no thanks (scale.py:",
    "exits": "left with exit status 0",
    "leaves": "left with exit status 0",
    "crashes": "crashed with SIGSEGV (scale.py:",
    "hangs": "no end after 8 s",
    "changes-its-input": "x: row 0, column 1, an input, changed",
    "tampers-with-the-judge": "expected",
    "unknown-option": "multibufer",
    "too-many-programs": "launched with 65540 programs",
    "no-programs": None,
    "depends-on-the-order": "second round (seed 1, 48 cores, programs in reverse)",
    "uses-undefined-lanes": "got nan",
}


def test_every_evil_text_has_an_expectation() -> None:
    # The renamed argument is seen where it is passed by name, with cases of its own.
    assert SAYS.keys() == texts.EVIL.keys()


@pytest.mark.parametrize("name", [name for name, says in SAYS.items() if says])
def test_evil_kernel_is_refused(tmp_path: Path, name: str) -> None:
    limit = 8.0 if name == "hangs" else 60.0
    selected = ("rows-3", "rows-5") if name in ("crashes", "hangs") else ("rows-5",)
    options = Options(cases=selected, timeout_s=limit)
    result = oracle.run(subject(tmp_path, texts.EVIL[name], options=options))
    assert result.outcome is Outcome.FAILED
    says = SAYS[name]
    assert says is not None
    assert says in reasons(result)["rows-5"]
    assert "--seed 0 --case rows-5" in reasons(result)["rows-5"]
    # The other case ran all the same.
    assert all(case.outcome is Outcome.PASSED for case in result.cases if case.case != "rows-5")


def test_renamed_argument_is_refused(tmp_path: Path) -> None:
    cases = texts.changed('scalars["factor"])', 'factor=scalars["factor"])', texts.CASES)
    evil = texts.EVIL["renamed-argument"]
    options = Options(cases=("rows-5",), timeout_s=60.0)
    result = oracle.run(subject(tmp_path, evil, cases=cases, options=options))
    assert result.outcome is Outcome.FAILED
    assert "TypeError" in reasons(result)["rows-5"]


def test_empty_grid_is_refused(tmp_path: Path) -> None:
    options = Options(cases=("no-rows",), timeout_s=60.0)
    result = oracle.run(subject(tmp_path, texts.EVIL["no-programs"], options=options))
    assert result.outcome is Outcome.FAILED
    assert "0 programs" in reasons(result)["no-rows"]


def test_answer_cached_for_one_seed_is_refused(tmp_path: Path) -> None:
    first = subject(tmp_path / "right", texts.RIGHT)
    code = load_port(first.port)
    answers = {
        case.name: float(draw(code, case, "only", 0).tensors["x"].values[0, 0])
        for case in code.of("only", ("rows-3", "rows-5"))
    }
    options = Options(cases=("rows-3", "rows-5"), timeout_s=60.0)
    result = oracle.run(subject(tmp_path / "evil", texts.cached(answers), options=options))
    assert result.outcome is Outcome.FAILED
    assert all("second round (seed 1" in reason for reason in reasons(result).values())
    assert len(reasons(result)) == 2


def test_wrong_before_is_shown_and_does_not_fail_the_port(tmp_path: Path) -> None:
    options = Options(cases=("rows-5",), timeout_s=60.0)
    before = texts.EVIL["zeros"]
    result = oracle.run(subject(tmp_path, texts.RIGHT, before=before, options=options))
    assert result.outcome is Outcome.PASSED
    assert "differs: out: row 0, column 0" in str(result.cases[0].figures["before"])


def test_cases_that_cannot_fail_are_refused(tmp_path: Path) -> None:
    cases = texts.changed("Role.OUT", "Role.INOUT", texts.CASES)
    reference = (
        "def reference(workload, variant):\n    return {'out': workload.tensors['out'].values}\n"
    )
    idle = texts.EVIL["does-nothing"]
    options = Options(cases=("rows-5",), timeout_s=60.0)
    result = oracle.run(subject(tmp_path, idle, cases=cases, reference=reference, options=options))
    assert result.outcome is Outcome.FAILED
    assert "cases cannot fail" in result.reason


def test_cases_that_ignore_the_seed_are_refused(tmp_path: Path) -> None:
    cases = texts.changed(
        "p = case.params", "p, rng = case.params, np.random.default_rng(7)", texts.CASES
    )
    result = oracle.run(subject(tmp_path, texts.RIGHT, cases=cases))
    assert result.outcome is Outcome.FAILED
    assert "the same for every seed" in result.reason


def test_cases_that_cannot_be_replayed_are_refused(tmp_path: Path) -> None:
    cases = texts.changed(
        "p = case.params", "p, rng = case.params, np.random.default_rng()", texts.CASES
    )
    result = oracle.run(subject(tmp_path, texts.RIGHT, cases=cases))
    assert result.outcome is Outcome.FAILED
    assert "cannot be replayed" in result.reason


def test_incomplete_reference_fails_the_case(tmp_path: Path) -> None:
    reference = "def reference(workload, variant):\n    return {}\n"
    options = Options(cases=("rows-5",), timeout_s=60.0)
    result = oracle.run(subject(tmp_path, texts.RIGHT, reference=reference, options=options))
    assert result.outcome is Outcome.FAILED
    assert "reference() answers []" in reasons(result)["rows-5"]


def test_unknown_case_is_an_error_that_lists_the_cases(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no such case: rows-4.*choose from rows-3, rows-5"):
        oracle.run(subject(tmp_path, texts.RIGHT, options=Options(cases=("rows-4",))))


def test_port_that_the_interpreter_cannot_run_is_not_run(tmp_path: Path) -> None:
    cases = texts.CASES + '\nINTERPRETER = "reads single elements"\n'
    result = oracle.run(subject(tmp_path, texts.RIGHT, cases=cases))
    assert (result.outcome, result.reason) == (Outcome.NOT_RUN, "reads single elements")


def test_without_triton_it_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oracle, "missing_modules", lambda: ["triton"])
    result = oracle.run(subject(tmp_path, texts.RIGHT))
    assert result.outcome is Outcome.NOT_RUN
    assert "ascendport[ascend]" in result.reason


@pytest.mark.network
@pytest.mark.parametrize(
    ("release", "variant"), [("0.26.0rc1", "worker-v2"), ("0.30.0rc2", "packed")]
)
def test_real_release_before_and_after(
    release_tree: ReleaseTree, release: str, variant: str
) -> None:
    """Upstream's kernel in a real tree, unchanged as «after»: right but for the far rows."""
    from ascendport.checkout.tree import recognise

    checkout = recognise(release_tree(release))
    grammar = load(Path(__file__).parents[2] / "kernels" / "grammar_bitmask")
    form = next(form for form in grammar.manifest.variants if form.name == variant)
    file = form.targets[0].file
    text = checkout.read(file)
    assert text is not None
    options = Options(cases=("vocab-1000", "offset-over-2-31"), timeout_s=120.0)
    result = oracle.run(Subject(checkout, grammar, form, {file: text}, {file: text}, options))
    near, far = result.cases
    assert near.outcome is Outcome.PASSED, near.reason
    # Row times stride passes 2**31 in 32-bit arithmetic.
    assert far.outcome is Outcome.FAILED
    assert "SIGSEGV" in far.reason
