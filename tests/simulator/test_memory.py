"""Memory errors: each program has one, and a sibling just avoids it."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from ascendport.simulator import Kind, Result
from ascendport.simulator.memory import Extent, extent_of
from tests.simulator.programs import ALL, kinds, run, zeros

COPY = f"""
    %c0 = arith.constant 0 : index
    %z = arith.constant 0 : i32
    %f = arith.constant 0.0 : f32
    %a0 = arith.constant 0 : i64
    %u = hivm.hir.pointer_cast(%a0) : ub<64xf32>
    %i = arith.index_cast %from : i64 to index
    %o = arith.index_cast %to : i64 to index
    %k = arith.index_cast %n : i64 to index
    %s = part %u[0, %k] of 64 : f32
    %in = slice %x[%i, %k] : f32
    %out = slice %y[%o, %k] : f32
    call @load_gm_to_ubuf_1d_float(%in, %s, %z, %f, %c0)
    {ALL}
    call @store_ubuf_to_gm_1d_float(%s, %out, %z)
    {ALL}
"""
LINE_OF_LOAD, LINE_OF_STORE = 12, 14


def copy(x: Any, y: Any, start: int, to: int, count: int) -> Result:
    arguments = {
        "x": ("gm<?xf32>", x),
        "y": ("gm<?xf32>", y),
        "from": ("i64", start),
        "to": ("i64", to),
        "n": ("i64", count),
    }
    return run(COPY, arguments)


@pytest.mark.parametrize("count", [1, 7, 8, 9, 63, 64])
def test_copies_up_to_the_last_element(count: int) -> None:
    memory = np.arange(100, dtype=np.float32)
    out = np.full(100, -1, np.float32)
    assert copy(memory, out, 100 - count, 100 - count, count).clean
    assert (out[100 - count :] == memory[100 - count :]).all()
    assert (out[: 100 - count] == -1).all()


@pytest.mark.parametrize(
    ("start", "to", "count", "kind", "line", "offset", "bad"),
    [
        (60, 0, 5, Kind.GM_READ, LINE_OF_LOAD, 64, 1),
        (-3, 0, 8, Kind.GM_READ, LINE_OF_LOAD, -3, 3),
        (0, 61, 8, Kind.GM_WRITE, LINE_OF_STORE, 64, 5),
        (0, -1, 1, Kind.GM_WRITE, LINE_OF_STORE, -1, 1),
        (2**40, 0, 4, Kind.GM_READ, LINE_OF_LOAD, 2**40, 4),
    ],
)
def test_out_of_bounds(
    start: int, to: int, count: int, kind: Kind, line: int, offset: int, bad: int
) -> None:
    # The tensor is the middle of a larger buffer: its neighbours must stay as they are.
    memory, out = np.arange(192, dtype=np.float32), np.full(192, -1, np.float32)
    result = copy(memory[64:128], out[64:128], start, to, count)
    (finding,) = result.findings
    assert (finding.kind, finding.program, finding.offset) == (kind, 0, 4 * offset)
    assert finding.location is not None
    assert (finding.location.file, finding.location.line) == ("kernel.py", line)
    assert finding.tensor == ("x" if kind is Kind.GM_READ else "y")
    assert f"element {offset}, {bad} of {count} elements; allowed: 0..64" in finding.message
    assert (out[:64] == -1).all() and (out[128:] == -1).all()
    wanted = [memory[64 + start + i] if 0 <= start + i < 64 else 0 for i in range(count)]
    kept = [i for i in range(count) if 0 <= to + i < 64]
    assert [out[64 + to + i] for i in kept] == [wanted[i] for i in kept]


def test_gaps_between_rows_are_not_the_tensors() -> None:
    memory = np.arange(4 * 40, dtype=np.float32)
    rows = memory.reshape(4, 40)[:, :24]
    out = zeros(64)
    assert copy(rows, out, 40, 0, 24).clean
    assert (out[:24] == rows[1]).all()
    (finding,) = copy(rows, out, 40, 0, 25).findings
    assert finding.kind is Kind.GM_READ
    assert "allowed: rows of 24, 40 apart" in finding.message
    assert copy(rows, out, 3 * 40, 0, 24).clean
    assert kinds(copy(rows, out, 3 * 40 + 1, 0, 24)) == ["GM_READ"]
    inner = np.zeros((4, 40), np.float32)
    assert kinds(copy(memory, inner[:, :24], 0, 0, 30)) == ["GM_WRITE"]
    assert (inner[0, :24] == memory[:24]).all() and (inner[0, 24:] == 0).all()


def test_strides_over_two_to_the_31() -> None:
    import mmap

    distance = 2**31 + 64
    memory = mmap.mmap(-1, 4 * (distance + 64), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000)
    flat = np.frombuffer(memory, np.float32)
    rows = np.lib.stride_tricks.as_strided(flat, (2, 64), (4 * distance, 4))
    rows[1] = np.arange(64)
    out = zeros(64)
    assert copy(rows, out, distance, 0, 64).clean
    assert out.tolist() == list(range(64))
    assert kinds(copy(rows, out, distance - 1, 0, 64)) == ["GM_READ"]


@pytest.mark.parametrize(
    ("array", "extent"),
    [
        (np.zeros((4, 8), np.float32), Extent(128)),
        (np.zeros((4, 8), np.float32)[:, :5], Extent(3 * 32 + 20, 20, 32)),
        (np.zeros((4, 8), np.float32)[:1, :5], Extent(20)),
        (np.zeros(9, np.int8)[::3], Extent(7, 1, 3)),
        (np.zeros((2, 3, 4), np.int16)[:, ::2], Extent(6 * 8)),
        (np.zeros((2, 4, 4), np.int16)[:, ::2], Extent(7 * 8, 8, 16)),
        (np.zeros((4, 8), np.float32).T, Extent(128)),
        (np.zeros((0, 8), np.float32), Extent(0)),
    ],
)
def test_extents(array: Any, extent: Extent) -> None:
    assert extent_of(array) == extent


def scalar_access(operation: str, index: int) -> Result:
    body = f"""
    %i = arith.index_cast %n : i64 to index
    %v = arith.constant 3 : i32
    {operation}
    """
    return run(body, {"x": ("gm<?xi32>", np.zeros(8, np.int32)), "n": ("i64", index)})


@pytest.mark.parametrize(
    ("operation", "kind"),
    [
        ("%w = memref.load %x[%i] : gm<?xi32>", "GM_READ"),
        ("memref.store %v, %x[%i] : gm<?xi32>", "GM_WRITE"),
    ],
)
def test_scalar_access_out_of_bounds(operation: str, kind: str) -> None:
    for index in (0, 7):
        assert scalar_access(operation, index).clean
    for index in (-1, 8, 2**33):
        result = scalar_access(operation, index)
        assert kinds(result) == [kind]
        assert result.findings[0].offset == 4 * index


def in_ub(body: str, ub_bytes: int = 1024) -> Result:
    from ascendport.simulator import Simulator
    from tests.simulator.programs import program

    head = """
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %z = arith.constant 0 : i32
    %f = arith.constant 1.0 : f32
    %a0 = arith.constant 0 : i64
    %a1 = arith.constant 512 : i64
    %a2 = arith.constant 768 : i64
    """
    text = program(head + body, {"x": "gm<?xf32>", "n": "i32"}, ub_bytes)
    return Simulator(text).run([np.arange(512, dtype=np.float32), 1], names=["x", "n"])


@pytest.mark.parametrize(("size", "found"), [(128, []), (129, ["UB_RANGE"])])
def test_vector_access_beyond_the_unified_buffer(size: int, found: list[str]) -> None:
    body = f"""
    %u = hivm.hir.pointer_cast(%a1) : ub<{size}xf32>
    call @broadcast_scalar_float_to_1d(%f, %u)
    """
    result = in_ub(body)
    assert kinds(result) == found
    if found:
        assert "UB bytes 512..1028; the Unified Buffer has 1024 bytes" in result.findings[0].message


@pytest.mark.parametrize(("index", "found"), [(63, []), (64, ["UB_RANGE"]), (-193, ["UB_RANGE"])])
def test_scalar_access_beyond_the_unified_buffer(index: int, found: list[str]) -> None:
    body = f"""
    %u = hivm.hir.pointer_cast(%a2) : ub<64xf32>
    %i = arith.constant {index} : index
    memref.store %f, %u[%i] : ub<64xf32>
    """
    assert kinds(in_ub(body)) == found


# --- definedness ---------------------------------------------------------------------------

TILE = """
    %u = hivm.hir.pointer_cast(%a0) : ub<64xf32>
    %v = hivm.hir.pointer_cast(%a1) : ub<64xf32>
    %t = hivm.hir.pointer_cast(%a2) : ub<0xf32>
    %part = part %u[0, 40] of 64 : f32
    %gin = slice %x[0, 40] : f32
    call @load_gm_to_ubuf_1d_float(%gin, %part, %z, %f, %c0)
    hivm.hir.pipe_barrier[<PIPE_ALL>]
