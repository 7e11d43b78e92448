"""Who touched which bytes of GM: unordered accesses of two programs of one launch.

Programs of a launch run in any order or at once. Two of them may touch the same bytes if neither
writes, if both do so atomically, or if both hold the lock.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ascendport.simulator.layout import ATOMIC, LOCKED, TENSOR_BIAS, TENSOR_SHIFT, WRITE

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Conflict:
    """Bytes ``start``..``end`` of a tensor that two programs touch, the first such bytes.

    ``first`` and ``second``: (program, site, whether it writes). ``times``: overlapping pairs of
    accesses at these two places.
    """

    tensor: int
    start: int
    end: int
    first: tuple[int, int, bool]
    second: tuple[int, int, bool]
    times: int


@dataclass
class _Class:
    """Accesses of one kind by one program, or by all."""

    starts: list[Ints] = field(default_factory=list)
    ends: list[Ints] = field(default_factory=list)
    programs: list[Ints] = field(default_factory=list)


class Accesses:
    """Gathers byte ranges a program at a time."""

    def __init__(self) -> None:
        self._open: dict[tuple[int, int, int], _Class] = {}
        self._runs: dict[tuple[int, int, int], list[int]] = {}
        self._closed: dict[tuple[int, int, int], _Class] = {}

    def run(self, tensor: int, start: int, length: int, flags: int, site: int) -> None:
        """One run of bytes."""
        self._runs.setdefault((tensor, int(flags), site), []).extend((start, start + length))

    def many(self, tensor: int, starts: Ints, size: int, flags: int, site: int) -> None:
        """Runs of ``size`` bytes."""
        if len(starts):
            found = self._open.setdefault((tensor, flags, site), _Class())
            low, high = merge(starts, starts + size)
            found.starts.append(low)
            found.ends.append(high)

    def scalars(self, log: Ints) -> tuple[int, int]:
        """Entries as generated code logs them. Returns bytes read and written."""
        sizes = log[:, 1] - log[:, 0]
        writes = (log[:, 3] & WRITE) != 0
        tensors = log[:, 0] >> TENSOR_SHIFT
        bytes_of = (log[:, 0] & ((1 << TENSOR_SHIFT) - 1)) - TENSOR_BIAS
        keys = np.stack([tensors, log[:, 3], log[:, 2]], axis=1)
        kinds, inverse = np.unique(keys, axis=0, return_inverse=True)
        for number, (tensor, flags, site) in enumerate(kinds.tolist()):
            chosen = inverse.reshape(-1) == number
            found = self._open.setdefault((tensor, flags, site), _Class())
            low, high = merge(bytes_of[chosen], bytes_of[chosen] + sizes[chosen])
            found.starts.append(low)
            found.ends.append(high)
        return int(sizes[~writes].sum()), int(sizes[writes].sum())

    def close(self, program: int) -> None:
        """Ends a program: its accesses are merged and put to its name."""
        for key, flat in self._runs.items():
            pairs = np.array(flat, np.int64).reshape(-1, 2)
            found = self._open.setdefault(key, _Class())
            found.starts.append(pairs[:, 0])
            found.ends.append(pairs[:, 1])
        self._runs.clear()
        for key, found in self._open.items():
            low, high = merge(np.concatenate(found.starts), np.concatenate(found.ends))
            closed = self._closed.setdefault(key, _Class())
            closed.starts.append(low)
            closed.ends.append(high)
            closed.programs.append(np.full(len(low), program, np.int64))
        self._open.clear()

    def conflicts(self, ignore: Callable[[int], bool] = lambda tensor: False) -> list[Conflict]:
        """All conflicts, grouped by the two places. ``ignore``: tensors left out, by number."""
        result: list[Conflict] = []
        for tensor in sorted({key[0] for key in self._closed}):
            if not ignore(tensor):
                result += self._of_tensor(tensor)
        return result

    def _of_tensor(self, tensor: int) -> list[Conflict]:
        columns: list[list[Ints]] = [[], [], [], [], []]
        for (number, flags, site), found in self._closed.items():
            if number != tensor:
                continue
            starts = np.concatenate(found.starts)
            for column, values in zip(
                columns,
                (
                    starts,
                    np.concatenate(found.ends),
                    np.concatenate(found.programs),
                    np.full(len(starts), flags, np.int64),
                    np.full(len(starts), site, np.int64),
                ),
                strict=True,
            ):
                column.append(values)
        low, high, programs, flags_of, sites = (np.concatenate(column) for column in columns)
        writes = (flags_of & WRITE) != 0
        # All hold the lock, or all are atomic.
        shared = int(np.bitwise_and.reduce(flags_of)) & (ATOMIC | LOCKED)
        if shared or not writes.any():
            return []
        keep = _suspects(low, high, programs, writes)
        order = np.argsort(low[keep], kind="stable")
        rows = np.stack([low, high, programs, flags_of, sites], axis=1)[keep][order]
        return _sweep(tensor, rows.tolist())


def merge(starts: Ints, ends: Ints) -> tuple[Ints, Ints]:
    """The union of ranges, as disjoint sorted ranges."""
    if len(starts) < 2:
        return starts, ends
    order = np.argsort(starts, kind="stable")
    low, high = starts[order], np.maximum.accumulate(ends[order])
    first = np.ones(len(low), bool)
    first[1:] = low[1:] > high[:-1]
    last = np.append(np.flatnonzero(first)[1:] - 1, len(low) - 1)
    return low[first], high[last]


def _suspects(
    low: Ints, high: Ints, programs: Ints, writes: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    """Ranges that overlap a range of another program that is written by either.

    For each byte range of the union of all ranges: the lowest and the highest program that
    touches it, and those that write it. Where they are one and the same, nobody else is there.
    """
    cuts = np.unique(np.concatenate([low, high]))
    first, last = np.searchsorted(cuts, low), np.searchsorted(cuts, high)
    count = len(cuts)
    lengths = last - first
    # Each range covers a few elementary pieces; spread it over them.
    owner = np.repeat(np.arange(len(low)), lengths)
    offset = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    piece = first[owner] + offset
    least = np.full(count, np.iinfo(np.int64).max)
    most = np.full(count, -1, np.int64)
    written = np.zeros(count, bool)
    np.minimum.at(least, piece, programs[owner])
    np.maximum.at(most, piece, programs[owner])
    written[piece[writes[owner]]] = True
    hot = written & (least != most)
    result = np.zeros(len(low), bool)
    result[owner[hot[piece]]] = True
    return result


def _sweep(tensor: int, rows: list[list[int]]) -> list[Conflict]:
    """Pairs of overlapping rows (start, end, program, flags, site), sorted by start."""
    found: dict[tuple[int, int], list[Any]] = {}
    active: list[list[int]] = []
    for row in rows:
        start, end, program, flags, site = row
        active = [other for other in active if other[1] > start]
        for other in active:
            if other[2] == program or not (flags | other[3]) & WRITE:
                continue
            if flags & other[3] & (LOCKED | ATOMIC):
                continue
            key = (min(site, other[4]), max(site, other[4]))
            entry = found.get(key)
            if entry is None:
                found[key] = [start, min(end, other[1]), other, row, 1]
            else:
                entry[4] += 1
        active.append(row)
    return [
        Conflict(
            tensor,
            start,
            end,
            (first[2], first[4], bool(first[3] & WRITE)),
            (second[2], second[4], bool(second[3] & WRITE)),
            times,
        )
        for start, end, first, second, times in found.values()
    ]
