"""What a modelled launch looks like inside: a Perfetto trace, UB use over time, waiting pipes.

Traces and UB use need a `Modelled` that was made with ``spans=True``.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from ascendport.simulator.ir import Location
from ascendport.simulator.layout import BLOCK, Pipe
from ascendport.timing.launch import AGAIN, Modelled, Run
from ascendport.timing.pipes import Schedule, Span

Event = dict[str, Any]
"""An event of the Chrome trace format; times in us."""

_LAUNCHES = 1
"""Process of the lane that shows launches; cores follow. Perfetto keeps 0 for itself."""

_LANES = 10
"""Thread numbers of a process: no two processes share one."""

_PROGRAMS = 9
"""Lane of a core that shows its programs; pipes have their own numbers."""

_DIGITS = 4
"""Of a microsecond: less than a cycle."""


def last_core(modelled: Modelled) -> tuple[Run, ...]:
    """What ran on the core that ends last, in order: its time is the launch's."""
    if not modelled.runs:
        return ()
    last = max(modelled.runs, key=lambda run: run.end)
    return tuple(run for run in modelled.runs if run.core == last.core)


def longest(modelled: Modelled) -> Run | None:
    """The longest program of the core that ends last; None where nothing ran."""
    return max(last_core(modelled), key=lambda run: run.end - run.start, default=None)


def traced(modelled: Modelled, run: Run) -> int:
    """The program whose trace gave ``run`` its timing: the first of its kind."""
    kind = run.kind.removesuffix(AGAIN)
    return next(one.program for one in modelled.runs if one.kind.removesuffix(AGAIN) == kind)


def stalls(modelled: Modelled) -> dict[tuple[str, str], float]:
    """(pipe, what for) → us that it stood still on the core that ends last, largest first."""
    sums: defaultdict[tuple[str, str], float] = defaultdict(float)
    for run in last_core(modelled):
        for (pipe, why), cycles in modelled.schedules[run.kind].stalls.items():
            sums[pipe.name, why] += cycles / modelled.mhz
    return dict(sorted(sums.items(), key=lambda item: -item[1]))


# --- Perfetto ----------------------------------------------------------------------------------


def perfetto(modelled: Modelled, cores: int = 4) -> dict[str, Any]:
    """The launch in the Chrome trace format, which Perfetto opens: a lane a pipe a core.

    Args:
        modelled: a launch.
        cores: so many are drawn: the first ones, and the one that ends last.

    Returns:
        An object to write as JSON; times in us, modelled.
    """
    return document([(modelled.us, events(modelled, cores=cores))])


def events(
    modelled: Modelled,
    *,
    name: str = "launch",
    cores: int = 4,
    place: Callable[[Location | None], str] = lambda location: str(location or ""),
) -> tuple[Event, ...]:
    """The launch's events, from its start on; `document` makes a trace of them.

    Args:
        modelled: a launch.
        name: of the launch.
        cores: as in `perfetto`.
        place: how a source line is written.
    """
    found = [
        _span(
            _LAUNCHES,
            0,
            name,
            0.0,
            modelled.us,
            {"bound": modelled.bound, "programs": modelled.programs},
        )
    ]
    drawn = _drawn(modelled, cores)
    curves = {
        kind: ub_use(modelled.schedules[kind].spans)
        for kind in {run.kind for run in modelled.runs if run.core in drawn}
    }
    for run in modelled.runs:
        if run.core not in drawn:
            continue
        core = run.core + _LAUNCHES + 1
        clock = _Clock(run, modelled.schedules[run.kind], modelled.mhz)
        title, told = f"program {run.program}", {"program": run.program}
        found.append(_span(core, _PROGRAMS, title, run.start, run.end, told))
        found += _operations(core, clock, place)
        found += [
            {
                "name": "UB in use",
                "ph": "C",
                "pid": core,
                "ts": round(clock.at(cycle), _DIGITS),
                "args": {"bytes": used},
            }
            for cycle, used in curves[run.kind]
        ]
    return tuple(found)


def document(launches: Sequence[tuple[float, Sequence[Event]]]) -> dict[str, Any]:
    """A trace of launches that follow each other: (us, events) of each.

    Events of one lane follow each other: none starts before the one before it has ended.
    """
    found: list[Event] = []
    start = 0.0
    for us, own in launches:
        found += [{**event, "ts": round(event["ts"] + start, _DIGITS)} for event in own]
        start += us
    lanes: defaultdict[tuple[int, int], list[Event]] = defaultdict(list)
    counters = [event for event in found if event["ph"] == "C"]
    for event in found:
        if event["ph"] == "X":
            lanes[event["pid"], event["tid"]].append(event)
    for lane in lanes.values():
        _apart(lane)
    names = list(_names(set(lanes)))
    drawn = [event for _, lane in sorted(lanes.items()) for event in lane]
    counters.sort(key=lambda event: (event["pid"], event["ts"]))
    return {"displayTimeUnit": "ns", "traceEvents": [*names, *drawn, *counters]}


def _drawn(modelled: Modelled, cores: int) -> set[int]:
    last = {run.core for run in last_core(modelled)}
    others = sorted({run.core for run in modelled.runs} - last)
    return {*others[: max(0, cores - len(last))], *last}


