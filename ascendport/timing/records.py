"""Traces read for timing: quickly, and which programs take the same time.

A trace is a row of records. Where the records of a program start, and which of their words say
nothing about its time, is found once and holds for all programs that ran the same records.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ascendport.simulator import Trace
from ascendport.simulator.ir import MemRef
from ascendport.simulator.layout import TENSOR_SHIFT
from ascendport.simulator.sites import CallSite, EventSite, Site
from ascendport.simulator.trace import Operation

_ALIGNED = 512
"""Bytes: a GM address counts as a multiple of this, or not one."""

_FLAGS = 1
"""The word of a call's record that only findings need."""


@dataclass(frozen=True)
class _Layout:
    """``starts``: first words of the records; ``free``: words that say nothing about time;
    ``gm``: words that are GM addresses. ``sites``: what stands at ``starts``.
    """

    words: int
    starts: NDArray[np.intp]
    sites: NDArray[np.int64]
    free: NDArray[np.intp]
    gm: NDArray[np.intp]

    def fits(self, words: NDArray[np.int64]) -> bool:
        return len(words) == self.words and bool((words[self.starts] == self.sites).all())


class Signatures:
    """Names programs such that equal names take the same time.

    Sites, sizes, strides, UB addresses, events and run counts count; GM addresses by tensor and
    alignment, scalar operands not at all.
    """

    def __init__(self) -> None:
        self._layouts: list[_Layout] = []

    def of(self, trace: Trace) -> bytes:
        """The name of the program that ``trace`` is of."""
        layout = next((one for one in self._layouts if one.fits(trace.words)), None)
        if layout is None:
            layout = _layout(trace)
            self._layouts.append(layout)
        words = trace.words.copy()
        words[layout.free] = 0
        gm = words[layout.gm]
        words[layout.gm] = gm >> TENSOR_SHIFT << TENSOR_SHIFT | (gm % _ALIGNED != 0)
        return hashlib.blake2b(words.tobytes(), digest_size=16).digest()


def _layout(trace: Trace) -> _Layout:
    shapes = [_shape(site) for site in trace.sites]
    values = trace.words.tolist()
    starts: list[int] = []
    free: list[int] = []
    gm: list[int] = []
    at = 0
    while at < len(values):
        length, unread, addresses = shapes[values[at]]
        starts.append(at)
        for word in unread:
            free.append(at + word)
        for word in addresses:
            gm.append(at + word)
        at += length
    first = np.array(starts, np.intp)
    return _Layout(
        len(values), first, trace.words[first], np.array(free, np.intp), np.array(gm, np.intp)
    )


def _shape(site: Site) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
    """Of a site's records: words, which of them are free, which are GM addresses."""
    if isinstance(site, CallSite):
        scalars = [one.word for one in site.operands if one.role == "scalar"]
        outside = [
            one.word
            for one in site.operands
            if one.role.startswith("gm") and isinstance(one.type, MemRef)
        ]
        return site.words, (_FLAGS, *scalars), tuple(outside)
    return _length(site), (), ()


def _length(site: Site) -> int:
    if isinstance(site, CallSite):
        return site.words
    return 1 if isinstance(site, EventSite) and site.kind == "pipe_barrier" else 2


def operations(trace: Trace) -> list[Operation]:
    """The operations of ``trace`` in order. Those whose records are equal are one object."""
    shapes: Sequence[int] = [_length(site) for site in trace.sites]
    values = trace.words.tolist()
    known: dict[tuple[int, ...], Operation] = {}
    found: list[Operation] = []
    at = 0
    while at < len(values):
        end = at + shapes[values[at]]
        record = tuple(values[at:end])
        operation = known.get(record)
        if operation is None:
            operation = known[record] = _decoded(trace, record)
        found.append(operation)
        at = end
    return found


def _decoded(trace: Trace, record: tuple[int, ...]) -> Operation:
    part = Trace(np.array(record, np.int64), trace.sites)
    return next(part.operations())
