"""Where the machine's state lies in memory: shared by generated code and Python.

The state block is an array of int64 words; pointers in it lead to the arrays named here.
"""

from __future__ import annotations

from enum import IntEnum


class Slot(IntEnum):
    """Word of the state block."""

    UB = 0
    """Address of the Unified Buffer, bytes."""
    SHADOW = 1
    """Address of its shadow: a bit is 1 where the UB bit holds no defined value."""
    WRITES = 2
    """Address of int32[blocks][4]: clock of the last write by each pipe."""
    READS = 3
    """The same for reads."""
    CLOCKS = 4
    """Address of int32[5][4]: what each pipe knows of the others, then the pipes' own clocks."""
    EVENTS = 5
    """Address of int32[128][8]: whether set, three spare words, the setter's knowledge."""
    TENSORS = 6
    """Address of int64[tensors][4]: host address, bytes, bytes of a row, distance of rows."""
    BUFFER = 7
    """Address of the record buffer, int64 words."""
    CURSOR = 8
    """Word of the buffer that the next record starts at."""
    LIMIT = 9
    """The record buffer is emptied once the cursor has passed this."""
    TRACE = 10
    """-1: records are kept; 0: each record overwrites the one before."""
    UB_BYTES = 11
    PROGRAM = 12
    """Flat program id."""
    LOG = 13
    """Address of int64[entries][4]: first byte, end, site, flags of a scalar access to GM."""
    LOG_COUNT = 14
    LOG_LIMIT = 15
    ACCESS = 16
    """Flags that GM accesses carry at this time (`LOCKED`)."""
    FUEL = 17
    """Iterations of `while` loops that are left."""
    WRITE_SITE = 18
    """Address of int32[blocks]: site of the last write."""
    READ_SITE = 19
    """Address of int32[blocks][4]: site of the last read by each pipe."""
    TENSOR_COUNT = 20
    PROGRAMS = 21
    """Programs of the launch."""


SLOTS = 32


class Pipe(IntEnum):
    """The four queues of a vector core that run side by side."""

    S = 0
    V = 1
    MTE2 = 2
    MTE3 = 3


ALL_PIPES = 4
"""In place of a pipe: all of them."""

BLOCK = 32
"""Bytes of a UB block: the unit in which hazards are found."""

EVENTS = 8
"""Event ids of a pair of pipes."""


class Signal(IntEnum):
    """Why generated code calls back."""

    CALL = 0
    """A library call; second value: word of the buffer where its arguments start."""
    HAZARD = 1
    """An access without order: operand << 16 | mask, word of the buffer or byte address."""
    UB_RANGE = 2
    """An access outside UB: operand, word of the buffer or byte address."""
    GM_RANGE = 3
    """A scalar access to GM that the tensor does not have: address, bytes | write << 32."""
    UNDEFINED = 4
    """A value that was never written decides something: `Use`."""
    EVENT_TWICE = 5
    """An event is set while it is set: id."""
    EVENT_MISSING = 6
    """A wait for an event that is not set: id."""
    BUFFER_FULL = 7
    LOG_FULL = 8
    FUEL_OUT = 9
    MISALIGNED = 10
    """A buffer off a block: its address."""


class Use(IntEnum):
    """What an undefined value decides."""

    BRANCH = 0
    ADDRESS = 1
    GM_STORE = 2


# Bits of what `touch` returns.
CONFLICT_BITS = 0xFF
"""Bits 0-3: the last write was by pipe 0-3; bits 4-7: so was the last read."""
OUT_OF_UB = 0x100
HAS_UNDEFINED = 0x200

# Flags of a GM access.
WRITE = 1
ATOMIC = 2
LOCKED = 4

TENSOR_SHIFT = 48
"""An address in GM is tensor << 48 | (byte + 2^47): it leads back to its tensor whatever the
kernel adds to it."""
TENSOR_BIAS = 1 << 47
