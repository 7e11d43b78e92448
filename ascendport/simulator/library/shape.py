"""Functions that move or make elements: broadcast, arange, copies, transposes, interleaving."""

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
    Make,
    Run,
    Words,
    any_undefined,
    memory_roles,
    scalar_value,
    spread,
    unsigned,
    with_definedness,
)
from ascendport.simulator.sites import CallSite

_FILL = re.compile(rf"broadcast_scalar_({TYPE})_to_([123])d")
_BROADCAST = re.compile(
    rf"broadcast_(?:1d|(?:first|middle|last)_axis_(?:align|unalign|unknown_align)_[23]d)_({TYPE})"
)
_ARANGE = re.compile(rf"arange_([123])d_({TYPE})")
_COPY = re.compile(rf"copy_ubuf_to_ubuf_([123])d_({TYPE})")
_TRANSPOSE = re.compile(rf"transpose_([23])d_(with|without)_last_axis_({TYPE})")
_FLIP = re.compile(rf"flip_1d_({TYPE})")
_DEINTERLEAVE = re.compile(rf"deinterleave_channel_(\d+)_from_(\d+|n)_channels_([12])d_({TYPE})")
_INTERLEAVE = re.compile(rf"interleave_1d_({TYPE})")

Move = Callable[[list[Any], list[Any]], None]
"""Fills output arrays from input arrays: used for elements and for their shadows alike."""


def lookup(callee: str, types: Sequence[Type]) -> Entry | None:
    """The entry, where ``callee`` moves or makes elements."""
    if match := _FILL.fullmatch(callee):
        return Entry(memory_roles(types, 1), Pipe.V, _fill(NAMES[match[1]]))
    if match := _ARANGE.fullmatch(callee):
        return Entry(memory_roles(types, 1), Pipe.V, _arange(DTYPES[NAMES[match[2]]]))
    memory = sum(isinstance(kind, MemRef) for kind in types)
    for pattern, move, sources in (
        (_BROADCAST, _same, 1),
        (_COPY, _same, 1),
        (_FLIP, _flip, 1),
        (_INTERLEAVE, _interleave, 2),
    ):
        if match := pattern.fullmatch(callee):
            return _moving(NAMES[match[match.re.groups]], move, types, memory - sources - 1)
    if match := _TRANSPOSE.fullmatch(callee):
        transpose = _swap_last if match[2] == "with" else _swap_first
        return _moving(NAMES[match[3]], transpose, types, memory - 2)
    if match := _DEINTERLEAVE.fullmatch(callee):
        return _moving(NAMES[match[4]], _channel(int(match[1])), types, memory - 2)
    return None


def _moving(element: str, move: Move, types: Sequence[Type], scratch: int) -> Entry | None:
    if scratch not in (0, 1):
        return None
    roles = memory_roles(types, 1, scratch)
    return Entry(roles, Pipe.V, _bits_move(move) if element == "i1" else _move(element, move))


def _same(inputs: list[Any], outputs: list[Any]) -> None:
    outputs[0][...] = inputs[0]


def _flip(inputs: list[Any], outputs: list[Any]) -> None:
    outputs[0][...] = inputs[0][::-1].copy()


def _interleave(inputs: list[Any], outputs: list[Any]) -> None:
    both = np.stack(inputs, axis=-1).reshape(-1)
    outputs[0][...] = both


def _swap_last(inputs: list[Any], outputs: list[Any]) -> None:
    """The last axis changes place with the one that makes the shapes fit."""
    source, target = inputs[0], outputs[0]
    for axis in range(source.ndim - 2, -1, -1):
        swapped = np.swapaxes(source, axis, source.ndim - 1)
        if swapped.shape == target.shape:
            target[...] = swapped.copy()
            return
    raise ValueError(f"no transpose of {source.shape} gives {target.shape}")


def _swap_first(inputs: list[Any], outputs: list[Any]) -> None:
    outputs[0][...] = np.swapaxes(inputs[0], 0, 1).copy()


def _channel(number: int) -> Move:
    """Every n-th element, n told by the sizes."""

    def move(inputs: list[Any], outputs: list[Any]) -> None:
        source, target = inputs[0], outputs[0]
        channels = source.shape[-1] // target.shape[-1]
        target[...] = source[..., number::channels][..., : target.shape[-1]].copy()

    return move


def _move(element: str, move: Move) -> Make:
    dtype = unsigned(DTYPES[element])

    def make(site: CallSite, core: Core) -> Run:
        inputs = [operand for operand in site.operands if operand.role == "read"]
        outputs = [operand for operand in site.operands if operand.role == "write"]

        def compute(words: Words) -> None:
            move(
                [core.view(words, operand, dtype) for operand in inputs],
                [core.view(words, operand, dtype) for operand in outputs],
            )

        def definedness(words: Words) -> None:
            move(
                [core.shadow(words, operand) for operand in inputs],
                [core.shadow(words, operand) for operand in outputs],
            )

        return with_definedness(compute, definedness, site)

    return make


def _bits_move(move: Move) -> Make:
    def make(site: CallSite, core: Core) -> Run:
        (source,) = (operand for operand in site.operands if operand.role == "read")
        (target,) = (operand for operand in site.operands if operand.role == "write")

        def moved(values: Any, words: Words) -> Any:
            shape = words[target.word + 1 : target.word + 1 + target.rank]
            result = np.empty(shape, bool)
            move([values], [result])
            return result

        def compute(words: Words) -> None:
            core.set_bits(words, target, moved(core.bits(words, source), words))

        def definedness(words: Words) -> None:
            core.set_undefined(words, target, moved(core.undefined(words, source), words))

        return with_definedness(compute, definedness, site)

    return make


def _fill(element: str) -> Make:
    def make(site: CallSite, core: Core) -> Run:
        scalar, target = site.operands
        dtype = None if element == "i1" else unsigned(DTYPES[element])

        def compute(words: Words) -> None:
            if dtype is None:
                shape = words[target.word + 1 : target.word + 1 + target.rank]
                core.set_bits(words, target, np.full(shape, words[scalar.word] & 1, bool))
            else:
                core.view(words, target, dtype)[...] = scalar_value(words[scalar.word], dtype)

        return with_definedness(compute, spread(site, core), site)

    return make


def _arange(dtype: Any) -> Make:
    """Element (i, j, …) is offset + i * stride0 + j * stride1 + …"""

    def make(site: CallSite, core: Core) -> Run:
        target, offset, *strides = site.operands
        definedness = spread(site, core)

        def run(words: Words) -> None:
            if any_undefined(words, site):
                definedness(words)
            view = core.view(words, target, dtype)
            total = np.asarray(words[offset.word], np.int64)
            for axis, stride in enumerate(strides):
                steps = np.arange(view.shape[axis], dtype=np.int64) * words[stride.word]
                shape = [1] * view.ndim
                shape[axis] = -1
                total = total + steps.reshape(shape)
            view[...] = total.astype(dtype)

        return run

    return make
