"""One launch explained: run once, for what it does wrong and for its time."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from math import ceil, prod

import numpy as np

from ascendport.ascend.facts import ProgramFacts
from ascendport.ascend.soc import Soc
from ascendport.explain.hints import hints
from ascendport.explain.lines import (
    by_line,
    hot_lines,
    scalar_loops,
    slow_calls,
    transfers,
    work_of,
)
from ascendport.explain.model import (
    Found,
    Latency,
    LaunchFacts,
    LockUse,
    PipeUse,
    Place,
    UbUse,
)
from ascendport.explain.sources import Sources
from ascendport.harness.launches import Launch
from ascendport.simulator import Kind, Location, Result, Simulator
from ascendport.simulator.launch import Argument
from ascendport.simulator.layout import Pipe
from ascendport.timing.explain import events, last_core, longest, stalls, traced, ub_use
from ascendport.timing.launch import Modelled, Run, fits_l2, launch_time, sample
from ascendport.timing.pipes import Span

STRETCHES = 60
"""Of the curve of UB use."""


def explain_launch(
    launch: Launch,
    static: ProgramFacts,
    simulator: Simulator,
    arguments: list[Argument],
    names: list[str],
    soc: Soc,
    sources: Sources,
    *,
    detail: bool = True,
    trace: bool = False,
) -> LaunchFacts:
    """Runs all programs of a launch, in place, and tells what they did.

    Args:
        launch: as recorded.
        static: what its program shows without running.
        simulator: that of the program.
        arguments: in order; arrays are worked on in place.
        names: of the arguments.
        soc: the part that it was compiled for.
        sources: of the side that is run.
        detail: else findings and latency only.
        trace: keep events for a trace.
    """
    programs = prod(launch.grid)
    resident = fits_l2(arguments, soc)
    wanted = sample(programs)
    # A lock that is never free is a finding; the time is that of a launch that gets past it.
    result = simulator.run(arguments, launch.grid, names=names, trace=wanted, past_locks=True)
    facts = LaunchFacts(
        kernel=launch.kernel,
        file=launch.file,
        grid=launch.grid,
        programs=programs,
        cores_used=min(programs, soc.vector_cores),
        waves=0,
        sampled=len(result.traces),
        kinds=0,
        bytes_read=result.counters.bytes_read,
        bytes_written=result.counters.bytes_written,
        tensor_bytes=sum(item.nbytes for item in arguments if isinstance(item, np.ndarray)),
        resident=resident,
        findings=_findings(result, sources),
        stuck=bool(result.of(Kind.LOCK)),
        note=launch.note,
        problem=result.stopped,
    )
    if result.stopped:
        return facts
    modelled = launch_time(result.traces, programs, soc, resident=resident, spans=detail or trace)
    facts = replace(
        facts,
        waves=modelled.waves,
        kinds=modelled.classes,
        latency=_latency(modelled),
        assumed=modelled.assumed,
    )
    if trace:
        facts = replace(facts, events=_events(launch, modelled, sources))
    one = longest(modelled)
    if not detail or one is None:
        return facts
    operations = result.traces[traced(modelled, one)].operations()
    walks = {loop.line for loop in static.scalar_loops if loop.line is not None}
    work = work_of(operations, simulator.program, walks, sources)
    lines = by_line(modelled, sources)
    loops = scalar_loops(work, lines)
    vectorised = (
        launch_time(result.traces, programs, soc, resident=resident, vector_loops=True)
        if any(not loop.written for loop in loops)
        else None
    )
    spans = modelled.schedules[one.kind].spans
    facts = replace(
        facts,
        pipes=_pipes(modelled),
        hot_lines=hot_lines(lines, work, modelled.us),
        scalar_loops=loops,
        slow_calls=slow_calls(work, lines),
        transfers=transfers(work, lines),
        locks=_locks(modelled, one, sources),
        ub=_ub(spans, modelled.mhz, static.ub_peak_bytes, simulator.program.ub_bytes),
        vector_us=vectorised.us if vectorised else None,
    )
    return replace(facts, hints=hints(facts, soc, (work.vector_calls, work.vector_bytes)))


def _findings(result: Result, sources: Sources) -> tuple[Found, ...]:
    return tuple(
        Found(
            str(finding.kind),
            sources.place(finding.location),
            finding.message,
            finding.operation,
            finding.program,
            finding.other_program,
            finding.times,
        )
        for finding in result.findings
    )


def _locks(modelled: Modelled, run: Run, sources: Sources) -> tuple[LockUse, ...]:
    """One for each line that takes a lock, as often as the longest program does."""
    held: defaultdict[Place | None, float] = defaultdict(float)
    waited: defaultdict[Place | None, float] = defaultdict(float)
    for one in modelled.schedules[run.kind].locks:
        held[sources.place(one.location)] += (one.given - one.taken) / modelled.mhz
    for each in last_core(modelled):
        for one, wait in zip(modelled.schedules[each.kind].locks, each.waits, strict=True):
            waited[sources.place(one.location)] += wait
    return tuple(LockUse(place, us, waited[place]) for place, us in held.items())


def _latency(modelled: Modelled) -> Latency:
    return Latency(
        modelled.us,
        modelled.low,
        modelled.high,
        modelled.error,
        modelled.bound,
        tuple((cause, us) for cause, us in modelled.causes.items() if us > 0),
    )


def _pipes(modelled: Modelled) -> tuple[PipeUse, ...]:
    waits = stalls(modelled)
    return tuple(
        PipeUse(
            pipe.name,
            round(modelled.by_pipe[pipe.name] * modelled.mhz),
            modelled.by_pipe[pipe.name],
            tuple((why, us) for (name, why), us in waits.items() if name == pipe.name),
        )
        for pipe in Pipe
    )


def _events(launch: Launch, modelled: Modelled, sources: Sources) -> tuple[dict[str, object], ...]:
    def place(location: Location | None) -> str:
        return str(sources.place(location) or "")

    return events(modelled, name=launch.kernel, place=place)


def _ub(spans: list[Span], mhz: float, planned: int, capacity: int) -> UbUse:
    """The curve by its highest point in each of `STRETCHES` stretches of the program."""
    curve = ub_use(spans)
    peak = max((used for _, used in curve), default=0)
    end = max((span.end for span in spans), default=0.0)
    if not curve or end <= 0:
        return UbUse(peak, planned, capacity, ())
    most = [0] * STRETCHES
    ends = [*(cycle for cycle, _ in curve[1:]), end]
    for (start, used), stop in zip(curve, ends, strict=True):
        first = min(STRETCHES - 1, int(start / end * STRETCHES))
        last = min(STRETCHES, ceil(stop / end * STRETCHES)) - 1
        for stretch in range(first, last + 1):
            most[stretch] = max(most[stretch], used)
    step = end / STRETCHES / mhz
    return UbUse(peak, planned, capacity, tuple((n * step, used) for n, used in enumerate(most)))
