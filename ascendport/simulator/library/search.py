"""Gather, histogram, gather by mask, sort."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from ascendport.simulator.ir import Type
from ascendport.simulator.layout import Pipe
from ascendport.simulator.library.base import (
    DTYPES,
    NAMES,
    TYPE,
    Core,
    Entry,
    Make,
    Run,
    Words,
    any_undefined,
    memory_roles,
    unsigned,
)
from ascendport.simulator.sites import CallSite

_GATHER = re.compile(rf"gather_1d_({TYPE})")
_HISTOGRAM = re.compile(rf"histogram_1d_({TYPE})")
_SORT = re.compile("sort_1d_(half|float)")
_INT32 = np.dtype(np.int32)


def lookup(callee: str, types: Sequence[Type]) -> Entry | None:
    """The entry, where ``callee`` is one of these."""
    if match := _GATHER.fullmatch(callee):
        return Entry(memory_roles(types, 1, 1), Pipe.V, _gather(DTYPES[NAMES[match[1]]]))
    if match := _HISTOGRAM.fullmatch(callee):
        if len(types) != 3:
            return None
        return Entry(("read", "scalar", "update"), Pipe.V, _histogram(DTYPES[NAMES[match[1]]]))
    if match := _SORT.fullmatch(callee):
        return Entry(memory_roles(types, 1, 1), Pipe.V, _sort(DTYPES[NAMES[match[1]]]))
    return None


def _gather(dtype: Any) -> Make:
    """dst[i] = src[indices[i]]. An index outside the source is reported and gives element 0."""
    dtype = unsigned(dtype)

    def make(site: CallSite, core: Core) -> Run:
        source, indices, target = site.operands[:3]

        def run(words: Words) -> None:
            values = core.view(words, source, dtype)
            places = core.view(words, indices, _INT32)
            marks: Any = None
            known = np.ones(places.shape, bool)
            if any_undefined(words, site):
                known = ~core.undefined(words, indices)
            outside = (places < 0) | (places >= len(values))
            if (outside & known).any():
                core.finding_gather(site, words, indices)
            safe = np.where(outside, 0, places)
            if any_undefined(words, site):
                marks = core.undefined(words, source)[safe] | ~known
                core.set_undefined(words, target, marks)
            core.view(words, target, dtype)[...] = values[safe]

        return run

    return make


def _histogram(dtype: Any) -> Make:
    """Adds the counts of 0 … bins - 1 to the target; other values are not counted."""

    def make(site: CallSite, core: Core) -> Run:
        source, bins, target = site.operands

        def run(words: Words) -> None:
            # Compared as unsigned, so negative values are large ones.
            values = core.view(words, source, unsigned(dtype))
            count = words[bins.word]
            counts = np.bincount(values[values < count].astype(np.int64), minlength=count)
            if any_undefined(words, site):
                marks = core.undefined(words, target)
                marks |= bool(core.undefined(words, source).any())
                core.set_undefined(words, target, marks)
            core.view(words, target, _INT32)[:count] += counts.astype(np.int32)

        return run

    return make


def _sort(dtype: Any) -> Make:
    def make(site: CallSite, core: Core) -> Run:
        source, target = site.operands[:2]
        descending = site.operands[-1]

        def run(words: Words) -> None:
            values = np.sort(core.view(words, source, dtype))
            if any_undefined(words, site):
                marks = bool(core.undefined(words, source).any())
                core.set_undefined(words, target, marks)
            core.view(words, target, dtype)[...] = (
                values[::-1] if words[descending.word] else values
            )

        return run

    return make
