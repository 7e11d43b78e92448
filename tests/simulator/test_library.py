"""Each library function against NumPy, around the edges of blocks and repeats."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from ascendport.simulator import Result, Simulator
from ascendport.simulator.library.reduce import fold, halve
from tests.simulator.programs import ALL, NAMES, program, run

SIZES = (1, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257)
CAPACITY = 272
DTYPES: dict[str, Any] = {
    "i8": np.int8,
    "i16": np.int16,
    "i32": np.int32,
    "i64": np.int64,
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "f32": np.float32,
}
FLOATS = ("f16", "f32")
INTS = ("i16", "i32")


@dataclass(frozen=True)
class Item:
    """An operand: ``in``, ``out``, ``inout``, ``scratch`` or ``scalar`` (a run-time argument)."""

    role: str
    element: str
    length: int | None = None
    """Elements; None: as many as the run asks for."""


def source(callee: str, items: Sequence[Item]) -> str:
    """A program that loads the inputs, calls the function once, and stores the outputs."""
    arguments: dict[str, str] = {"n": "i64", "loaded": "i64"}
    before: list[str] = []
    after: list[str] = []
    names: list[str] = []
    address = 0
    for number, item in enumerate(items):
        name = f"%o{number}"
        names.append(name)
        if item.role == "scalar":
            arguments[f"o{number}"] = item.element
            continue
        before.append(f"%a{number} = arith.constant {address} : i64")
        address += 8 * CAPACITY + 64
        bits = item.element == "i1"
        count = "%k" if item.length is None else str(item.length)
        part = f"part %w{number}[0, {count}] of {CAPACITY} : {item.element}"
        before.append(
            f"%w{number} = hivm.hir.pointer_cast(%a{number}) : ub<{CAPACITY}x{item.element}>"
        )
        before.append(f"{name} = {part}")
        if item.role == "scratch":
            continue
        # Booleans travel as bytes.
        element = "i8" if bits else item.element
        arguments[f"g{number}"] = f"gm<?x{element}>"
        before.append(f"%b{number} = hivm.hir.pointer_cast(%a{number}) : ub<{CAPACITY}x{element}>")
        moved = "%kb" if bits else count
        before.append(f"%s{number} = part %b{number}[0, {moved}] of {CAPACITY} : {element}")
        before.append(f"%m{number} = slice %g{number}[0, {moved}] : {element}")
        name_of = NAMES[element]
        if item.role != "out":
            zero = "%zero" + ("f" if element in ("f16", "bf16", "f32") else "i") + str(number)
            value = "0.0" if element in ("f16", "bf16", "f32") else "0"
            before.append(f"{zero} = arith.constant {value} : {element}")
            first = item.length is None and not bits
            given = "%first" if first else moved
            before.append(f"%l{number} = part %b{number}[0, {given}] of {CAPACITY} : {element}")
            before.append(f"%h{number} = slice %g{number}[0, {given}] : {element}")
            before.append(
                f"call @load_gm_to_ubuf_1d_{name_of}(%h{number}, %l{number}, %none, {zero}, %c0)"
            )
        if item.role != "in":
            after.append(f"call @store_ubuf_to_gm_1d_{name_of}(%s{number}, %m{number}, %none)")
    head = [
        "%c0 = arith.constant 0 : index",
        "%none = arith.constant 0 : i32",
        "%k = arith.index_cast %n : i64 to index",
        "%first = arith.index_cast %loaded : i64 to index",
        "%kb = affine.apply affine_map<(d0) -> (d0 ceildiv 8)>(%k)",
    ]
    call = f"call @{callee}({', '.join(names)})"
    return program("\n".join([*head, *before, ALL, call, ALL, *after, ALL]), arguments)


@cache
def simulator(callee: str, items: tuple[Item, ...]) -> Simulator:
    return Simulator(source(callee, items))


def call(
    callee: str, items: Sequence[Item], count: int, *values: Any, loaded: int | None = None
) -> tuple[Result, list[Any]]:
    """Runs with ``count`` elements; ``values``: of all operands but scratch ones, outputs None.

    ``loaded``: how many elements of the inputs are written at all. Returns the outputs.
    """
    made = simulator(callee, tuple(items))
    given = iter(values)
    arrays: list[Any] = []
    outputs: list[Any] = []
    for item in items:
        if item.role == "scratch":
            continue
        value = next(given)
        if item.role == "scalar":
            arrays.append(value)
            continue
        if item.element == "i1":
            size = (count if item.length is None else item.length) + 7 >> 3
            array = np.zeros(size, np.int8)
            if value is not None:
                array[:] = np.packbits(value, bitorder="little").view(np.int8)
        elif value is None:
            array = np.full(item.length or count, 113, DTYPES[item.element])
        else:
            array = np.array(value, DTYPES[item.element])
        arrays.append(array)
        if item.role in ("out", "inout"):
            outputs.append(array)
    result = made.run([count, count if loaded is None else loaded, *arrays])
    unpacked = [
        np.unpackbits(array.view(np.uint8), bitorder="little")[:count].astype(bool)
        if item.element == "i1"
        else array
        for item, array in zip(
            [item for item in items if item.role in ("out", "inout")], outputs, strict=True
        )
    ]
    return result, unpacked


def draw(element: str, count: int, seed: int = 0) -> Any:
    """Values with the special ones of the type among them."""
    rng = np.random.default_rng([seed, count])
    dtype = DTYPES[element]
    if element[0] == "i":
        limits = np.iinfo(dtype)
        values = rng.integers(limits.min, limits.max, count, dtype=dtype, endpoint=True)
        special: list[float] = [limits.min, limits.max, 0, 1, -1]
    else:
        values = (rng.standard_normal(count) * 10).astype(dtype)
        limit = ml_dtypes.finfo(dtype)
        special = [np.nan, np.inf, -np.inf, -0.0, 0.0, 1.0, limit.max, limit.smallest_subnormal]
    picks = rng.random(count) < 0.3
    values[picks] = rng.choice(np.array(special).astype(dtype), int(picks.sum()))
    return values


def same(got: Any, wanted: Any, name: str = "") -> None:
    """Equal bit for bit, any NaN like any other; of two zeros a maximum may take either."""
    assert got.dtype == wanted.dtype
    if name in ("vmax", "vmin", "vmaxs", "vmins", "vrelu", "max", "min"):
        assert ((got == wanted) | ((got != got) & (wanted != wanted))).all()
        return
    if got.dtype.kind in "iub":
        np.testing.assert_array_equal(got, wanted)
        return
    both_nan = np.isnan(got) & np.isnan(wanted)
    bits = np.dtype(f"u{got.dtype.itemsize}")
    equal = got.view(bits) == wanted.view(bits)
    assert (equal | both_nan).all(), (got[~(equal | both_nan)], wanted[~(equal | both_nan)])


def exact(function: Callable[..., Any]) -> Callable[..., Any]:
    """The right answer: in float64 or int64, rounded or wrapped once."""

    def run(dtype: Any, *values: Any) -> Any:
        with np.errstate(all="ignore"):
            if np.dtype(dtype).kind in "iu":
                return function(*(np.asarray(v, np.int64) for v in values)).astype(dtype)
            wide = function(*(np.asarray(v).astype(np.float64) for v in values))
            return (
                wide.astype(np.float32).astype(dtype)
                if dtype is ml_dtypes.bfloat16
                else wide.astype(dtype)
            )

    return run


BINARY: dict[str, tuple[Any, tuple[str, ...]]] = {
    "vadd": (np.add, (*FLOATS, *INTS)),
    "vsub": (np.subtract, (*FLOATS, *INTS)),
    "vmul": (np.multiply, (*FLOATS, *INTS)),
    "vdiv": (np.divide, FLOATS),
    "vmax": (np.maximum, (*FLOATS, *INTS)),
    "vmin": (np.minimum, (*FLOATS, *INTS)),
    "vand": (np.bitwise_and, ("i8", *INTS, "i64")),
    "vor": (np.bitwise_or, ("i8", *INTS, "i64")),
    "vxor": (np.bitwise_xor, ("i8", *INTS, "i64")),
}
UNARY: dict[str, tuple[Any, tuple[str, ...]]] = {
    "vabs": (np.abs, FLOATS),
    "vsqrt": (np.sqrt, FLOATS),
    "vrelu": (lambda x: np.maximum(x, 0), (*FLOATS, "i32")),
    "vnot": (np.invert, ("i8", *INTS, "i64")),
}
SCALAR: dict[str, tuple[Any, tuple[str, ...], str]] = {
    "vadds": (np.add, (*FLOATS, *INTS), "vs"),
    "vsub": (np.subtract, (*FLOATS, *INTS), "vs sv"),
    "vmuls": (np.multiply, (*FLOATS, *INTS), "vs"),
    "vdiv": (np.divide, FLOATS, "vs sv"),
    "vmaxs": (np.maximum, (*FLOATS, *INTS), "vs"),
    "vmins": (np.minimum, (*FLOATS, *INTS), "vs"),
}


def table(functions: dict[str, Any]) -> list[Any]:
    return [
        pytest.param(name, element, id=f"{name}-{element}")
        for name, row in functions.items()
        for element in row[1]
    ]


@pytest.mark.parametrize(("name", "element"), table(BINARY))
def test_two_tiles(name: str, element: str) -> None:
    items = [Item(role, element) for role in ("in", "in", "out", "scratch")]
    for count in SIZES:
        a, b = draw(element, count), draw(element, count, 1)
        result, (got,) = call(f"{name}_1d_{NAMES[element]}", items, count, a, b, None)
        assert result.clean
        same(got, exact(BINARY[name][0])(DTYPES[element], a, b), name)


@pytest.mark.parametrize(("name", "element"), table(UNARY))
def test_one_tile(name: str, element: str) -> None:
    items = [Item(role, element) for role in ("in", "out", "scratch")]
    for count in SIZES:
        a = draw(element, count)
        result, (got,) = call(f"{name}_1d_{NAMES[element]}", items, count, a, None)
        assert result.clean
        same(got, exact(UNARY[name][0])(DTYPES[element], a), name)


@pytest.mark.parametrize(("name", "element"), table(SCALAR))
def test_tile_and_scalar(name: str, element: str) -> None:
    function, _, orders = SCALAR[name]
    tile, scalar = Item("in", element), Item("scalar", element)
    for order in orders.split():
        inputs = [tile, scalar] if order == "vs" else [scalar, tile]
        items = [*inputs, Item("out", element), Item("scratch", element)]
        for count in (1, 8, 33, 65, 257):
            a, b = draw(element, count), draw(element, 12, 1)[3]
            values = (a, b) if order == "vs" else (b, a)
            callee = f"{name}_{order}_1d_{NAMES[element]}"
            result, (got,) = call(callee, items, count, *values, None)
            assert result.clean
            same(got, exact(function)(DTYPES[element], *values), name)


@pytest.mark.parametrize("name", ["vexp", "vln", "vrsqrt", "vrec"])
@pytest.mark.parametrize("element", FLOATS)
def test_functions_are_near_the_real_ones(name: str, element: str) -> None:
    functions: dict[str, Any] = {
        "vexp": np.exp,
        "vln": np.log,
        "vrsqrt": lambda x: 1 / np.sqrt(x),
        "vrec": lambda x: 1 / x,
    }
    items = [Item(role, element) for role in ("in", "out", "scratch")]
    for count in (1, 64, 257):
        a = draw(element, count)
        result, (got,) = call(f"{name}_1d_{NAMES[element]}", items, count, a, None)
        assert result.clean
        with np.errstate(all="ignore"):
            wanted = functions[name](a.astype(np.float64)).astype(DTYPES[element])
        ulp = 1e-3 if element == "f16" else 2.5e-7
        np.testing.assert_allclose(
            got.astype(np.float64), wanted.astype(np.float64), rtol=ulp, atol=1e-7
        )


@pytest.mark.parametrize("element", ["i16", "i32"])
@pytest.mark.parametrize("name", ["vshls", "vshrs"])
def test_shifts(name: str, element: str) -> None:
    items = [Item("in", element), Item("scalar", element), Item("out", element)]
    for count in (1, 9, 257):
        a = draw(element, count)
        for by in (0, 1, 7, 15):
            callee = f"{name}_vs_1d_{NAMES[element]}"
            _, (got,) = call(callee, items, count, a, by, None)
            same(got, a << by if name == "vshls" else a >> by)


BOOLS = {
    "vand": np.logical_and,
    "vor": np.logical_or,
    "vxor": np.logical_xor,
    "vnot": np.logical_not,
}


@pytest.mark.parametrize("name", BOOLS)
def test_packed_booleans(name: str) -> None:
    inputs = 1 if name == "vnot" else 2
    items = [Item("in", "i1")] * inputs + [Item("out", "i1"), Item("scratch", "i1")]
    for count in SIZES:
        values = [draw("i8", count, seed) > 0 for seed in range(inputs)]
        result, (got,) = call(f"{name}_1d_bool", items, count, *values, None)
        assert result.clean
        same(got, BOOLS[name](*values))


COMPARE: dict[str, Any] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "gt": np.greater,
    "ge": np.greater_equal,
    "le": np.less_equal,
}


@pytest.mark.parametrize("element", [*FLOATS, "i32"])
@pytest.mark.parametrize("name", COMPARE)
def test_comparisons(name: str, element: str) -> None:
    out = Item("out", "i1")
    for count in SIZES:
        a = draw(element, count)
        b = np.where(np.arange(count) % 3 == 0, a, draw(element, count, 1))
        vector = [Item("in", element), Item("in", element), out]
        result, (got,) = call(f"vcmp_{name}_1d_{NAMES[element]}", vector, count, a, b, None)
        assert result.clean
        same(got, COMPARE[name](a, b))
        scalar = [Item("in", element), Item("scalar", element), out]
        _, (got,) = call(f"vcmps_{name}_1d_{NAMES[element]}", scalar, count, a, b[0], None)
        same(got, COMPARE[name](a, b[0]))


@pytest.mark.parametrize("element", ["f16", "bf16", "f32", "i16", "i32", "i64"])
@pytest.mark.parametrize("form", ["vv", "vs", "sv", "ss"])
def test_selects(form: str, element: str) -> None:
    sides = [Item("in" if letter == "v" else "scalar", element) for letter in form]
    scratch = [] if element == "i64" else [Item("scratch", element, 32)]
    items = [Item("in", "i1"), *sides, Item("out", element), *scratch]
    middle = "bool_" if form == "vv" else ""
    for count in SIZES:
        condition = draw("i8", count, 2) > 0
        values = [
            draw(element, count, seed) if side.role == "in" else draw(element, 9, seed)[4]
            for seed, side in enumerate(sides)
        ]
        callee = f"vsel_{form}_1d_{middle}{NAMES[element]}"
        result, (got,) = call(callee, items, count, condition, *values, None)
        assert result.clean
        same(got, np.where(condition, *values).astype(DTYPES[element]))


def rounded(values: Any, mode: int) -> Any:
    """A float as a whole number, by the library's number of the mode."""
    if mode == 1:
        return np.copysign(np.floor(np.abs(values) + 0.5), values)
    if mode == 5:
        down, up = np.floor(values), np.ceil(values)
        return np.where(np.fmod(down, 2) != 0, down, up)
    return {0: np.rint, 2: np.floor, 3: np.ceil, 4: np.trunc}[mode](values)


