"""simulate: the compiled programs, run on the simulator, give the reference's values cleanly.

Clean: no access outside a tensor, no undefined value used, no hazard between pipes, no conflict
between programs. A2 and A3 only: A5 programs are compiled, not simulated.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, TimeoutError
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from multiprocessing import get_context

from ascendport.ascend import soc as socs
from ascendport.ascend import toolchain
from ascendport.checks.outcome import CaseResult, CheckResult, Figure, Outcome
from ascendport.checks.simulated import Prepared, Simulated, prepare, simulate
from ascendport.checks.subject import Subject
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
    plain = replace(subject, progress=_nothing)
    sides = prepared_sides(plain, wanted, parts)
    after = sides["after"]
    if isinstance(after, str):
        return CheckResult.not_run(NAME, after)
    jobs = [("after", one) for one in after]
    before = sides["before"]
    if not isinstance(before, str):
        jobs += [("before", one) for one in before]
    results = _simulated(subject, plain, jobs)
    found: list[CaseResult] = []
    for case in cases:
        if case.name in skipped:
            found.append(CaseResult(case.name, Outcome.NOT_RUN, skipped[case.name]))
            continue
        for part in parts:
            old = results.get(("before", case.name, parts[0]), before)
            found.append(_verdict(results["after", case.name, part], old))
    return CheckResult.of(NAME, tuple(found))


def _nothing(message: str, done: int, total: int) -> None:
    """Progress stays in the parent: a callback cannot travel to a child."""


def prepared_sides(
    plain: Subject, wanted: list[str], parts: tuple[str, ...]
) -> dict[str, list[Prepared] | str]:
    """Launches and programs of both sides, each from a process of its own."""
    sides: dict[str, list[Prepared] | str] = {}
    pools = {
        side: ProcessPoolExecutor(1, mp_context=get_context("spawn"))
        for side in ("before", "after")
    }
    futures = {
        side: pool.submit(
            prepare,
            plain,
            side,
            [(name, parts if side == "after" else parts[:1]) for name in wanted],
        )
        for side, pool in pools.items()
    }
    for side, future in futures.items():
        try:
            sides[side] = future.result(plain.options.timeout_s)
        except TimeoutError:
            sides[side] = f"{side}: no answer in {plain.options.timeout_s:g} s"
        except BrokenProcessPool:
            sides[side] = f"{side}: the child process died while it compiled"
        except (Exception, SystemExit) as error:  # whatever the tree's own code raised
            sides[side] = f"{side}: {type(error).__name__}: {error}"
        stop(pools[side])
    return sides


def stop(pool: ProcessPoolExecutor) -> None:
    for process in list((pool._processes or {}).values()):
        process.kill()
    pool.shutdown(wait=True, cancel_futures=True)


Key = tuple[str, str, str]


def _simulated(
    subject: Subject, plain: Subject, jobs: list[tuple[str, Prepared]]
) -> dict[Key, Simulated]:
    """Every job's result by (side, case, SoC); two processes share the work."""
    results: dict[Key, Simulated] = {}
    pool = ProcessPoolExecutor(2, mp_context=get_context("spawn"))
    try:
        futures = [(side, one, pool.submit(simulate, plain, one)) for side, one in jobs]
        for side, one, future in futures:
            try:
                result = future.result(plain.options.timeout_s)
            except TimeoutError:
                reason = f"no answer in {plain.options.timeout_s:g} s"
                result = Simulated(one.case.name, one.soc, False, reason)
            except BrokenProcessPool:
                result = Simulated(one.case.name, one.soc, False, "the simulator's process died")
            except Exception as error:
                reason = f"{type(error).__name__}: {error}"
                result = Simulated(one.case.name, one.soc, False, reason)
            results[side, one.case.name, one.soc] = result
            subject.progress(NAME, len(results), len(jobs))
    finally:
        stop(pool)
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
