"""Control flow, scalar arithmetic and arguments."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ascendport.simulator import ArgumentError, Simulator
from tests.simulator.programs import kinds, program, run


def test_program_ids_and_grid() -> None:
    body = """
    %p = hivm.hir.get_block_idx -> i64
    %i = arith.trunci %p : i64 to i32
    %yz = arith.muli %gz, %gy : i32
    %px = arith.divsi %i, %yz : i32
    %r = arith.remsi %i, %yz : i32
    %py = arith.divsi %r, %gz : i32
    %pz = arith.remsi %r, %gz : i32
    %h = arith.constant 100 : i32
    %t = arith.constant 10 : i32
    %a = arith.muli %px, %h : i32
    %b = arith.muli %py, %t : i32
    %c = arith.addi %a, %b : i32
    %d = arith.addi %c, %pz : i32
    %at = arith.index_cast %i : i32 to index
    memref.store %d, %x[%at] : gm<?xi32>
    """
    out = np.full(24, -1, np.int32)
    assert run(body, {"x": ("gm<?xi32>", out)}, (2, 3, 4)).clean
    assert out.tolist() == [
        100 * x + 10 * y + z for x in range(2) for y in range(3) for z in range(4)
    ]


SUM = """
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %z = arith.constant 0 : i32
    %n1 = arith.index_cast %n : i32 to index
    %s = scf.for %i = %c0 to %n1 step %c1 iter_args(%acc = %z) -> (i32) {
    %v = memref.load %x[%i] : gm<?xi32>
    %w = arith.addi %acc, %v : i32
    scf.yield %w : i32
    }
    memref.store %s, %y[%c0] : gm<?xi32>
"""


@pytest.mark.parametrize("count", [0, 1, 5])
def test_loop_carries_a_value(count: int) -> None:
    values, out = np.arange(10, 20, dtype=np.int32), np.full(1, -1, np.int32)
    arguments = {"x": ("gm<?xi32>", values), "y": ("gm<?xi32>", out), "n": ("i32", count)}
    assert run(SUM, arguments).clean
    assert out[0] == values[:count].sum()


def test_a_loop_may_come_first() -> None:
    body = """
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c3 = arith.constant 3 : index
    %one = arith.constant 1 : i32
    scf.for %i = %c0 to %c3 step %c1 {
    memref.store %one, %x[%i] : gm<?xi32>
    }
    """
    out = np.zeros(4, np.int32)
    assert run(body, {"x": ("gm<?xi32>", out)}).clean
    assert out.tolist() == [1, 1, 1, 0]


@pytest.mark.parametrize("flag", [0, 1])
def test_branches_give_values_and_views(flag: int) -> None:
    body = """
    %c0 = arith.constant 0 : index
    %one = arith.constant 1 : i32
    %two = arith.constant 2 : i32
    %f = arith.cmpi eq, %n, %one : i32
    %v = scf.if %f -> (i32) {
    scf.yield %one : i32
    } else {
    scf.yield %two : i32
    }
    %m = arith.select %f, %x, %y : gm<?xi32>
    memref.store %v, %m[%c0] : gm<?xi32>
    """
    x, y = np.zeros(1, np.int32), np.zeros(1, np.int32)
    arguments = {"x": ("gm<?xi32>", x), "y": ("gm<?xi32>", y), "n": ("i32", flag)}
    assert run(body, arguments).clean
    assert (x[0], y[0]) == ((1, 0) if flag else (0, 2))


WHILE = """
    %c0 = arith.constant 0 : index
    %one = arith.constant 1 : i32
    %two = arith.constant 2 : i32
    %r = scf.while (%a = %n) : (i32) -> (i32) {
    %go = arith.cmpi sgt, %a, %one : i32
    scf.condition(%go) %a : i32
    } do {
    ^bb0(%b: i32):
    %h = arith.divsi %b, %two : i32
    scf.yield %h : i32
    }
    memref.store %r, %x[%c0] : gm<?xi32>
