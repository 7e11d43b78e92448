"""The template library of AscendNPU IR, by meaning: which functions there are and what they do."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ascendport.simulator.errors import UnsupportedError
from ascendport.simulator.ir import Location, Type
from ascendport.simulator.library import (
    cast,
    compare,
    debug,
    elementwise,
    reduce,
    search,
    shape,
    transfer,
)
from ascendport.simulator.library.base import Entry

Family = Callable[[str, Sequence[Type]], Entry | None]

_FAMILIES: tuple[Family, ...] = (
    elementwise.lookup,
    compare.lookup,
    cast.lookup,
    shape.lookup,
    reduce.lookup,
    search.lookup,
    transfer.lookup,
    debug.lookup,
)


def lookup(callee: str, types: Sequence[Type], location: Location | None = None) -> Entry:
    """How to run a library function.

    Args:
        callee: its name in the program, such as ``vadd_1d_float``.
        types: of its operands.
        location: of the call, for the error.

    Raises:
        UnsupportedError: there is none of that name with such operands.
    """
    for family in _FAMILIES:
        entry = family(callee, types)
        if entry is not None:
            return entry
    raise UnsupportedError(callee, location)
