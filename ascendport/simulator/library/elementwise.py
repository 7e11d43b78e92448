"""Arithmetic and logic on tiles: op × type × rank, by table.

Each result is rounded to the type once, as one vector instruction does. Axes of size 1 in a
source are broadcast. exp, ln, sqrt and division are NumPy's in fp32; fp16 goes through fp32.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ascendport.simulator.ir import MemRef, Type
from ascendport.simulator.layout import Pipe
from ascendport.simulator.library.base import (
    DTYPES,
    NAMES,
    TYPE,
    Core,
    Entry,
    Run,
    Words,
    memory_roles,
    scalar_value,
    spread,
    unsigned,
    with_definedness,
)
from ascendport.simulator.sites import CallSite

Ufunc = Callable[..., Any]


def _wide(function: Ufunc) -> Ufunc:
    """In fp32, then rounded to the output's type; that equals rounding once for + - * / sqrt."""

    def run(*inputs: Any, out: Any) -> None:
        out[...] = function(*(np.asarray(value, np.float32) for value in inputs)).astype(out.dtype)

    return run


def _or_wide(function: Ufunc) -> Ufunc:
    wide = _wide(function)

    def run(*inputs: Any, out: Any) -> None:
        if out.dtype.itemsize == 2 and out.dtype.kind not in "iu":
            wide(*inputs, out=out)
        else:
            function(*inputs, out=out)

    return run


def _relu(value: Any, out: Any) -> None:
    np.maximum(value, value.dtype.type(0), out=out)


def _power(base: Any, exponent: Any, out: Any) -> None:
    """Integer powers, wrapped. Of negative exponents only ±1 have a power that is not 0; the
    lowest integer counts as -2."""
    given: Any = np.where(exponent == np.iinfo(exponent.dtype).min, -2, exponent)
    left: Any = np.abs(given).astype(np.uint32)
    factor: Any = np.array(base).view(np.uint32)
    result: Any = np.ones(np.broadcast(base, exponent).shape, np.uint32)
    while left.any():
        result = np.where(left & 1, result * factor, result)
        factor, left = factor * factor, left >> 1
    kept = (given >= 0) | (np.abs(base.astype(np.int64)) == 1)
    out[...] = np.where(kept, result, np.uint32(0)).view(np.int32)


BINARY: dict[str, Ufunc] = {
    "vadd": np.add,
    "vsub": np.subtract,
    "vmul": np.multiply,
    "vdiv": _or_wide(np.divide),
    "vmax": np.maximum,
    "vmin": np.minimum,
    "vand": np.bitwise_and,
    "vor": np.bitwise_or,
    "vxor": np.bitwise_xor,
    "vpow": _power,
}
WITH_SCALAR: dict[str, Ufunc] = {
    "vadds": np.add,
    "vsub": np.subtract,
    "vmuls": np.multiply,
    "vdiv": _or_wide(np.divide),
    "vmaxs": np.maximum,
    "vmins": np.minimum,
    "vshls": np.left_shift,
    "vshrs": np.right_shift,
}
UNARY: dict[str, Ufunc] = {
    "vabs": np.abs,
    "vexp": _or_wide(np.exp),
    "vln": _or_wide(np.log),
    "vsqrt": _or_wide(np.sqrt),
    "vrsqrt": _wide(lambda value: np.float32(1) / np.sqrt(value)),
    "vrec": _wide(lambda value: np.float32(1) / value),
    "vrelu": _relu,
    "vnot": np.invert,
}
_BITWISE = ("vand", "vor", "vxor", "vnot")
_ANY = "|".join

_BINARY = re.compile(rf"({_ANY(BINARY)})_([123])d_({TYPE})")
_SCALAR = re.compile(rf"({_ANY(WITH_SCALAR)})_(vs|sv)_([123])d_({TYPE})")
_UNARY = re.compile(rf"({_ANY(UNARY)})_([123])d_({TYPE})")