"""


def test_while_loop() -> None:
    out = np.full(1, -1, np.int32)
    assert run(WHILE, {"x": ("gm<?xi32>", out), "n": ("i32", 37)}).clean
    assert out[0] == 1


def test_endless_loop_is_stopped() -> None:
    body = WHILE.replace("arith.divsi %b, %two", "arith.muli %b, %one")
    arguments = {"x": ("gm<?xi32>", np.zeros(1, np.int32)), "n": ("i32", 37)}
    result = run(body, arguments, max_iterations=1000)
    assert kinds(result) == ["ENDLESS"]
    assert "does not come to an end" in result.stopped
    assert not result.clean


OPERATIONS: dict[str, Any] = {
    "addi": lambda a, b: a + b,
    "subi": lambda a, b: a - b,
    "muli": lambda a, b: a * b,
    "andi": lambda a, b: a & b,
    "ori": lambda a, b: a | b,
    "xori": lambda a, b: a ^ b,
    "minsi": min,
    "maxsi": max,
    "divsi": lambda a, b: int(abs(a) // abs(b)) * (1 if (a < 0) == (b < 0) else -1) if b else None,
    "remsi": lambda a, b: int(np.fmod(a, b)) if b else None,
    "shli": lambda a, b: a << b if 0 <= b < 32 else None,
    "shrsi": lambda a, b: a >> b if 0 <= b < 32 else None,
    "shrui": lambda a, b: (a & 0xFFFFFFFF) >> b if 0 <= b < 32 else None,
}


def wrapped(value: int) -> int:
    value &= 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


@pytest.fixture(scope="module")
def integer_simulator() -> Simulator:
    lines = ["%c0 = arith.constant 0 : index"]
    for number, name in enumerate(OPERATIONS):
        lines += [
            f"%i{number} = arith.constant {number} : index",
            f"%v{number} = arith.{name} %a, %b : i32",
            f"memref.store %v{number}, %x[%i{number}] : gm<?xi32>",
        ]
    return Simulator(program("\n".join(lines), {"x": "gm<?xi32>", "a": "i32", "b": "i32"}))


INTS = st.integers(-(2**31), 2**31 - 1) | st.sampled_from([0, 1, -1, 31, 32, -(2**31)])


@settings(max_examples=60, deadline=None)
@given(a=INTS, b=INTS)
def test_integer_arithmetic_wraps(integer_simulator: Simulator, a: int, b: int) -> None:
    out = np.zeros(len(OPERATIONS), np.int32)
    assert integer_simulator.run([out, a, b]).clean
    for got, (name, function) in zip(out.tolist(), OPERATIONS.items(), strict=True):
        wanted = function(a, b)
        if wanted is not None:
            assert got == wrapped(wanted), name


HALVES = """
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %a = memref.load %x[%c0] : gm<?xf16>
    %b = memref.load %x[%c1] : gm<?xf16>
    %s = arith.mulf %a, %b : f16
    memref.store %s, %y[%c0] : gm<?xf16>
    %w = arith.extf %a : f16 to f32
    %v = arith.extf %b : f16 to f32
    %q = arith.divf %w, %v : f32
    %t = arith.truncf %q : f32 to bf16
    memref.store %t, %z[%c0] : gm<?xbf16>
    %i = arith.fptosi %q : f32 to i32
    memref.store %i, %k[%c0] : gm<?xi32>
