"""compile: what the Ascend compiler makes of the kernels, before and after, for each SoC.

The launches are those that the port's own launcher makes (recorded, not written down twice), so
signature, constants and options are what serving would compile. Before and after are lowered in a
child process each: the compiler's front end can abort, and executes the tree's code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from ascendport.ascend import soc as socs
from ascendport.ascend import toolchain
from ascendport.ascend.facts import ProgramFacts, Total
from ascendport.checks.compiled import Compiled, Grid, Side, compile_side
from ascendport.checks.outcome import CaseResult, CheckResult, Figure, Outcome
from ascendport.checks.subject import Subject
from ascendport.harness.children import Children, Failure

NAME = "compile"
SUMMARY = "the Ascend compiler takes it for each SoC and dtype, within the Unified Buffer"

MOST_PROGRAMS = 65535
"""The runtime refuses a launch with more programs (vllm-ascend issue 10138)."""


def run(subject: Subject) -> CheckResult:
    """Compiles what serving would launch, and counts what the programs hold."""
    if reason := toolchain.missing():
        return CheckResult.not_run(NAME, reason)
    names = subject.options.socs or socs.DEFAULTS
    for name in names:
        socs.soc(name)
    sides = compile_sides(subject, tuple(names))
    before, after = sides["before"], sides["after"]
    if isinstance(after, str):
        return CheckResult(NAME, Outcome.FAILED, f"after: {after}")
    if after.canary:
        return CheckResult(NAME, Outcome.FAILED, f"canary kernels: {after.canary}")
    if after.unavailable:
        return CheckResult.not_run(NAME, after.unavailable)
    result = CheckResult.of(NAME, (*_program_cases(before, after), _grid_case(after)))
    told = _grids(before, after)
    return replace(result, reason=f"{result.reason}; {told}" if result.reason else told)


def compile_sides(subject: Subject, names: tuple[str, ...]) -> Mapping[str, Side | str]:
    """Both sides, each in a process of its own: one that is stopped must not take the other's
    work with it. A side that gave nothing is a reason instead."""
    subject.progress("compile", 0, 2)
    results: dict[str, Side | str] = {}
    with Children(1) as before, Children(1) as after:
        started = {
            side: (children, children.submit(compile_side, subject.for_child(), side, names))
            for side, children in (("before", before), ("after", after))
        }
        for side, (children, future) in started.items():
            result = children.result(future, subject.options.timeout_s)
            results[side] = result.reason if isinstance(result, Failure) else result
            subject.progress("compile", len(results), 2)
    return results


def _program_cases(before: Side | str, after: Side) -> Iterator[CaseResult]:
    old = {} if isinstance(before, str) else {(c.case, c.soc): c for c in before.compiled}
    for compiled in after.compiled:
        name = f"{compiled.case} {compiled.soc}"
        was = old.get((compiled.case, compiled.soc))
        figures = _figures(was, compiled, before)
        if compiled.refusals and not compiled.verdict:
            yield CaseResult(name, Outcome.NOT_RUN, compiled.refusals[0], figures)
        elif compiled.refusals:
            yield CaseResult(name, Outcome.FAILED, compiled.refusals[0], figures)
        else:
            yield CaseResult(name, Outcome.PASSED, "", figures)


def _figures(was: Compiled | None, now: Compiled, before: Side | str) -> dict[str, Figure]:
    """Each figure as «before → after», so that one row of a table tells both."""
    if was is None:
        verdict = before if isinstance(before, str) else "no such launch"
    else:
        verdict = "; ".join(was.refusals) or "ok"
    figures: dict[str, Figure] = {"before": verdict}
    for title, text in _COLUMNS.items():
        old = text(was.programs) if was and was.programs else "–"
        new = text(now.programs) if now.programs else "–"
        figures[title] = new if old == new else f"{old} → {new}"
    if now.notes:
        # The compiler tells each attempt; the last line is what it ended with.
        figures["compiler note"] = now.notes[-1]
    return figures


def _ub(programs: tuple[ProgramFacts, ...]) -> str:
    """The fullest program's peak in KiB of the buffer's capacity."""
    fullest = max(programs, key=lambda p: p.ub_peak_bytes)
    return f"{fullest.ub_peak_bytes / 1024:.0f}/{fullest.ub_capacity_bytes / 1024:.0f}"


def _loops(programs: tuple[ProgramFacts, ...]) -> str:
    loops = [loop for p in programs for loop in p.scalar_loops]
    trips = [str(loop.trips) if loop.trips is not None else "?" for loop in loops]
    return f"{len(loops)} ({', '.join(trips)})" if loops else "0"


def _moved(totals: list[Total]) -> str:
    """Bytes of one program; «≈» where a size or trip count is not constant."""
    moved = sum(total.bytes for total in totals)
    return str(moved) if all(total.exact for total in totals) else f"≈ {moved}"


_COLUMNS: Mapping[str, Callable[[tuple[ProgramFacts, ...]], str]] = {
    "UB KiB": _ub,
    "scalar loops": _loops,
    "locks": lambda programs: str(sum(p.locks for p in programs)),
    "stray stores": lambda programs: str(sum(len(p.tile_rewrites) for p in programs)),
    "vector calls": lambda programs: str(sum(sum(p.vector_calls.values()) for p in programs)),
    "GM in, B": lambda programs: _moved([p.bytes_in for p in programs]),
    "GM out, B": lambda programs: _moved([p.bytes_out for p in programs]),
}
"""Columns of the table. UB: peak/capacity. Scalar loops: how many, and their trips. Stray stores:
of whole tiles that were loaded and selected, so of lanes that the mask excludes. GM bytes are
those of one program; see `ascend.facts.total`."""


def _grid_case(after: Side) -> CaseResult:
    """Every grid that was looked at fits the runtime."""
    grid = after.grids
    if grid.largest > MOST_PROGRAMS:
        reason = f"{grid.largest} programs in the grid of {grid.case}; at most {MOST_PROGRAMS}"
        return CaseResult("grids", Outcome.FAILED, reason)
    return CaseResult("grids", Outcome.PASSED)


def _grids(before: Side | str, after: Side) -> str:
    """The largest grid, and how many programs serving must compile, before and after."""
    old = before.grids if isinstance(before, Side) else Grid()
    new = after.grids
    return (
        f"largest grid {old.largest} → {new.largest}, "
        f"programs to compile {old.programs} → {new.programs}"
    )
