"""Casts between element types.

Modes, as the template library numbers them: 0 to nearest even, 1 to nearest with ties away from
zero, 2 down, 3 up, 4 towards zero, 5 to odd. Out of range, a float saturates; NaN gives 0. A cast
"with overflow" keeps the low bits. Casts of narrow integers keep the low bits without mode 6 too
only where the library says so; int64 to int32 and int32 to int16 saturate.
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
    Run,
    Words,
    memory_roles,
    spread,
    with_definedness,
)
from ascendport.simulator.sites import CallSite

_CAST = re.compile(
    rf"vcast_({TYPE})_to_({TYPE})_([12])d_(with_mode|with_temp|with_overflow(?:_\w+)?)"
)


def _away(value: Any) -> Any:
    return np.copysign(np.floor(np.abs(value) + np.float32(0.5)), value)


def _odd(value: Any) -> Any:
    whole = np.trunc(value)
    inexact = (whole != value) & (np.fmod(whole, 2) == 0)
    return np.where(inexact, whole + np.copysign(np.float32(1), value), whole)


TO_INTEGER: dict[int, Callable[[Any], Any]] = {
    0: np.rint,
    1: _away,
    2: np.floor,
    3: np.ceil,
    4: np.trunc,
    5: _odd,
}
"""Rounding mode → what it does to a float."""

NEAREST_MODES = (0,)


def to_integer(values: Any, dtype: Any, mode: int) -> Any:
    """Floats as integers: rounded by ``mode``, saturated, NaN as 0."""
    rounded = TO_INTEGER[mode](np.asarray(values, np.float32))
    limits = np.iinfo(dtype)
    # The upper limit of a wide type is no float: compare, then convert what is inside.
    top = rounded >= np.float32(float(limits.max) + 1)
    bottom = rounded <= np.float32(limits.min)
    outside = top | bottom | np.isnan(rounded)
    result = np.where(outside, np.float32(0), rounded).astype(dtype)
    result[top] = limits.max
    result[bottom] = limits.min
    return result


def _toward(values: Any, dtype: Any, mode: int) -> Any:
    """fp32 to a shorter float by a directed mode: nearest, then one step where it went too far."""
    wide = np.asarray(values, np.float32)
    near = wide.astype(dtype)
    back = near.astype(np.float32)
    if mode == 1:
        return near
    step = np.int16(1)
    bits = near.view(np.int16)
    away = {
        2: back > wide,
        3: back < wide,
        4: np.abs(back) > np.abs(wide),
        5: np.abs(back) > np.abs(wide),
    }[mode]
    # Stepping the magnitude: down for what is too large in magnitude, up for the others.
    larger = np.abs(back) > np.abs(wide)
    shift = np.where(away, np.where(larger, -step, step), np.int16(0)).astype(np.int16)
    result = bits + shift
    if mode == 5:
        truncated = result
        inexact = np.asarray(truncated.view(dtype), np.float32) != wide
        result = np.where(inexact & np.isfinite(wide), truncated | step, truncated)
    return result.astype(np.int16).view(dtype)


def convert(values: Any, source: str, target: str, mode: int, overflow: bool) -> Any:
    """Values of element type ``source`` as ``target``."""
    dtype = DTYPES[target]
    from_integer = source[0] in "iu"
    if target[0] in "iu":
        if not from_integer:
            return to_integer(values, dtype, mode)
        if overflow or dtype.itemsize >= values.dtype.itemsize:
            return values.astype(dtype)
        limits = np.iinfo(dtype)
        return np.clip(values, limits.min, limits.max).astype(dtype)
    if target == "f32" and source == "f32":
        return values if mode not in TO_INTEGER else TO_INTEGER[mode](values)
    if target in ("f16", "bf16") and source == "f32" and mode not in NEAREST_MODES:
        return _toward(values, dtype, mode)
    if from_integer and target != "f32":
        return values.astype(np.float32).astype(dtype)
    return values.astype(dtype)


def lookup(callee: str, types: Sequence[Type]) -> Entry | None:
    """The entry, where ``callee`` is a cast."""
    match = _CAST.fullmatch(callee)
    if not match:
        return None
    source, target = NAMES[match[1]], NAMES[match[2]]
    if target == "i1":
        return None
    scratch = sum(kind.__class__.__name__ == "MemRef" for kind in types) - 2
    if scratch not in (0, 1):
        return None
    roles = memory_roles(types, 1, scratch)
    return Entry(roles, Pipe.V, _cast(source, target, match[4].startswith("with_overflow")))


def _cast(source: str, target: str, overflow: bool) -> Callable[[CallSite, Core], Run]:
    wanted = DTYPES[target]

    def make(site: CallSite, core: Core) -> Run:
        first, output = site.operands[:2]
        mode_word = site.operands[-1].word if site.operands[-1].role == "scalar" else None

        def compute(words: Words) -> None:
            result = core.view(words, output, wanted)
            if source == "i1":
                result[...] = core.bits(words, first)
                return
            mode = words[mode_word] if mode_word is not None else 0
            values = core.view(words, first, DTYPES[source])
            result[...] = convert(values, source, target, mode, overflow)

        return with_definedness(compute, spread(site, core), site)

    return make
