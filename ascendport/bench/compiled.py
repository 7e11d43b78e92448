"""Bench rows that the compiler gives: no device, no clock, no model."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ascendport.ascend import soc as socs
from ascendport.ascend import toolchain
from ascendport.ascend.facts import ProgramFacts
from ascendport.bench.rows import Row, Source, not_run
from ascendport.checks.compile import compile_sides
from ascendport.checks.compiled import Compiled, Side
from ascendport.checks.subject import Subject

Quantity = Callable[[ProgramFacts], float | int]


def _ub_peak(program: ProgramFacts) -> float:
    return program.ub_peak_bytes / 1024


QUANTITIES: tuple[tuple[str, str, Quantity], ...] = (
    ("UB peak", "KiB", _ub_peak),
    ("scalar iterations", "1", lambda program: program.scalar_iterations),
    ("locks", "1", lambda program: program.locks),
    ("stray stores", "1", lambda program: len(program.tile_rewrites)),
)
"""What the compiler tells, less is better. Scalar iterations are those of one program, in loops
that stand where vector code should; a loop of unknown length counts once."""


def rows(subject: Subject) -> Iterator[Row]:
    """The compiler's figures, before and after, for each SoC and case tagged ``compile``."""
    names = tuple(subject.options.socs or socs.DEFAULTS)
    if reason := toolchain.missing():
        yield not_run(subject.port.name, reason, target=", ".join(names))
        return
    sides = compile_sides(subject, names)
    before, after = sides["before"], sides["after"]
    for side in (before, after):
        reason = side if isinstance(side, str) else side.canary or side.unavailable
        if reason:
            yield not_run(subject.port.name, reason, target=", ".join(names))
            return
    assert isinstance(before, Side) and isinstance(after, Side)
    old = {(found.case, found.soc): found for found in before.compiled}
    for found in after.compiled:
        yield from _case_rows(subject, old.get((found.case, found.soc)), found)


def _case_rows(subject: Subject, was: Compiled | None, now: Compiled) -> Iterator[Row]:
    if not now.programs:
        reason = "; ".join(now.refusals) or "the case launches nothing"
        yield not_run(subject.port.name, reason, case=now.case, target=now.soc)
        return
    refused = "; ".join(was.refusals) if was else "no such launch"
    for quantity, unit, read in QUANTITIES:
        yield Row(
            subject.port.name,
            now.case,
            now.soc,
            quantity,
            unit,
            Source.COMPILED,
            before=_total(was, quantity, read),
            after=_total(now, quantity, read),
            reason=f"before: {refused}" if refused else "",
        )


def _total(found: Compiled | None, quantity: str, read: Quantity) -> float | int | None:
    """Over the kernels of a case: the fullest buffer, and the sum of what is counted."""
    if found is None or not found.programs:
        return None
    values = [read(program) for program in found.programs]
    return max(values) if quantity == "UB peak" else sum(values)
