"""What the store's code asks of its backend: calls, keys, slices, bytes and time by method."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Call:
    """One call of exists, put or get.

    ``codes``: what it answered, one a key; None where it answered nothing. ``raised``: the type
    of what it raised, or empty. ``seconds`` is wall time.
    """

    method: str
    keys: tuple[str, ...]
    slices: int
    bytes: int
    seconds: float
    codes: tuple[int, ...] | None = None
    raised: str = ""


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
    """Collects calls. ``detail``: keep the key names and count bytes, which takes time."""

    detail: bool = True
    calls: list[Call] = field(default_factory=list)

    @contextmanager
    def call(
        self,
        method: str,
        keys: Sequence[str],
        sizes: Sequence[Sequence[int]] = (),
    ) -> Iterator[list[object]]:
        """Times a call; the block puts its answer into the list that it is given."""
        answer: list[object] = []
        raised = ""
        begin = time.perf_counter()
        try:
            yield answer
        except Exception as error:
            raised = type(error).__name__
            raise
        finally:
            seconds = time.perf_counter() - begin
            self.calls.append(
                Call(
                    method,
                    tuple(keys) if self.detail else ("",) * len(keys),
                    sum(len(row) for row in sizes),
                    sum(sum(row) for row in sizes) if self.detail else 0,
                    seconds,
                    _codes(answer[0]) if answer else None,
                    raised,
                )
            )

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
