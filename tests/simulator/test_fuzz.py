"""Whatever text and arguments the simulator is given: a result or one of its own errors."""

from __future__ import annotations

import random
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ascendport.errors import UserError
from ascendport.simulator import Kind, Result, Simulator
from tests.simulator.programs import ALL, kinds, program, run

BODY = """
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %none = arith.constant 0 : i32
    %pad = arith.constant 2 : i32
    %zero = arith.constant 0.0 : f32
    %a0 = arith.constant 0 : i64
    %a1 = arith.constant 1024 : i64
    %a2 = arith.constant 2048 : i64
    %a3 = arith.constant 4096 : i64
    %k = arith.index_cast %n : i64 to index
    %o = arith.index_cast %m : i64 to index
    %u = hivm.hir.pointer_cast(%a0) : ub<256xf32>
    %v = hivm.hir.pointer_cast(%a1) : ub<256xf32>
    %b = hivm.hir.pointer_cast(%a2) : ub<256xi1>
    %t = hivm.hir.pointer_cast(%a3) : ub<64xf32>
    %i = hivm.hir.pointer_cast(%a3) : ub<256xi32>
    %gx = slice %x[%o, %k] : f32
    %pu = part %u[0, %k] of 256 : f32
    %pv = part %v[%o, %k] of 256 : f32
    %pb = part %b[%o, %k] of 256 : i1
    %pi = part %i[0, %k] of 256 : i32
    call @load_gm_to_ubuf_1d_float(%gx, %pu, %pad, %zero, %o)
    hivm.hir.set_flag[<PIPE_MTE2>, <PIPE_V>, <EVENT_ID0>]
    hivm.hir.wait_flag[<PIPE_MTE2>, <PIPE_V>, <EVENT_ID0>]
    call @vadd_1d_float(%pu, %u, %pv, %t)
    hivm.hir.pipe_barrier[<PIPE_V>]
    call @vcmp_lt_1d_float(%pu, %pv, %pb)
    call @vsel_vv_1d_float(%pb, %pu, %pv, %pu, %t)
    call @arange_1d_int32_t(%pi, %o, %k)
    call @gather_1d_float(%u, %pi, %pv, %pi)
    scf.for %j = %c0 to %k step %c1 {
    %w = memref.load %u[%j] : ub<256xf32>
    %big = arith.cmpf ogt, %w, %zero : f32
    scf.if %big {
    memref.store %w, %y[%j] : gm<?xf32>
    }
    }
    call @sync_block_lock(%lock)
    hivm.hir.pipe_barrier[<PIPE_ALL>]
    %gy = slice %y[%o, %k] : f32
    call @store_ubuf_to_gm_1d_float(%pv, %gy, %none)
    hivm.hir.pipe_barrier[<PIPE_ALL>]
    call @sync_block_unlock(%lock)
"""
TYPES = {"x": "gm<?xf32>", "y": "gm<?xf32>", "n": "i64", "m": "i64"}


def outcome(text: str, values: list[Any]) -> Result | UserError:
    """What a run gives. Anything but an error of the simulator's own comes out."""
    try:
        simulator = Simulator(text)
        return simulator.run(values, (2,), max_iterations=10_000)
    except UserError as error:
        return error


@pytest.fixture(scope="module")
def simulator() -> Simulator:
    return Simulator(program(BODY, TYPES))


SIZES = st.one_of(
    st.integers(-3, 300),
    st.sampled_from([-(2**63), 2**63 - 1, 2**31, -(2**31), 2**47, 2**61, -(2**48), 2**20]),
)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(n=SIZES, m=SIZES, length=st.integers(0, 300), past=st.booleans())
def test_any_sizes_and_offsets(
    simulator: Simulator, n: int, m: int, length: int, past: bool
) -> None:
    x, y = np.ones(length, np.float32), np.zeros(length, np.float32)
    result = simulator.run([x, y, n, m], (2,), past_locks=past, max_iterations=10_000)
    if n < 0 or m < 0 or n + m > length:
        assert not result.clean


def mutated(text: str, rng: random.Random) -> str:
    """A few lines are dropped, doubled, moved or given other names and numbers."""
    lines = text.split("\n")
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(lines))
        kind = rng.randrange(5)
        if kind == 0:
            del lines[at]
        elif kind == 1:
            lines.insert(at, lines[rng.randrange(len(lines))])
        elif kind == 2:
            other = rng.randrange(len(lines))
            lines[at], lines[other] = lines[other], lines[at]
        elif kind == 3:
            name = rng.choice(re.findall(r"%\w+", text))
            lines[at] = re.sub(r"%\w+", name, lines[at], count=1)
        else:
            number = str(rng.choice([0, 1, 7, 255, 4096, 2**31, 2**40]))
            lines[at] = re.sub(r"\b\d+\b", number, lines[at], count=1)
    return "\n".join(lines)


MUTANTS = 80


