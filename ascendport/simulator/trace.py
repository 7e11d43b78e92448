"""The stream of operations of one program: what a model of time reads.

Records are int64 words as generated code wrote them; `Trace.operations` turns them into objects.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from ascendport.simulator.ir import Location, MemRef
from ascendport.simulator.layout import Pipe
from ascendport.simulator.sites import CallSite, EventSite, Operand, Site, WorkSite


@dataclass(frozen=True)
class Buffer:
    """A memory operand of a call.

    ``address``: a byte of UB; in GM the kernel's pointer, which `memory.tensor_of` splits into
    tensor and byte. ``sizes``, ``strides``: elements. ``role``: as in `sites.Operand`.
    """

    role: str
    space: str
    element: str
    bits: int
    address: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def elements(self) -> int:
        """How many."""
        return prod(self.sizes)

    @property
    def bytes(self) -> int:
        """That many elements packed."""
        return -(-self.elements * self.bits // 8)


@dataclass(frozen=True)
class Call:
    """A library call on a pipe. ``scalars``: the bits of its scalar operands, in order."""

    pipe: Pipe
    callee: str
    buffers: tuple[Buffer, ...]
    scalars: tuple[int, ...]
    location: Location | None

    @property
    def elements(self) -> int:
        """Of the largest operand that is no scratch buffer."""
        return max((item.elements for item in self.buffers if item.role != "scratch"), default=0)

    @property
    def bytes(self) -> int:
        """Of the largest operand that is no scratch buffer."""
        return max((item.bytes for item in self.buffers if item.role != "scratch"), default=0)

    @property
    def repeats(self) -> int:
        """Blocks of 256 bytes that it takes, at least 1."""
        return max(1, -(-self.bytes // 256))


@dataclass(frozen=True)
class Event:
    """``set_flag``, ``wait_flag`` or ``pipe_barrier``; ``source`` None: a barrier of all pipes."""

    kind: str
    source: Pipe | None
    target: Pipe | None
    number: int
    location: Location | None


@dataclass(frozen=True)
class Work:
    """Scalar operations. ``counts``: (operation, place) → times a run; ``runs``: how often."""

    counts: Mapping[tuple[str, Location | None], int]
    runs: int


Operation = Call | Event | Work


@dataclass(frozen=True)
class Trace:
    """One program's operations, in program order."""

    words: NDArray[np.int64]
    sites: Sequence[Site]

    def operations(self) -> Iterator[Operation]:
        """All of them."""
        words = self.words.tolist()
        at = 0
        while at < len(words):
            site = self.sites[words[at]]
            if isinstance(site, CallSite):
                yield _call(site, words[at : at + site.words])
                at += site.words
            elif isinstance(site, EventSite):
                flag = site.kind != "pipe_barrier"
                number = words[at + 1] if flag else 0
                yield Event(site.kind, site.source, site.target, number, site.location)
                at += 2 if flag else 1
            elif isinstance(site, WorkSite):
                yield Work(site.counts, words[at + 1])
                at += 2
            else:
                raise ValueError(f"no record belongs to {site}")


def _call(site: CallSite, words: list[int]) -> Call:
    buffers = tuple(
        _buffer(operand, operand.type, words)
        for operand in site.operands
        if isinstance(operand.type, MemRef)
    )
    scalars = tuple(words[item.word] for item in site.operands if item.role == "scalar")
    return Call(site.pipe, site.callee, buffers, scalars, site.location)


def _buffer(operand: Operand, kind: MemRef, words: list[int]) -> Buffer:
    at, rank = operand.word, operand.rank
    address = words[at] // 8 if kind.bits == 1 else words[at]
    return Buffer(
        operand.role,
        kind.space,
        kind.element,
        kind.bits,
        address,
        tuple(words[at + 1 : at + 1 + rank]),
        tuple(words[at + 1 + rank : at + 1 + 2 * rank]),
    )
