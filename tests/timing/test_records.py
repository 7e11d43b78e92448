"""Traces read for timing: the same operations, and names of programs that take the same time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ascendport.simulator import Simulator, Trace
from ascendport.simulator.sites import CallSite
from ascendport.simulator.trace import Call
from ascendport.timing.records import Signatures, operations
from tests.simulator.programs import program

TILE = 64
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
    %n = arith.index_cast %turns : i32 to index
    call @load_gm_to_ubuf_1d_float(%gx1, %u, %z, %f, %c0)
    hivm.hir.set_flag[<PIPE_MTE2>, <PIPE_V>, <EVENT_ID0>]
    hivm.hir.wait_flag[<PIPE_MTE2>, <PIPE_V>, <EVENT_ID0>]
    scf.for %k = %c0 to %n step %c1 {{
    hivm.hir.pipe_barrier[<PIPE_V>]
    call @vadds_vs_1d_float(%u, %scale, %u, %t)
    }}
"""


@pytest.fixture(scope="module")
def simulator() -> Simulator:
    return Simulator(program(BODY, {"x": "gm<?xf32>", "turns": "i32", "scale": "f32"}))


def traces(simulator: Simulator, turns: int = 3, scale: float = 1.0) -> list[Trace]:
    values: list[Any] = [np.ones(16 * TILE, np.float32), turns, np.float32(scale)]
    found = simulator.run(values, (16,), trace=range(16)).traces
    return [found[number] for number in range(16)]


def test_operations_are_those_of_the_trace(simulator: Simulator) -> None:
    for trace in traces(simulator):
        assert operations(trace) == list(trace.operations())


def test_equal_records_are_one_object(simulator: Simulator) -> None:
    found = operations(traces(simulator, turns=9)[0])
    calls = {id(one) for one in found if isinstance(one, Call) and "vadds" in one.callee}
    assert len(calls) == 1


def test_work_makes_the_name(simulator: Simulator) -> None:
    name = Signatures().of
    first = traces(simulator)[0]
    assert name(first) == name(traces(simulator, scale=7.0)[0])
    assert name(first) != name(traces(simulator, turns=4)[0])


def test_a_name_holds_the_alignment_of_addresses_not_the_addresses(simulator: Simulator) -> None:
    # A tile has 256 bytes: every other one starts at a block of 512.
    names = [Signatures().of(trace) for trace in traces(simulator)]
    assert set(names[::2]) == {names[0]}
    assert set(names[1::2]) == {names[1]}
    assert names[0] != names[1]


def test_names_do_not_depend_on_what_was_named_before(simulator: Simulator) -> None:
    together = Signatures()
    for trace in [*traces(simulator), *traces(simulator, turns=5)]:
        assert together.of(trace) == Signatures().of(trace)


def test_another_size_is_another_name_though_the_records_are_the_same(
    simulator: Simulator,
) -> None:
    trace = traces(simulator)[0]
    site = trace.sites[int(trace.words[_first_call(trace)])]
    assert isinstance(site, CallSite)
    words = trace.words.copy()
    words[_first_call(trace) + site.operands[1].word + 1] = 8
    names = Signatures()
    assert names.of(trace) != names.of(replace(trace, words=words))


def _first_call(trace: Trace) -> int:
    at = 0
    while not isinstance(trace.sites[int(trace.words[at])], CallSite):
        at += 2
    return at
