"""Perfetto traces and UB use."""

from __future__ import annotations

import json

import numpy as np
import pytest

from ascendport.ascend.soc import soc
from ascendport.simulator import Simulator
from ascendport.simulator.layout import Pipe
from ascendport.timing.explain import perfetto, ub_use
from ascendport.timing.launch import time_launch
from ascendport.timing.pipes import Span
from tests.simulator.programs import program
from tests.timing.test_launch import BODY, TILE


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


def test_a_trace_has_a_lane_a_pipe_a_core_and_fills_the_launch() -> None:
    types = {"x": "gm<?xf32>", "y": "gm<?xf32>", "turns": "i32"}
    simulator = Simulator(program(BODY, types))
    x = np.ones(41 * TILE, np.float32)
    modelled = time_launch(
        simulator, [x, np.zeros_like(x), 2], (41,), soc("Ascend910B3"), spans=True
    )
    trace = json.loads(json.dumps(perfetto(modelled, cores=2)))
    events = trace["traceEvents"]
    lanes = {(event["pid"], event["tid"]) for event in events if event["ph"] == "X"}
    assert lanes == {(core, pipe.value) for core in (0, 1) for pipe in Pipe}
    ends = [event["ts"] + event["dur"] for event in events if event["ph"] == "X"]
    assert max(ends) == pytest.approx(modelled.us)
    # Core 0 takes programs 0 and 40.
    programs = {event["args"]["program"] for event in events if event["ph"] == "X"}
    assert programs == {0, 1, 40}
    (schedule,) = modelled.schedules.values()
    assert max(used for _, used in ub_use(schedule.spans)) == TILE * 4
