"""mutations: each mend taken out alone makes a test fail that is named with it."""

from __future__ import annotations

from ascendport.checks.outcome import CaseResult, CheckResult, Figure, Outcome
from ascendport.checks.subject import Subject
from ascendport.errors import UserError
from ascendport.ports.digest import normal
from ascendport.store.failures import Shown, Suite, shown, some, tests_of
from ascendport.store.fixes import Fix, fixes_of, without
from ascendport.store.upstream import missing, which

NAME = "mutations"
SUMMARY = "each mend taken out alone makes a test fail that is named with it"


def run(subject: Subject) -> CheckResult:
    """One case a mend. Mends that the port's variant for this tree does not have are not run."""
    root = subject.checkout.root
    reason = missing(root)
    if reason:
        return CheckResult.not_run(NAME, reason)
    fixes = fixes_of(subject.port)
    tests = tests_of(subject)
    timeout_s = subject.options.timeout_s
    subject.progress(NAME, 0, len(fixes) + 1)
    whole = shown(root, subject.after, tests, timeout_s)
    if whole.problem or whole.broken:
        said = whole.problem or some(sorted(whole.broken))
        return CheckResult(NAME, Outcome.FAILED, f"with every mend in: {said}")
    cases = []
    for number, fix in enumerate(fixes, 1):
        subject.progress(f"{NAME}: without {fix.name}", number, len(fixes) + 1)
        cases.append(_case(subject, fix, tests, whole))
    subject.progress(NAME, len(fixes) + 1, len(fixes) + 1)
    return CheckResult.of(NAME, tuple(cases))


def _case(subject: Subject, fix: Fix, tests: Suite, whole: Shown) -> CaseResult:
    mine = {normal(symbol) for target in subject.variant.targets for symbol in target.symbols}
    if not fix.symbols & mine:
        reason = "this release needs no such mend"
        return CaseResult(fix.name, Outcome.NOT_RUN, reason, {"defects": ", ".join(fix.defects)})
    try:
        files = without(subject, fix)
    except UserError as error:
        reason = f"cannot be taken out alone: {error}"
        return CaseResult(fix.name, Outcome.FAILED, reason, {"defects": ", ".join(fix.defects)})
    timeout_s = subject.options.timeout_s
    return judge(fix, whole, shown(subject.checkout.root, files, tests, timeout_s, raw=True))


def judge(fix: Fix, whole: Shown, mutant: Shown) -> CaseResult:
    """``whole``: the tests with every mend in; ``mutant``: without this one, where nothing is
    expected to fail."""
    figures: dict[str, Figure] = {"defects": ", ".join(fix.defects), "vllm": which()}
    if mutant.problem:
        # A mutant that hangs or ends the process is noticed, but by no test that names it.
        return CaseResult(fix.name, Outcome.FAILED, mutant.problem, figures)
    fell = sorted(test for test in mutant.broken if test in whole.passed)
    named = [test for test in fell if any(_is(test, name) for name in fix.tests)]
    figures |= {"failing": len(fell), "named": len(named)}
    if named:
        figures["first"] = some(named, 1)
        return CaseResult(fix.name, Outcome.PASSED, "", figures)
    reason = "no test fails without it"
    if fell:
        reason = f"only tests fail that are not named with it: {some(fell)}"
    return CaseResult(fix.name, Outcome.FAILED, reason, figures)


def _is(test: str, named: str) -> bool:
    """Whether pytest's identifier is the named ``file.py::Class::test``, any parameters."""
    file, _, rest = named.partition("::")
    parts = [file.removesuffix(".py"), *rest.split("::")]
    name = parts.pop()
    place, _, found = test.rpartition("::")
    return found.partition("[")[0] == name and f".{place}".endswith(f".{'.'.join(parts)}")
