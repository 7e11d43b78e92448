"""Printing and assertions. The library waits for all pipes first."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from ascendport.simulator.ir import MemRef, Type
from ascendport.simulator.layout import Pipe
from ascendport.simulator.library.base import (
    DTYPES,
    NAMES,
    TYPE,
    Array,
    Core,
    Entry,
    Make,
    Run,
    Words,
    scalar_value,
)
from ascendport.simulator.sites import CallSite, Operand

_SAY = re.compile(rf"(?:_mlir_ciface_)?(print|assert)_(?:scalar|[1-8]d)_({TYPE})_(?:ubuf|gm)")
_FRAME = ("_mlir_ciface_init_debug", "_mlir_ciface_finish_debug")
HEXADECIMAL = 3
"""Place of the operand that asks for base 16."""


def lookup(callee: str, types: Sequence[Type]) -> Entry | None:
    """The entry, where ``callee`` prints or asserts."""
    if callee in _FRAME:
        roles = tuple("gm-lock" if isinstance(kind, MemRef) else "scalar" for kind in types)
        return Entry(roles, Pipe.S, _nothing)
    match = _SAY.fullmatch(callee)
    if not match or len(types) != (HEXADECIMAL + 1 if match[1] == "print" else HEXADECIMAL):
        return None
    value = types[2]
    if isinstance(value, MemRef) and value.space != "ub":
        return None
    role = "read" if isinstance(value, MemRef) else "scalar"
    roles = ("scalar", "scalar", role, *("scalar",) * (len(types) - HEXADECIMAL))
    make = _print if match[1] == "print" else _assert
    return Entry(roles, Pipe.S, make(NAMES[match[2]]), barrier=True)


def _nothing(site: CallSite, core: Core) -> Run:
    return lambda words: None


def _values(core: Core, words: Words, operand: Operand, element: str) -> Array:
    """What is printed or asserted."""
    if operand.role == "scalar":
        if element == "i1":
            return np.array(bool(words[operand.word] & 1))
        return np.array(scalar_value(words[operand.word], DTYPES[element]))
    if element == "i1":
        return core.bits(words, operand)
    return core.view(words, operand, DTYPES[element])


def _print(element: str) -> Make:
    def make(site: CallSite, core: Core) -> Run:
        prefix, _, operand, base = site.operands

        def run(words: Words) -> None:
            values = _values(core, words, operand, element)
            core.say(words[prefix.word], _text(values, hexadecimal=bool(words[base.word])))

        return run

    return make


def _text(values: Array, *, hexadecimal: bool) -> str:
    """As NumPy shows it; integers in base 16 where asked for."""
    if not hexadecimal or values.dtype.kind not in "iu":
        return np.array2string(values, separator=",", threshold=1 << 20, max_line_width=1 << 20)
    digits = values.view(f"u{values.dtype.itemsize}")
    formatter: Any = {"int": lambda value: f"{value:X}"}
    return np.array2string(
        digits, separator=",", threshold=1 << 20, max_line_width=1 << 20, formatter=formatter
    )


def _assert(element: str) -> Make:
    def make(site: CallSite, core: Core) -> Run:
        prefix, _, operand = site.operands

        def run(words: Words) -> None:
            holds = _values(core, words, operand, element).astype(bool).reshape(-1)
            if not holds.all():
                core.assertion(site, words[prefix.word], int(np.argmin(holds)), int((~holds).sum()))

        return run

    return make
