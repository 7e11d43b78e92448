"""Perfetto traces and UB use."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from ascendport.ascend.soc import soc
from ascendport.simulator import Simulator
from ascendport.simulator.layout import Pipe
from ascendport.timing.explain import (
    document,
    events,
    last_core,
    longest,
    perfetto,
    stalls,
    traced,
    ub_use,
)
from ascendport.timing.launch import Modelled, launch_time, time_launch
from ascendport.timing.pipes import Span
from tests.simulator.programs import program
from tests.timing.test_launch import BODY, LOCKED, TILE

B3 = soc("Ascend910B3")


def span(start: float, end: float, *ub: tuple[bool, int, int]) -> Span:
    return Span(Pipe.V, "f", start, end, None, ub)


def test_ub_is_in_use_from_a_write_to_the_last_read() -> None:
    curve = ub_use([span(1, 2, (True, 0, 64)), span(5, 6, (False, 0, 64))])
    assert curve == ((1, 64), (6, 0))


def test_a_block_rests_between_its_last_read_and_the_next_write() -> None:
    curve = ub_use(
        [
            span(1, 2, (True, 0, 32)),
            span(3, 4, (False, 0, 32)),
            span(8, 9, (True, 0, 32), (True, 64, 96)),
            span(10, 11, (False, 0, 32)),
        ]
    )
    assert curve == ((1, 32), (4, 0), (8, 64), (9, 32), (11, 0))


def test_writing_in_place_needs_no_second_buffer() -> None:
    curve = ub_use(
        [
            span(1, 4, (True, 0, 32)),
            span(3, 6, (False, 0, 32), (True, 0, 32)),
            span(7, 8, (False, 0, 32)),
        ]
    )
    assert max(used for _, used in curve) == 32
    assert curve[-1] == (8, 0)


def test_nothing_touched_is_no_use() -> None:
    assert ub_use([]) == ()


@pytest.fixture(scope="module")
def launched() -> Modelled:
    types = {"x": "gm<?xf32>", "y": "gm<?xf32>", "turns": "i32"}
    simulator = Simulator(program(BODY, types))
    x = np.ones(41 * TILE, np.float32)
    return time_launch(simulator, [x, np.zeros_like(x), 2], (41,), B3, spans=True)


@pytest.fixture(scope="module")
def locked() -> Modelled:
    simulator = Simulator(program(LOCKED, {"x": "gm<?xi32>"}))
    return time_launch(simulator, [np.zeros(1, np.int32)], (4,), B3, spans=True)


def lanes(trace: dict[str, Any]) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """Events by (name of the process, name of the thread)."""
    named = {
        (event["name"], event["pid"], event.get("tid")): event["args"]["name"]
        for event in trace["traceEvents"]
        if event["ph"] == "M" and event["name"].endswith("_name")
    }
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for event in trace["traceEvents"]:
        if event["ph"] == "X":
            process = named["process_name", event["pid"], None]
            thread = named["thread_name", event["pid"], event["tid"]]
            found.setdefault((process, thread), []).append(event)
    return found


def check_format(trace: dict[str, Any]) -> None:
    """The rules of the Chrome trace format, and ours: one thing at a time in a lane."""
    assert json.loads(json.dumps(trace, allow_nan=False)) == trace
    for event in trace["traceEvents"]:
        assert event["ph"] in ("X", "M", "C")
        assert isinstance(event["name"], str)
        assert isinstance(event["pid"], int)
        if event["ph"] == "X":
            assert isinstance(event["tid"], int)
            assert event["ts"] >= 0
            assert event["dur"] > 0
        if event["ph"] == "C":
            assert event["args"]["bytes"] >= 0
    processes: dict[int, int] = {}
    for event in trace["traceEvents"]:
        if event["ph"] == "X":
            # No thread number is used in two processes.
            assert processes.setdefault(event["tid"], event["pid"]) == event["pid"]
    for lane in lanes(trace).values():
        for event, following in pairwise(lane):
            assert round(event["ts"] + event["dur"], 4) <= following["ts"]


def test_a_trace_has_a_lane_a_pipe_a_core_and_fills_the_launch(launched: Modelled) -> None:
    trace = perfetto(launched, cores=2)
    check_format(trace)
    found = lanes(trace)
    # Core 0 takes programs 0 and 40, and so ends last.
    wanted = {("launches (modelled)", "launch")} | {
        (f"core {core} (modelled)", lane)
        for core in (0, 1)
        for lane in ("programs", *(pipe.name for pipe in Pipe))
    }
    assert set(found) == wanted
    (launch,) = found["launches (modelled)", "launch"]
    assert (launch["ts"], launch["dur"]) == (0, pytest.approx(launched.us, abs=1e-3))
    programs = [event["args"]["program"] for event in found["core 0 (modelled)", "programs"]]
    assert programs == [0, 40]
    last = found["core 0 (modelled)", "programs"][-1]
    assert last["ts"] + last["dur"] == pytest.approx(launched.us, abs=1e-3)
    lines = {event["args"]["line"] for event in found["core 0 (modelled)", "V"]}
    assert any(line.startswith("kernel.py:") for line in lines)


# Two vector calls that nothing orders: the second is issued while the first is in the pipe.
TWO = """
    %a0 = arith.constant 0 : i64
    %a1 = arith.constant 81920 : i64
    %u = hivm.hir.pointer_cast(%a0) : ub<20480xf32>
    %w = hivm.hir.pointer_cast(%a1) : ub<20480xf32>
    %t = hivm.hir.pointer_cast(%a0) : ub<0xf32>
    %f = arith.constant 1.0 : f32
    call @broadcast_scalar_float_to_1d(%f, %u)
    call @broadcast_scalar_float_to_1d(%f, %w)
    hivm.hir.pipe_barrier[<PIPE_ALL>]
