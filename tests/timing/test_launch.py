"""Whole launches: waves, shared memory, locks, and programs that do the same work."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ascendport.ascend.soc import soc
from ascendport.errors import UserError
from ascendport.simulator import Simulator, Trace
from ascendport.timing.constants import constants
from ascendport.timing.launch import (
    AGAIN,
    collect,
    fits_l2,
    launch_time,
    place,
    rates,
    read,
    sample,
    time_launch,
)
from ascendport.timing.pipes import FETCH, LAUNCH, LOAD, LOCK
from tests.simulator.programs import program

B3 = soc("Ascend910B3")
TILE = 4096

# Program p takes tile p of x, adds it to itself %turns times, and stores it to y.
BODY = f"""
    %p = hivm.hir.get_block_idx -> i64
    %i = arith.index_cast %p : i64 to index
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %size = arith.constant {TILE} : index
    %z = arith.constant 0 : i32
    %f = arith.constant 0.0 : f32
    %a0 = arith.constant 0 : i64
    %u = hivm.hir.pointer_cast(%a0) : ub<{TILE}xf32>
    %t = hivm.hir.pointer_cast(%a0) : ub<0xf32>
    %at = arith.muli %i, %size : index
    %gx1 = slice %x[%at, {TILE}] : f32
    %gy1 = slice %y[%at, {TILE}] : f32
    %n = arith.index_cast %turns : i32 to index
    call @load_gm_to_ubuf_1d_float(%gx1, %u, %z, %f, %c0)
    hivm.hir.set_flag[<PIPE_MTE2>, <PIPE_V>, <EVENT_ID0>]
    hivm.hir.wait_flag[<PIPE_MTE2>, <PIPE_V>, <EVENT_ID0>]
    scf.for %k = %c0 to %n step %c1 {{
    hivm.hir.pipe_barrier[<PIPE_V>]
    call @vadd_1d_float(%u, %u, %u, %t)
    }}
    hivm.hir.set_flag[<PIPE_V>, <PIPE_MTE3>, <EVENT_ID0>]
    hivm.hir.wait_flag[<PIPE_V>, <PIPE_MTE3>, <EVENT_ID0>]
    call @store_ubuf_to_gm_1d_float(%u, %gy1, %z)
"""
LOCKED = """
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


@pytest.fixture(scope="module")
def tiles() -> Simulator:
    return Simulator(program(BODY, {"x": "gm<?xf32>", "y": "gm<?xf32>", "turns": "i32"}))


def arguments(programs: int, turns: int = 3) -> list[Any]:
    x = np.ones(programs * TILE, np.float32)
    return [x, np.zeros_like(x), turns]


def traces(simulator: Simulator, programs: int, turns: int = 3) -> dict[int, Trace]:
    return collect(simulator, arguments(programs, turns), (programs,), limit=programs)


def test_waves_show_at_multiples_of_the_core_count(tiles: Simulator) -> None:
    found = traces(tiles, 81)
    launch = constants()["launch_us"]

    def time(programs: int) -> float:
        kept = {number: found[number] for number in range(programs)}
        return launch_time(kept, programs, B3).us - launch

    one = time(40)
    # A later wave finds its code in the cache.
    wave = time(41) - one
    assert 0.5 * one < wave < one
    assert time(80) == pytest.approx(one + wave)
    assert time(81) == pytest.approx(one + 2 * wave)
    # More cores fetch the same code, one after another.
    assert time(1) < time(20) < one
    assert [launch_time(found, n, B3).waves for n in (1, 40, 41, 80, 81)] == [1, 1, 2, 2, 3]


def test_grouping_gives_what_timing_every_program_gives(tiles: Simulator) -> None:
    found = traces(tiles, 50)
    together, apart = launch_time(found, 50, B3), launch_time(found, 50, B3, grouped=False)
    assert together.classes == 1
    assert apart.classes == 50
    assert together.us == pytest.approx(apart.us)
    assert together.causes == pytest.approx(apart.causes)
    assert together.by_pipe == pytest.approx(apart.by_pipe)


def test_programs_of_other_work_are_not_grouped(tiles: Simulator) -> None:
    short, long = traces(tiles, 1, turns=3)[0], traces(tiles, 1, turns=4)[0]
    mixed = launch_time({0: short, 1: long}, 2, B3)
    assert mixed.classes == 2
    assert mixed.us == pytest.approx(launch_time({0: long, 1: long}, 2, B3).us)


def test_a_sample_stands_for_the_programs_between(tiles: Simulator) -> None:
    values = arguments(200)
    all_of_them = time_launch(tiles, values, (200,), B3, limit=200)
    some = time_launch(tiles, values, (200,), B3, limit=9)
    assert (some.sampled, some.programs) == (9, 200)
    assert some.us == pytest.approx(all_of_them.us)


@pytest.mark.parametrize("programs", [1, 2, 63, 64, 65, 1000])
def test_samples_hold_the_first_and_the_last(programs: int) -> None:
    chosen = sample(programs, 64)
    assert chosen[0] == 0
    assert chosen[-1] == programs - 1
    assert len(chosen) == min(programs, 64)
    assert list(chosen) == sorted(set(chosen))


