"""Lays the tensors of a workload out in guarded memory and finds every byte that changed.

Each tensor has its own stretch of one sparse file (or of anonymous memory): poison in front,
between rows and behind, so that a lane written outside the rows shows. Rows may lie gigabytes
apart: poison covers a window of `WINDOW` elements around each row, and pages that nobody touches
are never committed. With a file, another process can run the kernel on the same memory while the
one that judges keeps the right answers to itself.
"""

from __future__ import annotations

import contextlib
import itertools
import mmap
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ascendport.harness.case import DTYPES, Array, Role, Workload, numpy_dtype
from ascendport.harness.light import ITEMSIZE, TORCH_NAME, LightTensor

if TYPE_CHECKING:
    from ascendport.harness.launches import TensorArgument

WINDOW = 4096
"""Elements around each row that are poisoned and checked."""

PAGE = 4096
"""Alignment of each tensor's first element, bytes; torch_npu aligns allocations to 512."""

_NO_RESERVE = 0x4000 if sys.platform == "linux" else 0
"""MAP_NORESERVE of linux/mman.h, which Python 3.11's mmap does not name: rows that lie gigabytes
apart take only the memory that is touched."""

LIGHT_BASE = 1 << 40
"""First address of tensors without memory."""

_POISON = {
    "fp32": 0x7FC5A3B1,
    "fp16": 0x7E53,
    "bf16": 0x7FD3,
    "i64": 0x5B3C_A5D7_0F69_93E1,
    "i32": 0x5B3CA5D7,
    "i16": 0x5B3D,
    "i8": 0x5B,
    "i1": 0xA7,
}
"""Bit patterns: for floats a NaN with an odd payload, for i1 neither 0 nor 1."""

_STEPS = {"fp32": 1 << 16, "fp16": 128, "bf16": 32, "i1": 64, "i8": 165}
"""How many other patterns of the same kind may be tried, by counting the low bits up."""