@pytest.mark.parametrize("mode", range(6))
@pytest.mark.parametrize(
    ("source_type", "target"),
    [
        ("f32", "i32"),
        ("f32", "i64"),
        ("f32", "i16"),
        ("f16", "i32"),
        ("f16", "i8"),
        ("bf16", "i32"),
    ],
)
def test_floats_to_integers(source_type: str, target: str, mode: int) -> None:
    items = [Item("in", source_type), Item("out", target), Item("scalar", "i32")]
    callee = f"vcast_{NAMES[source_type]}_to_{NAMES[target]}_1d_with_mode"
    halves = np.array([0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 0.49, 127.5, 32768.5, 3e9, -3e9, 1e30])
    for count in (12, 33, 257):
        a = draw(source_type, count)
        with np.errstate(over="ignore"):
            a[:12] = halves.astype(a.dtype)
        result, (got,) = call(callee, items, count, a, None, mode)
        assert result.clean
        limits = np.iinfo(DTYPES[target])
        for value, number in zip(a.astype(np.float64).tolist(), got.tolist(), strict=True):
            if value != value:
                assert number == 0
                continue
            whole = float(rounded(np.float64(value), mode)) if np.isfinite(value) else value
            wanted = (
                limits.max if whole > limits.max else limits.min if whole < limits.min else whole
            )
            assert number == int(wanted), (value, mode)


