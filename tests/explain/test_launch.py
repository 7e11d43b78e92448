"""One launch explained, on small programs of our own."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ascendport.ascend.facts import ProgramFacts
from ascendport.ascend.soc import soc
from ascendport.explain.launch import STRETCHES, explain_launch
from ascendport.explain.model import LaunchFacts, Place
from ascendport.explain.sources import Sources
from ascendport.harness.launches import Launch
from ascendport.simulator import Simulator
from ascendport.timing.explain import document
from tests.simulator.programs import program
from tests.timing.test_explain import check_format
from tests.timing.test_launch import BODY, LOCKED, TILE

B3 = soc("Ascend910B3")
TYPES = {"x": "gm<?xf32>", "y": "gm<?xf32>", "turns": "i32"}

# Each element of a tile is shifted by itself, twice over, then one is read.
LOOP = """
    %p = hivm.hir.get_block_idx -> i64
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %two = arith.constant 2 : index
    %size = arith.constant 128 : index
    %one = arith.constant 1 : i32
    %a0 = arith.constant 0 : i64
    %u = hivm.hir.pointer_cast(%a0) : ub<128xi32>
    call @broadcast_scalar_int32_t_to_1d(%one, %u)
    hivm.hir.set_flag[<PIPE_V>, <PIPE_S>, <EVENT_ID0>]
    hivm.hir.wait_flag[<PIPE_V>, <PIPE_S>, <EVENT_ID0>]
    scf.for %k = %c0 to %two step %c1 {
    hivm.hir.pipe_barrier[<PIPE_ALL>]
    scf.for %i = %c0 to %size step %c1 {
    %v = memref.load %u[%i] : ub<128xi32>
    %w = arith.shli %v, %v : i32
    memref.store %w, %u[%i] : ub<128xi32>
    }
    }