"""
WHOLE = "%gout = slice %x[64, 64] : f32\n"
PREFIX = "%gout = slice %x[64, 40] : f32\n"
SOME = "%some = part %v[0, 40] of 64 : f32\n"
DOUBLE = "call @vadd_1d_float(%u, %u, %v, %t)\nhivm.hir.pipe_barrier[<PIPE_ALL>]\n"


def test_undefined_lanes_may_be_computed_but_not_stored() -> None:
    stored = in_ub(TILE + DOUBLE + WHOLE + "call @store_ubuf_to_gm_1d_float(%v, %gout, %z)")
    (finding,) = stored.findings
    assert finding.kind is Kind.UNDEFINED
    assert "element 40 of 64 that go to x was never written in UB (24 such" in finding.message
    prefix = TILE + DOUBLE + PREFIX + SOME + "call @store_ubuf_to_gm_1d_float(%some, %gout, %z)"
    assert in_ub(prefix).clean


def test_a_fill_defines_the_rest() -> None:
    fill = "call @broadcast_scalar_float_to_1d(%f, %u)\nhivm.hir.pipe_barrier[<PIPE_ALL>]\n"
    head, load = TILE.split("    call @load", 1)
    body = head + fill + "call @load" + load + DOUBLE + WHOLE
    assert in_ub(body + "call @store_ubuf_to_gm_1d_float(%v, %gout, %z)").clean


def test_a_select_takes_only_what_is_chosen() -> None:
    body = (
        TILE
        + """
    %b0 = arith.constant 800 : i64
    %b1 = arith.constant 832 : i64
    %cond = hivm.hir.pointer_cast(%b0) : ub<64xi1>
    %s = hivm.hir.pointer_cast(%b1) : ub<16xf32>
    %zero = arith.constant 0.0 : f32
    %w = arith.constant 896 : i64
    %id = hivm.hir.pointer_cast(%a1) : ub<64xi32>
    """
        + """
    call @arange_1d_int32_t(%id, %c0, %c1)
    hivm.hir.pipe_barrier[<PIPE_ALL>]
    %fl = hivm.hir.pointer_cast(%a1) : ub<64xf32>
    call @vcast_int32_t_to_float_1d_with_mode(%id, %fl, %z)
    hivm.hir.pipe_barrier[<PIPE_ALL>]
    %limit = arith.constant LIMIT : f32
    call @vcmps_lt_1d_float(%fl, %limit, %cond)
    hivm.hir.pipe_barrier[<PIPE_ALL>]
    call @vsel_vs_1d_float(%cond, %u, %zero, %v, %s)
    hivm.hir.pipe_barrier[<PIPE_ALL>]
    """
        + WHOLE
        + "call @store_ubuf_to_gm_1d_float(%v, %gout, %z)"
    )
    assert in_ub(body.replace("LIMIT", "40.0")).clean
    assert kinds(in_ub(body.replace("LIMIT", "41.0"))) == ["UNDEFINED"]


def test_padding_by_value_defines_the_block() -> None:
    """41 elements end 7 before the end of their 32-byte block."""
    body = (TILE + DOUBLE + WHOLE).replace("40", "41").replace("[64], strides", "[48], strides")
    body = body.replace(
        "gm<64xf32, strided<[1], offset: 64>>", "gm<48xf32, strided<[1], offset: 64>>"
    )
    body += "%some = part %v[0, 48] of 64 : f32\n"
    body += "call @store_ubuf_to_gm_1d_float(%some, %gout, %z)"
    assert kinds(in_ub(body)) == ["UNDEFINED"]
    assert in_ub(
        body.replace("%part, %z, %f", "%part, %two, %f").replace(
            "%u =", "%two = arith.constant 2 : i32\n%u =", 1
        )
    ).clean


@pytest.mark.parametrize(
    "use",
    [
        pytest.param("%b = arith.cmpf ogt, %l, %f : f32\nscf.if %b {\n}", id="branch"),
        pytest.param(
            "%i = arith.fptosi %l : f32 to i32\n%j = arith.index_cast %i : i32 to index\n"
            "%q = memref.load %x[%j] : gm<?xf32>",
            id="address",
        ),
        pytest.param("memref.store %l, %x[%c0] : gm<?xf32>", id="store"),
        pytest.param(
            "%i = arith.fptosi %l : f32 to i32\n%j = arith.index_cast %i : i32 to index\n"
            "scf.for %k = %c0 to %j step %c1 {\n}",
            id="loop",
        ),
    ],
)
@pytest.mark.parametrize("defined", [True, False])
def test_scalars_from_unwritten_ub(use: str, defined: bool) -> None:
    write = "memref.store %f, %u[%c1] : ub<8xf32>\n" if defined else ""
    body = "%u = hivm.hir.pointer_cast(%a0) : ub<8xf32>\n" + write
    body += "%l = memref.load %u[%c1] : ub<8xf32>\n" + use
    assert kinds(in_ub(body)) == ([] if defined else ["UNDEFINED"])


def test_an_undefined_scalar_that_decides_nothing_is_no_error() -> None:
    body = """
    %u = hivm.hir.pointer_cast(%a0) : ub<8xf32>
    %l = memref.load %u[%c1] : ub<8xf32>
    %m = arith.mulf %l, %f : f32
    %n1 = arith.cmpi eq, %n, %n : i32
    %s = arith.select %n1, %f, %m : f32
    memref.store %s, %x[%c0] : gm<?xf32>
    """
    assert in_ub(body).clean


def test_nothing_is_defined_when_a_program_starts() -> None:
    body = """
    %c0 = arith.constant 0 : index
    %f = arith.constant 1.0 : f32
    %a0 = arith.constant 0 : i64
    %u = hivm.hir.pointer_cast(%a0) : ub<8xf32>
    %p = hivm.hir.get_block_idx -> i64
    %zero = arith.constant 0 : i64
    %first = arith.cmpi eq, %p, %zero : i64
    scf.if %first {
    memref.store %f, %u[%c0] : ub<8xf32>
    } else {
    %l = memref.load %u[%c0] : ub<8xf32>
    memref.store %l, %x[%c0] : gm<?xf32>
    }
    """
    result = run(body, {"x": ("gm<?xf32>", zeros(1))}, (2,))
    assert kinds(result) == ["UNDEFINED"]
    assert result.findings[0].program == 1


# --- atomics -------------------------------------------------------------------------------

ATOMIC = """
    %c0 = arith.constant 0 : index
    %f = arith.constant 3.0 : f32
    %a0 = arith.constant 0 : i64
    %u = hivm.hir.pointer_cast(%a0) : ub<64xf32>
    call @broadcast_scalar_float_to_1d(%f, %u)
    hivm.hir.pipe_barrier[<PIPE_ALL>]
    %at = arith.index_cast %n : i64 to index
    %s = part %u[%at, 8] of 64 : f32
    %out = slice %x[0, 8] : f32
    call @store_ubuf_to_gm_1d_float(%s, %out, %kind)
