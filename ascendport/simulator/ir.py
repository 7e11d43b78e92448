"""A finished HIVM program as data: types, operations, functions. No behaviour."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property


@dataclass(frozen=True)
class Location:
    """A place in the kernel's source. ``within``: the call that brought it there, if inlined."""

    file: str
    line: int
    column: int = 0
    within: Location | None = None

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True)
class Scalar:
    """``i1`` … ``i64``, ``index``, ``f16``, ``bf16``, ``f32``."""

    name: str

    @property
    def bits(self) -> int:
        """Width; ``index`` is 64 bits wide."""
        return BITS[self.name]


@dataclass(frozen=True)
class MemRef:
    """A view of memory. None stands for a size, stride or offset known at run time only.

    Strides and offset count elements. ``space``: ``ub``, ``gm``, or another memory of the core.
    """

    shape: tuple[int | None, ...]
    element: str
    strides: tuple[int | None, ...]
    offset: int | None
    space: str

    @property
    def bits(self) -> int:
        """Width of an element; booleans are packed, one bit each."""
        return BITS[self.element]


Type = Scalar | MemRef

BITS: Mapping[str, int] = {
    "i1": 1,
    "i8": 8,
    "i16": 16,
    "i32": 32,
    "i64": 64,
    "index": 64,
    "f16": 16,
    "bf16": 16,
    "f32": 32,
}

Index = int | str
"""A constant, or the name of a value."""


@dataclass(frozen=True)
class Op:
    """One operation.

    ``types``: what the text says after the colon, results last where it names both.
    ``attributes``: what the operation's syntax holds besides operands; see `syntax`.
    """

    name: str
    results: tuple[str, ...] = ()
    operands: tuple[str, ...] = ()
    types: tuple[Type, ...] = ()
    attributes: Mapping[str, object] = field(default_factory=dict)
    regions: tuple[Block, ...] = ()
    location: Location | None = None


@dataclass(frozen=True)
class Block:
    """Operations in order; ``arguments``: names and types of what comes in."""

    operations: tuple[Op, ...]
    arguments: tuple[tuple[str, Type], ...] = ()


@dataclass(frozen=True)
class Jump:
    """Where a branch between blocks leads, and the values that it hands to the block."""

    label: str
    operands: tuple[str, ...] = ()


@dataclass(frozen=True)
class Parameter:
    """A parameter of the entry function. ``kind``: what the runtime passes there, or empty."""

    name: str
    type: Type
    kind: str = ""


@dataclass(frozen=True)
class Program:
    """The vector core's entry function and what it needs from the module.

    ``blocks``: what follows the body where the function branches between blocks, by label.
    ``strings``: texts that it prints, by the name of the constant.
    """

    name: str
    parameters: tuple[Parameter, ...]
    body: Block
    ub_bytes: int
    vector_cores: int
    location: Location | None = None
    blocks: tuple[tuple[str, Block], ...] = ()
    strings: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def user_parameters(self) -> tuple[Parameter, ...]:
        """The kernel's own run-time arguments, in order: constants are compiled away."""
        visible = [parameter for parameter in self.parameters if not parameter.kind]
        return tuple(visible[: len(visible) - GRID_PARAMETERS])

    @cached_property
    def grid_parameters(self) -> tuple[Parameter, ...]:
        """The last three: programs in x, y and z."""
        visible = [parameter for parameter in self.parameters if not parameter.kind]
        return tuple(visible[len(visible) - GRID_PARAMETERS :])


GRID_PARAMETERS = 3