@pytest.mark.parametrize("part", range(4))
def test_any_text(part: int) -> None:
    """Texts that nearly are programs: most are refused or run, none breaks the simulator."""
    text = program(BODY, TYPES)
    refused = 0
    for number in range(part * MUTANTS // 4, (part + 1) * MUTANTS // 4):
        x, y = np.ones(256, np.float32), np.zeros(256, np.float32)
        refused += isinstance(
            outcome(mutated(text, random.Random(number)), [x, y, 64, 0]), UserError
        )
    assert 0 < refused < MUTANTS // 4


@pytest.mark.slow
def test_any_text_at_length() -> None:
    text = program(BODY, TYPES)
    for number in range(10_000, 11_500):
        x, y = np.ones(256, np.float32), np.zeros(256, np.float32)
        outcome(mutated(text, random.Random(number)), [x, y, 64, 0])


@pytest.mark.parametrize("value", [None, "x", float("inf"), float("nan"), 2**80, [1, 2]])
def test_any_number_argument(value: Any) -> None:
    text = program("%c = arith.constant 0 : i32", {"n": "i32"})
    assert isinstance(outcome(text, [value]), UserError)


# --- what a fault of that kind is called --------------------------------------------------------


@pytest.mark.parametrize(("count", "found"), [(0, []), (8, []), (-1, ["MISFIT", "MISFIT"])])
def test_a_negative_size_is_reported(count: int, found: list[str]) -> None:
    body = f"""
    %c0 = arith.constant 0 : index
    %none = arith.constant 0 : i32
    %zero = arith.constant 0.0 : f32
    %a = arith.constant 0 : i64
    %k = arith.index_cast %n : i64 to index
    %u = hivm.hir.pointer_cast(%a) : ub<64xf32>
    %g = slice %x[0, %k] : f32
    %p = part %u[0, %k] of 64 : f32
    call @load_gm_to_ubuf_1d_float(%g, %p, %none, %zero, %c0)
    {ALL}
    call @store_ubuf_to_gm_1d_float(%p, %g, %none)
    """
    arguments: dict[str, tuple[str, Any]] = {"x": ("gm<?xf32>", np.ones(8, np.float32))}
    result = run(body, arguments | {"n": ("i64", count)})
    assert kinds(result) == found
    for finding in result.findings:
        assert "a negative size" in finding.message


@pytest.mark.parametrize(("count", "found"), [(64, []), (63, ["MISFIT"])])
def test_operands_of_different_sizes_are_reported(count: int, found: list[str]) -> None:
    body = """
    %zero = arith.constant 0.0 : f32
    %a0 = arith.constant 0 : i64
    %a1 = arith.constant 256 : i64
    %a2 = arith.constant 512 : i64
    %k = arith.index_cast %n : i64 to index
    %u = hivm.hir.pointer_cast(%a0) : ub<64xf32>
    %v = hivm.hir.pointer_cast(%a1) : ub<64xf32>
    %t = hivm.hir.pointer_cast(%a2) : ub<64xf32>
    %p = part %v[0, %k] of 64 : f32
    call @broadcast_scalar_float_to_1d(%zero, %u)
    call @broadcast_scalar_float_to_1d(%zero, %v)
    hivm.hir.pipe_barrier[<PIPE_V>]
    call @vadd_1d_float(%u, %p, %u, %t)
    """
    result = run(body, {"n": ("i64", count)})
    assert kinds(result) == found
    for finding in result.of(Kind.MISFIT):
        assert f"operands of 64, {count}, 64 elements" in finding.message


@pytest.mark.parametrize(("left", "found"), [(0, []), (8, []), (9, ["UB_RANGE"])])
def test_padding_before_the_unified_buffer(left: int, found: list[str]) -> None:
    body = """
    %none = arith.constant 2 : i32
    %zero = arith.constant 0.0 : f32
    %a = arith.constant 0 : i64
    %k = arith.index_cast %n : i64 to index
    %u = hivm.hir.pointer_cast(%a) : ub<64xf32>
    %g = slice %x[0, 8] : f32
    %p = part %u[8, 8] of 64 : f32
    call @load_gm_to_ubuf_1d_float(%g, %p, %none, %zero, %k)
    """
    arguments = {"x": ("gm<?xf32>", np.ones(8, np.float32)), "n": ("i64", left)}
    assert kinds(run(body, arguments)) == found


def test_a_source_longer_than_its_target_is_bounded_by_the_unified_buffer() -> None:
    body = """
    %c0 = arith.constant 0 : index
    %none = arith.constant 0 : i32
    %zero = arith.constant 0.0 : f32
    %a = arith.constant 0 : i64
    %k = arith.index_cast %n : i64 to index
    %u = hivm.hir.pointer_cast(%a) : ub<8xf32>
    %g = slice %x[0, %k] : f32
    call @load_gm_to_ubuf_1d_float(%g, %u, %none, %zero, %c0)
    """
    most = 192 * 1024 // 4
    for count, found in ((most, []), (most + 1, ["UB_RANGE"])):
        arguments = {"x": ("gm<?xf32>", np.ones(most + 8, np.float32)), "n": ("i64", count)}
        assert kinds(run(body, arguments)) == found
