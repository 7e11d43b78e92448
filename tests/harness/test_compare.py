"""Comparing an output with the right answer."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from ascendport.harness.buffers import bits
from ascendport.harness.case import Array, Role, Tensor, numpy_dtype
from ascendport.harness.compare import compare, compare_all

FLOATS = ("fp32", "fp16", "bf16")


def exact(values: Array) -> Tensor:
    return Tensor(values, Role.INOUT)


@given(hnp.arrays(np.float32, st.tuples(st.integers(1, 4), st.integers(1, 9))))
def test_a_copy_is_the_same(values: Array) -> None:
    assert compare("x", values.copy(), values, exact(values)).same


@given(
    st.sampled_from(["fp32", "fp16", "bf16", "i64", "i32", "i16", "i8"]),
    st.integers(0, 11),
    st.data(),
)
def test_one_flipped_bit_is_found(name: str, index: int, data: st.DataObject) -> None:
    dtype = numpy_dtype(name)
    right = np.arange(1, 13).reshape(3, 4).astype(dtype)
    got = right.copy()
    bit = data.draw(st.integers(0, dtype.itemsize * 8 - 1))
    pattern = got.view(f"u{dtype.itemsize}").reshape(-1)
    pattern[index] ^= pattern.dtype.type(1 << bit)
    result = compare("x", got, right, exact(right))
    assert result.mismatches == 1
    assert f"row {index // 4}, column {index % 4}" in result.difference
    assert "(1 of 12 differ)" in result.difference


@pytest.mark.parametrize("name", FLOATS)
def test_nan_equals_nan_and_zeros_have_signs(name: str) -> None:
    dtype = numpy_dtype(name)
    quiet = np.array([np.nan, np.inf, -np.inf, 0.0]).astype(dtype)
    other = quiet.copy()
    bits(other)[0] += 1
    assert compare("x", other, quiet, exact(quiet)).same
    negative = quiet.copy()
    negative[3] = -0.0
    result = compare("x", negative, quiet, exact(quiet))
    assert "element 3: got -0, expected 0" in result.difference
    assert result.max_ulp == 0


def test_untouched_output_is_named_even_where_nan_is_right() -> None:
    poison = 0x7FC5A3B1
    right = np.array([np.nan, 1.0], np.float32)
    got = np.array([poison, poison], np.uint32).view(np.float32)
    result = compare("x", got, right, Tensor(right, Role.OUT), poison)
    assert result.mismatches == 2
    assert "element 0: left untouched" in result.difference


@pytest.mark.parametrize(
    ("error", "same"), [(0.0, True), (0.9e-5, True), (1.1e-5, False)], ids=["0", "in", "out"]
)
def test_tolerance(error: float, same: bool) -> None:
    right = np.array([2.0, -0.0, np.inf, np.nan], np.float32)
    tensor = Tensor(right, Role.OUT, exact=False, atol=1e-5)
    got = right + np.array([error, 0, 0, 0], np.float32)
    result = compare("x", got, right, tensor)
    assert result.same is same
    assert result.max_abs_error == pytest.approx(error, rel=0.05)


@pytest.mark.parametrize("wrong", [np.nan, -np.inf, 3.0], ids=["nan", "-inf", "finite"])
def test_no_tolerance_covers_an_infinity(wrong: float) -> None:
    right = np.array([np.inf], np.float32)
    tensor = Tensor(right, Role.OUT, exact=False, atol=1e30, rtol=1.0)
    assert not compare("x", np.array([wrong], np.float32), right, tensor).same


@pytest.mark.parametrize("name", FLOATS)
def test_ulps_count_neighbours_across_zero(name: str) -> None:
    dtype = numpy_dtype(name)
    smallest = np.array([1], f"u{dtype.itemsize}").view(dtype)
    right, got = -smallest, smallest
    assert compare("x", got, right, exact(right)).max_ulp == 2


def test_all_tensors_are_compared_and_the_first_difference_told() -> None:
    a, b = np.zeros(3, np.int32), np.ones(2, ml_dtypes.bfloat16)
    tensors = {"a": exact(a), "b": exact(b)}
    verdict = compare_all({"a": a, "b": b * 2}, {"a": a, "b": b}, tensors)
    assert verdict.difference == "b: element 0: got 2, expected 1 (2 of 2 differ)"
    assert verdict.figures == {"mismatches": 2, "max_abs_error": 1.0, "max_ulp": 128}
