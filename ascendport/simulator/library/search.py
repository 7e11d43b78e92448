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
_HISTOGRAM_MASKED = re.compile(rf"histogram_1d_masked_({TYPE})")
_SORT = re.compile("sort_(with_index_)?1d_(half|float)")
_GATHER_MASK = re.compile(rf"vgathermask_1d_({TYPE})")
_INT32 = np.dtype(np.int32)


def lookup(callee: str, types: Sequence[Type]) -> Entry | None:
    """The entry, where ``callee`` is one of these."""
    if match := _GATHER.fullmatch(callee):
        return Entry(memory_roles(types, 1, 1), Pipe.V, _gather(DTYPES[NAMES[match[1]]]))
    if match := _HISTOGRAM.fullmatch(callee):
        if len(types) != 3:
            return None
        return Entry(("read", "scalar", "update"), Pipe.V, _histogram(DTYPES[NAMES[match[1]]]))
    if (match := _HISTOGRAM_MASKED.fullmatch(callee)) and len(types) == 4:
        roles = ("read", "scalar", "read", "update")
        return Entry(roles, Pipe.V, _histogram_masked(DTYPES[NAMES[match[1]]]))
    if match := _SORT.fullmatch(callee):
        results = 2 if match[1] else 1
        return Entry(memory_roles(types, results, 1), Pipe.V, _sort(DTYPES[NAMES[match[2]]]))
    if (match := _GATHER_MASK.fullmatch(callee)) and len(types) == 4:
        roles = ("read", "read", "update", "write")
        return Entry(roles, Pipe.V, _gather_mask(DTYPES[NAMES[match[1]]]))
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


def _histogram_masked(dtype: Any) -> Make:
    """The same for elements whose mask is set.

    The library takes the mask for bytes, though compilers pack eight booleans into one: element i
    counts where byte i of the mask is not 0.
    """

    def make(site: CallSite, core: Core) -> Run:
        source, bins, mask, target = site.operands

        def run(words: Words) -> None:
            values = core.view(words, source, unsigned(dtype))
            count = words[bins.word]
            bytes_of = core.bytes_at(words[mask.word] // 8, len(values))
            marks = core.undefined_at(words[mask.word] // 8, len(values))
            if any_undefined(words, site) or marks.any():
                unknown = bool(core.undefined(words, source).any() or marks.any())
                core.set_undefined(words, target, core.undefined(words, target) | unknown)
            chosen = values[(bytes_of != 0) & (values < count)]
            counts = np.bincount(chosen.astype(np.int64), minlength=count)
            core.view(words, target, _INT32)[:count] += counts.astype(np.int32)

        return run

    return make


def _sort(dtype: Any) -> Make:
    """Sorted values, and where they stood where that is asked for; of equal ones the first is
    first in both directions. NaN comes last in rising order, first in falling order: the
    hardware's place for it is not published."""

    def make(site: CallSite, core: Core) -> Run:
        source, *targets = (item for item in site.operands if item.role in ("read", "write"))
        descending = site.operands[-1]

        def run(words: Words) -> None:
            values = core.view(words, source, dtype)
            if words[descending.word]:
                # NaN first, and of equal ones the first: sorted from behind, read from behind.
                order = len(values) - 1 - np.argsort(values[::-1], kind="stable")[::-1]
            else:
                order = np.argsort(values, kind="stable")
            if any_undefined(words, site):
                marks = bool(core.undefined(words, source).any())
                for target in targets:
                    core.set_undefined(words, target, marks)
            ordered = values[order]
            core.view(words, targets[0], dtype)[...] = ordered
            if len(targets) == 2:
                core.view(words, targets[1], _INT32)[...] = order

        return run

    return make


def _gather_mask(dtype: Any) -> Make:
    """The elements whose mask is set, side by side, and how many they are; what lies behind them
    in the target stays. Nothing is done where mask and source differ in length."""
    dtype = unsigned(dtype)

    def make(site: CallSite, core: Core) -> Run:
        source, mask, target, size = site.operands

        def run(words: Words) -> None:
            values, chosen = core.view(words, source, dtype), core.bits(words, mask)
            if len(values) != len(chosen) or not len(values):
                return
            count = int(chosen.sum())
            if any_undefined(words, site):
                marks = core.undefined(words, target)
                marks[:count] = core.undefined(words, source)[chosen]
                marks |= bool(core.undefined(words, mask).any())
                core.set_undefined(words, target, marks)
                core.set_undefined(words, size, bool(core.undefined(words, mask).any()))
            picked = values[chosen]
            core.view(words, target, dtype)[:count] = picked
            core.view(words, size, np.dtype(np.int64))[0] = count

        return run

    return make