class _Clock:
    """When, in the launch, a program is where: later than it would be alone by what it waits for
    locks."""

    def __init__(self, run: Run, timing: Schedule, mhz: float) -> None:
        self.run = run
        self.timing = timing
        self.mhz = mhz
        self.taken = [held.taken for held in timing.locks]
        self.late = list(accumulate(run.waits, initial=0.0))

    def at(self, cycle: float, *, waited: bool = True) -> float:
        """us, for a cycle of the program. ``waited``: after a lock that it takes then."""
        locks = (bisect_right if waited else bisect_left)(self.taken, cycle)
        return self.run.start + cycle / self.mhz + self.late[locks]


def _operations(
    core: int, clock: _Clock, place: Callable[[Location | None], str]
) -> Iterator[Event]:
    program = clock.run.program
    for span in clock.timing.spans:
        start = clock.at(span.start)
        end = start + (span.end - span.start) / clock.mhz
        told = {"line": place(span.location), "program": program}
        yield _span(core, span.pipe.value, span.name, start, end, told)
    for held in clock.timing.locks:
        start, end = clock.at(held.taken, waited=False), clock.at(held.taken)
        if end > start:
            told = {"line": place(held.location), "program": program}
            yield _span(core, Pipe.S.value, "wait for the lock", start, end, told)


def _span(
    process: int, lane: int, name: str, start: float, end: float, told: dict[str, Any]
) -> Event:
    return {
        "name": name,
        "ph": "X",
        "pid": process,
        "tid": process * _LANES + lane,
        "ts": round(start, _DIGITS),
        "dur": round(end - start, _DIGITS),
        "args": told,
    }


def _apart(lane: list[Event]) -> None:
    """Ends each event where the next one starts at the latest.

    An instruction is done its latency after its pipe has taken the next one; a lane shows how
    long each holds the pipe. ``done_after``: us from its start until it is done, where that is
    longer.
    """
    lane.sort(key=lambda event: event["ts"])
    for event, following in pairwise(lane):
        room = round(following["ts"] - event["ts"], _DIGITS)
        if event["dur"] > room:
            event["args"] = {**event["args"], "done_after": event["dur"]}
            event["dur"] = room


def _names(lanes: set[tuple[int, int]]) -> Iterator[Event]:
    for process in sorted({process for process, _ in lanes}):
        launches = process == _LAUNCHES
        title = "launches" if launches else f"core {process - _LAUNCHES - 1}"
        yield _name("process_name", process, {"name": f"{title} (modelled)"})
        yield _name("process_sort_index", process, {"sort_index": process})
    for process, lane in sorted(lanes):
        number = lane - process * _LANES
        title = "launch" if process == _LAUNCHES else "programs"
        if process != _LAUNCHES and number != _PROGRAMS:
            title = Pipe(number).name
        yield _name("thread_name", process, {"name": title}, lane)
        first = -1 if title == "programs" else number
        yield _name("thread_sort_index", process, {"sort_index": first}, lane)


def _name(what: str, process: int, told: dict[str, Any], lane: int | None = None) -> Event:
    named: Event = {"name": what, "ph": "M", "pid": process, "args": told}
    return named if lane is None else {**named, "tid": lane}


# --- the Unified Buffer ------------------------------------------------------------------------


def ub_use(spans: Iterable[Span]) -> tuple[tuple[float, int], ...]:
    """Bytes of UB that hold what is still needed: (cycle, bytes from then on), in order.

    A block of 32 bytes is in use from a write to the last access before the next write.
    """
    touches = sorted(
        (span.start, span.end, writes, first // BLOCK, -(-end // BLOCK))
        for span in spans
        for writes, first, end in span.ub
    )
    blocks = max((touch[4] for touch in touches), default=0)
    since = np.full(blocks, -1.0)
    until = np.full(blocks, -1.0)
    changes: defaultdict[float, int] = defaultdict(int)

    def close(first: int, end: int, when: float) -> None:
        # What is written in place gives way when the write starts.
        pairs = np.stack([since[first:end], np.minimum(until[first:end], when)])
        for (start, stop), count in zip(*_counted(pairs[:, pairs[0] >= 0]), strict=True):
            changes[start] += count * BLOCK
            changes[stop] -= count * BLOCK

    for start, stop, writes, first, end in touches:
        if writes:
            close(first, end, start)
            since[first:end] = start
        until[first:end] = np.maximum(until[first:end], stop)
    close(0, blocks, np.inf)
    used = 0
    curve = []
    for when in sorted(changes):
        used += changes[when]
        curve.append((when, used))
    return tuple(curve)


def _counted(pairs: Any) -> tuple[list[tuple[float, float]], list[int]]:
    """Each pair (a column) once, and how often it occurs."""
    if pairs.size and (pairs == pairs[:, :1]).all():
        # What one operation wrote and read, as nearly always.
        return [(float(pairs[0, 0]), float(pairs[1, 0]))], [pairs.shape[1]]
    found, counts = np.unique(pairs, axis=1, return_counts=True)
    return [(float(start), float(stop)) for start, stop in found.T], [int(n) for n in counts]
