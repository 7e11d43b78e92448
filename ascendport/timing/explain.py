"""What a modelled launch looks like inside: a Perfetto trace, and UB use over time.

Both need a `Modelled` that was made with ``spans=True``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import numpy as np

from ascendport.simulator.layout import BLOCK, Pipe
from ascendport.timing.launch import Modelled
from ascendport.timing.pipes import Span


def perfetto(modelled: Modelled, cores: int = 4) -> dict[str, Any]:
    """The launch in the Chrome trace format, which Perfetto opens: a lane a pipe a core.

    Args:
        modelled: a launch.
        cores: the first so many cores are drawn.

    Returns:
        An object to write as JSON; times in us, modelled.
    """
    events: list[dict[str, Any]] = []
    for core in sorted({run.core for run in modelled.runs if run.core < cores}):
        events.append(_name("process_name", core, 0, f"core {core} (modelled)"))
        events += [_name("thread_name", core, pipe.value, pipe.name) for pipe in Pipe]
    for run in modelled.runs:
        if run.core >= cores:
            continue
        for span in modelled.schedules[run.kind].spans:
            place = str(span.location) if span.location else ""
            events.append(
                {
                    "name": span.name,
                    "ph": "X",
                    "pid": run.core,
                    "tid": span.pipe.value,
                    "ts": run.start + span.start / modelled.mhz,
                    "dur": (span.end - span.start) / modelled.mhz,
                    "args": {"line": place, "program": run.program},
                }
            )
    return {"displayTimeUnit": "ns", "traceEvents": events}


def _name(what: str, core: int, lane: int, text: str) -> dict[str, Any]:
    return {"name": what, "ph": "M", "pid": core, "tid": lane, "args": {"name": text}}


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
    found, counts = np.unique(pairs, axis=1, return_counts=True)
    return [(float(start), float(stop)) for start, stop in found.T], [int(n) for n in counts]
