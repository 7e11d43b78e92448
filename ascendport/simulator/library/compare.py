"""Comparisons, which give packed booleans, and selects, which take them."""

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
    Run,
    Words,
    inputs_undefined,
    memory_roles,
    scalar_value,
    spread,
    unsigned,
    with_definedness,
)
from ascendport.simulator.sites import CallSite, Operand

COMPARISONS: dict[str, Callable[..., Any]] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "gt": np.greater,
    "ge": np.greater_equal,
    "le": np.less_equal,
}

_COMPARE = re.compile(rf"vcmps?_(eq|ne|lt|gt|ge|le)_([123])d_({TYPE})")
_SELECT = re.compile(rf"vsel_(vv|vs|sv|ss)_([123])d_(?:(bool|int8_t)_)?({TYPE})")


def lookup(callee: str, types: Sequence[Type]) -> Entry | None:
    """The entry, where ``callee`` compares or selects."""
    if match := _COMPARE.fullmatch(callee):
        dtype = DTYPES[NAMES[match[3]]]
        return Entry(memory_roles(types, 1), Pipe.V, _compare(COMPARISONS[match[1]], dtype))
    if match := _SELECT.fullmatch(callee):
        # The scratch buffer is missing for 64-bit elements.
        sources = 1 + match[1].count("v")
        memory = sum(kind.__class__.__name__ == "MemRef" for kind in types)
        scratch = memory - sources - 1
        if scratch not in (0, 1):
            return None
        dtype = unsigned(DTYPES[NAMES[match[4]]])
        packed = match[3] != "int8_t"
        return Entry(memory_roles(types, 1, scratch), Pipe.V, _select(dtype, packed))
    return None


def _compare(function: Callable[..., Any], dtype: Any) -> Callable[[CallSite, Core], Run]:
    def make(site: CallSite, core: Core) -> Run:
        first, second, output = site.operands
        scalar = second.role == "scalar"

        def compute(words: Words) -> None:
            other = (
                scalar_value(words[second.word], dtype)
                if scalar
                else core.view(words, second, dtype)
            )
            core.set_bits(words, output, function(core.view(words, first, dtype), other))

        return with_definedness(compute, spread(site, core), site)

    return make


def _select(dtype: Any, packed: bool) -> Callable[[CallSite, Core], Run]:
    """Moves bits, so the element's type does not matter."""

    def make(site: CallSite, core: Core) -> Run:
        condition, first, second, output = site.operands[:4]

        def chosen(words: Words) -> Any:
            if packed:
                return core.bits(words, condition)
            return core.view(words, condition, np.dtype(np.int8)) != 0

        def value(words: Words, operand: Operand) -> Any:
            if operand.role == "scalar":
                return scalar_value(words[operand.word], dtype)
            return core.view(words, operand, dtype)

        def compute(words: Words) -> None:
            result = core.view(words, output, dtype)
            result[...] = np.where(chosen(words), value(words, first), value(words, second))

        def definedness(words: Words) -> None:
            marks = np.where(
                chosen(words),
                inputs_undefined(core, words, first, 1),
                inputs_undefined(core, words, second, 2),
            )
            core.set_undefined(words, output, marks | core.undefined(words, condition))

        return with_definedness(compute, definedness, site)

    return make
