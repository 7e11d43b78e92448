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


def test_a_loop_whose_bounds_are_data_is_stopped_too() -> None:
    """Also where it is long, not endless: its rounds are counted where it starts."""
    body = """
    %lo = arith.constant 0 : i64
    %one = arith.constant 1 : i32
    scf.for %i = %lo to %n step %s : i64 {
    %j = arith.index_cast %lo : i64 to index
    memref.store %one, %x[%j] : gm<?xi32>
    }
    """
    for rounds, step, good in ((1000, 1, True), (1001, 1, False), (2**62, 1, False)):
        arguments = {"x": ("gm<?xi32>", np.zeros(1, np.int32)), "n": ("i64", rounds)}
        result = run(body, arguments | {"s": ("i64", step)}, max_iterations=1000)
        assert kinds(result) == ([] if good else ["ENDLESS"])
    for step in (0, -1):
        arguments = {"x": ("gm<?xi32>", np.zeros(1, np.int32)), "n": ("i64", 5)}
        assert kinds(run(body, arguments | {"s": ("i64", step)})) == ["ENDLESS"]
        arguments["n"] = ("i64", 0)
        assert run(body, arguments | {"s": ("i64", step)}).clean


GRAPH = """
    %c0 = arith.constant 0 : index
    %zero = arith.constant 0 : i32
    %one = arith.constant 1 : i32
    %nine = arith.constant 9 : i32
    %big = arith.cmpi sgt, %n, %nine : i32
    cf.cond_br %big, ^bb3(%one, %x : i32, gm<?xi32>), ^bb1(%zero, %zero : i32, i32)
    ^bb1(%i: i32, %sum: i32):
    %more = arith.cmpi slt, %i, %n : i32
    cf.cond_br %more, ^bb2, ^bb3(%sum, %y : i32, gm<?xi32>)
    ^bb2:  // pred: ^bb1
    %next = arith.addi %i, %STEP : i32
    %total = arith.addi %sum, %next : i32
    cf.br ^bb1(%next, %total : i32, i32)
    ^bb3(%v: i32, %m: memref<?xi32, #hivm.address_space<gm>>):
    memref.store %v, %m[%c0] : gm<?xi32>
"""


@pytest.mark.parametrize(("n", "x", "y"), [(0, -1, 0), (4, -1, 10), (9, -1, 45), (10, 1, -1)])
def test_branches_between_blocks_carry_values_and_views(n: int, x: int, y: int) -> None:
    first, second = np.full(1, -1, np.int32), np.full(1, -1, np.int32)
    arguments = {"x": ("gm<?xi32>", first), "y": ("gm<?xi32>", second), "n": ("i32", n)}
    assert run(GRAPH.replace("%STEP", "%one"), arguments).clean
    assert (first[0], second[0]) == (x, y)


def test_a_loop_of_blocks_without_an_end_is_stopped() -> None:
    arguments: dict[str, tuple[str, Any]] = {
        name: ("gm<?xi32>", np.zeros(1, np.int32)) for name in "xy"
    }
    body = GRAPH.replace("%STEP", "%zero")
    result = run(body, arguments | {"n": ("i32", 3)}, max_iterations=50)
    assert kinds(result) == ["ENDLESS"]


def test_both_ways_of_a_branch_may_lead_to_one_block() -> None:
    body = """
    %c0 = arith.constant 0 : index
    %one = arith.constant 1 : i32
    %two = arith.constant 2 : i32
    %f = arith.cmpi eq, %n, %one : i32
    cf.cond_br %f, ^bb1(%one : i32), ^bb1(%two : i32)
    ^bb1(%v: i32):
    memref.store %v, %x[%c0] : gm<?xi32>
    """
    for n, wanted in ((1, 1), (5, 2)):
        out = np.zeros(1, np.int32)
        assert run(body, {"x": ("gm<?xi32>", out), "n": ("i32", n)}).clean
        assert out[0] == wanted


