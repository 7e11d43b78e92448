"""A port's cases as data. NumPy only: no torch, no triton, so that listing cases stays quick.

A port's ``cases.py`` holds::

    CASES: tuple[Case, ...]
    def workload(case: Case, variant: str, rng: numpy.random.Generator) -> Workload
    def launch(entry, tensors, scalars, variant: str) -> None

and its ``reference.py``::

    def reference(workload: Workload, variant: str) -> dict[str, numpy.ndarray]

``workload`` draws the inputs; ``launch`` calls the entry just as vllm calls it (the same code
drives the tree before, after, and vllm-core's kernel), with whatever tensor objects it is
handed; ``reference`` gives the right value of every tensor that the kernel may write, computed
in another way than the kernel does. One case serves oracle, baseline, compile, simulate, bench
and device alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

DTYPES = ("fp32", "fp16", "bf16", "i64", "i32", "i16", "i8", "i1")
"""Names of element types, as in Triton signatures. i1 is one byte in memory."""


class Role(StrEnum):
    """What a kernel may do with a tensor."""

    IN = "in"
    OUT = "out"
    """Wholly overwritten: poisoned before the run."""
    INOUT = "inout"


@dataclass(frozen=True)
class Tensor:
    """One tensor argument.

    ``values``: the contents, shape (N,) or (rows, columns); bf16 as ``ml_dtypes.bfloat16``.
    ``row_stride``: elements from one row to the next (2-D only; default: columns). Rows may lie
    more than 2**31 elements apart: memory that nobody owns is never touched.
    """

    values: Array
    role: Role = Role.IN
    row_stride: int | None = None
    exact: bool = True
    """Outputs: equal bit for bit (NaN equals NaN), or within ``atol``/``rtol``."""
    atol: float = 0.0
    rtol: float = 0.0

    @property
    def stride(self) -> int:
        """Elements from one row to the next; 1 for a vector."""
        if self.values.ndim == 1:
            return 1
        return self.values.shape[1] if self.row_stride is None else self.row_stride


@dataclass(frozen=True)
class Workload:
    """Inputs of one launch: tensors and scalars by name."""

    tensors: Mapping[str, Tensor]
    scalars: Mapping[str, int | float | bool] = field(default_factory=dict)


@dataclass(frozen=True)
class Case:
    """One case. ``name`` is the same in tests, tables, JSON and on the command line.

    ``tags``: ``bench`` (a row in the latency table), ``compile`` (its launches are compiled for
    each SoC: pick one for each program that serving can meet), ``grid`` (the size of its grid and
    the program that it needs are looked at), ``large`` (under the interpreter only when asked
    for).
    ``variants``: the port's variants that the case is for; empty: all.
    ``entry``: the name in the port's first target that this case calls, where a port serves more
    than one; empty: the variant's ``entry``. vllm-core's code for it has the same name.
    ``undefined``: why vllm-core's code has no defined answer here, such as a read outside of a
    tensor; the case is then not compared with it, for that reason.
    """

    name: str
    params: Mapping[str, Any] = field(default_factory=dict)
    tags: frozenset[str] = frozenset()
    variants: tuple[str, ...] = ()
    entry: str = ""
    undefined: str = ""

    def applies_to(self, variant: str) -> bool:
        return not self.variants or variant in self.variants


def numpy_dtype(name: str) -> np.dtype[Any]:
    """The NumPy dtype for an element type of `DTYPES`."""
    if name == "bf16":
        import ml_dtypes

        bfloat16: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
        return bfloat16
    plain = {
        "fp32": np.float32,
        "fp16": np.float16,
        "i64": np.int64,
        "i32": np.int32,
        "i16": np.int16,
        "i8": np.int8,
        "i1": np.bool_,
    }
    return np.dtype(plain[name])
