"""Printing, assertions, and addresses that are data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ascendport.simulator import Kind, Result, Simulator
from tests.simulator.conftest import Compile, run_time_arguments
from tests.simulator.programs import ALL, NAMES, kinds, program, run

HEAD = """
    %c0 = arith.constant 0 : index
    %none = arith.constant 0 : i32
    %zero = arith.constant 0 : ELEMENT
    %base = arith.constant HEX : i8
    %a = arith.constant 0 : i64
    %length = llvm.mlir.constant(4 : i64) : i64
    %text = llvm.mlir.addressof @prefix : !llvm.ptr
    %start = llvm.getelementptr %text[0, 0] : (!llvm.ptr) -> !llvm.ptr, !llvm.array<4 x i8>
    %u = hivm.hir.pointer_cast(%a) : ub<4xELEMENT>
    %m = slice %x[0, 4] : ELEMENT
    call @load_gm_to_ubuf_1d_NAME(%m, %u, %none, %zero, %c0)
"""
PRINT = """
    call @print_1d_int32_t_ubuf(%start, %length, %u, %base)
    call @_mlir_ciface_print_scalar_int32_t_gm(%start, %length, %n, %base)
"""
ASSERT = "call @assert_1d_int8_t_ubuf(%start, %length, %u)"
TEXT = 'llvm.mlir.global private constant @prefix(" x: ") {addr_space = 0 : i32}'


def saying(body: str, values: Any, base: int = 0) -> Result:
    """Runs what follows the load of ``values``, with a text in the module."""
    element = f"i{8 * values.itemsize}"
    head = HEAD.replace("ELEMENT", element).replace("NAME", NAMES[element])
    lines = f"{head.replace('HEX', str(base))}\n{body}\n{ALL}"
    text = program(lines, {"x": f"gm<?x{element}>", "n": "i32"})
    module, _, rest = text.partition("\n")
    return Simulator(f"{module}\n  {TEXT}\n{rest}").run([values, -5], (2,))


def test_print_shows_values_of_each_program_and_waits_for_all_pipes() -> None:
    result = saying(PRINT, np.array([1, -2, 30, 4], np.int32))
    assert result.clean
    assert result.printed == tuple(
        f"program {program}: x: {values}"
        for program in (0, 1)
        for values in ("[ 1,-2,30, 4]", "-5")
    )


def test_print_in_base_16() -> None:
    result = saying(PRINT, np.array([1, -2, 30, 4], np.int32), base=1)
    assert result.printed[:2] == ("program 0: x: [1,FFFFFFFE,1E,4]", "program 0: x: FFFFFFFB")


@pytest.mark.parametrize("holds", [True, False])
def test_an_assertion_ends_the_run_where_it_does_not_hold(holds: bool) -> None:
    result = saying(ASSERT, np.array([1, 1, holds, 1], np.int8))
    if holds:
        assert result.clean
        return
    (finding,) = result.of(Kind.ASSERTION)
    assert "« x: » does not hold for element 2 (1 such elements)" in finding.message
    assert result.stopped
    assert result.counters.programs == 1


# --- addresses that are data ------------------------------------------------------------------

TABLE = """
    %c0 = arith.constant 0 : index
    %none = arith.constant 0 : i32
    %zero = arith.constant 0.0 : f32
    %count = arith.constant 8 : index
    %p = hivm.hir.get_block_idx -> i64
    %i = arith.index_cast %p : i64 to index
    %address = memref.load %table[%i] : gm<?xi64>
    %found = hivm.hir.pointer_cast(%address) [%count] : gm<?xf32>
    %in = memref.reinterpret_cast %found to offset: [AT], sizes: [8], strides: [1] : gm<?xf32> to gm<8xf32, strided<[1], offset: AT>>
    %a = arith.constant 0 : i64
    %u = hivm.hir.pointer_cast(%a) : ub<8xf32>
    call @load_gm_to_ubuf_1d_float(%in, %u, %none, %zero, %c0)
    hivm.hir.pipe_barrier[<PIPE_ALL>]
    %at = affine.apply affine_map<(d0) -> (d0 * 8)>(%i)
    %out = slice %y[%at, 8] : f32
    call @store_ubuf_to_gm_1d_float(%u, %out, %none)