WIDER = [
    ("i32", "f32"),
    ("i64", "f32"),
    ("i16", "f32"),
    ("i16", "f16"),
    ("i8", "f16"),
    ("i32", "i64"),
]


@pytest.mark.parametrize(
    ("source_type", "target"),
    [*WIDER, ("f16", "f32"), ("bf16", "f32"), ("f32", "f16"), ("f32", "bf16")],
)
def test_other_casts_round_to_nearest(source_type: str, target: str) -> None:
    items = [Item("in", source_type), Item("out", target), Item("scalar", "i32")]
    callee = f"vcast_{NAMES[source_type]}_to_{NAMES[target]}_1d_with_mode"
    for count in SIZES:
        a = draw(source_type, count)
        result, (got,) = call(callee, items, count, a, None, 0)
        assert result.clean
        with np.errstate(all="ignore"):
            same(got, a.astype(DTYPES[target]))


@pytest.mark.parametrize("mode", [2, 3, 4])
@pytest.mark.parametrize("target", ["f16", "bf16"])
def test_directed_rounding_to_short_floats(target: str, mode: int) -> None:
    items = [Item("in", "f32"), Item("out", target), Item("scalar", "i32")]
    a = (np.random.default_rng(5).standard_normal(256) * 3).astype(np.float32)
    a[:4] = (0.0, 1.0, -1.0, -2.5)
    _, (got,) = call(f"vcast_float_to_{NAMES[target]}_1d_with_mode", items, 256, a, None, mode)
    wide = got.astype(np.float64)
    near = a.astype(DTYPES[target]).astype(np.float64)
    assert (np.abs(wide - a) <= 2 * np.abs(near - a) + np.abs(a) * 2.0**-7).all()
    if mode == 2:
        assert (wide <= a).all()
    elif mode == 3:
        assert (wide >= a).all()
    else:
        assert (np.abs(wide) <= np.abs(a)).all()
    exactly = near == a
    assert (wide[exactly] == a[exactly]).all()


