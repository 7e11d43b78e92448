"""Reductions and running sums.

Order of float sums: as the template library halves. With m the largest power of two that is not
above n, the first half of the m elements gets the second half added, then the n - m others, then
it is halved again; down to one repeat (256 bytes) where a single instruction adds up what is
left. How that instruction orders its additions is not published: neighbours in pairs is assumed.
Along other axes it is halved to the end. Minima, maxima and integers do not depend on order.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
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
    memory_roles,
    with_definedness,
)
from ascendport.simulator.sites import CallSite

REPEAT = 256
"""Bytes of a repeat."""

COMBINE: dict[str, Callable[..., Any]] = {
    "sum": np.add,
    "prod": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
    "xori": np.bitwise_xor,
    "ori": np.bitwise_or,
    "andi": np.bitwise_and,
}
_LAYOUTS = {"r": 0, "ar": 1, "ra": 0, "aar": 2, "ara": 1, "ra0a1": 0}
"""Layout → the axis that is reduced."""

_REDUCE = re.compile(
    rf"(?:enablevcg?_)?reduce_({'|'.join(COMBINE)})_({'|'.join(_LAYOUTS)})_({TYPE})"
)
_WITH_INDEX = re.compile(
    rf"(?:enablevcg?_)?reduce_(max|min)_with_index_(left|right)_({'|'.join(_LAYOUTS)})_({TYPE})"
)
_RUNNING = re.compile(rf"cum(sum|prod)_(ra|ara)(_reverse)?_({TYPE})")


def lookup(callee: str, types: Sequence[Type]) -> Entry | None:
    """The entry, where ``callee`` reduces or accumulates along an axis."""
    memory = sum(kind.__class__.__name__ == "MemRef" for kind in types)
    if match := _REDUCE.fullmatch(callee):
        roles = memory_roles(types, 1, memory - 2)
        dtype = DTYPES[NAMES[match[3]]]
        return Entry(roles, Pipe.V, _reduce(match[1], _LAYOUTS[match[2]], dtype, match[2][-1]))
    if match := _WITH_INDEX.fullmatch(callee):
        roles = memory_roles(types, 2, memory - 3)
        dtype = DTYPES[NAMES[match[4]]]
        return Entry(
            roles, Pipe.V, _with_index(match[1], match[2] == "left", _LAYOUTS[match[3]], dtype)
        )
    if match := _RUNNING.fullmatch(callee):
        dtype = DTYPES[NAMES[match[4]]]
        axis = _LAYOUTS[match[2]]
        function = np.add if match[1] == "sum" else np.multiply
        return Entry(
            memory_roles(types, 1, memory - 2),
            Pipe.V,
            _running(function, axis, match[3] is not None, dtype),
        )
    return None


def halve(values: Any, combine: Callable[..., Any], until: int) -> Any:
    """Folds the first axis to ``until`` rows or fewer, as the template library does."""
    count = values.shape[0]
    if count <= until:
        return values
    main = 1 << (count.bit_length() - 1)
    half = main // 2
    if half == 0:
        return values
    result = combine(values[:half], values[half:main])
    for start in range(main, count, half):
        tail = values[start : start + half]
        result[: len(tail)] = combine(tail, result[: len(tail)])
    while half > until:
        half //= 2
        result = combine(result[:half], result[half : 2 * half])
    return result


def pairs(values: Any, combine: Callable[..., Any]) -> Any:
    """Folds the first axis to one row, neighbours first."""
    while values.shape[0] > 1:
        if values.shape[0] % 2:
            last = values[-1:]
            values = np.concatenate([combine(values[:-1:2], values[1::2]), last])
        else:
            values = combine(values[::2], values[1::2])
    return values


def fold(values: Any, combine: Callable[..., Any], last_axis: bool) -> Any:
    """Folds the first axis of ``values`` to one row, in the type of the values."""
    ordered = combine in (np.add, np.multiply) and values.dtype.kind not in "iu"
    if not ordered:
        return combine.reduce(values, axis=0, keepdims=True)  # type: ignore[attr-defined]
    if not last_axis:
        return halve(values, combine, 1)
    return pairs(halve(values, combine, REPEAT // values.dtype.itemsize), combine)


def _reduce(name: str, axis: int, dtype: Any, last: str) -> Make:
    combine = COMBINE[name]

    def make(site: CallSite, core: Core) -> Run:
        source, target = site.operands[:2]

        def compute(words: Words) -> None:
            values = core.view(words, source, dtype)
            result = core.view(words, target, dtype)
            if axis == 0:
                result[...] = fold(values, combine, last == "r")
            else:
                folded = fold(np.moveaxis(values, axis, 0), combine, last == "r")
                result[...] = np.moveaxis(folded, 0, axis)

        def definedness(words: Words) -> None:
            marks = core.undefined(words, source).any(axis=axis, keepdims=True)
            core.set_undefined(words, target, marks)

        return with_definedness(compute, definedness, site)

    return make


def _with_index(name: str, left: bool, axis: int, dtype: Any) -> Make:
    """The extreme and where it stands; of equal ones the first (left) or the last."""

    def make(site: CallSite, core: Core) -> Run:
        source, value, index = site.operands[:3]

        def compute(words: Words) -> None:
            values = core.view(words, source, dtype)
            find = np.argmax if name == "max" else np.argmin
            if left:
                place = find(values, axis=axis)
            else:
                place = values.shape[axis] - 1 - find(np.flip(values, axis), axis=axis)
            place = np.expand_dims(place, axis)
            best = np.take_along_axis(values, place, axis)
            core.view(words, value, dtype)[...] = best
            core.view(words, index, np.dtype(np.int32))[...] = place

        def definedness(words: Words) -> None:
            marks = core.undefined(words, source).any(axis=axis, keepdims=True)
            core.set_undefined(words, value, marks)
            core.set_undefined(words, index, marks)

        return with_definedness(compute, definedness, site)

    return make


def _running(function: Any, axis: int, backwards: bool, dtype: Any) -> Make:
    def make(site: CallSite, core: Core) -> Run:
        source, target = site.operands[:2]

        def along(values: Any, operation: Any, kind: Any) -> Any:
            ordered = np.flip(values, axis) if backwards else values
            result = operation.accumulate(ordered, axis=axis, dtype=kind)
            return np.flip(result, axis) if backwards else result

        def compute(words: Words) -> None:
            result = along(core.view(words, source, dtype), function, dtype)
            core.view(words, target, dtype)[...] = result

        def definedness(words: Words) -> None:
            marks = along(core.undefined(words, source), np.logical_or, bool)
            core.set_undefined(words, target, marks)

        return with_definedness(compute, definedness, site)

    return make