"""


@pytest.fixture(scope="module")
def float_simulator() -> Simulator:
    kinds_of = {"x": "gm<?xf16>", "y": "gm<?xf16>", "z": "gm<?xbf16>", "k": "gm<?xi32>"}
    return Simulator(program(HALVES, kinds_of))


BITS16 = st.integers(0, 0xFFFF)


@settings(max_examples=150, deadline=None)
@given(a=BITS16, b=BITS16)
def test_short_floats_are_rounded_once(float_simulator: Simulator, a: int, b: int) -> None:
    x = np.array([a, b], np.uint16).view(np.float16)
    y, k = np.zeros(1, np.float16), np.zeros(1, np.int32)
    z = np.zeros(1, ml_dtypes.bfloat16)
    float_simulator.run([x, y, z, k])
    with np.errstate(all="ignore"):
        quotient = np.float32(x[0]) / np.float32(x[1])
        np.testing.assert_array_equal(y[0], x[0] * x[1])
        np.testing.assert_array_equal(
            z[0].astype(np.float32), np.float32(ml_dtypes.bfloat16(quotient))
        )
    if np.isnan(quotient):
        assert k[0] == 0
    else:
        assert k[0] == int(np.clip(np.float64(quotient), -(2**31), 2**31 - 1))


def test_affine_operations() -> None:
    text = program(
        """
        %c0 = arith.constant 0 : index
        %i = arith.index_cast %n : i32 to index
        %a = affine.apply #map(%i)
        %b = affine.min #map1()[%i, %a]
        %c = affine.max #map1()[%i, %a]
        %d = arith.addi %b, %c : index
        %e = arith.index_cast %d : index to i32
        memref.store %e, %x[%c0] : gm<?xi32>
        """,
        {"x": "gm<?xi32>", "n": "i32"},
    )
    maps = "#map = affine_map<(d0) -> (d0 floordiv 3 + d0 mod 3 * 100 + d0 ceildiv 4)>\n"
    maps += "#map1 = affine_map<()[s0, s1] -> (s0, s1 - 1)>\n"
    simulator = Simulator(maps + text)
    for value in (-7, -1, 0, 5, 8):
        out = np.zeros(1, np.int32)
        simulator.run([out, value])
        a = value // 3 + value % 3 * 100 + -(-value // 4)
        assert out[0] == min(value, a - 1) + max(value, a - 1)


@pytest.mark.parametrize("name", ["mulsi_extended", "mului_extended"])
def test_products_in_two_words(name: str) -> None:
    body = f"""
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %low, %high = arith.{name} %a, %b : i32
    memref.store %low, %x[%c0] : gm<?xi32>
    memref.store %high, %x[%c1] : gm<?xi32>
    """
    for a, b in ((-5, 7), (2**31 - 1, 2**31 - 1), (-(2**31), -1)):
        out = np.zeros(2, np.int32)
        assert run(body, {"x": ("gm<?xi32>", out), "a": ("i32", a), "b": ("i32", b)}).clean
        if name == "mului_extended":
            a, b = a & 0xFFFFFFFF, b & 0xFFFFFFFF
        assert out.tolist() == [wrapped(a * b), wrapped((a * b) >> 32)]


def test_division_by_zero_does_not_trap() -> None:
    body = """
    %c0 = arith.constant 0 : index
    %q = arith.divsi %a, %b : i32
    memref.store %q, %x[%c0] : gm<?xi32>
    """
    out = np.zeros(1, np.int32)
    run(body, {"x": ("gm<?xi32>", out), "a": ("i32", -(2**31)), "b": ("i32", -1)})
    assert out[0] == -(2**31)
    run(body, {"x": ("gm<?xi32>", out), "a": ("i32", 5), "b": ("i32", 0)})


def test_arguments_are_checked() -> None:
    simulator = Simulator(program("", {"x": "gm<?xf32>", "n": "i32"}))
    good = np.zeros(4, np.float32)
    with pytest.raises(ArgumentError, match="takes 2 arguments, 1 were given"):
        simulator.run([good])
    with pytest.raises(ArgumentError, match="does not fit i32"):
        simulator.run([good, 2**40])
    with pytest.raises(ArgumentError, match="float64 where the kernel has f32"):
        simulator.run([np.zeros(4), 1])
    with pytest.raises(ArgumentError, match="tensor is needed"):
        simulator.run([3, 1])
    with pytest.raises(ArgumentError, match="number is needed"):
        simulator.run([good, good])
    with pytest.raises(ArgumentError, match="negative stride"):
        simulator.run([good[::-1], 1])
    with pytest.raises(ArgumentError, match="three sizes"):
        simulator.run([good, 1], (1, 1, 1, 1))
    with pytest.raises(ArgumentError, match="no such program"):
        simulator.run([good, 1], (2,), programs=[2])


def test_some_programs_only() -> None:
    body = """
    %p = hivm.hir.get_block_idx -> i64
    %at = arith.index_cast %p : i64 to index
    %v = arith.constant 1 : i32
    memref.store %v, %x[%at] : gm<?xi32>
    """
    out = np.zeros(4, np.int32)
    result = run(body, {"x": ("gm<?xi32>", out)}, (4,), programs=[1, 3])
    assert out.tolist() == [0, 1, 0, 1]
    assert result.counters.programs == 2
    assert result.counters.bytes_written == 8
