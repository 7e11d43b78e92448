"""The stream of operations that a model of time reads."""

from __future__ import annotations

import numpy as np

from ascendport.simulator import Simulator
from ascendport.simulator.layout import Pipe
from ascendport.simulator.trace import Call, Event, Work
from tests.simulator.programs import program

BODY = """
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c9 = arith.constant 9 : index
    %z = arith.constant 0 : i32
    %f = arith.constant 2.0 : f32
    %a0 = arith.constant 64 : i64
    %u = hivm.hir.pointer_cast(%a0) : ub<128xf32>
    %k = arith.index_cast %n : i32 to index
    %in = slice %x[4, %k] : f32
    %s = part %u[0, %k] of 128 : f32
    call @load_gm_to_ubuf_1d_float(%in, %s, %z, %f, %c0)
    hivm.hir.set_flag[<PIPE_MTE2>, <PIPE_S>, <EVENT_ID3>]
    hivm.hir.wait_flag[<PIPE_MTE2>, <PIPE_S>, <EVENT_ID3>]
    scf.for %i = %c0 to %c9 step %c1 {
    %v = memref.load %u[%i] : ub<128xf32>
    %big = arith.cmpf ogt, %v, %f : f32
    scf.if %big {
    %w = arith.addf %v, %f : f32
    memref.store %w, %u[%i] : ub<128xf32>
    }
    }
    hivm.hir.pipe_barrier[<PIPE_ALL>]
"""


def traced(programs: tuple[int, ...] = (0,), count: int = 100) -> dict[int, list[object]]:
    simulator = Simulator(program(BODY, {"x": "gm<?xf32>", "n": "i32"}))
    x = np.arange(200, dtype=np.float32) - 6
    result = simulator.run([x, count], (2,), trace=programs)
    assert result.clean
    return {number: list(trace.operations()) for number, trace in result.traces.items()}


def test_operations_come_in_program_order() -> None:
    operations = traced()[0]
    kinds = [type(operation).__name__ for operation in operations]
    loop = len(kinds) - 1 - kinds.index("Event") - 2
    assert kinds == ["Work", "Call", "Event", "Event", *["Work"] * loop, "Event"]
    flag = operations[2]
    assert isinstance(flag, Event)
    assert (flag.kind, flag.source, flag.target, flag.number) == ("set_flag", Pipe.MTE2, Pipe.S, 3)
    last = operations[-1]
    assert isinstance(last, Event)
    assert (last.kind, last.source) == ("pipe_barrier", None)


def test_a_call_says_what_it_moves() -> None:
    call = traced()[0][1]
    assert isinstance(call, Call)
    assert (call.pipe, call.callee, call.elements) == (Pipe.MTE2, "load_gm_to_ubuf_1d_float", 100)
    assert (call.bytes, call.repeats) == (400, 2)
    gm, ub = call.buffers
    assert (gm.space, gm.role, gm.sizes) == ("gm", "gm-read", (100,))
    assert (ub.space, ub.role, ub.address, ub.strides) == ("ub", "write", 64, (1,))
    assert call.location is not None
    assert call.location.line == 11


def test_scalar_work_of_a_loop_is_counted_once_for_all_rounds() -> None:
    work = [operation for operation in traced()[0][4:] if isinstance(operation, Work)]
    totals: dict[str, int] = {}
    for operation in work:
        for (name, _), count in operation.counts.items():
            totals[name] = totals.get(name, 0) + count * operation.runs
    # x[4 + i] = i - 2 is above 2 for i = 5 … 8.
    assert totals == {
        "load.ub": 9,
        "arith.cmpf": 9,
        "scf.if": 9,
        "arith.addf": 4,
        "store.ub": 4,
        "scf.for": 9,
    }
    lines = {place.line for operation in work for _, place in operation.counts if place}
    assert {15, 16, 18, 19} <= lines


def test_only_the_programs_asked_for_are_traced() -> None:
    assert traced(()) == {}
    assert set(traced((1,))) == {1}
    assert traced((0, 1))[0] == traced((0,))[0]


def test_a_long_trace_is_kept_whole() -> None:
    """More records than the buffer holds at once."""
    body = """
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %k = arith.index_cast %n : i32 to index
    scf.for %i = %c0 to %k step %c1 {
    hivm.hir.pipe_barrier[<PIPE_V>]
    }
    """
    simulator = Simulator(program(body, {"n": "i32"}))
    (trace,) = simulator.run([50000], trace=[0]).traces.values()
    events = [operation for operation in trace.operations() if isinstance(operation, Event)]
    assert len(events) == 50000
