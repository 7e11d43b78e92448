"""State of one vector core: UB with its shadow, clocks, events, records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ascendport.simulator.conflicts import Accesses
from ascendport.simulator.findings import Findings
from ascendport.simulator.layout import BLOCK, EVENTS, SLOTS, TENSOR_SHIFT, Slot
from ascendport.simulator.library.base import Array, Bools, Words
from ascendport.simulator.memory import GmTensor, starts_of
from ascendport.simulator.sites import Operand, Site

BUFFER_WORDS = 1 << 16
BUFFER_SLACK = 1 << 10
"""More words than any one record takes."""
LOG_ENTRIES = 1 << 14
_INT_MAX = np.iinfo(np.int32).max


class StopProgramError(Exception):
    """The program cannot go on."""


class Arrays:
    """The state that generated code works on, and its address table."""

    def __init__(self, ub_bytes: int, tensors: Sequence[GmTensor]) -> None:
        blocks = -(-ub_bytes // BLOCK) + 1
        self.ub = np.zeros(blocks * BLOCK, np.uint8)
        self.shadow = np.empty_like(self.ub)
        self.writes = np.zeros((blocks, 4), np.int32)
        self.reads = np.zeros((blocks, 4), np.int32)
        self.write_site = np.zeros(blocks, np.int32)
        self.read_site = np.zeros((blocks, 4), np.int32)
        self.clocks = np.zeros((5, 4), np.int32)
        self.events = np.zeros((4, 4, EVENTS, 8), np.int32)
        self.buffer = np.zeros(BUFFER_WORDS + BUFFER_SLACK, np.int64)
        self.log = np.zeros((LOG_ENTRIES, 4), np.int64)
        # A row for whatever number an address can hold; those without a tensor hold zeros.
        self.tensors = np.zeros((1 << (64 - TENSOR_SHIFT), 4), np.int64)
        for tensor in tensors:
            extent = tensor.extent
            row = (tensor.host, extent.span, extent.row, extent.distance)
            self.tensors[tensor.number] = row
        self.state = np.zeros(SLOTS, np.int64)
        for slot, array in (
            (Slot.UB, self.ub),
            (Slot.SHADOW, self.shadow),
            (Slot.WRITES, self.writes),
            (Slot.READS, self.reads),
            (Slot.CLOCKS, self.clocks),
            (Slot.EVENTS, self.events),
            (Slot.TENSORS, self.tensors),
            (Slot.BUFFER, self.buffer),
            (Slot.LOG, self.log),
            (Slot.WRITE_SITE, self.write_site),
            (Slot.READ_SITE, self.read_site),
        ):
            self.state[slot] = array.ctypes.data
        self.state[Slot.TENSOR_COUNT] = max((t.number for t in tensors), default=0)
        self.state[Slot.LIMIT] = BUFFER_WORDS
        self.state[Slot.UB_BYTES] = ub_bytes
        self.state[Slot.LOG_LIMIT] = LOG_ENTRIES

    def reset(self, program: int) -> None:
        """The core as a program finds it: nothing in UB is defined, no event is set."""
        self.shadow.fill(0xFF)
        self.events.fill(0)
        if self.clocks[4].max() > _INT_MAX // 2:
            for array in (self.writes, self.reads, self.clocks):
                array.fill(0)
        # Clocks go on from program to program; each pipe knows all that the last program did.
        self.clocks[:4] = self.clocks[4]
        self.clocks[0, 0] = _INT_MAX
        self.clocks[4] += 1
        self.state[Slot.PROGRAM] = program
        self.state[Slot.CURSOR] = 0
        self.state[Slot.LOG_COUNT] = 0
        self.state[Slot.ACCESS] = 0


class State:
    """What library functions see of the core, and what all of its parts share."""

    def __init__(self, sites: Sequence[Site], ub_bytes: int, tensors: Sequence[GmTensor]) -> None:
        self.sites = sites
        self.tensors = {tensor.number: tensor for tensor in tensors}
        self.arrays = Arrays(ub_bytes, tensors)
        self.buffer = self.arrays.buffer
        self.ub_bytes = ub_bytes
        self.program = 0
        self.findings = Findings()
        self.accesses = Accesses()
        self.chosen: frozenset[int] | None = None
        """The programs of the launch that are run; None: all."""
        self.strings: Sequence[str] = ()
        """Texts of the program, by number."""
        self.printed: list[str] = []
        self.past_locks = False
        """Whether a program that waits for a lock for ever goes on as if it had it."""
        self.bytes_read = 0
        self.bytes_written = 0
        self.views: dict[tuple[Any, ...], Array] = {}
        self.flat: dict[tuple[int, Any], Array] = {}

    def view(self, words: Words, operand: Operand, dtype: Any) -> Array:
        key = (dtype, *words[operand.word : operand.end])
        view = self.views.get(key)
        if view is None:
            view = self.views[key] = self.array_at(self.arrays.ub, key, operand.rank, dtype)
        return view

    def array_at(self, memory: Array, key: tuple[Any, ...], rank: int, dtype: Any) -> Array:
        size = dtype.itemsize
        address, sizes, strides = key[1], key[2 : 2 + rank], key[2 + rank :]
        steps = tuple(stride * size for stride in strides)
        if 0 in sizes:
            return np.empty(sizes, dtype)
        return np.ndarray(sizes, dtype, memory.data, address, steps)

    def shadow(self, words: Words, operand: Operand) -> Array:
        dtype = np.dtype(f"u{operand.type.bits // 8}")
        key = (0, *words[operand.word : operand.end])
        return self.array_at(self.arrays.shadow, key, operand.rank, dtype)

    def bits(self, words: Words, operand: Operand) -> Bools:
        return self.unpack(self.arrays.ub, words, operand)

    def unpack(self, memory: Array, words: Words, operand: Operand) -> Bools:
        start, rank = operand.word, operand.rank
        at = words[start]
        sizes, strides = words[start + 1 : start + 1 + rank], words[start + 1 + rank :][:rank]
        if rank == 1 and strides[0] == 1 and at % 8 == 0:
            first, count = at // 8, sizes[0]
            packed = memory[first : first + (count + 7) // 8]
            dense: Bools = np.unpackbits(packed, count=count, bitorder="little").view(np.bool_)
            return dense
        places = starts_of(at, sizes, strides)
        values = (memory[places >> 3] >> (places & 7).astype(np.uint8)) & 1
        spread: Bools = values.astype(np.bool_).reshape(sizes)
        return spread

    def set_bits(self, words: Words, operand: Operand, values: Bools) -> None:
        self.pack(self.arrays.ub, words, operand, values)

    def pack(self, memory: Array, words: Words, operand: Operand, values: Any) -> None:
        start, rank = operand.word, operand.rank
        at = words[start]
        sizes, strides = words[start + 1 : start + 1 + rank], words[start + 1 + rank :][:rank]
        if rank == 1 and strides[0] == 1 and at % 8 == 0 and np.shape(values) == (sizes[0],):
            packed = np.packbits(values, bitorder="little")
            memory[at // 8 : at // 8 + len(packed)] = packed
            return
        places = starts_of(at, sizes, strides)
        flat = np.broadcast_to(values, sizes).reshape(-1)
        masks = np.left_shift(np.uint8(1), (places & 7).astype(np.uint8))
        np.bitwise_or.at(memory, places[flat] >> 3, masks[flat])
        np.bitwise_and.at(memory, places[~flat] >> 3, ~masks[~flat])

    def bytes_at(self, address: int, count: int) -> Array:
        return self.array_at(self.arrays.ub, (0, address, count, 1), 1, np.dtype(np.uint8))

    def undefined_at(self, address: int, count: int) -> Bools:
        shadow = self.array_at(self.arrays.shadow, (0, address, count, 1), 1, np.dtype(np.uint8))
        marks: Bools = shadow != 0
        return marks

    def undefined(self, words: Words, operand: Operand) -> Bools:
        if operand.type.bits == 1:
            return self.unpack(self.arrays.shadow, words, operand)
        marks: Bools = self.shadow(words, operand) != 0
        return marks

    def set_undefined(self, words: Words, operand: Operand, marks: Any) -> None:
        if operand.type.bits == 1:
            shape = words[operand.word + 1 : operand.word + 1 + operand.rank]
            self.pack(self.arrays.shadow, words, operand, np.broadcast_to(marks, shape))
            return
        shadow = self.shadow(words, operand)
        ones = shadow.dtype.type(-1 & ((1 << (8 * shadow.itemsize)) - 1))
        shadow[...] = np.where(marks, ones, shadow.dtype.type(0))
