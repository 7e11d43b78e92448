"""failures: each defect shows in a test on the tree as it was, and in none where it is mended."""

from __future__ import annotations

from ascendport.checks.outcome import CaseResult, CheckResult, Figure, Outcome
from ascendport.checks.subject import Subject
from ascendport.store.failures import Shown, short, shown, some, tests_of
from ascendport.store.upstream import missing, which

NAME = "failures"
SUMMARY = "each defect of the store shows in a test on the tree as it was, and in none when mended"

REST = "tests of what is right"


def run(subject: Subject) -> CheckResult:
    """One case a defect, and one for all tests that no defect is named in.

    A port that brings the tests passes where each test of a defect is expected to fail, and does;
    a port that mends passes where those same tests pass with it. Not run where the checkout has no
    tests of its own or pytest is not there.
    """
    root = subject.checkout.root
    reason = missing(root)
    if reason:
        return CheckResult.not_run(NAME, reason)
    tests = tests_of(subject)
    timeout_s = subject.options.timeout_s
    subject.progress(NAME, 0, 3)
    before = shown(root, subject.before, tests, timeout_s)
    subject.progress(NAME, 1, 3)
    raw = shown(root, subject.before, tests, timeout_s, raw=True)
    subject.progress(NAME, 2, 3)
    after = before
    if subject.port.manifest.tests:
        after = shown(root, subject.after, tests, timeout_s)
    subject.progress(NAME, 3, 3)
    return judge(before, raw, after, mends=bool(subject.port.manifest.tests))


def judge(before: Shown, raw: Shown, after: Shown, *, mends: bool) -> CheckResult:
    """``before``: the tests on the pristine tree; ``raw``: the same, where nothing is expected to
    fail; ``after``: on the tree with the port in it."""
    for side, one in (("before", before), ("with --runxfail", raw), ("after", after)):
        if one.problem:
            return CheckResult(NAME, Outcome.FAILED, f"{side}: {one.problem}")
    defects = before.defects()
    cases = [_defect(name, names, raw, after, mends=mends) for name, names in defects.items()]
    cases.append(_rest(before, after))
    result = CheckResult.of(NAME, tuple(cases))
    if result.outcome is not Outcome.PASSED:
        return result
    count = f"{sum(map(len, defects.values()))} tests show {len(defects)} defects"
    end = "all gone with the port" if mends else "each expected to fail, and each does"
    said = f"{count} before, {end}; with {which()}"
    return CheckResult(NAME, Outcome.PASSED, said, result.cases)


def _defect(name: str, tests: list[str], raw: Shown, after: Shown, *, mends: bool) -> CaseResult:
    red = [test for test in tests if test in raw.broken]
    figures: dict[str, Figure] = {"tests": len(tests), "red_before": len(red)}
    case = f"defect {name}"
    if missed := [test for test in tests if test not in raw.broken]:
        reason = f"expected to fail, but with --runxfail nothing is wrong with {some(missed)}"
        return CaseResult(case, Outcome.FAILED, reason, figures)
    figures["shown_by"] = some(tests)
    if not mends:
        return CaseResult(case, Outcome.PASSED, "", figures)
    green = [test for test in tests if test in after.passed]
    figures["green_after"] = len(green)
    if left := [test for test in tests if test not in after.passed]:
        state = "is still expected to fail" if left[0] in after.expected else "does not pass"
        why = after.broken.get(left[0]) or after.skipped.get(left[0], "")
        reason = f"{short(left[0])} {state}{f': {why}' if why else ''}"
        return CaseResult(case, Outcome.FAILED, reason, figures)
    return CaseResult(case, Outcome.PASSED, "", figures)


def _rest(before: Shown, after: Shown) -> CaseResult:
    figures: dict[str, Figure] = {
        "passed_before": len(before.passed),
        "passed_after": len(after.passed),
        "skipped_after": len(after.skipped),
    }
    for side, one in (("before", before), ("after", after)):
        if one.broken:
            test, why = min(one.broken.items())
            more = f" (and {len(one.broken) - 1} more)" if len(one.broken) > 1 else ""
            reason = f"{side}: {short(test)}: {why}{more}"
            return CaseResult(REST, Outcome.FAILED, reason, figures)
    if lost := sorted(before.passed - after.passed):
        reason = f"passed before, and not after: {some(lost)}"
        return CaseResult(REST, Outcome.FAILED, reason, figures)
    if new := sorted(set(after.expected) - set(before.expected)):
        reason = f"expected to fail only after: {some(new)}"
        return CaseResult(REST, Outcome.FAILED, reason, figures)
    if not after.passed:
        return CaseResult(REST, Outcome.FAILED, "no test passes", figures)
    return CaseResult(REST, Outcome.PASSED, "", figures)