@dataclass(frozen=True)
class Placement:
    """Where one tensor lies. ``start``: byte of its first element; ``stride``: elements."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    stride: int
    start: int
    role: Role
    poison: int

    @property
    def itemsize(self) -> int:
        return ITEMSIZE[self.dtype]

    @property
    def rows(self) -> int:
        return self.shape[0] if len(self.shape) == 2 else 1

    @property
    def columns(self) -> int:
        return self.shape[-1]

    @property
    def row_step(self) -> int:
        """Elements from row to row; a vector is one row."""
        return self.stride if len(self.shape) == 2 else max(1, self.columns)

    @property
    def extent(self) -> int:
        """Elements from the first to the last, gaps included."""
        if self.rows == 0 or self.columns == 0:
            return 0
        return (self.rows - 1) * self.row_step + self.columns

    @property
    def strides(self) -> tuple[int, ...]:
        return (self.stride, 1) if len(self.shape) == 2 else (1,)

    def windows(self) -> list[tuple[int, int]]:
        """Poisoned stretches, (begin, end) in elements from the first element, apart, in order."""
        if self.extent == 0:
            return [(-WINDOW, WINDOW)]
        if self.row_step - self.columns <= 2 * WINDOW:
            return [(-WINDOW, self.extent + WINDOW)]
        begins = (row * self.row_step for row in range(self.rows))
        return [(begin - WINDOW, begin + self.columns + WINDOW) for begin in begins]

    def guards(self) -> Iterator[tuple[int, int]]:
        """Stretches of the windows that belong to no row."""
        for begin, end in self.windows():
            position = begin
            if self.extent:
                first = max(0, -(-begin // self.row_step))
                for row in range(first, self.rows):
                    start = row * self.row_step
                    if start >= end:
                        break
                    if start > position:
                        yield position, start
                    position = start + self.columns
            if position < end:
                yield position, end

    def far_gaps(self) -> Iterator[tuple[int, int]]:
        """Stretches between the windows, in elements: never touched by anyone."""
        windows = self.windows()
        for (_, end), (begin, _) in itertools.pairwise(windows):
            yield end, begin

    def describe(self, element: int) -> str:
        """Names an element that lies in no row, given from the first element."""
        if element < 0:
            return f"{self.name}: {-element} before the first element"
        if len(self.shape) == 1 or self.extent == 0:
            past = element - self.extent + 1
            return f"{self.name}: element {element} ({past} past the end)"
        row = min(element // self.row_step, self.rows - 1)
        column = element - row * self.row_step
        past = column - self.columns + 1
        return f"{self.name}: row {row}, column {column} ({past} past the row's end)"


@dataclass(frozen=True)
class Layout:
    """All placements of a workload, and the size of the memory that holds them, bytes."""

    placements: tuple[Placement, ...]
    size: int

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Layout:
        return cls(
            tuple(
                Placement(**{**item, "shape": tuple(item["shape"]), "role": Role(item["role"])})
                for item in data["placements"]
            ),
            data["size"],
        )


def dtype_name(dtype: np.dtype[Any]) -> str:
    """The Triton name of a NumPy element type.

    Raises:
        TypeError: kernels have no such type.
    """
    for name in DTYPES:
        if numpy_dtype(name) == dtype:
            return name
    raise TypeError(f"no element type for {dtype}; use one of {', '.join(DTYPES)}")


def bits(values: Array) -> Array:
    """The same elements as unsigned integers, without a copy where that is possible."""
    unsigned: Array = np.ascontiguousarray(values).view(f"u{values.dtype.itemsize}")
    return unsigned


def poison_for(dtype: str, avoid: Array | None = None) -> int:
    """A bit pattern that no element of ``avoid`` has, as an unsigned integer.

    Where an 8-bit ``avoid`` holds every candidate, the first candidate is answered.
    """
    base = _POISON[dtype]
    if avoid is None or avoid.size == 0:
        return base
    steps = _STEPS.get(dtype, 1 << 16)
    patterns = bits(avoid)
    near = patterns[(patterns >= base) & (patterns < base + steps)] - patterns.dtype.type(base)
    free = np.flatnonzero(np.bincount(near.astype(np.int64), minlength=steps) == 0)
    return base + int(free[0]) if free.size else base


def layout(workload: Workload, expected: Mapping[str, Array] | None = None) -> Layout:
    """Places the tensors. Poison avoids the bits of the right answers in ``expected``."""
    placements: list[Placement] = []
    position = 0
    for name, tensor in workload.tensors.items():
        dtype = dtype_name(tensor.values.dtype)
        margin = WINDOW * ITEMSIZE[dtype]
        start = _up(position + margin)
        placement = Placement(
            name=name,
            dtype=dtype,
            shape=tensor.values.shape,
            stride=tensor.stride,
            start=start,
            role=tensor.role,
            poison=poison_for(dtype, None if expected is None else expected.get(name)),
        )
        placements.append(placement)
        position = start + placement.extent * placement.itemsize + margin
    return Layout(tuple(placements), _up(position + 1))


def _up(size: int) -> int:
    return -(-size // PAGE) * PAGE


class Arena:
    """The memory of one launch. A context manager: the mapping goes at the end of the block."""

    def __init__(self, plan: Layout, memory: mmap.mmap, file: int | None = None) -> None:
        self.layout = plan
        self._memory = memory
        self._file = file
        self._bytes: Array = np.frombuffer(memory, np.uint8)

    @classmethod
    def in_file(
        cls, path: Path, workload: Workload, expected: Mapping[str, Array] | None = None
    ) -> Arena:
        """A new sparse file, poisoned, with the inputs in place."""
        plan = layout(workload, expected)
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        os.ftruncate(file, plan.size)
        arena = cls(plan, mmap.mmap(file, plan.size), file)
        arena._fill(workload)
        return arena

    @classmethod
    def attach(cls, path: Path, plan: Layout) -> Arena:
        """The memory of a file that another process made."""
        file = os.open(path, os.O_RDWR)
        return cls(plan, mmap.mmap(file, plan.size), file)

    @classmethod
    def anonymous(cls, workload: Workload, *, shared: bool = False) -> Arena:
        """Memory without a file, poisoned, with the inputs in place.

        ``shared``: what a fork writes to it is seen here.
        """
        plan = layout(workload)
        sharing = mmap.MAP_SHARED if shared else mmap.MAP_PRIVATE
        flags = sharing | mmap.MAP_ANONYMOUS | _NO_RESERVE
        arena = cls(plan, mmap.mmap(-1, plan.size, flags=flags))
        arena._fill(workload)
        return arena

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None
        self._bytes = np.empty(0, np.uint8)
        # While a tensor of this memory is alive it cannot be unmapped; it then goes with it.
        with contextlib.suppress(BufferError):
            self._memory.close()

    def __enter__(self) -> Arena:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _flat(self, placement: Placement) -> tuple[Array, int]:
        """The stretch of a tensor, margins included, as unsigned integers; and its margin."""
        size = placement.itemsize
        begin = placement.start - WINDOW * size
        end = placement.start + (placement.extent + WINDOW) * size
        return self._bytes[begin:end].view(f"u{size}"), WINDOW

    def _owned(self, placement: Placement) -> Array:
        """The elements of a tensor as unsigned integers, in its shape, over the memory itself."""
        flat, margin = self._flat(placement)
        steps = tuple(stride * placement.itemsize for stride in placement.strides)
        return np.lib.stride_tricks.as_strided(flat[margin:], placement.shape, steps)

    def _fill(self, workload: Workload) -> None:
        for placement in self.layout.placements:
            flat, margin = self._flat(placement)
            for begin, end in placement.windows():
                flat[margin + begin : margin + end] = placement.poison
            if placement.role is not Role.OUT and placement.extent:
                self._owned(placement)[...] = bits(workload.tensors[placement.name].values)

    def placement(self, name: str) -> Placement:
        return next(item for item in self.layout.placements if item.name == name)

    def read(self, name: str) -> Array:
        """A copy of a tensor's elements, in its shape and type."""
        placement = self.placement(name)
        raw = np.array(self._owned(placement), copy=True, order="C")
        return raw.view(numpy_dtype(placement.dtype))

    def arrays(self) -> dict[str, Array]:
        """Each tensor as an array over the memory itself, in its shape, type and strides."""
        return {
            item.name: self._owned(item).view(numpy_dtype(item.dtype))
            for item in self.layout.placements
        }

    def changed_outside(self) -> str | None:
        """The first byte changed that no tensor owns, in words; None when all are whole."""
        for placement in self.layout.placements:
            flat, margin = self._flat(placement)
            for begin, end in placement.guards():
                guard = flat[margin + begin : margin + end]
                wrong = guard != placement.poison
                if wrong.any():
                    where = begin + int(np.argmax(wrong))
                    return f"{placement.describe(where)} changed"
            stray = self._stray(placement)
            if stray is not None:
                return f"{placement.describe(stray)} changed"
        return None

    def _stray(self, placement: Placement) -> int | None:
        """An element written between the windows; holes of the file are skipped unread.

        On a file system that does not report holes only `STRAY_LIMIT` bytes a tensor are read.
        """
        if self._file is None or not hasattr(os, "SEEK_DATA"):
            return None
        left = STRAY_LIMIT
        for begin, end in placement.far_gaps():
            low = placement.start + begin * placement.itemsize
            high = placement.start + end * placement.itemsize
            while low < high and left > 0:
                try:
                    data = os.lseek(self._file, low, os.SEEK_DATA)
                    hole = os.lseek(self._file, data, os.SEEK_HOLE)
                except OSError:
                    break  # nothing but a hole up to the end of the file
                if data >= high:
                    break
                stop = min(hole, high, data + left)
                nonzero = np.flatnonzero(self._bytes[data:stop])
                if nonzero.size:
                    return (data + int(nonzero[0]) - placement.start) // placement.itemsize
                left -= stop - data
                low = stop
        return None

    def changed_inputs(self, workload: Workload) -> str | None:
        """The first element of an IN tensor that changed, in words."""
        for placement in self.layout.placements:
            if placement.role is not Role.IN or placement.extent == 0:
                continue
            wrong = self._owned(placement) != bits(workload.tensors[placement.name].values)
            if wrong.any():
                index = np.unravel_index(int(np.argmax(wrong)), placement.shape)
                return f"{placement.name}: {place(index)}, an input, changed"
        return None

    def light_tensors(self) -> tuple[dict[str, Any], Callable[[Any], TensorArgument]]:
        """Light tensors over this memory, and who tells which one an argument is."""
        return _light(self.layout, self._bytes.ctypes.data)

    def torch_tensors(self) -> tuple[dict[str, Any], Callable[[Any], TensorArgument]]:
        """torch tensors over this memory, and who tells which one an argument is."""
        import torch

        whole = torch.from_numpy(self._bytes)
        tensors = {}
        for placement in self.layout.placements:
            end = placement.start + max(1, placement.extent) * placement.itemsize
            flat = whole[placement.start : end].view(getattr(torch, TORCH_NAME[placement.dtype]))
            tensors[placement.name] = flat.as_strided(placement.shape, placement.strides)
        return tensors, _torch_describer(self.layout, whole.data_ptr())


