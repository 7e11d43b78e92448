"""The schedule of one program: pipes overlap, and wait where they must."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ascendport.simulator.layout import Pipe
from ascendport.simulator.trace import Operation
from ascendport.timing.constants import constants
from ascendport.timing.pipes import FETCH, LOAD, SCALAR, STORE, VECTOR, Machine, schedule
from tests.timing.operations import barrier, flags, line, load, machine, store, timed, vector, work

HEAD = constants()["program_head_cycles"]
TILE = 16384


def add(elements: int = TILE, at: int = 1) -> Operation:
    return vector("vadd_1d_float", (elements,), (elements,), to=(elements,), at=at)


def spent(*operations: Operation) -> float:
    return timed(operations).end - HEAD


def test_pipes_that_do_not_wait_take_the_longer_not_the_sum() -> None:
    both = spent(load(TILE), add())
    assert both < 1.1 * max(spent(load(TILE)), spent(add()))


def test_a_flag_makes_the_other_pipe_wait() -> None:
    alone = spent(load(TILE)), spent(add())
    both = spent(load(TILE), *flags(Pipe.MTE2, Pipe.V), add())
    assert both == pytest.approx(sum(alone), rel=0.02)
    stalls = timed([load(TILE), *flags(Pipe.MTE2, Pipe.V), add()]).stalls
    assert stalls[Pipe.V, "wait for MTE2"] > 0.8 * alone[0]


def test_loads_and_stores_never_move_data_together() -> None:
    both = timed([load(TILE), store(TILE)])
    assert both.moving == pytest.approx(2 * TILE * 4 / 64)
    assert both.end - HEAD >= both.moving
    assert both.stalls[Pipe.MTE3, "MTE2 moves data"] > 0


def test_vector_instructions_follow_each_other_without_their_start_up() -> None:
    start_up, each = constants().by_name("vector")["add"]
    one, two = spent(add()), spent(add(), add())
    assert two - one == pytest.approx(each * TILE * 4 / 256)
    with_barrier = spent(add(), barrier(Pipe.V), add())
    assert with_barrier - two == pytest.approx(start_up + constants()["barrier_cycles"])


def test_a_barrier_on_an_idle_pipe_costs_nothing() -> None:
    idle = work(1000, load_ub=1)
    assert spent(add(), idle, barrier(Pipe.V), add()) == pytest.approx(spent(add(), idle, add()))


def test_a_barrier_of_all_pipes_ends_all_overlap() -> None:
    ordered = spent(load(TILE), barrier(None), add())
    assert ordered >= 0.98 * (spent(load(TILE)) + spent(add()))


def test_scalar_work_waits_for_what_it_reads() -> None:
    free = spent(add(), work(100, load_ub=1))
    waits = spent(add(), *flags(Pipe.V, Pipe.S), work(100, load_ub=1))
    assert waits > free
    assert waits == pytest.approx(spent(add()) + spent(work(100, load_ub=1)), abs=10)


@given(
    st.lists(
        st.sampled_from(
            [
                load(3000, at=2),
                store(3000, at=3),
                add(3000, at=4),
                vector("enablevc_reduce_max_r_float", (3000,), to=(1,), at=5),
                work(7, at=6, load_ub=1, load_gm=1),
                barrier(Pipe.V),
                barrier(None),
                flags(Pipe.MTE2, Pipe.V)[0],
                flags(Pipe.MTE2, Pipe.V)[1],
            ]
        ),
        max_size=30,
    )
)
def test_every_cycle_has_one_cause_and_one_line(operations: list[Operation]) -> None:
    result = timed(operations, fetch_cycles_per_core=10.0)
    assert sum(result.causes.values()) == pytest.approx(result.end)
    assert sum(result.lines.values()) == pytest.approx(result.end)
    assert max(result.busy.values()) <= result.end + 1e-6


def test_cycles_go_to_the_line_and_cause_that_the_program_waits_for() -> None:
    result = timed(
        [
            load(TILE, at=2),
            *flags(Pipe.MTE2, Pipe.V),
            add(at=3),
            *flags(Pipe.V, Pipe.MTE3),
            store(TILE, at=4),
            work(50, at=5, load_ub=1),
        ]
    )
    assert result.lines[line(2), LOAD] > 1000
    assert result.lines[line(3), VECTOR] > 500
    assert result.lines[line(4), STORE] > 1000
    # S ran beside the store.
    assert result.lines[line(5), SCALAR] == 0


@given(st.integers(1, 40000), st.integers(1, 40000))
def test_time_grows_with_size(one: int, other: int) -> None:
    small, large = sorted((one, other))
    # Bursts under 256 bytes are dearer by the byte, as published.
    if small * 4 >= 256 or large * 4 < 256:
        assert spent(load(small)) <= spent(load(large))
        assert spent(store(small)) <= spent(store(large))
    assert spent(add(small)) <= spent(add(large))
    assert spent(work(small, load_ub=1)) <= spent(work(large, load_ub=1))


def test_short_bursts_cost_more_by_the_byte() -> None:
    assert spent(load(32)) > spent(load(64))


def test_an_address_off_a_block_of_512_costs_more() -> None:
    assert spent(load(TILE, address=32)) > spent(load(TILE, address=512))


def loop(calls: int, turns: int) -> list[Operation]:
    body = [work(1, scf_for=1), *(add(64, at=number) for number in range(calls))]
    return body * turns


def fetched(calls: int, turns: int) -> float:
    return timed(loop(calls, turns), fetch_cycles_per_core=10.0).causes[FETCH]


def test_a_loop_that_fits_the_instruction_cache_is_fetched_once() -> None:
    room = int(
        constants()["instruction_cache_bytes"] / constants().by_name("code_bytes")["call_1d"]
    )
    assert fetched(room // 2, 20) == pytest.approx(fetched(room // 2, 1), rel=0.1)
    assert fetched(room + 4, 20) > 15 * fetched(room + 4, 1)


def test_the_same_code_is_fetched_by_one_core_after_another() -> None:
    def fetching(cores: int, *, in_service: bool = False) -> float:
        one = machine(fetch_cycles_per_core=10.0)
        many = replace(one, cores=cores, in_service=in_service)
        return schedule(loop(8, 2), many).busy[Pipe.S]

    bare = fetching(0)
    assert fetching(40) - bare == pytest.approx(40 * (fetching(1) - bare))
    assert fetching(40, in_service=True) > fetching(40)


def test_code_from_memory_is_waited_for_once() -> None:
    """A loop beyond the cache is fetched in each turn, from L2 after the first."""
    calls, plain = 64, machine(fetch_cycles_per_core=1.0)
    cold = replace(plain, in_service=True)

    def extra(turns: int) -> float:
        body = loop(calls, turns)
        return schedule(body, cold).busy[Pipe.S] - schedule(body, plain).busy[Pipe.S]

    assert extra(1) > 0
    assert extra(5) == pytest.approx(extra(1))


def test_what_the_core_ran_before_is_in_the_cache() -> None:
    one = machine(fetch_cycles_per_core=10.0)
    fits, large = loop(8, 2), loop(64, 2)
    first = schedule(fits, one)
    again = schedule(fits, one, after=first)
    assert first.causes[FETCH] > 0
    assert again.causes[FETCH] == 0
    assert again.end < first.end
    # Where the loop is larger than the cache, having run before does not help.
    beyond = schedule(large, one)
    assert schedule(large, one, after=beyond).end == pytest.approx(beyond.end, rel=0.01)


def test_a_loop_of_scalar_loads_goes_on_along_its_cache_lines() -> None:
    turn: list[Operation] = [work(1, load_gm=1), *flags(Pipe.MTE2, Pipe.V)]
    cold, warm = constants()["gm_scalar_cold_cycles"], constants()["gm_scalar_warm_cycles"]
    # 64 bytes hold 16 words: one load in 16 waits for memory.
    assert spent(*(turn * 161)) == pytest.approx(11 * cold + 150 * warm, rel=0.02)


def test_a_scalar_loop_can_be_costed_as_vector_code() -> None:
    scalar = [work(1024, load_ub=2, arith_addi=1, store_ub=1)]
    plain = machine()
    as_vector = Machine(plain.constants, plain.mhz, plain.rates, vector_loops=True)
    slow, fast = schedule(scalar, plain).end - HEAD, schedule(scalar, as_vector).end - HEAD
    assert slow > 10 * fast
    short = [work(8, load_ub=2, arith_addi=1, store_ub=1)]
    assert schedule(short, as_vector).end == schedule(short, plain).end
    assert schedule(scalar, plain).scalar_elements[line(1)] == 3 * 1024
