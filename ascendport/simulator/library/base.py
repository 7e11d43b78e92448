"""What a library function needs from the core it runs on, and what it offers to the translator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from ascendport.simulator.ir import MemRef, Type
from ascendport.simulator.layout import HAS_UNDEFINED, Pipe
from ascendport.simulator.sites import CallSite, Operand

Array = NDArray[Any]
Bools = NDArray[np.bool_]
Words = list[int]
"""A call's record: site, flags, then the operands' words."""
Run = Callable[[Words], None]

SCALAR_FLAGS = 16
"""Bit of a call's flags that says that operand 0, a scalar, is undefined; operand 1 follows."""

DTYPES: dict[str, Any] = {
    "i8": np.dtype(np.int8),
    "i16": np.dtype(np.int16),
    "i32": np.dtype(np.int32),
    "i64": np.dtype(np.int64),
    "index": np.dtype(np.int64),
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "f32": np.dtype(np.float32),
    "u8": np.dtype(np.uint8),
    "u16": np.dtype(np.uint16),
    "u32": np.dtype(np.uint32),
    "u64": np.dtype(np.uint64),
}
"""MLIR element type → NumPy's; ``u…`` are what library names call uint…_t."""

NAMES = {
    "int8_t": "i8",
    "int16_t": "i16",
    "int32_t": "i32",
    "int64_t": "i64",
    "uint8_t": "u8",
    "uint16_t": "u16",
    "uint32_t": "u32",
    "uint64_t": "u64",
    "half": "f16",
    "bfloat16_t": "bf16",
    "float": "f32",
    "bool": "i1",
}
"""Type in a library function's name → element."""

TYPE = "(?:u?int(?:8|16|32|64)_t|half|bfloat16_t|float|bool)"
"""Pattern of such a type."""


class Core(Protocol):
    """One vector core: what library functions may do."""

    def view(self, words: Words, operand: Operand, dtype: Any) -> Array:
        """The elements of a UB operand, in place. ``dtype`` is as wide as the element."""

    def shadow(self, words: Words, operand: Operand) -> Array:
        """The operand's shadow as unsigned integers, in place: bits set are undefined."""

    def bits(self, words: Words, operand: Operand) -> Bools:
        """A copy of a packed boolean operand."""

    def set_bits(self, words: Words, operand: Operand, values: Bools) -> None:
        """Writes a packed boolean operand."""

    def bytes_at(self, address: int, count: int) -> Array:
        """Bytes of UB, in place."""

    def undefined_at(self, address: int, count: int) -> Bools:
        """Which bytes of UB are (partly) undefined."""

    def undefined(self, words: Words, operand: Operand) -> Bools:
        """Which elements are (partly) undefined."""

    def set_undefined(self, words: Words, operand: Operand, marks: Any) -> None:
        """Says of each element of an operand whether it is undefined."""

    def load(self, site: CallSite, words: Words) -> None:
        """Copies from GM to UB; see `library.dma`."""

    def store(self, site: CallSite, words: Words) -> None:
        """Copies from UB to GM; see `library.dma`."""

    def lock(self, site: CallSite, words: Words) -> None:
        """Takes the lock that orders programs."""

    def unlock(self, site: CallSite, words: Words) -> None:
        """Gives it to the next program."""

    def free_lock(self, site: CallSite, words: Words) -> None:
        """Passes the lock on where this program has not."""

    def say(self, text: int, values: str) -> None:
        """Prints values behind the program's text of that number."""

    def assertion(self, site: CallSite, text: int, first: int, count: int) -> None:
        """Reports elements of an assertion that do not hold."""

    def finding_gather(self, site: CallSite, words: Words, operand: Operand) -> None:
        """Reports an index that leads out of the gathered operand."""


Make = Callable[[CallSite, Core], Run]


@dataclass(frozen=True)
class Entry:
    """How a library function is called and run.

    ``roles``: of each operand, as in `Operand`. ``make``: called once for each place that calls
    the function; what it returns runs at each call. ``barrier``: the function starts with a
    barrier of all pipes.
    """

    roles: tuple[str, ...]
    pipe: Pipe
    make: Make
    barrier: bool = False


def memory_roles(types: Sequence[Type], writes: int, scratch: int = 0) -> tuple[str, ...]:
    """Roles where the last memory operands are ``writes`` results, then ``scratch`` buffers."""
    memory = [number for number, kind in enumerate(types) if isinstance(kind, MemRef)]
    roles = ["read" if isinstance(kind, MemRef) else "scalar" for kind in types]
    for number in memory[len(memory) - scratch :]:
        roles[number] = "scratch"
    for number in memory[len(memory) - scratch - writes : len(memory) - scratch]:
        roles[number] = "write"
    return tuple(roles)


def any_undefined(words: Words, site: CallSite) -> bool:
    """Whether anything that goes into the call is undefined."""
    flags = words[1]
    if flags & HAS_UNDEFINED:
        return True
    return bool(flags >> SCALAR_FLAGS & ((1 << len(site.operands)) - 1))


def inputs_undefined(core: Core, words: Words, operand: Operand, position: int) -> Any:
    """Marks of an input: an array for memory, one bool for a scalar."""
    if operand.role == "scalar":
        return bool(words[1] >> (SCALAR_FLAGS + position) & 1)
    return core.undefined(words, operand)


def spread(site: CallSite, core: Core) -> Run:
    """What elementwise functions do with definedness: an element of the result is undefined where
    an element that it was made from is."""
    inputs = [
        (position, operand)
        for position, operand in enumerate(site.operands)
        if operand.role in ("read", "scalar")
    ]
    outputs = [operand for operand in site.operands if operand.role == "write"]

    def run(words: Words) -> None:
        marks: Any = False
        for position, operand in inputs:
            marks = np.logical_or(marks, inputs_undefined(core, words, operand, position))
        for operand in outputs:
            core.set_undefined(words, operand, marks)

    return run


def with_definedness(compute: Run, definedness: Run, site: CallSite) -> Run:
    """Definedness first, where there is any to follow: a result may overwrite an input."""

    def run(words: Words) -> None:
        if any_undefined(words, site):
            definedness(words)
        compute(words)

    return run


@lru_cache(maxsize=4096)
def scalar_value(word: int, dtype: Any) -> Any:
    """The number whose bits are the low bits of ``word``."""
    size = dtype.itemsize
    raw = (word & ((1 << (8 * size)) - 1)).to_bytes(size, "little")
    return np.frombuffer(raw, dtype)[0]


def unsigned(dtype: Any) -> Any:
    """The unsigned integer as wide as ``dtype``."""
    return np.dtype(f"u{dtype.itemsize}")