def test_the_parts_of_a_launch_add_up(tiles: Simulator) -> None:
    modelled = launch_time(traces(tiles, 41), 41, B3)
    assert sum(modelled.causes.values()) == pytest.approx(modelled.us)
    assert sum(line.us for line in modelled.hot_lines) <= modelled.us + 1e-9
    assert modelled.bound == max(modelled.causes, key=lambda cause: modelled.causes[cause])
    assert modelled.low < modelled.us < modelled.high
    assert not modelled.assumed


def test_kinds_say_which_programs_found_their_code(tiles: Simulator) -> None:
    modelled = launch_time(traces(tiles, 41), 41, B3)
    assert modelled.classes == 1
    later = [run.program for run in modelled.runs if run.kind.endswith(AGAIN)]
    assert later == [40]
    assert {run.kind for run in modelled.runs} == set(modelled.schedules)


def test_other_kernels_between_launches_cost_the_code(tiles: Simulator) -> None:
    found = traces(tiles, 1)
    in_service = launch_time(found, 1, B3, in_service=True)
    repeated = launch_time(found, 1, B3)
    assert in_service.causes[FETCH] > repeated.causes[FETCH]
    assert in_service.us > repeated.us


def test_what_was_read_can_be_placed_again(tiles: Simulator) -> None:
    found = traces(tiles, 50)
    launched = read(found, 50)
    slower = constants().having(launch_us=100.0)
    assert place(launched, B3).us == launch_time(found, 50, B3).us
    assert place(launched, B3, table=slower).us == launch_time(found, 50, B3, table=slower).us


def test_more_programs_never_take_less_time(tiles: Simulator) -> None:
    [trace] = traces(tiles, 1).values()
    times = [launch_time({0: trace}, programs, B3).us for programs in range(1, 130)]
    assert times == sorted(times)


def test_more_vector_work_moves_the_bound(tiles: Simulator) -> None:
    few = launch_time(traces(tiles, 1, turns=1), 1, B3)
    many = launch_time(traces(tiles, 1, turns=200), 1, B3)
    assert few.bound == LAUNCH
    assert many.bound == "vector"
    assert many.us > few.us
    hottest = many.hot_lines[0]
    assert hottest.location is not None
    assert "vadd" in BODY.strip("\n").split("\n")[hottest.location.line - 1]
    assert hottest.cause == "vector"


def test_a_lock_serialises() -> None:
    simulator = Simulator(program(LOCKED, {"x": "gm<?xi32>"}))

    def time(programs: int) -> Any:
        return time_launch(simulator, [np.zeros(1, np.int32)], (programs,), B3)

    one, ten, twenty = time(1), time(10), time(20)
    assert ten.waves == twenty.waves == 1
    assert twenty.us - ten.us == pytest.approx(ten.us - one.us, rel=0.15)
    assert twenty.us > 2 * one.us
    assert twenty.bound == LOCK
    assert twenty.hot_lines[0].cause == LOCK
    assert twenty.hot_lines[0].location is not None
    assert sum(twenty.causes.values()) == pytest.approx(twenty.us)
    bare = "\n".join(row for row in LOCKED.split("\n") if "sync_block" not in row)
    free = Simulator(program(bare, {"x": "gm<?xi32>"}))
    unlocked = time_launch(free, [np.zeros(1, np.int32)], (20,), B3)
    assert unlocked.us < one.us


def test_tensors_outside_l2_are_slower_and_more_so_when_all_cores_load(tiles: Simulator) -> None:
    found = traces(tiles, 40)

    def loading(programs: int, *, resident: bool) -> float:
        return launch_time(found, programs, B3, resident=resident).causes[LOAD]

    assert loading(1, resident=False) > loading(1, resident=True)
    assert loading(40, resident=False) > loading(1, resident=False)
    assert fits_l2(arguments(40), B3)
    assert not fits_l2([np.broadcast_to(np.zeros(1, np.int8), 1 << 28)], B3)


def test_no_part_moves_more_than_its_memory_does() -> None:
    table = constants()
    for name in ("Ascend910B1", "Ascend910B3", "Ascend910B4", "Ascend910_9391"):
        part = soc(name)
        assert part.mhz
        speeds = [rates(table, part, moving) for moving in range(1, 49)]
        for moving, rate in enumerate(speeds, 1):
            gb = rate.hbm_load * part.mhz * 1e6 * moving / 1e9
            assert gb <= (800 if name.startswith("Ascend910B4") else 1600) + 1e-6
        loads = [rate.hbm_load for rate in speeds]
        assert loads == sorted(loads, reverse=True)


def test_a_faster_clock_is_faster(tiles: Simulator) -> None:
    found = traces(tiles, 1, turns=100)
    times = [launch_time(found, 1, soc(name)).us for name in ("Ascend910B1", "Ascend910B4")]
    assert times[0] < times[1]


def test_an_empty_launch_takes_the_launch(tiles: Simulator) -> None:
    modelled = time_launch(tiles, arguments(1), (0,), B3)
    assert modelled.us == constants()["launch_us"]
    assert modelled.bound == LAUNCH


def test_parts_without_a_published_clock_are_refused(tiles: Simulator) -> None:
    with pytest.raises(UserError, match="no clock"):
        launch_time(traces(tiles, 1), 1, soc("Ascend950PR_9589"))