"""


def test_an_instruction_ends_in_its_lane_where_the_next_begins() -> None:
    modelled = time_launch(Simulator(program(TWO, {})), [], (1,), B3, spans=True)
    (schedule,) = modelled.schedules.values()
    first, second = (span for span in schedule.spans if span.pipe is Pipe.V)
    # What this test is about: it is done after the next one has begun.
    assert first.end > second.start
    trace = perfetto(modelled)
    check_format(trace)
    lane = lanes(trace)["core 0 (modelled)", "V"]
    assert lane[0]["ts"] + lane[0]["dur"] == pytest.approx(lane[1]["ts"])
    whole = (first.end - first.start) / modelled.mhz
    assert lane[0]["args"]["done_after"] == pytest.approx(whole, abs=1e-4)


def test_the_core_that_ends_last_is_drawn_whatever_its_number(locked: Modelled) -> None:
    assert {name for name, _ in lanes(perfetto(locked, cores=1))} == {
        "launches (modelled)",
        "core 3 (modelled)",
    }


def test_a_program_that_waits_for_a_lock_is_later_by_that(locked: Modelled) -> None:
    trace = perfetto(locked)
    check_format(trace)
    found = lanes(trace)
    waits = [
        [event for event in found[f"core {core} (modelled)", "S"] if "wait" in event["name"]]
        for core in range(4)
    ]
    assert [len(events) for events in waits] == [0, 1, 1, 1]
    lengths = [events[0]["dur"] for events in waits[1:]]
    assert lengths == sorted(lengths)
    for core in range(4):
        program_ = found[f"core {core} (modelled)", "programs"][0]
        unlock = next(
            event for event in found[f"core {core} (modelled)", "S"] if event["name"] == "unlock"
        )
        end = program_["ts"] + program_["dur"]
        assert unlock["ts"] + unlock["dur"] == pytest.approx(end, abs=1e-3)


def test_launches_follow_each_other(launched: Modelled, locked: Modelled) -> None:
    trace = document([(one.us, events(one, name="k")) for one in (launched, locked)])
    check_format(trace)
    first, second = lanes(trace)["launches (modelled)", "launch"]
    assert second["ts"] == pytest.approx(launched.us, abs=1e-3)
    assert first["args"] == {"bound": launched.bound, "programs": 41}


def test_use_of_ub_is_drawn_for_each_core(launched: Modelled) -> None:
    found = [event for event in perfetto(launched)["traceEvents"] if event["ph"] == "C"]
    assert max(event["args"]["bytes"] for event in found) == TILE * 4
    assert len({event["pid"] for event in found}) == 4


def test_ub_is_in_use_as_the_program_writes_it(launched: Modelled) -> None:
    for schedule in launched.schedules.values():
        assert max(used for _, used in ub_use(schedule.spans)) == TILE * 4


def test_stalls_are_those_of_all_programs_of_the_last_core(launched: Modelled) -> None:
    # Program 40 finds its code in the cache: a schedule of its own.
    schedules = launched.schedules.values()
    assert len(schedules) == 2
    assert [run.program for run in last_core(launched)] == [0, 40]
    both = sum(one.stalls[Pipe.V, "wait for MTE2"] for one in schedules) / launched.mhz
    assert stalls(launched)["V", "wait for MTE2"] == pytest.approx(both)
    assert list(stalls(launched).values()) == sorted(stalls(launched).values(), reverse=True)


def test_the_longest_program_has_a_trace(launched: Modelled) -> None:
    run = longest(launched)
    assert run is not None
    assert (run.core, traced(launched, run)) == (0, 0)
    assert [traced(launched, each) for each in last_core(launched)] == [0, 0]


def test_nothing_ran() -> None:
    empty = launch_time({}, 0, B3)
    assert (last_core(empty), longest(empty), stalls(empty)) == ((), None, {})
    assert [event["name"] for event in perfetto(empty)["traceEvents"] if event["ph"] == "X"] == [
        "launch"
    ]