STRAY_LIMIT = 256 * 1024 * 1024
"""Most bytes of one tensor's far gaps that are read in search of a stray write."""


def place(index: tuple[Any, ...]) -> str:
    """An index in words: ``row 3, column 7`` or ``element 5``."""
    if len(index) == 2:
        return f"row {int(index[0])}, column {int(index[1])}"
    return f"element {int(index[0])}"


def _light(plan: Layout, base: int) -> tuple[dict[str, Any], Callable[[Any], TensorArgument]]:
    from ascendport.harness.launches import TensorArgument

    tensors = {
        item.name: LightTensor(base + item.start, item.shape, item.strides, item.dtype)
        for item in plan.placements
    }
    names = {id(tensor): name for name, tensor in tensors.items()}

    def describe(tensor: Any) -> TensorArgument:
        return TensorArgument(names[id(tensor)], tensor.dtype.name, tensor.shape, tensor.stride())

    return tensors, describe


def light_tensors(workload: Workload) -> tuple[dict[str, Any], Callable[[Any], TensorArgument]]:
    """Light tensors without memory, and who tells which one an argument is."""
    return _light(layout(workload), LIGHT_BASE)


def array_of(tensor: Any) -> Array:
    """A torch tensor of the CPU as an array over the same memory; bf16 as ml_dtypes has it."""
    import torch

    plain = tensor.detach()
    if plain.dtype == torch.bfloat16:
        raw: Array = plain.view(torch.int16).numpy()
        return raw.view(numpy_dtype("bf16"))
    values: Array = plain.numpy()
    return values


@contextlib.contextmanager
def uninitialised_is_poison() -> Iterator[None]:
    """Memory that torch hands out without contents holds NaN, or the largest integer.

    Otherwise a result that no kernel wrote could be right by chance.
    """
    import torch

    kept = torch.get_deterministic_debug_mode()
    # `use_deterministic_algorithms` does the same and imports the whole compiler of torch first.
    torch.set_deterministic_debug_mode("warn")
    try:
        yield
    finally:
        torch.set_deterministic_debug_mode(kept)


def _torch_describer(plan: Layout, base: int) -> Callable[[Any], TensorArgument]:
    from ascendport.harness.launches import TensorArgument

    triton_name = {torch_name: name for name, torch_name in TORCH_NAME.items()}

    def describe(tensor: Any) -> TensorArgument:
        name, offset = "", 0
        address = tensor.data_ptr() - base
        for item in plan.placements:
            if item.start <= address < item.start + max(1, item.extent) * item.itemsize:
                name, offset = item.name, (address - item.start) // item.itemsize
        plain = str(tensor.dtype).removeprefix("torch.")
        return TensorArgument(
            name,
            triton_name.get(plain, plain),
            tuple(tensor.shape),
            tuple(tensor.stride()),
            offset,
        )

    return describe