@pytest.mark.parametrize(
    ("source_type", "target", "low_bits"),
    [
        ("i32", "i8", True),
        ("i16", "i8", True),
        ("i64", "i32", True),
        ("i64", "i32", False),
        ("i32", "i16", False),
    ],
)
def test_narrowing_integers(source_type: str, target: str, low_bits: bool) -> None:
    scratch = [Item("scratch", source_type)] if low_bits else []
    items = [Item("in", source_type), Item("out", target), *scratch, Item("scalar", "i32")]
    ending = "with_overflow" if low_bits else "with_mode"
    callee = f"vcast_{NAMES[source_type]}_to_{NAMES[target]}_1d_{ending}"
    a = draw(source_type, 257)
    _, (got,) = call(callee, items, 257, a, None, 6 if low_bits else 0)
    limits = np.iinfo(DTYPES[target])
    wanted = a if low_bits else np.clip(a, limits.min, limits.max)
    same(got, wanted.astype(DTYPES[target]))


@pytest.mark.parametrize("target", ["f16", "f32", "bf16", "i16", "i32"])
def test_booleans_to_numbers(target: str) -> None:
    items = [Item("in", "i1"), Item("out", target), Item("scratch", target), Item("scalar", "i32")]
    for count in SIZES:
        a = draw("i8", count) > 0
        callee = f"vcast_bool_to_{NAMES[target]}_1d_with_temp"
        result, (got,) = call(callee, items, count, a, None, 0)
        assert result.clean
        same(got, a.astype(DTYPES[target]))


@pytest.mark.parametrize("element", ["i8", "i16", "i32", "i64", "f16", "bf16", "f32"])
def test_fill_and_arange(element: str) -> None:
    for count in SIZES:
        value = draw(element, 20)[7]
        items = [Item("scalar", element), Item("out", element)]
        result, (got,) = call(f"broadcast_scalar_{NAMES[element]}_to_1d", items, count, value, None)
        assert result.clean
        same(got, np.full(count, value, DTYPES[element]))
        if element in ("i16", "i32", "i64"):
            items = [Item("out", element), Item("scalar", "index"), Item("scalar", "index")]
            callee = f"arange_1d_{NAMES[element]}"
            result, (got,) = call(callee, items, count, None, -3, 5)
            same(got, (np.arange(count) * 5 - 3).astype(DTYPES[element]))