"""


def launched(
    body: str,
    types: dict[str, str],
    arguments: list[Any],
    programs: int = 1,
    *,
    one_line: bool = False,
    **options: bool,
) -> LaunchFacts:
    """``one_line``: all of it is what became of one line."""
    text = program(body, types)
    if one_line:
        text = re.sub(r'"kernel.py":\d+', '"kernel.py":9', text)
    static = ProgramFacts(
        "kernel", True, TILE * 4, 192 << 10, 40, {}, {}, True, (), 0, (), (), (), {}, {}
    )
    launch = Launch("vllm_ascend/k.py", "kernel", (programs,), {}, {}, (), (), {}, {}, {})
    sources = Sources(Path("/none"), {})
    simulator = Simulator(text)
    return explain_launch(launch, static, simulator, arguments, list(types), B3, sources, **options)


@pytest.fixture(scope="module")
def tiles() -> LaunchFacts:
    """41 programs: load a tile, add it to itself three times, store it."""
    x = np.ones(41 * TILE, np.float32)
    return launched(BODY, TYPES, [x, np.zeros_like(x), 3], 41, trace=True)


def test_the_grid(tiles: LaunchFacts) -> None:
    assert (tiles.programs, tiles.cores_used, tiles.waves, tiles.kinds) == (41, 40, 2, 1)
    assert (tiles.sampled, tiles.grid, tiles.kernel) == (41, (41,), "kernel")


def test_bytes(tiles: LaunchFacts) -> None:
    assert tiles.bytes_read == tiles.bytes_written == 41 * TILE * 4
    assert (tiles.tensor_bytes, tiles.resident) == (2 * 41 * TILE * 4, True)


def test_the_time_is_told_with_its_error_and_adds_up(tiles: LaunchFacts) -> None:
    latency = tiles.latency
    assert latency is not None
    assert latency.low < latency.us < latency.high
    assert latency.high == pytest.approx(latency.us * (1 + latency.error))
    assert sum(us for _, us in latency.causes) == pytest.approx(latency.us)
    assert latency.bound == latency.causes[0][0]
    assert sum(line.us for line in tiles.hot_lines) == pytest.approx(latency.us)
    assert sum(line.share for line in tiles.hot_lines) == pytest.approx(1.0)


def test_hot_lines_name_line_pipe_and_calls(tiles: LaunchFacts) -> None:
    by_call = {line.runs_as[0][0]: line for line in tiles.hot_lines if line.runs_as}
    load = by_call["load_gm_to_ubuf_1d_float"]
    # The body's line that loads.
    number = 1 + next(n for n, text in enumerate(BODY.strip("\n").split("\n")) if "load_gm" in text)
    assert (load.place, load.pipe, load.cause) == (Place("kernel.py", number), "MTE2", "load")
    assert by_call["vadd_1d_float"].runs_as == (("vadd_1d_float", 3),)
    assert tiles.hot_lines[-1].place is None
    own = [line.us for line in tiles.hot_lines if line.place]
    assert own == sorted(own, reverse=True)


def test_pipes(tiles: LaunchFacts) -> None:
    pipes = {use.pipe: use for use in tiles.pipes}
    assert set(pipes) == {"S", "V", "MTE2", "MTE3"}
    for use in tiles.pipes:
        assert use.us == pytest.approx(use.cycles / 1800, abs=1e-3)
    assert dict(pipes["V"].waits)["wait for MTE2"] > 0


def test_use_of_ub(tiles: LaunchFacts) -> None:
    ub = tiles.ub
    assert ub is not None
    assert (ub.peak, ub.planned, ub.capacity) == (TILE * 4, TILE * 4, 192 * 1024)
    assert len(ub.curve) == STRETCHES
    assert max(used for _, used in ub.curve) == ub.peak
    # Nothing is in use before the load begins.
    assert ub.curve[0] == (0.0, 0)


def test_traffic_by_line(tiles: LaunchFacts) -> None:
    assert sorted((one.load, one.calls, one.burst) for one in tiles.transfers) == [
        (False, 1, TILE * 4),
        (True, 1, TILE * 4),
    ]


def test_events_make_a_trace(tiles: LaunchFacts) -> None:
    assert tiles.latency is not None
    trace = document([(tiles.latency.us, tiles.events)])
    check_format(trace)
    assert any(event["name"] == "kernel" for event in trace["traceEvents"])


def test_without_detail_there_is_the_time_alone() -> None:
    x = np.ones(TILE, np.float32)
    brief = launched(BODY, TYPES, [x, np.zeros_like(x), 3], detail=False)
    assert brief.latency is not None
    assert (brief.hot_lines, brief.pipes, brief.ub, brief.events) == ((), (), None, ())


def test_a_scalar_loop_is_told_with_trips_and_operations() -> None:
    found = launched(LOOP, {}, [], one_line=True)
    (loop,) = found.scalar_loops
    assert (loop.trips, loop.times, loop.operations) == (128, 2, ("shli i32",))
    assert (loop.place, loop.written, loop.outside) == (Place("kernel.py", 9), False, False)
    assert found.vector_us is not None
    assert found.latency is not None
    assert found.vector_us < found.latency.us
    assert any("a shift by a tensor" in hint.text for hint in found.hints)


def test_a_loop_over_several_lines_is_the_sources_own() -> None:
    found = launched(LOOP, {}, [])
    (loop,) = found.scalar_loops
    assert (loop.trips, loop.times, loop.written) == (128, 2, True)
    # No vector form is promised of what somebody wrote as a loop.
    assert found.vector_us is None
    assert any("as written" in hint.text for hint in found.hints)


def test_without_a_scalar_loop_nothing_is_promised(tiles: LaunchFacts) -> None:
    assert (tiles.scalar_loops, tiles.vector_us) == ((), None)


def test_a_call_that_works_element_by_element_is_told() -> None:
    body = """
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c64 = arith.constant 64 : index
    %a0 = arith.constant 0 : i64
    %u = hivm.hir.pointer_cast(%a0) : ub<64x64xi32>
    call @arange_2d_int32_t(%u, %c0, %c64, %c1)
    """
    found = launched(body, {}, [])
    (call,) = found.slow_calls
    assert (call.function, call.calls, call.elements) == ("arange_2d_int32_t", 1, 4096)
    assert found.hints[0].text.startswith("arange_2d_int32_t works through S")


def test_findings_have_place_and_program() -> None:
    x = np.ones(TILE - 8, np.float32)
    found = launched(BODY, TYPES, [x, np.zeros(TILE, np.float32), 3])
    (finding,) = found.findings
    assert (finding.kind, finding.program, finding.times) == ("out-of-bounds read", 0, 1)
    assert finding.place is not None
    assert finding.place.file == "kernel.py"
    assert finding.message.startswith("x at element")


def test_locks_are_told_with_how_long_one_has_them() -> None:
    found = launched(LOCKED, {"x": "gm<?xi32>"}, [np.zeros(1, np.int32)], 8)
    (lock,) = found.locks
    assert 0 < lock.held < lock.waited
    assert found.latency is not None
    assert found.latency.bound == "lock"
    assert any("which one has for" in hint.text for hint in found.hints)
    assert not found.stuck


def test_a_lock_that_is_never_free_is_found_and_timed() -> None:
    # Program 0 leaves before it takes the lock.
    body = (
        "%p = hivm.hir.get_block_idx -> i64\n%none = arith.constant 0 : i64\n"
        "%go = arith.cmpi ne, %p, %none : i64\nscf.if %go {\n" + LOCKED.strip("\n") + "\n}\n"
    )
    found = launched(body, {"x": "gm<?xi32>"}, [np.zeros(1, np.int32)], 3)
    assert found.stuck
    assert found.latency is not None
    assert [one.kind for one in found.findings] == ["lock never free"]


def test_what_ends_early_has_no_time() -> None:
    body = "hivm.hir.wait_flag[<PIPE_V>, <PIPE_S>, <EVENT_ID0>]"
    found = launched(body, {}, [])
    assert found.latency is None
    assert found.problem
    assert found.hot_lines == ()


def test_a_launch_of_no_programs_takes_the_launch_alone() -> None:
    found = launched(BODY, TYPES, [np.zeros(0, np.float32), np.zeros(0, np.float32), 1], 0)
    assert found.latency is not None
    assert found.latency.bound == "launch"
    assert (found.waves, found.hot_lines) == (0, ())