def lookup(callee: str, types: Sequence[Type]) -> Entry | None:
    """The entry, where ``callee`` is an elementwise function."""
    if match := _BINARY.fullmatch(callee):
        function, element, sources = BINARY[match[1]], NAMES[match[3]], 2
    elif match := _SCALAR.fullmatch(callee):
        function, element, sources = WITH_SCALAR[match[1]], NAMES[match[4]], 1
    elif match := _UNARY.fullmatch(callee):
        function, element, sources = UNARY[match[1]], NAMES[match[2 + 1]], 1
    else:
        return None
    memory = sum(isinstance(kind, MemRef) for kind in types)
    scratch = memory - sources - 1
    if scratch not in (0, 1) or (match[1] == "vpow" and element != "i32"):
        return None
    roles = memory_roles(types, 1, scratch)
    if element == "i1":
        if match[1] not in _BITWISE:
            return None
        return Entry(roles, Pipe.V, _booleans(match[1], function))
    return Entry(roles, Pipe.V, _numbers(match[1], function, DTYPES[element]))


def _numbers(name: str, function: Ufunc, dtype: Any) -> Callable[[CallSite, Core], Run]:
    bitwise = name in _BITWISE
    dtype = unsigned(dtype) if bitwise else dtype
    logic = name in ("vand", "vor")

    def make(site: CallSite, core: Core) -> Run:
        inputs = [operand for operand in site.operands if operand.role in ("read", "scalar")]
        output = next(operand for operand in site.operands if operand.role == "write")
        if len(inputs) == 1:
            (only,) = inputs

            def compute(words: Words) -> None:
                function(core.view(words, only, dtype), out=core.view(words, output, dtype))

        elif inputs[0].role == "scalar":
            first, second = inputs

            def compute(words: Words) -> None:
                number = scalar_value(words[first.word], dtype)
                function(
                    number, core.view(words, second, dtype), out=core.view(words, output, dtype)
                )

        elif inputs[1].role == "scalar":
            first, second = inputs

            def compute(words: Words) -> None:
                number = scalar_value(words[second.word], dtype)
                function(
                    core.view(words, first, dtype), number, out=core.view(words, output, dtype)
                )

        else:
            first, second = inputs

            def compute(words: Words) -> None:
                function(
                    core.view(words, first, dtype),
                    core.view(words, second, dtype),
                    out=core.view(words, output, dtype),
                )

        definedness = _logic_numbers(name, dtype, site, core) if logic else spread(site, core)
        return with_definedness(compute, definedness, site)

    return make


def _logic_numbers(name: str, dtype: Any, site: CallSite, core: Core) -> Run:
    """Bit by bit: a defined 0 decides an AND, a defined 1 an OR."""
    a, b = (operand for operand in site.operands if operand.role == "read")
    output = next(operand for operand in site.operands if operand.role == "write")

    def run(words: Words) -> None:
        marks = _logic_marks(
            name,
            core.view(words, a, dtype),
            core.shadow(words, a),
            core.view(words, b, dtype),
            core.shadow(words, b),
        )
        core.shadow(words, output)[...] = marks

    return run


def _logic_marks(name: str, a: Any, ua: Any, b: Any, ub: Any) -> Any:
    if name == "vand":
        return (ua | ub) & (ua | a) & (ub | b)
    return (ua | ub) & (ua | ~a) & (ub | ~b)


def _booleans(name: str, function: Ufunc) -> Callable[[CallSite, Core], Run]:
    def make(site: CallSite, core: Core) -> Run:
        inputs = [operand for operand in site.operands if operand.role == "read"]
        output = next(operand for operand in site.operands if operand.role == "write")

        def compute(words: Words) -> None:
            values = [core.bits(words, operand) for operand in inputs]
            core.set_bits(words, output, function(*values))

        def definedness(words: Words) -> None:
            marks = [core.undefined(words, operand) for operand in inputs]
            if name in ("vand", "vor"):
                values = [core.bits(words, operand) for operand in inputs]
                result = _logic_marks(name, values[0], marks[0], values[1], marks[1])
            else:
                result = np.logical_or.reduce(np.broadcast_arrays(*marks))
            core.set_undefined(words, output, result)

        return with_definedness(compute, definedness, site)

    return make