"""  # noqa: E501 - one operation a line


def through(table: Any, reachable: dict[str, Any], at: int = 0) -> tuple[Result, Any]:
    out = np.zeros(16, np.float32)
    text = program(TABLE.replace("AT", str(at)), {"table": "gm<?xi64>", "y": "gm<?xf32>"})
    result = Simulator(text).run(
        [np.array(table, np.int64), out], (2,), names=["table", "y"], reachable=reachable
    )
    return result, out


def test_a_table_of_addresses_leads_to_tensors() -> None:
    a, b = (np.arange(8, dtype=np.float32) + start for start in (0, 100))
    result, out = through([b.ctypes.data, a.ctypes.data], {"a": a, "b": b})
    assert result.clean
    assert (out == np.concatenate([b, a])).all()


def test_an_address_in_no_tensor_and_one_past_the_end() -> None:
    a, b = (np.arange(8, dtype=np.float32) for _ in range(2))
    result, _ = through([b.ctypes.data, a.ctypes.data], {"a": a})
    assert [str(finding.kind) for finding in result.findings] == ["out-of-bounds read"]
    assert "in no tensor" in result.findings[0].message
    result, _ = through([a.ctypes.data, b.ctypes.data], {"a": a, "b": b}, at=1)
    assert {(finding.kind.name, finding.tensor) for finding in result.findings} == {
        ("GM_READ", "a"),
        ("GM_READ", "b"),
    }


def test_an_address_that_was_never_written() -> None:
    body = """
    %c0 = arith.constant 0 : index
    %one = arith.constant 1 : i32
    %k = arith.constant 4 : index
    %a = arith.constant 0 : i64
    %u = hivm.hir.pointer_cast(%a) : ub<8xi64>
    %v = memref.load %u[%c0] : ub<8xi64>
    %m = hivm.hir.pointer_cast(%v) [%k] : gm<?xi32>
    memref.store %one, %m[%c0] : gm<?xi32>
    """
    assert kinds(run(body, {})) == ["UNDEFINED", "GM_WRITE"]


def test_views_and_addresses_turn_into_each_other() -> None:
    body = """
    %c0 = arith.constant 0 : index
    %four = arith.constant 4 : i64
    %s = slice %x[1, 4] : i32
    %p = builtin.unrealized_conversion_cast %s : gm<4xi32, strided<[1], offset: 1>> to i64
    %q = arith.addi %p, %four : i64
    %m = builtin.unrealized_conversion_cast %q : i64 to gm<?xi32>
    %v = memref.load %m[%c0] : gm<?xi32>
    %w = builtin.unrealized_conversion_cast %y : gm<?xi32> to memref<?xi32, #hivm.address_space<gm>>
    memref.store %v, %w[%c0] : gm<?xi32>
    """
    x, y = np.arange(8, dtype=np.int32) * 3, np.zeros(1, np.int32)
    assert run(body, {"x": ("gm<?xi32>", x), "y": ("gm<?xi32>", y)}).clean
    assert y[0] == 6


KERNEL = """
import triton
import triton.language as tl


@triton.jit
def kernel(table_ptr, out_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    source = tl.load(table_ptr + row).to(tl.pointer_type(tl.float32))
    at = tl.arange(0, BLOCK)
    values = tl.load(source + at, mask=at < n, other=0.0)
    tl.device_print("row", row)
    tl.store(out_ptr + row * n + at, values, mask=at < n)
"""


@pytest.mark.ascend
def test_a_compiled_kernel_reads_through_a_table_and_prints(
    compile_kernel: Compile, module_of: Callable[[str], Any]
) -> None:
    kernel = module_of(KERNEL).kernel
    arguments = {"table_ptr": "*i64", "out_ptr": "*fp32", "n": 40, "BLOCK": 64}
    text = compile_kernel(kernel, arguments)
    rows = [np.arange(40, dtype=np.float32) * factor for factor in (1, -3)]
    table, out = (
        np.array([row.ctypes.data for row in rows], np.int64),
        np.zeros((2, 40), np.float32),
    )
    names = run_time_arguments(kernel, arguments)
    reachable = {"first": rows[0], "second": rows[1]}
    result = Simulator(text).run([table, out, 40], (2,), names=names, reachable=reachable)
    assert result.clean
    assert (out == np.stack(rows)).all()
    assert result.printed == ("program 0: row: 0", "program 1: row: 1")
