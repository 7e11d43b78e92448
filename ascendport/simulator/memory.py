"""Global memory: the tensors of a launch, with their real extents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ascendport.simulator.errors import ArgumentError
from ascendport.simulator.layout import TENSOR_BIAS, TENSOR_SHIFT

Array = NDArray[Any]


@dataclass(frozen=True)
class Extent:
    """Bytes of a tensor that belong to it, from its first element.

    ``span``: from the first byte to the end of the last element. Where rows are further apart
    than they are long, ``row`` is their length and ``distance`` how far apart they start; else
    both are 0. Gaps on further axes are not seen, and none where those axes are not stepped in
    whole rows.
    """

    span: int
    row: int = 0
    distance: int = 0


def extent_of(array: Array) -> Extent:
    """The extent of ``array``.

    Raises:
        ArgumentError: a stride is negative.
    """
    if array.size == 0:
        return Extent(0)
    axes = [
        (stride, size) for stride, size in zip(array.strides, array.shape, strict=True) if size > 1
    ]
    if any(stride < 0 for stride, _ in axes):
        raise ArgumentError("a tensor with a negative stride", next="pass a copy")
    span = array.itemsize + sum(stride * (size - 1) for stride, size in axes)
    run = array.itemsize
    for stride, size in sorted(axes):
        if stride > run:
            if any(other % stride for other, _ in axes if other > stride):
                return Extent(span)
            return Extent(span, run, stride)
        run = max(run, stride * (size - 1) + run)
    return Extent(span)


@dataclass
class GmTensor:
    """A tensor argument. ``number``: its place in addresses, from 1 (0 is no tensor)."""

    name: str
    number: int
    array: Array
    extent: Extent
    locked: bool = False
    """Whether it is the runtime's own memory, in which programs may write over each other."""

    @property
    def address(self) -> int:
        """What the kernel gets as its pointer."""
        return (self.number << TENSOR_SHIFT) | TENSOR_BIAS

    @property
    def host(self) -> int:
        """Where its first byte lies in this process."""
        return int(self.array.__array_interface__["data"][0])

    def elements(self, dtype: Any) -> Array:
        """All elements of the span, in order, in place, as ``dtype``."""
        count = self.extent.span // dtype.itemsize
        strides = (dtype.itemsize,)
        base = self.array.view(np.ndarray)
        if count == 0:
            return np.empty(0, dtype)
        return _window(base, count, dtype, strides)

    def inside(self, starts: NDArray[np.int64], length: int) -> NDArray[np.bool_]:
        """Which runs of ``length`` bytes at these bytes of the tensor belong to it."""
        ends = starts + length
        good: NDArray[np.bool_] = (starts >= 0) & (ends <= self.extent.span)
        if self.extent.distance:
            good &= starts % self.extent.distance + length <= self.extent.row
        return good

    def whole(self, start: int, length: int) -> bool:
        """The same for one run."""
        if start < 0 or start + length > self.extent.span:
            return False
        distance = self.extent.distance
        return not distance or start % distance + length <= self.extent.row


class _Window:
    """Memory of an array as a flat buffer; keeps the array alive."""

    def __init__(self, base: Array, count: int, dtype: Any, strides: tuple[int, ...]) -> None:
        self.base = base
        self.__array_interface__ = {
            "shape": (count,),
            "typestr": dtype.str if dtype.kind != "V" else f"|V{dtype.itemsize}",
            "data": (base.__array_interface__["data"][0], False),
            "strides": strides,
            "version": 3,
        }


def _window(base: Array, count: int, dtype: Any, strides: tuple[int, ...]) -> Array:
    """``dtype`` is an integer or a float that NumPy knows."""
    return np.asarray(_Window(base, count, dtype, strides))


def tensor_of(address: int) -> tuple[int, int]:
    """(tensor number, byte) that an address leads to."""
    number = address >> TENSOR_SHIFT
    byte = (address & ((1 << TENSOR_SHIFT) - 1)) - TENSOR_BIAS
    return number, byte


def starts_of(byte: int, sizes: Sequence[int], steps: Sequence[int]) -> NDArray[np.int64]:
    """First bytes of all elements of a view: steps in bytes, in row-major order."""
    total: Any = np.array(byte, np.int64)
    for axis, (size, step) in enumerate(zip(sizes, steps, strict=True)):
        shape = [1] * len(sizes)
        shape[axis] = size
        total = total + (np.arange(size, dtype=np.int64) * step).reshape(shape)
    result: NDArray[np.int64] = np.broadcast_to(total, tuple(sizes)).reshape(-1)
    return result