def test_a_branch_on_what_was_never_written() -> None:
    body = """
    %c0 = arith.constant 0 : index
    %a = arith.constant 0 : i64
    %one = arith.constant 1 : i32
    %u = hivm.hir.pointer_cast(%a) : ub<8xi32>
    %v = memref.load %u[%c0] : ub<8xi32>
    %f = arith.cmpi eq, %v, %one : i32
    cf.cond_br %f, ^bb1, ^bb2
    ^bb1:
    return
    ^bb2:
    """
    assert kinds(run(body, {})) == ["UNDEFINED"]


def test_block_numbers() -> None:
    body = """
    %p = hivm.hir.get_block_idx -> i64
    %n = hivm.hir.get_block_num -> i64
    %s = hivm.hir.get_sub_block_idx -> i64
    %k = hivm.hir.get_sub_block_num -> i64
    %t = arith.constant 10 : i64
    %a = arith.muli %n, %t : i64
    %b = arith.addi %a, %k : i64
    %c = arith.muli %b, %t : i64
    %d = arith.addi %c, %s : i64
    %at = arith.index_cast %p : i64 to index
    memref.store %d, %x[%at] : gm<?xi64>
    """
    out = np.zeros(6, np.int64)
    assert run(body, {"x": ("gm<?xi64>", out)}, (2, 3)).clean
    assert out.tolist() == [610] * 6


def _floor(a: int, b: int) -> int:
    return a // b


def _ceiling(a: int, b: int) -> int:
    return -(-a // b)


@pytest.mark.parametrize(
    ("name", "right"), [("floordivsi", _floor), ("ceildivsi", _ceiling), ("ceildivui", _ceiling)]
)
def test_divisions_that_round(name: str, right: Any) -> None:
    body = f"""
    %c0 = arith.constant 0 : index
    %r = arith.{name} %a, %b : i32
    memref.store %r, %x[%c0] : gm<?xi32>
    """
    made = Simulator(program(body, {"x": "gm<?xi32>", "a": "i32", "b": "i32"}))
    signs = (1,) if name.endswith("ui") else (1, -1)
    for a in (0, 1, 6, 7, 8, 2**31 - 1):
        for b in (1, 2, 7, 2**31 - 1):
            for s in signs:
                for t in signs:
                    out = np.zeros(1, np.int32)
                    assert made.run([out, s * a, t * b]).clean
                    assert out[0] == right(s * a, t * b)


@pytest.mark.parametrize(
    "name", ["exp", "exp2", "log", "log2", "sin", "cos", "tanh", "floor", "ceil", "trunc", "sqrt"]
)
def test_scalar_functions(name: str) -> None:
    body = f"""
    %c0 = arith.constant 0 : index
    %r = math.{name} %a : f32
    memref.store %r, %x[%c0] : gm<?xf32>
    """
    made = Simulator(program(body, {"x": "gm<?xf32>", "a": "f32"}))
    for value in (0.25, 1.0, 1.75, 9.5):
        out = np.zeros(1, np.float32)
        assert made.run([out, value]).clean
        np.testing.assert_allclose(out[0], getattr(np, name)(np.float32(value)), rtol=3e-7)


def test_a_semi_affine_divisor_of_zero_does_not_trap() -> None:
    body = """
    %i = arith.index_cast %n : i64 to index
    %r = affine.apply affine_map<()[s0] -> (7 floordiv s0)>()[%i]
    %v = arith.index_cast %r : index to i64
    %c0 = arith.constant 0 : index
    memref.store %v, %x[%c0] : gm<?xi64>
    """
    made = Simulator(program(body, {"x": "gm<?xi64>", "n": "i64"}))
    for n, wanted in ((2, 3), (7, 1), (0, None)):
        out = np.zeros(1, np.int64)
        assert made.run([out, n]).clean
        assert wanted is None or out[0] == wanted


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