def test_fill_of_booleans() -> None:
    items = [Item("scalar", "i1"), Item("out", "i1")]
    for count in SIZES:
        for value in (True, False):
            _, (got,) = call("broadcast_scalar_bool_to_1d", items, count, value, None)
            same(got, np.full(count, value))


REDUCE: dict[str, tuple[Any, tuple[str, ...]]] = {
    "sum": (np.sum, INTS),
    "prod": (np.prod, INTS),
    "max": (np.max, (*FLOATS, *INTS)),
    "min": (np.min, (*FLOATS, *INTS)),
    "xori": (np.bitwise_xor.reduce, ("i8", *INTS, "i64")),
    "ori": (np.bitwise_or.reduce, ("i8", *INTS, "i64")),
    "andi": (np.bitwise_and.reduce, ("i8", *INTS, "i64")),
}


@pytest.mark.parametrize(("name", "element"), table(REDUCE))
def test_reductions(name: str, element: str) -> None:
    scalar = Item("scalar", element)
    items = [Item("in", element), Item("out", element, 1), Item("scratch", element), scalar]
    prefix = "enablevc_" if element in FLOATS else ""
    for count in SIZES:
        a = draw(element, count)
        callee = f"{prefix}reduce_{name}_r_{NAMES[element]}"
        result, (got,) = call(callee, items, count, a, None, 0)
        assert result.clean
        same(got, np.array([REDUCE[name][0](a)]).astype(DTYPES[element]), name)


@pytest.mark.parametrize("element", FLOATS)
def test_sums_of_floats_are_near(element: str) -> None:
    scalar = Item("scalar", element)
    items = [Item("in", element), Item("out", element, 1), Item("scratch", element), scalar]
    for count in SIZES:
        a = np.random.default_rng(count).random(count).astype(DTYPES[element])
        result, (got,) = call(f"enablevc_reduce_sum_r_{NAMES[element]}", items, count, a, None, 0)
        assert result.clean
        bound = 2e-3 if element == "f16" else 3e-7
        np.testing.assert_allclose(got[0], a.astype(np.float64).sum(), rtol=bound)


def test_sums_halve_in_the_librarys_order() -> None:
    rng = np.random.default_rng(3)
    a = rng.standard_normal((200, 1)).astype(np.float32)
    half = a[:64] + a[64:128]
    half = np.concatenate([a[128:192] + half])
    half[:8] = a[192:200] + half[:8]
    same(halve(a, np.add, 64), half)
    while len(half) > 1:
        half = half[::2] + half[1::2]
    same(fold(a, np.add, True), half)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("name", ["max", "min"])
def test_where_the_extreme_stands(name: str, side: str) -> None:
    items = [
        *(Item("in", "f32"), Item("out", "f32", 1), Item("out", "i32", 1)),
        *(Item("scratch", "f32"), Item("scalar", "f32")),
    ]
    for count in SIZES:
        a = np.random.default_rng(count).integers(-3, 4, count).astype(np.float32)
        callee = f"reduce_{name}_with_index_{side}_r_float"
        _, (value, index) = call(callee, items, count, a, None, None, 0.0)
        best = a.max() if name == "max" else a.min()
        places = np.flatnonzero(a == best)
        assert (value[0], index[0]) == (best, places[0] if side == "left" else places[-1])


def test_gather_and_its_range() -> None:
    items = [Item("in", "f32"), Item("in", "i32"), Item("out", "f32"), Item("scratch", "i32")]
    for count in (1, 33, 257):
        a = draw("f32", count)
        places = np.random.default_rng(count).integers(0, count, count).astype(np.int32)
        result, (got,) = call("gather_1d_float", items, count, a, places, None)
        assert result.clean
        same(got, a[places])
        places[0] = count
        result, _ = call("gather_1d_float", items, count, a, places, None)
        assert [finding.kind.name for finding in result.findings] == ["GATHER"]


def test_histogram_adds_and_leaves_others_out() -> None:
    items = [Item("in", "i32"), Item("scalar", "i64"), Item("inout", "i32", 16)]
    a = np.array([0, 3, 3, 15, 16, -1, 2**31 - 1, 3] * 4, np.int32)
    start = np.arange(16, dtype=np.int32)
    result, (got,) = call("histogram_1d_int32_t", items, len(a), a, 16, start)
    assert result.clean
    inside = a[(a >= 0) & (a < 16)]
    same(got, start + np.bincount(inside, minlength=16).astype(np.int32))


@pytest.mark.parametrize("channel", [0, 1])
def test_channels(channel: int) -> None:
    items = [Item("in", "f16"), Item("out", "f16", 16)]
    callee = f"deinterleave_channel_{channel}_from_2_channels_1d_half"
    a = draw("f16", 32)
    _, (got,) = call(callee, items, 32, a, None)
    same(got, a[channel::2])


