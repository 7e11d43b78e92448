"""Programs of one launch that touch the same bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ascendport.simulator import Result
from ascendport.simulator.conflicts import Accesses, merge
from ascendport.simulator.layout import ATOMIC, LOCKED, WRITE
from tests.simulator.programs import kinds, run

WRITER = """
    %c0 = arith.constant 0 : index
    %z = arith.constant 0 : i32
    %a0 = arith.constant 0 : i64
    %u = hivm.hir.pointer_cast(%a0) : ub<8xi32>
    %p = hivm.hir.get_block_idx -> i64
    %pi = arith.trunci %p : i64 to i32
    call @broadcast_scalar_int32_t_to_1d(%pi, %u)
    hivm.hir.pipe_barrier[<PIPE_ALL>]
    %m = arith.muli %p, %step : i64
    %at = arith.index_cast %m : i64 to index
    %out = slice %x[%at, 8] : i32
    call @store_ubuf_to_gm_1d_int32_t(%u, %out, %kind)
"""


def write(step: int, kind: int = 0, body: str = WRITER) -> Result:
    x = np.zeros(64, np.int32)
    arguments = {"x": ("gm<?xi32>", x), "step": ("i64", step), "kind": ("i32", kind)}
    return run(body, arguments, (4,))


def test_neighbours_do_not_conflict_and_overlaps_do() -> None:
    assert write(8).clean
    result = write(7)
    (finding,) = result.findings
    assert kinds(result) == ["CONFLICT"]
    assert (finding.program, finding.other_program, finding.times) == (0, 1, 3)
    assert "x elements 7..8: program 0 writes (line 12), program 1 writes" in finding.message


def test_atomics_do_not_conflict_with_each_other() -> None:
    assert write(0, kind=1).clean
    assert kinds(write(0, kind=0)) == ["CONFLICT"]


def test_reads_do_not_conflict_and_a_read_of_what_another_writes_does() -> None:
    read = """
    %p = hivm.hir.get_block_idx -> i64
    %c0 = arith.constant 0 : index
    %zero = arith.constant 0 : i64
    %first = arith.cmpi eq, %p, %zero : i64
    %v = memref.load %x[%c0] : gm<?xi32>
    """
    assert write(0, body=read).clean
    result = write(0, body=read + "scf.if %first {\nmemref.store %v, %x[%c0] : gm<?xi32>\n}")
    (finding,) = result.findings
    assert finding.kind.name == "CONFLICT"
    assert {finding.program, finding.other_program} == {0, 1}


LOCKED_ADD = """
    %c0 = arith.constant 0 : index
    %one = arith.constant 1 : i32
    %b = memref.view %lock[%c0][] : gm<?xi8> to gm<1xi64>
    %l = memref.cast %b : gm<1xi64> to gm<?xi64, strided<[?], offset: ?>>
    call @sync_block_lock(%l)
    %v = memref.load %x[%c0] : gm<?xi32>
    %w = arith.addi %v, %one : i32
    memref.store %w, %x[%c0] : gm<?xi32>
    call @sync_block_unlock(%l)
"""


def test_a_lock_orders_programs() -> None:
    x = np.zeros(1, np.int32)
    assert run(LOCKED_ADD, {"x": ("gm<?xi32>", x)}, (5,)).clean
    assert x[0] == 5
    bare = "\n".join(line for line in LOCKED_ADD.split("\n") if "sync_block" not in line)
    assert set(kinds(run(bare, {"x": ("gm<?xi32>", x)}, (5,)))) == {"CONFLICT"}


def test_programs_left_out_do_not_hold_the_lock() -> None:
    x = np.zeros(1, np.int32)
    assert run(LOCKED_ADD, {"x": ("gm<?xi32>", x)}, (9,), programs=[2, 3, 7]).clean
    assert x[0] == 3


EARLY = (
    """
    %p = hivm.hir.get_block_idx -> i64
    %one64 = arith.constant 1 : i64
    %skip = arith.cmpi ne, %p, %one64 : i64
    scf.if %skip {
"""
    + LOCKED_ADD
    + "}\n"
)


def test_a_program_that_returns_before_the_lock_blocks_the_others() -> None:
    x = np.zeros(1, np.int32)
    result = run(EARLY, {"x": ("gm<?xi32>", x)}, (4,))
    assert kinds(result) == ["LOCK"]
    assert result.findings[0].program == 2
    assert "waits for program 1" in result.findings[0].message
    assert "waits for a lock for ever" in result.stopped
    assert x[0] == 1
    result = run(EARLY, {"x": ("gm<?xi32>", x)}, (4,), past_locks=True)
    assert kinds(result) == ["LOCK"]
    assert x[0] == 4


def test_a_lock_taken_twice_waits_for_ever() -> None:
    result = run(
        LOCKED_ADD + LOCKED_ADD.replace("%", "%q").replace("%qx", "%x").replace("%qlock", "%lock"),
        {"x": ("gm<?xi32>", np.zeros(1, np.int32))},
        (2,),
    )
    assert kinds(result) == ["LOCK"]
    assert "took it before" in result.findings[0].message


RANGES = st.lists(st.tuples(st.integers(0, 40), st.integers(1, 8)), max_size=12)


@given(RANGES)
def test_merge_is_the_union(ranges: list[tuple[int, int]]) -> None:
    starts = np.array([start for start, _ in ranges], np.int64)
    ends = np.array([start + size for start, size in ranges], np.int64)
    low, high = merge(starts, ends)
    covered = {byte for start, size in ranges for byte in range(start, start + size)}
    assert {b for a, e in zip(low, high, strict=True) for b in range(a, e)} == covered
    assert len(ranges) < 2 or (low[1:] > high[:-1]).all()


ACCESS = st.tuples(
    st.integers(0, 3),
    st.integers(0, 20),
    st.integers(1, 6),
    st.sampled_from([0, WRITE, WRITE | ATOMIC, WRITE | LOCKED, LOCKED]),
    st.integers(0, 1),
)


@given(st.lists(ACCESS, max_size=14))
def test_conflicts_are_those_of_all_pairs(found: list[tuple[int, int, int, int, int]]) -> None:
    accesses = Accesses()
    for program in range(4):
        for owner, start, size, flags, site in found:
            if owner == program:
                accesses.run(1, start, size, flags, site)
        accesses.close(program)
    wanted = set()
    for p, s, n, f, a in found:
        for q, t, m, g, b in found:
            meet = max(s, t) < min(s + n, t + m)
            if p != q and meet and (f | g) & WRITE and not f & g & (LOCKED | ATOMIC):
                wanted.add((min(a, b), max(a, b)))
    got = accesses.conflicts()
    assert {tuple(sorted((c.first[1], c.second[1]))) for c in got} == wanted
    for conflict in got:
        assert conflict.first[0] != conflict.second[0]
        assert conflict.first[2] or conflict.second[2]


@pytest.mark.parametrize("count", [3000])
def test_many_ranges(count: int) -> None:
    """Each program reads all and writes its own: one conflict for each pair of neighbours."""
    accesses: Any = Accesses()
    for program in range(count):
        accesses.run(1, 4 * program, 4, WRITE, 0)
        accesses.run(1, 4 * program + 2, 4, 0, 1)
        accesses.close(program)
    (conflict,) = accesses.conflicts()
    assert conflict.times == count - 1
