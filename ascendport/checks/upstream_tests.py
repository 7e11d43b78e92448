"""upstream-tests: the checkout's own tests, before and after; what passed still passes.

Those of the store here, those of kernels in `kernel_tests`.
"""

from __future__ import annotations

from ascendport.checks import kernel_tests
from ascendport.checks.outcome import CaseResult, CheckResult, Figure, Outcome
from ascendport.checks.subject import Subject
from ascendport.harness.pytest_child import Outcomes
from ascendport.ports.manifest import Kind
from ascendport.store.upstream import TESTS, missing, running, which

NAME = "upstream-tests"
SUMMARY = "the checkout's own tests pass after as they did before"


def run(subject: Subject) -> CheckResult:
    """One case a test file. Not run where the checkout has no tests or pytest is not there."""
    if subject.port.kind is Kind.KERNEL:
        return kernel_tests.run(subject)
    root = subject.checkout.root
    reason = missing(root)
    if reason:
        return CheckResult.not_run(NAME, reason)
    timeout_s = subject.options.timeout_s
    subject.progress(NAME, 0, 2)
    with (
        running(root, subject.before, timeout_s) as old,
        running(root, subject.after, timeout_s) as new,
    ):
        before = old.outcomes()
        subject.progress(NAME, 1, 2)
        after = new.outcomes()
        subject.progress(NAME, 2, 2)
    return judge(before, after)


def judge(before: Outcomes, after: Outcomes) -> CheckResult:
    """Failed where a test that passed before does not pass after. What fails before and after
    fails for want of vllm, or for itself; its number is a figure."""
    if before.problem:
        return CheckResult.not_run(NAME, f"before: {before.problem}")
    if after.problem:
        return CheckResult(NAME, Outcome.FAILED, f"after: {after.problem}")
    if not before.passed():
        return CheckResult.not_run(NAME, f"no test passes before, with {which()}")
    files = sorted({_file(name) for name in (*before.tests, *after.tests)})
    cases = tuple(_case(file, before, after) for file in files)
    result = CheckResult.of(NAME, cases)
    if result.outcome is Outcome.PASSED:
        broken = sum(outcome in ("failed", "error") for outcome in before.tests.values())
        said = f"{len(after.passed())} tests pass, with {which()}"
        if broken:
            said += f"; {broken} fail before as after"
        return CheckResult(NAME, Outcome.PASSED, said, cases)
    return result


def _file(name: str) -> str:
    """The test file of an identifier, without its folder."""
    known = TESTS.replace("/", ".") + "."
    rest = name.removeprefix(known) if name.startswith(known) else name.lstrip(":")
    return rest.partition("::")[0].partition(".")[0] or rest


def _case(file: str, before: Outcomes, after: Outcomes) -> CaseResult:
    old = {name for name in before.passed() if _file(name) == file}
    new = {name for name in after.passed() if _file(name) == file}
    broken = [
        name
        for name, outcome in before.tests.items()
        if _file(name) == file and outcome in ("failed", "error")
    ]
    figures: dict[str, Figure] = {
        "passed_before": len(old),
        "passed_after": len(new),
        "failed_before": len(broken),
        "vllm": which(),
    }
    lost = sorted(old - new)
    if lost:
        reason = f"{len(lost)} tests that passed do not pass, first {lost[0].rpartition('::')[2]}"
        return CaseResult(file, Outcome.FAILED, reason, figures)
    if not new:
        return CaseResult(file, Outcome.NOT_RUN, "no test of it passes before", figures)
    return CaseResult(file, Outcome.PASSED, "", figures)