def test_interleave_flip_copy_and_sort() -> None:
    a, b = draw("i32", 16), draw("i32", 16, 1)
    items = [
        Item("in", "i32", 16),
        Item("in", "i32", 16),
        Item("out", "i32"),
        Item("scratch", "i32"),
    ]
    _, (got,) = call("interleave_1d_int32_t", items, 32, a, b, None)
    same(got, np.stack([a, b], 1).reshape(-1))
    _, (got,) = call("flip_1d_int32_t", [Item("in", "i32"), Item("out", "i32")], 16, a, None)
    same(got, a[::-1])
    scalars = [Item("scalar", "i32"), Item("scalar", "i32")]
    items = [Item("in", "i32"), Item("out", "i32"), *scalars]
    _, (got,) = call("copy_ubuf_to_ubuf_1d_int32_t", items, 16, a, None, 0, 0)
    same(got, a)
    items = [Item("in", "f32"), Item("out", "f32"), Item("scratch", "f32"), Item("scalar", "i1")]
    f = np.random.default_rng(0).standard_normal(16).astype(np.float32)
    for down in (True, False):
        _, (got,) = call("sort_1d_float", items, 16, f, None, down)
        same(got, np.sort(f)[::-1] if down else np.sort(f))


SORTED = [Item("in", "f32"), Item("out", "f32"), Item("out", "i32"), Item("scratch", "f32")]


@pytest.mark.parametrize("down", [False, True], ids=["rising", "falling"])
def test_sorted_with_places(down: bool) -> None:
    items = [*SORTED, Item("scalar", "i1")]
    for count in (1, 2, 31, 32, 33, 65, 257):
        values = np.random.default_rng(count).integers(-4, 4, count).astype(np.float32)
        _, (got, places) = call("sort_with_index_1d_float", items, count, values, None, None, down)
        order = np.argsort(-values if down else values, kind="stable")
        same(got, values[order])
        assert (places == order).all()


def test_nan_comes_last_in_rising_order_and_first_in_falling() -> None:
    values = np.array([1, np.nan, -np.inf, 3, np.inf], np.float32)
    for down in (False, True):
        items = [*SORTED, Item("scalar", "i1")]
        _, (got, _) = call("sort_with_index_1d_float", items, 5, values, None, None, down)
        assert list(np.isnan(got)) == [down, False, False, False, not down]


@pytest.mark.parametrize("element", ["i16", "i32", "f16", "bf16", "f32"])
def test_gather_by_mask_packs_the_chosen_ones(element: str) -> None:
    items = [Item("in", element), Item("in", "i1"), Item("inout", element), Item("out", "i64", 1)]
    callee = f"vgathermask_1d_{NAMES[element]}"
    for count in (1, 7, 8, 33, 64, 257):
        values, before = draw(element, count), draw(element, count, 3)
        for share in (0.0, 0.4, 1.0):
            mask = np.random.default_rng(count).random(count) < share
            result, (got, size) = call(callee, items, count, values, mask, before, None)
            assert result.clean
            chosen = int(mask.sum())
            assert size[0] == chosen
            same(got, np.concatenate([values[mask], before[chosen:]]))


def test_powers_of_integers_wrap_and_negative_ones_vanish() -> None:
    items = [Item("in", "i32"), Item("in", "i32"), Item("out", "i32"), Item("scratch", "i32")]
    bases = [0, 1, -1, 2, -3, 7, 46341, 2**31 - 1, -(2**31)]
    exponents = [0, 1, 2, 3, 31, 32, 2**31 - 1, -1, -2, -3, -(2**31)]
    pairs = [(base, exponent) for base in bases for exponent in exponents]

    def power(base: int, exponent: int) -> int:
        exponent = -2 if exponent == -(2**31) else exponent
        if exponent < 0:
            return base ** (-exponent % 2 + 2) if abs(base) == 1 else 0
        wrapped = pow(base, exponent, 2**32)
        return wrapped - 2**32 if wrapped >= 2**31 else wrapped

    base, exponent = (np.array(column, np.int32) for column in zip(*pairs, strict=True))
    _, (got,) = call("vpow_1d_int32_t", items, len(pairs), base, exponent, None)
    assert got.tolist() == [power(*pair) for pair in pairs]


def test_a_masked_histogram_takes_its_mask_for_bytes() -> None:
    """As the library does: the compiler's packed booleans are read eight elements too far."""
    body = """
    %c0 = arith.constant 0 : index
    %z = arith.constant 0 : i32
    %z8 = arith.constant 0 : i8
    %bins = arith.constant 4 : i64
    %a0 = arith.constant 0 : i64
    %a1 = arith.constant 1024 : i64
    %a2 = arith.constant 2048 : i64
    %src = hivm.hir.pointer_cast(%a0) : ub<8xi32>
    %mask = hivm.hir.pointer_cast(%a1) : ub<8xi1>
    %bytes = hivm.hir.pointer_cast(%a1) : ub<8xi8>
    %count = hivm.hir.pointer_cast(%a2) : ub<4xi32>
    %gs = slice %x[0, 8] : i32
    %gm = slice %m[0, 8] : i8
    %gc = slice %y[0, 4] : i32
    call @load_gm_to_ubuf_1d_int32_t(%gs, %src, %z, %z, %c0)
    call @load_gm_to_ubuf_1d_int8_t(%gm, %bytes, %z, %z8, %c0)
    call @broadcast_scalar_int32_t_to_1d(%z, %count)
    hivm.hir.pipe_barrier[<PIPE_ALL>]
    call @histogram_1d_masked_int32_t(%src, %bins, %mask, %count)
    hivm.hir.pipe_barrier[<PIPE_ALL>]
    call @store_ubuf_to_gm_1d_int32_t(%count, %gc, %z)
    """
    x = np.array([0, 1, 1, 2, 3, 3, 9, -1], np.int32)
    mask = np.array([1, 0, 1, 1, 0, 1, 1, 1], np.int8)
    counts = np.zeros(4, np.int32)
    arguments = {"x": ("gm<?xi32>", x), "m": ("gm<?xi8>", mask), "y": ("gm<?xi32>", counts)}
    assert run(body, arguments).clean
    assert counts.tolist() == [1, 1, 1, 1]


