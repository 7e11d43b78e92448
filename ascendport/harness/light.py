"""Stand-ins for torch and its tensors, for launchers that ask a tensor no more than its shape.

Importing torch takes seconds; most launchers need shapes, strides and element types only. They
are given `LightTensor` and a module `torch` whose every real use raises `NeedsTorch`, and whoever
drives the launcher starts over with the real thing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any, NoReturn

ITEMSIZE = {
    "fp32": 4,
    "fp16": 2,
    "bf16": 2,
    "i64": 8,
    "i32": 4,
    "i16": 2,
    "i8": 1,
    "i1": 1,
}
"""Bytes of an element in memory, by Triton name."""

TORCH_NAME = {
    "fp32": "float32",
    "fp16": "float16",
    "bf16": "bfloat16",
    "i64": "int64",
    "i32": "int32",
    "i16": "int16",
    "i8": "int8",
    "i1": "bool",
}
"""torch's names of the same types."""


class NeedsTorch(BaseException):
    """Something asked for more than the stand-ins have. Not an Exception: nobody swallows it."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what


@dataclass(frozen=True)
class LightDtype:
    """Prints as torch's dtype does, which is all that triton reads of it."""

    name: str
    """The Triton name, e.g. ``bf16``."""

    @property
    def itemsize(self) -> int:
        return ITEMSIZE[self.name]

    def __str__(self) -> str:
        return f"torch.{TORCH_NAME[self.name]}"

    __repr__ = __str__

    def __eq__(self, other: object) -> bool:
        if isinstance(other, LightDtype):
            return self.name == other.name
        raise NeedsTorch(f"compares a dtype with {other!r}")

    def __hash__(self) -> int:
        return hash(self.name)


class LightTensor:
    """A tensor argument without memory of its own: an address, a shape, strides, a type.

    ``address``: what ``data_ptr()`` answers, in bytes. ``strides``: in elements.
    """

    def __init__(
        self, address: int, shape: tuple[int, ...], strides: tuple[int, ...], dtype: str
    ) -> None:
        self._address = address
        self._strides = strides
        self.shape = shape
        self.dtype = LightDtype(dtype)
        self.device = "cpu"
        self.ndim = len(shape)

    def data_ptr(self) -> int:
        return self._address

    def stride(self, dim: int | None = None) -> Any:
        return self._strides if dim is None else self._strides[dim]

    def size(self, dim: int | None = None) -> Any:
        return self.shape if dim is None else self.shape[dim]

    def dim(self) -> int:
        return self.ndim

    def numel(self) -> int:
        total = 1
        for extent in self.shape:
            total *= extent
        return total

    def element_size(self) -> int:
        return self.dtype.itemsize

    def is_contiguous(self) -> bool:
        expected = 1
        for extent, stride in zip(reversed(self.shape), reversed(self._strides), strict=True):
            if extent != 1 and stride != expected:
                return False
            expected *= extent
        return True

    def __len__(self) -> int:
        return self.shape[0]

    def __getattr__(self, name: str) -> NoReturn:
        # triton probes tensors with hasattr for these.
        if name.startswith("_") or name in ("tma_desc_cpu_ptr", "ptr_range", "handle"):
            raise AttributeError(name)
        raise NeedsTorch(f"asks a tensor for {name}")

    def _refuse(self, *args: object, **kwargs: object) -> NoReturn:
        raise NeedsTorch("computes with a tensor")

    __getitem__ = __setitem__ = __iter__ = __bool__ = __int__ = __float__ = __index__ = _refuse
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = _refuse
    __floordiv__ = __mod__ = __and__ = __or__ = __xor__ = __invert__ = __neg__ = _refuse
    __lt__ = __le__ = __gt__ = __ge__ = __array__ = _refuse
    __eq__ = _refuse
    __ne__ = _refuse

    def __hash__(self) -> int:
        return id(self)

    def __repr__(self) -> str:
        return f"LightTensor({self.dtype}, shape={self.shape}, strides={self._strides})"


class _OnlyAnnotation(type):
    """A class that may stand in an annotation; any other use needs torch."""

    def __instancecheck__(cls, instance: object) -> bool:
        raise NeedsTorch(f"isinstance(…, torch.{cls.__name__})")

    def __call__(cls, *args: object, **kwargs: object) -> NoReturn:
        raise NeedsTorch(f"torch.{cls.__name__}(…)")

    def __getattr__(cls, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        raise NeedsTorch(f"torch.{cls.__name__}.{name}")


class LightTorch(ModuleType):
    """Module ``torch`` in which only the names of types exist."""

    def __init__(self) -> None:
        super().__init__("torch")
        # Not a package with contents: `import torch.x` and `from torch import x` need torch.
        self.__path__ = _NoPath()
        for name in ("Tensor", "dtype", "device", "Generator"):
            setattr(self, name, _OnlyAnnotation(name, (), {}))

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        raise NeedsTorch(f"torch.{name}")


class _NoPath(list[str]):
    """A package path that cannot be searched: `import torch.nn` needs torch."""

    def __iter__(self) -> Iterator[str]:
        raise NeedsTorch("imports a part of torch")
