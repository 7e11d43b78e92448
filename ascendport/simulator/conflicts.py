"""Who touched which bytes of GM: unordered accesses of two programs of one launch.

Programs of a launch run in any order or at once. Two of them may touch the same bytes if neither
writes, if both do so atomically, or if both hold the lock.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

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


Key = tuple[int, int, int]
"""Tensor, flags, site."""


@dataclass
class _Class:
    """Accesses of one kind by all programs: arrays, and single ranges as numbers in a row."""

    starts: list[Ints] = field(default_factory=list)
    ends: list[Ints] = field(default_factory=list)
    programs: list[Ints] = field(default_factory=list)
    singles: list[int] = field(default_factory=list)
    """start, end, program of a range that was the only one of its program; then the next."""

    def columns(self) -> tuple[Ints, Ints, Ints]:
        """Starts, ends, programs."""
        flat = np.array(self.singles, np.int64).reshape(-1, 3)
        return (
            np.concatenate([*self.starts, flat[:, 0]]),
            np.concatenate([*self.ends, flat[:, 1]]),
            np.concatenate([*self.programs, flat[:, 2]]),
        )


FEW = 64
"""Entries of a log that are faster gone through one by one than as arrays."""


class Accesses:
    """Gathers byte ranges a program at a time.

    Most programs of a large launch touch a few ranges, so these stay plain numbers: an array of
    one element costs a hundred times as much.
    """

    def __init__(self) -> None:
        self._open: dict[Key, list[tuple[Ints, Ints]]] = {}
        self._runs: dict[Key, list[int]] = {}
        self._closed: dict[Key, _Class] = {}

    def run(self, tensor: int, start: int, length: int, flags: int, site: int) -> None:
        """One run of bytes."""
        self._runs.setdefault((tensor, int(flags), site), []).extend((start, start + length))

    def many(self, tensor: int, starts: Ints, size: int, flags: int, site: int) -> None:
        """Runs of ``size`` bytes."""
        if len(starts):
            found = self._open.setdefault((tensor, flags, site), [])
            found.append(merge(starts, starts + size))

    def scalars(self, log: Ints) -> tuple[int, int]:
        """Entries as generated code logs them. Returns bytes read and written."""
        if len(log) <= FEW:
            return self._few(log.tolist())
        sizes = log[:, 1] - log[:, 0]
        writes = (log[:, 3] & WRITE) != 0
        bytes_of = (log[:, 0] & ((1 << TENSOR_SHIFT) - 1)) - TENSOR_BIAS
        # Flags take a few bits; a tensor's number and a site each fit in 30.
        kinds = (log[:, 0] >> TENSOR_SHIFT) << 33 | log[:, 2] << 3 | log[:, 3]
        for kind in np.unique(kinds).tolist():
            chosen = kinds == kind
            key = (kind >> 33, kind & 7, kind >> 3 & ((1 << 30) - 1))
            ranges = merge(bytes_of[chosen], bytes_of[chosen] + sizes[chosen])
            self._open.setdefault(key, []).append(ranges)
        return int(sizes[~writes].sum()), int(sizes[writes].sum())

    def _few(self, log: list[list[int]]) -> tuple[int, int]:
        read = written = 0
        low = (1 << TENSOR_SHIFT) - 1
        for address, end, site, flags in log:
            size = end - address
            self.run(address >> TENSOR_SHIFT, (address & low) - TENSOR_BIAS, size, flags, site)
            if flags & WRITE:
                written += size
            else:
                read += size
        return read, written

    def close(self, program: int) -> None:
        """Ends a program: its accesses are merged and put to its name."""
        for key, flat in self._runs.items():
            if len(flat) == 2 and key not in self._open:
                closed = self._closed.setdefault(key, _Class())
                closed.singles += (*flat, program)
                continue
            pairs = np.array(flat, np.int64).reshape(-1, 2)
            self._open.setdefault(key, []).append((pairs[:, 0], pairs[:, 1]))
        self._runs.clear()
        for key, ranges in self._open.items():
            starts, ends = zip(*ranges, strict=True)
            low, high = merge(np.concatenate(starts), np.concatenate(ends))
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
            starts, ends, programs_of = found.columns()
            for column, values in zip(
                columns,
                (
                    starts,
                    ends,
                    programs_of,
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
        return _sweep(tensor, rows)


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


PAIRS = 1 << 20
"""Pairs of ranges that are looked at at once."""


def _sweep(tensor: int, rows: Ints) -> list[Conflict]:
    """Pairs of overlapping rows (start, end, program, flags, site), sorted by start."""
    starts, ends, programs, flags, sites = rows.T
    # What overlaps a row and starts later (or, of equal starts, stands later) follows it directly.
    following = np.searchsorted(starts, ends) - np.arange(len(rows)) - 1
    following = np.maximum(following, 0)
    found: dict[tuple[int, int], list[int]] = {}
    total = np.concatenate([[0], np.cumsum(following)])
    begin = 0
    while begin < len(rows):
        # At least one row; as many as make up about so many pairs.
        end = max(begin + 1, int(np.searchsorted(total, total[begin] + PAIRS)) - 1)
        counts = following[begin:end]
        first = np.repeat(np.arange(begin, end), counts)
        shift = np.arange(len(first)) - np.repeat(total[begin:end] - total[begin], counts)
        second = first + 1 + shift
        begin = end
        guilty = (
            (programs[first] != programs[second])
            & ((flags[first] | flags[second]) & WRITE != 0)
            & (flags[first] & flags[second] & (LOCKED | ATOMIC) == 0)
        )
        first, second = first[guilty], second[guilty]
        least = np.minimum(sites[first], sites[second])
        most = np.maximum(sites[first], sites[second])
        # By pair of places, then by where the overlap starts.
        order = np.lexsort((first, second, most, least))
        least, most, first, second = least[order], most[order], first[order], second[order]
        new = np.ones(len(order), bool)
        new[1:] = (least[1:] != least[:-1]) | (most[1:] != most[:-1])
        places = np.flatnonzero(new)
        times = np.diff(np.append(places, len(order)))
        for place, often in zip(places.tolist(), times.tolist(), strict=True):
            key = (int(least[place]), int(most[place]))
            pair = [int(second[place]), int(first[place])]
            known = found.get(key)
            if known is None:
                found[key] = [*pair, often]
            else:
                known[:] = [*min(known[:2], pair), known[2] + often]
    return [
        Conflict(
            tensor,
            int(starts[second]),
            int(min(ends[first], ends[second])),
            _side(rows[first]),
            _side(rows[second]),
            often,
        )
        for second, first, often in sorted(found.values())
    ]


def _side(row: Ints) -> tuple[int, int, bool]:
    """Program, site, whether it writes."""
    return int(row[2]), int(row[4]), bool(row[3] & WRITE)