# --- more axes, in place, strides ---------------------------------------------------------

MATRIX = """
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c8 = arith.constant 8 : index
    %z = arith.constant 0 : i32
    %f = arith.constant 0.0 : f32
    %a0 = arith.constant 0 : i64
    %a1 = arith.constant 4096 : i64
    %a2 = arith.constant 8192 : i64
    %a3 = arith.constant 12288 : i64
    %u = hivm.hir.pointer_cast(%a0) : ub<4x8xf32>
    %u1 = memref.collapse_shape %u [[0, 1]] : ub<4x8xf32> into ub<32xf32>
    %in = slice %x[0, 32] : f32
    call @load_gm_to_ubuf_1d_float(%in, %u1, %z, %f, %c0)
    hivm.hir.pipe_barrier[<PIPE_ALL>]
    %t = hivm.hir.pointer_cast(%a3) : ub<64xf32>
    CALL
    hivm.hir.pipe_barrier[<PIPE_ALL>]
    %out = slice %y[0, COUNT] : f32
    call @store_ubuf_to_gm_1d_float(%v1, %out, %z)
"""


def matrix(lines: str, count: int) -> tuple[Any, Any]:
    """(input 4 × 8, output) of a program whose middle is ``lines``, which define %v1."""
    text = MATRIX.replace("CALL", lines).replace("COUNT", str(count))
    x, y = np.arange(32, dtype=np.float32), np.zeros(count, np.float32)
    made = Simulator(program(text, {"x": "gm<?xf32>", "y": "gm<?xf32>"}))
    assert made.run([x, y]).clean
    return x.reshape(4, 8), y


def result_of(shape: str, count: int, call_text: str) -> str:
    axes = ", ".join(map(str, range(shape.count("x") + 1)))
    return f"""
    %v = hivm.hir.pointer_cast(%a1) : ub<{shape}xf32>
    {call_text}
    %v1 = memref.collapse_shape %v [[{axes}]] : ub<{shape}xf32> into ub<{count}xf32>
    """


def test_broadcast_source_axes() -> None:
    column = (
        "%k = memref.subview %u[0, 0] [4, 1] [1, 1] : ub<4x8xf32> to ub<4x1xf32, strided<[8, 1]>>\n"
    )
    one = "ub<1x8xf32, strided<[8, 1], offset: 8>>\n"
    row = f"%k = memref.subview %u[1, 0] [1, 8] [1, 1] : ub<4x8xf32> to {one}"
    add = "call @vadd_2d_float(%u, %k, %v, %t)"
    x, y = matrix(result_of("4x8", 32, column + add), 32)
    assert (y.reshape(4, 8) == x + x[:, :1]).all()
    x, y = matrix(result_of("4x8", 32, row + add), 32)
    assert (y.reshape(4, 8) == x + x[1:2]).all()
    x, y = matrix(
        result_of("4x8", 32, column + "call @broadcast_last_axis_align_2d_float(%k, %v, %t)"), 32
    )
    assert (y.reshape(4, 8) == x[:, :1]).all()
    x, y = matrix(
        result_of("4x8", 32, row + "call @broadcast_first_axis_align_2d_float(%k, %v)"), 32
    )
    assert (y.reshape(4, 8) == x[1:2]).all()


@pytest.mark.parametrize("name", ["sum", "max"])
def test_reductions_of_one_axis(name: str) -> None:
    function: Any = {"sum": np.sum, "max": np.max}[name]
    rows = f"call @enablevc_reduce_{name}_ar_float(%u, %v, %t, %f)"
    x, y = matrix(result_of("4x1", 4, rows), 4)
    assert (y == function(x, axis=1)).all()
    columns = f"call @reduce_{name}_ra_float(%u, %v, %t, %f)"
    x, y = matrix(result_of("1x8", 8, columns), 8)
    assert (y == function(x, axis=0)).all()


def test_running_sums() -> None:
    x, y = matrix(result_of("4x8", 32, "call @cumsum_ra_float(%u, %v)"), 32)
    assert (y.reshape(4, 8) == np.cumsum(x, axis=0)).all()
    x, y = matrix(result_of("4x8", 32, "call @cumsum_ra_reverse_float(%u, %v)"), 32)
    assert (y.reshape(4, 8) == np.cumsum(x[::-1], axis=0)[::-1]).all()


