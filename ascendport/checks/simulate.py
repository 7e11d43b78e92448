"""simulate: the compiled programs, run on the simulator, give the reference's values cleanly.

Clean: no access outside a tensor, no undefined value used, no hazard between pipes, no conflict
between programs. A2 and A3 only: A5 programs are compiled, not simulated.
"""

from __future__ import annotations

from collections.abc import Iterator

from ascendport.ascend import soc as socs
from ascendport.ascend import toolchain
from ascendport.checks.outcome import CaseResult, CheckResult, Figure, Outcome
from ascendport.checks.simulated import Prepared, Simulated, prepare, simulate
from ascendport.checks.subject import Subject
from ascendport.harness.children import Children, Failure
from ascendport.harness.portcode import load_port

NAME = "simulate"
SUMMARY = "the compiled programs give the reference's values, without memory errors or hazards"


def run(subject: Subject) -> CheckResult:
    """Every case on each A2 and A3 SoC asked for; before only on the first, as a figure."""
    if reason := toolchain.missing():
        return CheckResult.not_run(NAME, reason)
    names = subject.options.socs or socs.DEFAULTS
    parts = tuple(n for n in names if socs.soc(n).family is not socs.Family.A5)
    if not parts:
        return CheckResult.not_run(NAME, "A5 programs are compiled, not simulated")
    cases = load_port(subject.port).of(subject.variant.name, subject.options.cases)
    skipped = {
        case.name: reason
        for case in cases
        if (reason := subject.options.left_out(case.name, case.tags))
    }
    wanted = [case.name for case in cases if case.name not in skipped]
    sides = prepared_sides(subject, wanted, parts)
    after = sides["after"]
    if isinstance(after, str):
        return CheckResult.not_run(NAME, after)
    jobs = [("after", one) for one in after]
    before = sides["before"]
    if not isinstance(before, str):
        jobs += [("before", one) for one in before]
    results = _simulated(subject, jobs)
    found: list[CaseResult] = []
    for case in cases:
        if case.name in skipped:
            found.append(CaseResult(case.name, Outcome.NOT_RUN, skipped[case.name]))
            continue
        for part in parts:
            old = results.get(("before", case.name, parts[0]), before)
            found.append(_verdict(results["after", case.name, part], old))
    return CheckResult.of(NAME, tuple(found))


def prepared_sides(
    subject: Subject, wanted: list[str], parts: tuple[str, ...]
) -> dict[str, list[Prepared] | str]:
    """Launches and programs of the named cases: after for all of ``parts``, before for the first.
    Each side comes from a process of its own; one that gave nothing is a reason instead."""
    sides: dict[str, list[Prepared] | str] = {}
    with Children(1) as before, Children(1) as after:
        started = {
            side: (children, children.submit(prepare, subject.for_child(), side, cases))
            for side, children, cases in (
                ("before", before, [(name, parts[:1]) for name in wanted]),
                ("after", after, [(name, parts) for name in wanted]),
            )
        }
        for side, (children, future) in started.items():
            result = children.result(future, subject.options.timeout_s)
            sides[side] = f"{side}: {result.reason}" if isinstance(result, Failure) else result
    return sides


Key = tuple[str, str, str]


def _simulated(subject: Subject, jobs: list[tuple[str, Prepared]]) -> dict[Key, Simulated]:
    """Every job's result by (side, case, SoC); two processes share the work."""
    results: dict[Key, Simulated] = {}
    with Children(2) as children:
        started = [
            (side, one, children.submit(simulate, subject.for_child(), one)) for side, one in jobs
        ]
        for side, one, future in started:
            result = children.result(future, subject.options.timeout_s)
            if isinstance(result, Failure):
                result = Simulated(one.case.name, one.soc, False, result.reason)
            results[side, one.case.name, one.soc] = result
            subject.progress(NAME, len(results), len(jobs))
    return results


def _verdict(after: Simulated, before: Simulated | list[Prepared] | str) -> CaseResult:
    name = f"{after.case} {after.soc}"
    figures: dict[str, Figure] = dict(_figures(after, before))
    if not after.ran and not after.verdict:
        return CaseResult(name, Outcome.NOT_RUN, after.problem, figures)
    outcome = Outcome.FAILED if after.problem else Outcome.PASSED
    return CaseResult(name, outcome, after.problem, figures)


def _in_words(before: Simulated) -> str:
    """What before does, in a few words; the whole of a finding is told of after only."""
    if not before.ran:
        return before.problem
    said = [*before.kinds, *(["wrong values"] if before.wrong else [])]
    return ", ".join(said) or "same, clean"


def _figures(
    after: Simulated, before: Simulated | list[Prepared] | str
) -> Iterator[tuple[str, Figure]]:
    if isinstance(before, Simulated):
        yield "findings", f"{before.findings} → {after.findings}"
        yield "MB read", f"{before.bytes_read / 1e6:.3g} → {after.bytes_read / 1e6:.3g}"
        yield "MB written", f"{before.bytes_written / 1e6:.3g} → {after.bytes_written / 1e6:.3g}"
        yield "before", _in_words(before)
    else:
        yield "findings", str(after.findings)
        yield "before", before if isinstance(before, str) else "not run"
