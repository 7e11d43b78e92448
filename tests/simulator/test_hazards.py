"""Hazards between pipes: each program has one, and a sibling just avoids it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ascendport.simulator import Kind, Result
from ascendport.simulator.state import Arrays
from tests.simulator.programs import kinds, run, zeros

# A tile goes GM → UB (MTE2), through V, and back (MTE3). Flags are left out one at a time.
HEAD = """
    %c0 = arith.constant 0 : index
    %z = arith.constant 0 : i32
    %f = arith.constant 0.0 : f32
    %a0 = arith.constant 0 : i64
    %a1 = arith.constant 256 : i64
    %a2 = arith.constant 512 : i64
    %u = hivm.hir.pointer_cast(%a0) : ub<64xf32>
    %v = hivm.hir.pointer_cast(%a1) : ub<64xf32>
    %t = hivm.hir.pointer_cast(%a2) : ub<0xf32>
    %gx1 = slice %x[0, 64] : f32
    %gy1 = slice %y[0, 64] : f32
"""
LOAD = "call @load_gm_to_ubuf_1d_float(%gx1, %u, %z, %f, %c0)"
ADD = "call @vadd_1d_float(%u, %u, %v, %t)"
ADD_BACK = "call @vadd_1d_float(%v, %v, %u, %t)"
STORE = "call @store_ubuf_to_gm_1d_float(%v, %gy1, %z)"
BARRIER_V = "hivm.hir.pipe_barrier[<PIPE_V>]"
ALL = "hivm.hir.pipe_barrier[<PIPE_ALL>]"


def flags(source: str, target: str, event: int = 0) -> str:
    rest = f"[<PIPE_{source}>, <PIPE_{target}>, <EVENT_ID{event}>]"
    return f"hivm.hir.set_flag{rest}\nhivm.hir.wait_flag{rest}"


def simulate(*steps: str) -> tuple[Result, Any]:
    x, y = np.arange(64, dtype=np.float32), zeros(64)
    arguments = {"x": ("gm<?xf32>", x), "y": ("gm<?xf32>", y)}
    return run(HEAD + "\n".join(steps), arguments), y


def races(result: Result) -> list[str]:
    assert all(finding.kind is Kind.RACE for finding in result.findings), result.findings
    return [finding.message for finding in result.findings]


def test_a_well_ordered_program_is_clean_and_right() -> None:
    result, y = simulate(LOAD, flags("MTE2", "V"), ADD, flags("V", "MTE3"), STORE)
    assert result.clean
    assert y.tolist() == [2 * i for i in range(64)]


@pytest.mark.parametrize(
    ("bad", "good", "says"),
    [
        pytest.param(
            [LOAD, ADD],
            [LOAD, flags("MTE2", "V"), ADD],
            "V reads UB bytes 0..256 written on MTE2",
            id="read-after-write",
        ),
        pytest.param(
            [LOAD, flags("MTE2", "V"), ADD, STORE],
            [LOAD, flags("MTE2", "V"), ADD, flags("V", "MTE3"), STORE],
            "MTE3 reads UB bytes 256..512 written on V",
            id="read-after-write-by-dma",
        ),
        pytest.param(
            [LOAD, flags("MTE2", "V"), ADD, LOAD],
            [LOAD, flags("MTE2", "V"), ADD, flags("V", "MTE2"), LOAD],
            "MTE2 writes UB bytes 0..256 read on V",
            id="write-after-read",
        ),
        pytest.param(
            [LOAD, flags("MTE2", "V"), ADD, BARRIER_V, ADD_BACK, LOAD],
            [LOAD, flags("MTE2", "V"), ADD, BARRIER_V, ADD_BACK, flags("V", "MTE2"), LOAD],
            "MTE2 writes UB bytes 0..256 written on V",
            id="write-after-write",
        ),
        pytest.param(
            [LOAD, flags("MTE2", "V"), ADD, ADD_BACK],
            [LOAD, flags("MTE2", "V"), ADD, BARRIER_V, ADD_BACK],
            "V reads UB bytes 256..512 written on V by vadd_1d_float (line 15), no pipe_barrier",
            id="vector-after-vector",
        ),
        pytest.param(
            [LOAD, "%s = memref.load %u[%c0] : ub<64xf32>"],
            [LOAD, flags("MTE2", "S"), "%s = memref.load %u[%c0] : ub<64xf32>"],
            "S reads UB bytes 0..1 written on MTE2",
            id="scalar-read",
        ),
        pytest.param(
            [LOAD, flags("MTE2", "V"), ADD, "memref.store %f, %v[%c0] : ub<64xf32>"],
            [
                LOAD,
                flags("MTE2", "V"),
                ADD,
                flags("V", "S"),
                "memref.store %f, %v[%c0] : ub<64xf32>",
            ],
            "S writes UB bytes 256..257 written on V",
            id="scalar-write",
        ),
        pytest.param(
            [LOAD, flags("MTE2", "S"), "memref.store %f, %u[%c0] : ub<64xf32>", ADD],
            [
                *(LOAD, flags("MTE2", "S"), "memref.store %f, %u[%c0] : ub<64xf32>"),
                *(flags("S", "V"), ADD),
            ],
            "V reads UB bytes 0..256 written on S by store.ub",
            id="vector-after-scalar-store",
        ),
        pytest.param([LOAD, ADD], [LOAD, ALL, ADD], "written on MTE2", id="barrier-of-all"),
        pytest.param(
            [LOAD, BARRIER_V, ADD],
            [LOAD, flags("MTE2", "MTE3", 3), flags("MTE3", "V", 1), ADD],
            "written on MTE2",
            id="order-through-a-third-pipe",
        ),
        pytest.param(
            [LOAD, flags("MTE3", "V"), ADD],
            [LOAD, flags("MTE2", "V"), ADD],
            "written on MTE2",
            id="flag-of-another-pipe",
        ),
    ],
)
def test_hazard(bad: list[str], good: list[str], says: str) -> None:
    found = races(simulate(*bad)[0])
    assert any(says in message for message in found), found
    assert simulate(*good)[0].clean


def test_a_flag_set_too_early_does_not_order_what_follows() -> None:
    early = "hivm.hir.set_flag[<PIPE_MTE2>, <PIPE_V>, <EVENT_ID0>]"
    wait = "hivm.hir.wait_flag[<PIPE_MTE2>, <PIPE_V>, <EVENT_ID0>]"
    assert races(simulate(early, LOAD, wait, ADD)[0])
    assert simulate(LOAD, early, wait, ADD)[0].clean


def test_what_the_scalar_unit_waited_for_is_over_on_every_pipe() -> None:
    # V issues after S has waited for MTE2: instructions are issued by S, in order.
    assert simulate(LOAD, flags("MTE2", "S"), ADD)[0].clean
    # What S reads itself is read before anything issued later.
    read = "%s = memref.load %u[%c0] : ub<64xf32>"
    assert simulate(LOAD, flags("MTE2", "S"), read, LOAD.replace("gx1", "gy1"))[0].findings == ()


def test_programs_start_without_what_others_left_open() -> None:
    assert races(simulate(LOAD, LOAD)[0])
    x, y = np.arange(64, dtype=np.float32), zeros(64)
    arguments = {"x": ("gm<?xf32>", x), "y": ("gm<?xf32>", y)}
    assert run(HEAD + LOAD, arguments, (3,)).clean


def test_clocks_start_again_before_they_wrap() -> None:
    arrays = Arrays(1024, [])
    arrays.reset(0)
    arrays.clocks[4] = 2**30
    arrays.writes[3] = 2**30
    arrays.reset(1)
    assert (arrays.clocks[4] == 1).all()
    assert not arrays.writes.any()
    arrays.writes[3] = 1
    arrays.reset(2)
    assert (arrays.clocks[4] == 2).all()
    assert (arrays.clocks[:4] >= arrays.writes.max()).all()


def test_neighbouring_buffers_do_not_disturb_each_other() -> None:
    other = LOAD.replace("%u", "%v")
    assert simulate(LOAD, other, flags("MTE2", "V"), BARRIER_V)[0].clean
    fill = "call @broadcast_scalar_float_to_1d(%f, %v)"
    assert simulate(LOAD, fill, ALL)[0].clean


def test_wait_without_a_set_is_a_deadlock() -> None:
    wait = "hivm.hir.wait_flag[<PIPE_MTE2>, <PIPE_V>, <EVENT_ID2>]"
    result, _ = simulate(LOAD, wait, ADD)
    assert kinds(result) == ["EVENT_MISSING"]
    assert "event 2 from MTE2 to V" in result.findings[0].message
    assert "nothing sets" in result.stopped
    line = result.findings[0].location
    assert line is not None
    assert line.line == len(HEAD.strip("\n").split("\n")) + 2


def test_event_left_set_and_set_twice() -> None:
    one = "hivm.hir.set_flag[<PIPE_MTE2>, <PIPE_V>, <EVENT_ID1>]"
    assert kinds(simulate(one)[0]) == ["EVENT_LEFT"]
    assert kinds(simulate(one, one, one.replace("set", "wait"))[0]) == ["EVENT_TWICE"]
    assert simulate(one, one.replace("set", "wait"), one, one.replace("set", "wait"))[0].clean


@pytest.mark.parametrize("rounds", [0, 1, 2, 5])
@pytest.mark.parametrize("good", [True, False], ids=["two-events", "one-event"])
def test_double_buffering_with_dynamic_events(rounds: int, good: bool) -> None:
    """Two tiles in turn; each has an event of its own, chosen at run time."""
    chosen = "%e" if good else "%e0"
    body = f"""
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c2 = arith.constant 2 : index
    %z = arith.constant 0 : i32
    %f = arith.constant 0.0 : f32
    %e0 = arith.constant 0 : i64
    %e1 = arith.constant 1 : i64
    %a0 = arith.constant 0 : i64
    %a1 = arith.constant 256 : i64
    %u0 = hivm.hir.pointer_cast(%a0) : ub<64xf32>
    %u1 = hivm.hir.pointer_cast(%a1) : ub<64xf32>
    %n1 = arith.index_cast %n : i32 to index
    hivm.hir.set_flag[<PIPE_MTE3>, <PIPE_MTE2>, <EVENT_ID0>]
    hivm.hir.set_flag[<PIPE_MTE3>, <PIPE_MTE2>, <EVENT_ID1>]
    scf.for %i = %c0 to %n1 step %c1 {{
    %r = arith.remsi %i, %c2 : index
    %first = arith.cmpi eq, %r, %c0 : index
    %e = arith.select %first, %e0, %e1 : i64
    %u = arith.select %first, %u0, %u1 : ub<64xf32>
    %at = affine.apply affine_map<(d0) -> (d0 * 64)>(%i)
    %in = slice %x[%at, 64] : f32
    %out = slice %y[%at, 64] : f32
    hivm.hir.wait_flag[<PIPE_MTE3>, <PIPE_MTE2>, {chosen}]
    call @load_gm_to_ubuf_1d_float(%in, %u, %z, %f, %c0)
    hivm.hir.set_flag[<PIPE_MTE2>, <PIPE_MTE3>, <EVENT_ID0>]
    hivm.hir.wait_flag[<PIPE_MTE2>, <PIPE_MTE3>, <EVENT_ID0>]
    call @store_ubuf_to_gm_1d_float(%u, %out, %z)
    hivm.hir.set_flag[<PIPE_MTE3>, <PIPE_MTE2>, %e]
    }}
    hivm.hir.wait_flag[<PIPE_MTE3>, <PIPE_MTE2>, <EVENT_ID0>]
    hivm.hir.wait_flag[<PIPE_MTE3>, <PIPE_MTE2>, <EVENT_ID1>]
    """
    x, y = np.arange(64 * 5, dtype=np.float32), zeros(64 * 5)
    arguments = {"x": ("gm<?xf32>", x), "y": ("gm<?xf32>", y), "n": ("i32", rounds)}
    result = run(body, arguments)
    if good or rounds < 2:
        assert result.clean
        assert (y[: 64 * rounds] == x[: 64 * rounds]).all()
    else:
        assert not result.clean