def test_transposes() -> None:
    x, y = matrix(result_of("8x4", 32, "call @transpose_2d_with_last_axis_float(%u, %v)"), 32)
    assert (y.reshape(8, 4) == x.T).all()
    cube = "%e = memref.expand_shape %u [[0], [1, 2]] output_shape [4, 2, 4] :"
    cube += " ub<4x8xf32> into ub<4x2x4xf32>\n"
    turn = cube + "call @transpose_3d_without_last_axis_float(%e, %v)"
    x, y = matrix(result_of("2x4x4", 32, turn), 32)
    assert (y.reshape(2, 4, 4) == x.reshape(4, 2, 4).swapaxes(0, 1)).all()


def test_arange_of_two_axes_and_in_place() -> None:
    lines = """
    %i = hivm.hir.pointer_cast(%a2) : ub<4x8xi32>
    call @arange_2d_int32_t(%i, %c1, %c8, %c1)
    hivm.hir.pipe_barrier[<PIPE_ALL>]
    call @vcast_int32_t_to_float_2d_with_mode(%i, %v, %z)
    hivm.hir.pipe_barrier[<PIPE_ALL>]
    call @vmul_2d_float(%v, %u, %v, %t)
    """
    x, y = matrix(result_of("4x8", 32, lines), 32)
    assert (y.reshape(4, 8) == x * (x + 1)).all()


def test_strided_sources() -> None:
    odd = "ub<4x4xf32, strided<[8, 2], offset: 1>>\n"
    lines = f"%k = memref.subview %u[0, 1] [4, 4] [1, 2] : ub<4x8xf32> to {odd}"
    x, y = matrix(result_of("4x4", 16, lines + "call @vadd_2d_float(%k, %k, %v, %t)"), 16)
    assert (y.reshape(4, 4) == 2 * x[:, 1::2]).all()


def test_masks_of_two_axes() -> None:
    """Bit-packed rows that start inside a byte."""
    inner = "ub<2x3xi1, strided<[3, 1], offset: 3>>"
    lines = f"""
    %b = hivm.hir.pointer_cast(%a2) : ub<4x3xi1>
    %part = memref.subview %b[1, 0] [2, 3] [1, 1] : ub<4x3xi1> to {inner}
    %t1 = hivm.hir.pointer_cast(%a3) : ub<12xi1>
    %b1 = memref.collapse_shape %b [[0, 1]] : ub<4x3xi1> into ub<12xi1>
    %no = arith.constant false
    %yes = arith.constant true
    call @broadcast_scalar_bool_to_1d(%no, %b1)
    hivm.hir.pipe_barrier[<PIPE_ALL>]
    call @broadcast_scalar_bool_to_2d(%yes, %part)
    hivm.hir.pipe_barrier[<PIPE_ALL>]
    %s = hivm.hir.pointer_cast(%a1) : ub<12xf32>
    call @vcast_bool_to_float_1d_with_temp(%b1, %s, %t, %z)
    %v1 = memref.cast %s : ub<12xf32> to ub<12xf32>
    """
    _, y = matrix(lines, 12)
    assert y.tolist() == [0, 0, 0, 1, 1, 1, 1, 1, 1, 0, 0, 0]


# --- definedness ---------------------------------------------------------------------------

SPREAD: list[tuple[str, list[Item], list[Any], int]] = [
    ("vadd_1d_float", [Item("in", "f32")] * 2, [1, 1], 24),
    ("vabs_1d_half", [Item("in", "f16")], [1], 24),
    ("vsub_sv_1d_int32_t", [Item("scalar", "i32"), Item("in", "i32")], [3, 1], 24),
    ("vand_1d_int32_t", [Item("in", "i32")] * 2, [1, 1], 24),
]


@pytest.mark.parametrize(
    ("callee", "inputs", "values", "lost"), SPREAD, ids=[row[0] for row in SPREAD]
)
def test_undefined_elements_spread_one_to_one(
    callee: str, inputs: list[Item], values: list[Any], lost: int
) -> None:
    element = inputs[-1].element
    items = [*inputs, Item("out", element), Item("scratch", element)]
    given = [
        np.ones(64, DTYPES[element]) if item.role == "in" else value
        for item, value in zip(inputs, values, strict=True)
    ]
    result, _ = call(callee, items, 64, *given, None, loaded=64)
    assert result.clean
    result, _ = call(callee, items, 64, *given, None, loaded=40)
    (finding,) = result.findings
    assert finding.kind.name == "UNDEFINED"
    found = re.search(r"\((\d+) such", finding.message)
    assert found is not None
    assert int(found[1]) == lost


def test_a_reduction_over_an_undefined_element_is_undefined() -> None:
    items = [
        *(Item("in", "f32"), Item("out", "f32", 1)),
        *(Item("scratch", "f32"), Item("scalar", "f32")),
    ]
    ones = np.ones(64, np.float32)
    assert call("enablevc_reduce_max_r_float", items, 64, ones, None, 0.0)[0].clean
    result, _ = call("enablevc_reduce_max_r_float", items, 64, ones, None, 0.0, loaded=63)
    assert [finding.kind.name for finding in result.findings] == ["UNDEFINED"]
