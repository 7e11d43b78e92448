"""Generated code against a plain walk of the same operations: the same in every tensor."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from ascendport.simulator import Simulator
from tests import scripts
from tests.simulator.conftest import Compile, run_time_arguments
from tests.simulator.programs import program


@pytest.fixture(scope="module")
def plain_walk() -> ModuleType:
    """The script, as a module."""
    return scripts.script("plain_walk")


NUMBERS = """
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c3 = arith.constant 3 : i32
    %f = arith.constant 0x3FC0 : bf16
    %n1 = arith.index_cast %n : i32 to index
    %p = hivm.hir.get_block_idx -> i64
    %p1 = arith.trunci %p : i64 to i32
    %r = scf.for %i = %c0 to %n1 step %c1 iter_args(%a = %p1) -> (i32) {
    %v = memref.load %x[%i] : gm<?xi32>
    %q = arith.remsi %v, %c3 : i32
    %odd = arith.cmpi ult, %q, %c3 : i32
    %w = scf.if %odd -> (i32) {
    %s = arith.shli %v, %q : i32
    scf.yield %s : i32
    } else {
    %d = arith.divui %v, %c3 : i32
    scf.yield %d : i32
    }
    %b = arith.addi %a, %w : i32
    scf.yield %b : i32
    }
    %g = arith.sitofp %r : i32 to bf16
    %h = arith.mulf %g, %f : bf16
    %k = arith.fptosi %h : bf16 to i32
    %at = arith.index_cast %p : i64 to index
    memref.store %k, %y[%at] : gm<?xi32>
    %e = arith.extf %h : bf16 to f32
    memref.store %e, %z[%at] : gm<?xf32>
"""


@pytest.mark.parametrize("count", [0, 1, 7, 40])
def test_scalar_code(plain_walk: ModuleType, count: int) -> None:
    rng = np.random.default_rng(count)
    tensors = {
        "x": rng.integers(-(2**31), 2**31, 64).astype(np.int32),
        "y": np.zeros(4, np.int32),
        "z": np.zeros(4, np.float32),
    }
    types = {"x": "gm<?xi32>", "y": "gm<?xi32>", "z": "gm<?xf32>", "n": "i32"}
    made = Simulator(program(NUMBERS, types))
    assert plain_walk.compare(made, tensors, [*tensors.values(), count], (4,)).same


def test_the_walk_notices_another_program(plain_walk: ModuleType) -> None:
    """It runs what it is given, not what the simulator ran."""
    x, y, z = np.arange(1, 65, dtype=np.int32), np.zeros(4, np.int32), np.zeros(4, np.float32)
    types = {"x": "gm<?xi32>", "y": "gm<?xi32>", "z": "gm<?xf32>", "n": "i32"}
    other = Simulator(program(NUMBERS.replace("arith.addi", "arith.subi"), types))
    plain_walk.Walk(other, [x, y, z, 7], (4,)).run(range(4))
    right = y.copy()
    Simulator(program(NUMBERS, types)).run([x, y, z, 7], (4,))
    assert (y != right).any()


KERNEL = """
import triton
import triton.language as tl


@triton.jit
def scalar_loop(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    words = tl.load(x_ptr + at // 32, mask=at < n, other=0)
    bits = (words >> (at % 32)) & 1
    tl.store(y_ptr + at, bits, mask=at < n)


@triton.jit
def rows(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    best = -float("inf")
    for start in range(0, n, BLOCK):
        at = start + tl.arange(0, BLOCK)
        values = tl.load(x_ptr + tl.program_id(0) * n + at, mask=at < n, other=-float("inf"))
        best = tl.maximum(best, tl.max(values.to(tl.float32), axis=0))
    tl.store(y_ptr + tl.program_id(0), best)


@triton.jit
def matrix(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    row, column = tl.arange(0, 8)[:, None], tl.arange(0, BLOCK)[None, :]
    values = tl.load(x_ptr + row * n + column, mask=column < n, other=0)
    sums = tl.sum(tl.where(values > 3, values, 0), axis=1)
    tl.store(y_ptr + tl.program_id(0) * 8 + tl.arange(0, 8), sums)
"""


@pytest.mark.ascend
@pytest.mark.parametrize(
    ("name", "source", "target"),
    [("scalar_loop", "i32", "i32"), ("rows", "bf16", "fp32"), ("matrix", "i32", "i32")],
)
@pytest.mark.parametrize("n", [37, 100])
def test_compiled_kernels(
    plain_walk: ModuleType,
    compile_kernel: Compile,
    module_of: Callable[[str], Any],
    name: str,
    source: str,
    target: str,
    n: int,
) -> None:
    kernel = getattr(module_of(KERNEL), name)
    arguments = {"x_ptr": f"*{source}", "y_ptr": f"*{target}", "n": n, "BLOCK": 64}
    made = Simulator(compile_kernel(kernel, arguments))
    rng = np.random.default_rng(n)
    x = rng.integers(-99, 99, 1024)
    kinds: dict[str, Any] = {"i32": np.int32, "bf16": ml_dtypes.bfloat16, "fp32": np.float32}
    tensors = {"x_ptr": x.astype(kinds[source]), "y_ptr": np.zeros(256, kinds[target])}
    values = [tensors.get(item, n) for item in run_time_arguments(kernel, arguments)]
    result = plain_walk.compare(made, tensors, values, (2,))
    assert result.same
    assert tensors["y_ptr"].astype(np.float64).any()
