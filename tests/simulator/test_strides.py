"""Library functions on views with strides, offsets and several axes: the right elements change,
and no other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

from ascendport.simulator import Simulator
from tests.simulator.programs import ALL, NAMES, program

LENGTH = 512
DTYPES: dict[str, Any] = {
    "i8": np.int8,
    "i32": np.int32,
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "f32": np.float32,
}


@dataclass(frozen=True)
class Form:
    """Elements of a buffer: sizes, strides and the first one."""

    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int = 0

    def type(self, element: str) -> str:
        shape = "x".join(map(str, self.sizes))
        steps = ", ".join(map(str, self.strides))
        place = f", offset: {self.offset}" if self.offset else ""
        return f"ub<{shape}x{element}, strided<[{steps}]{place}>>"

    def of(self, buffer: Any) -> Any:
        """The elements, in place."""
        size = buffer.itemsize
        steps = [step * size for step in self.strides]
        return as_strided(buffer[self.offset :], self.sizes, steps)


FORMS = [
    pytest.param(Form((37,), (1,)), id="dense"),
    pytest.param(Form((37,), (1,), 3), id="inside-a-block"),
    pytest.param(Form((64,), (2,), 1), id="every-second"),
    pytest.param(Form((9,), (8,)), id="a-block-each"),
    pytest.param(Form((65,), (1,), 64), id="past-a-repeat"),
    pytest.param(Form((4, 8), (8, 1)), id="dense-rows"),
    pytest.param(Form((5, 7), (16, 1), 2), id="rows-with-gaps"),
    pytest.param(Form((3, 5), (40, 3)), id="both-strided"),
    pytest.param(Form((8, 1), (1, 1)), id="one-column"),
    pytest.param(Form((2, 3, 8), (32, 8, 1)), id="cube"),
    pytest.param(Form((2, 3, 5), (100, 17, 2), 5), id="cube-with-gaps"),
]


def source(callee: str, elements: Sequence[str], forms: Sequence[Form], scalars: str) -> str:
    """A program that calls the function on views of buffers, all of which go in and out."""
    lines = ["%c0 = arith.constant 0 : index", "%none = arith.constant 0 : i32"]
    lines += [scalars] if scalars else []
    after: list[str] = []
    names: list[str] = []
    for number, (element, form) in enumerate(zip(elements, forms, strict=True)):
        name, zero = NAMES[element], "0" if element[0] == "i" else "0.0"
        steps, sizes = ", ".join(map(str, form.strides)), ", ".join(map(str, form.sizes))
        lines += [
            f"%a{number} = arith.constant {4 * LENGTH * number} : i64",
            f"%w{number} = hivm.hir.pointer_cast(%a{number}) : ub<{LENGTH}x{element}>",
            f"%m{number} = slice %g{number}[0, {LENGTH}] : {element}",
            f"%z{number} = arith.constant {zero} : {element}",
            f"call @load_gm_to_ubuf_1d_{name}(%m{number}, %w{number}, %none, %z{number}, %c0)",
            f"%v{number} = memref.reinterpret_cast %w{number} to offset: [{form.offset}],"
            f" sizes: [{sizes}], strides: [{steps}] : ub<{LENGTH}x{element}>"
            f" to {form.type(element)}",
        ]
        names.append(f"%v{number}")
        after.append(f"call @store_ubuf_to_gm_1d_{name}(%w{number}, %m{number}, %none)")
    scalar = ["%s"] if scalars else []
    where = [*names[:-1], *scalar, names[-1]] if "arith" in scalars else [*names, *scalar]
    where = [*names, *scalar] if "cast" in callee else where
    call = f"call @{callee}({', '.join(where)})"
    arguments = {f"g{number}": f"gm<?x{element}>" for number, element in enumerate(elements)}
    return program("\n".join([*lines, ALL, call, ALL, *after, ALL]), arguments)


@cache
def simulator(callee: str, elements: tuple[str, ...], forms: tuple[Form, ...], scalars: str) -> Any:
    return Simulator(source(callee, elements, forms, scalars))


@dataclass(frozen=True)
class Case:
    """``name`` with AXES for the rank; ``right``: of the inputs' elements."""

    name: str
    elements: tuple[str, ...]
    right: Callable[..., Any]
    scalars: str = ""
    ranks: tuple[int, ...] = (1, 2, 3)


TWO = "%s = arith.constant 2.0 : f32"
CASES = [
    Case("vadd_AXESd_float", ("f32", "f32", "f32"), np.add),
    Case("vmul_AXESd_int32_t", ("i32", "i32", "i32"), np.multiply),
    Case("vmax_AXESd_half", ("f16", "f16", "f16"), np.maximum),
    Case("vor_AXESd_int8_t", ("i8", "i8", "i8"), np.bitwise_or),
    Case("vabs_AXESd_float", ("f32", "f32"), np.abs),
    Case("vmuls_vs_AXESd_float", ("f32", "f32"), lambda a: a * np.float32(2), TWO),
    Case(
        "vcast_float_to_int32_t_AXESd_with_mode",
        ("f32", "i32"),
        lambda a: np.rint(a).astype(np.int32),
        "%s = arith.constant 0 : i32",
        (1, 2),
    ),
    Case(
        "vcast_float_to_bfloat16_t_AXESd_with_mode",
        ("f32", "bf16"),
        lambda a: a.astype(ml_dtypes.bfloat16),
        "%s = arith.constant 0 : i32",
        (1, 2),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name.replace("_AXESd", ""))
@pytest.mark.parametrize("form", FORMS)
def test_strided_operands(case: Case, form: Form) -> None:
    rank = len(form.sizes)
    if rank not in case.ranks:
        form = Form(form.sizes[-2:], form.strides[-2:], form.offset)
        rank = 2
    other = Form(form.sizes, form.strides, form.offset + 4)
    rng = np.random.default_rng(rank + form.offset)
    buffers = [rng.integers(-50, 50, LENGTH).astype(DTYPES[element]) for element in case.elements]
    forms = [form] * (len(buffers) - 1) + [other]
    made = simulator(
        case.name.replace("AXES", str(rank)), case.elements, tuple(forms), case.scalars
    )
    wanted = [buffer.copy() for buffer in buffers]
    inputs = [form.of(buffer) for buffer in wanted[:-1]]
    other.of(wanted[-1])[...] = case.right(*inputs)
    result = made.run(buffers)
    assert result.clean, result.findings
    for got, right in zip(buffers, wanted, strict=True):
        assert (got.view(np.uint8) == right.view(np.uint8)).all()


def test_the_comparison_notices_one_element_too_many() -> None:
    """What the test above would say of a function that ignores a stride."""
    form, dense = Form((8,), (2,)), Form((8,), (1,))
    made = simulator("vabs_1d_float", ("f32", "f32"), (form, dense), "")
    buffers = [np.arange(LENGTH, dtype=np.float32), np.zeros(LENGTH, np.float32)]
    wrong = buffers[1].copy()
    form.of(wrong)[...] = form.of(buffers[0])
    assert made.run(buffers).clean
    assert (buffers[1] != wrong).any()