"""


@pytest.mark.parametrize(("kind", "wanted"), [(0, [3, 3]), (1, [4, 8]), (2, [3, 5]), (3, [1, 3])])
def test_atomic_stores(kind: int, wanted: list[int]) -> None:
    x = np.array([1, 5] * 4, np.float32)
    arguments = {"x": ("gm<?xf32>", x), "n": ("i64", 8), "kind": ("i32", kind)}
    assert run(ATOMIC, arguments).clean
    assert x.tolist() == wanted * 4


def test_a_misaligned_atomic_store_is_dropped_and_reported() -> None:
    x = np.ones(8, np.float32)
    arguments = {"x": ("gm<?xf32>", x), "n": ("i64", 1), "kind": ("i32", 1)}
    result = run(ATOMIC, arguments)
    assert kinds(result) == ["MISALIGNED"]
    assert "multiples of 32 bytes" in result.findings[0].message
    assert (x == 1).all()
    arguments["kind"] = ("i32", 0)
    assert run(ATOMIC, arguments).clean


@pytest.mark.parametrize(("address", "found"), [(64, []), (48, ["MISALIGNED"])])
def test_a_buffer_off_a_block(address: int, found: list[str]) -> None:
    body = f"%a = arith.constant {address} : i64\n%u = hivm.hir.pointer_cast(%a) : ub<8xf32>"
    assert kinds(in_ub(body)) == found


def test_two_dimensional_transfers() -> None:
    """A 3 × 5 part of a 4 × 9 matrix, rows padded to blocks in UB, written transposed in GM."""
    body = """
    %c0 = arith.constant 0 : index
    %two = arith.constant 2 : i32
    %z = arith.constant 0 : i32
    %f = arith.constant 7.0 : bf16
    %a0 = arith.constant 0 : i64
    %w = hivm.hir.pointer_cast(%a0) : ub<3x16xbf16>
    %u = memref.subview %w[0, 0] [3, 5] [1, 1] : ub<3x16xbf16> to ub<3x5xbf16, strided<[16, 1]>>
    %in = slice %x[10, 3x5 by 9, 1] : bf16
    %out = slice %y[0, 3x16 by 1, 3] : bf16
    call @load_gm_to_ubuf_2d_bfloat16_t(%in, %u, %two, %f, %c0)
    hivm.hir.pipe_barrier[<PIPE_ALL>]
    call @store_ubuf_to_gm_2d_bfloat16_t(%w, %out, %z)
    """
    x = np.arange(36).astype(ml_dtypes.bfloat16)
    y = np.zeros(48, ml_dtypes.bfloat16)
    assert run(body, {"x": ("gm<?xbf16>", x), "y": ("gm<?xbf16>", y)}).clean
    got = y.reshape(16, 3).T
    assert (got[:, :5] == x.reshape(4, 9)[1:4, 1:6]).all()
    assert (got[:, 5:] == 7).all()
