"""upstream-tests for kernel ports: the checkout's own tests of what a port replaces, before and
after, under Triton's interpreter; what passed still passes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace

from ascendport.checks.outcome import CaseResult, CheckResult, Figure, Outcome
from ascendport.checks.subject import Subject
from ascendport.harness.interpret import MODULES, missing_modules
from ascendport.harness.portcode import load_port
from ascendport.harness.pytest_child import Outcomes
from ascendport.harness.upstream import LIMIT_S, STANDS_IN, TOO_LONG, files_testing, start
from ascendport.harness.workspace import workspace

NAME = "upstream-tests"


def run(subject: Subject) -> CheckResult:
    """One case a test file. Not run where the checkout has no test that imports a symbol that the
    port replaces, or none passes before."""
    missing = missing_modules((*MODULES, "pytest"))
    if missing:
        return CheckResult.not_run(
            NAME, f"needs {', '.join(missing)}; pip install 'ascendport[ascend]' pytest"
        )
    code = load_port(subject.port)
    if code.interpreter:
        return CheckResult.not_run(NAME, code.interpreter)
    wanted = {target.file: frozenset(target.symbols) for target in subject.variant.targets}
    tests = files_testing(subject.checkout.root, wanted)
    if not tests:
        return CheckResult.nothing(NAME, "the checkout has no test of what the port replaces")
    subject.progress(NAME, 0, 2)
    with ExitStack() as stack:
        places = stack.enter_context(
            workspace(subject.checkout.root, subject.before, subject.after)
        )
        running = {}
        limit_s = subject.options.timeout_s * len(tests)
        for side, tree in (("before", places.before), ("after", places.after)):
            scratch = places.scratch / side
            scratch.mkdir()
            running[side] = start(tree, tests, scratch, limit_s)
            stack.callback(running[side].stop)
        before = running["before"].outcomes()
        subject.progress(NAME, 1, 2)
        after = running["after"].outcomes()
        subject.progress(NAME, 2, 2)
    return judge(before, after, code.contested)


def judge(before: Outcomes, after: Outcomes, contested: Mapping[str, str]) -> CheckResult:
    """Failed where a test that passed before does not pass after, unless the port contests it,
    and where one that it contests passes.

    ``contested``: test function → why what it expects is not what it should.
    """
    if before.problem:
        return CheckResult.not_run(NAME, f"before: {before.problem}")
    if after.problem:
        return CheckResult(NAME, Outcome.FAILED, f"after: {after.problem}")
    before = _without_slow(before, after)
    files = sorted({_file(name) for name in (*before.tests, *after.tests)})
    cases = tuple(_case(file, before, after, contested) for file in files)
    result = CheckResult.of(NAME, cases)
    if result.outcome is Outcome.FAILED:
        return result
    if not before.passed():
        return CheckResult(NAME, Outcome.NOT_RUN, f"no test passes before, with {STANDS_IN}", cases)
    said = [f"{len(after.passed())} tests pass, with {STANDS_IN}"]
    gained = len(after.passed() - before.passed())
    if gained:
        said.append(f"{gained} of them fail before")
    neither = before.tests.keys() - before.passed() - after.passed()
    broken = sum(before.tests[name] in ("failed", "error") for name in neither)
    if broken:
        said.append(f"{broken} fail before as after")
    if len(neither) > broken:
        reasons = sorted({before.why.get(name, "") for name in neither})
        said.append(f"{len(neither) - broken} are skipped: {'; '.join(filter(None, reasons))}")
    for function, reason in contested.items():
        number = sum(_function(name) == function for name in _lost(before, after))
        if number:
            said.append(f"{number} of {function} pass before and fail after, contested: {reason}")
    outcome = Outcome.PASSED if after.passed() else Outcome.NOT_RUN
    return CheckResult(NAME, outcome, "; ".join(said), cases)


def _without_slow(before: Outcomes, after: Outcomes) -> Outcomes:
    """What took long before, and too long after, counts as skipped on both sides: how long a test
    takes under the interpreter says nothing of the kernel. What was quick before may not hang."""
    slow = {
        name
        for name in before.passed() - after.passed()
        if after.why.get(name) == TOO_LONG and before.seconds.get(name, 0) > LIMIT_S / 4
    }
    tests = {name: "skipped" if name in slow else how for name, how in before.tests.items()}
    return replace(before, tests=tests, why={**before.why, **dict.fromkeys(slow, TOO_LONG)})


def _file(name: str) -> str:
    """The test file of an identifier, without its folder: of pytest's module.Class::function."""
    dotted = name.partition("::")[0].split(".")
    return next((part for part in reversed(dotted) if part.startswith("test_")), dotted[-1])


def _function(name: str) -> str:
    return name.rpartition("::")[2].partition("[")[0]


def _lost(before: Outcomes, after: Outcomes) -> Iterator[str]:
    yield from sorted(before.passed() - after.passed())


def _case(file: str, before: Outcomes, after: Outcomes, contested: Mapping[str, str]) -> CaseResult:
    def mine(names: frozenset[str]) -> frozenset[str]:
        return frozenset(name for name in names if _file(name) == file)

    old, new = mine(before.passed()), mine(after.passed())
    lost = [name for name in sorted(old - new) if _function(name) not in contested]
    stale = [name for name in sorted(new) if _function(name) in contested]
    disputed = sum(_function(name) in contested for name in old - new)
    figures: dict[str, Figure] = {
        "passed_before": len(old),
        "passed_after": len(new),
        "failed_before": len(mine(frozenset(before.tests)) - old),
        "contested": disputed,
    }
    if lost:
        why = after.why.get(lost[0], "it is not there")
        reason = f"{len(lost)} tests that passed do not pass, first {_short(lost[0])}: {why}"
        return CaseResult(file, Outcome.FAILED, reason, figures)
    if stale:
        reason = f"{_short(stale[0])} is contested by the port, and passes: take it out"
        return CaseResult(file, Outcome.FAILED, reason, figures)
    if not new:
        first = next(iter(mine(frozenset(before.why))), "")
        why = "contested" if disputed else f"no test of it passes before: {before.why.get(first)}"
        return CaseResult(file, Outcome.NOT_RUN, why, figures)
    return CaseResult(file, Outcome.PASSED, "", figures)


def _short(name: str) -> str:
    return name.rpartition("::")[2]
