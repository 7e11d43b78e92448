"""What the store's code asks of its backend: calls, keys, slices, bytes and time by method."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Call:
    """One call of exists, put or get.

    ``codes``: what it answered, one a key; None where it answered nothing. ``raised``: the type
    of what it raised, or empty. ``seconds`` is wall time. ``held``: most bytes that Python and
    NumPy held at one time before this call, above what `Recorder.begin` found; 0 where
    `tracemalloc` is off.
    """

    method: str
    keys: tuple[str, ...]
    slices: int
    bytes: int
    seconds: float
    codes: tuple[int, ...] | None = None
    raised: str = ""
    held: int = 0


@dataclass
class Totals:
    """Sums over calls of one method."""

    calls: int = 0
    keys: int = 0
    slices: int = 0
    bytes: int = 0
    seconds: float = 0.0


@dataclass
class Recorder:
    """Collects calls. ``detail``: keep the key names and count bytes, which takes time.

    ``own_seconds``: what recording itself took since `begin`.
    """

    detail: bool = True
    calls: list[Call] = field(default_factory=list)
    own_seconds: float = 0.0
    floor: int = 0

    def begin(self) -> None:
        """A save or a load begins: what is held from here on is its own."""
        self.own_seconds = 0.0
        if tracemalloc.is_tracing():
            tracemalloc.reset_peak()
            self.floor = tracemalloc.get_traced_memory()[0]

    @contextmanager
    def call(
        self,
        method: str,
        keys: Sequence[str],
        sizes: Sequence[Sequence[int]] = (),
    ) -> Iterator[list[object]]:
        """Times a call; the block puts its answer into the list that it is given."""
        entered = time.perf_counter()
        answer: list[object] = []
        raised = ""
        held = tracemalloc.get_traced_memory()[1] - self.floor if tracemalloc.is_tracing() else 0
        begin = time.perf_counter()
        try:
            yield answer
        except Exception as error:
            raised = type(error).__name__
            raise
        finally:
            end = time.perf_counter()
            self.calls.append(
                Call(
                    method,
                    tuple(keys) if self.detail else ("",) * len(keys),
                    sum(len(row) for row in sizes),
                    sum(sum(row) for row in sizes) if self.detail else 0,
                    end - begin,
                    _codes(answer[0]) if answer else None,
                    raised,
                    held,
                )
            )
            self.own_seconds += begin - entered + time.perf_counter() - end

    def take(self) -> list[Call]:
        """What was recorded since the last time."""
        taken, self.calls = self.calls, []
        return taken


def totals(calls: Sequence[Call]) -> dict[str, Totals]:
    """By method."""
    found: dict[str, Totals] = {}
    for call in calls:
        one = found.setdefault(call.method, Totals())
        one.calls += 1
        one.keys += len(call.keys)
        one.slices += call.slices
        one.bytes += call.bytes
        one.seconds += call.seconds
    return found


def _codes(answer: object) -> tuple[int, ...] | None:
    return tuple(int(code) for code in answer) if isinstance(answer, list | tuple) else None
