"""Compares a tensor that a kernel wrote with the right answer, and says where they first differ."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ascendport.harness.buffers import bits, dtype_name, place
from ascendport.harness.case import Array, Role, Tensor

_FLOATS = ("fp32", "fp16", "bf16")


@dataclass(frozen=True)
class Comparison:
    """How one tensor compares.

    ``difference``: the first difference in words; empty when the tensor passes.
    ``mismatches``: elements that do not pass. ``max_abs_error``: over elements finite on both
    sides. ``max_ulp``: the same in units in the last place of the tensor's type; floats only.
    """

    difference: str = ""
    mismatches: int = 0
    max_abs_error: float = 0.0
    max_ulp: int = 0

    @property
    def same(self) -> bool:
        return not self.difference


@dataclass(frozen=True)
class Verdict:
    """How all written tensors of a launch compare: the first difference, and figures."""

    difference: str = ""
    figures: Mapping[str, int | float] = field(default_factory=dict)

    @property
    def same(self) -> bool:
        return not self.difference


def compare(
    name: str, got: Array, expected: Array, tensor: Tensor, poison: int | None = None
) -> Comparison:
    """Compares bit for bit, or within the tensor's tolerance where it is not exact.

    NaN equals NaN whatever the payload; -0.0 and 0.0 differ, except within a tolerance.
    ``poison``: the bits that an OUT tensor held before; elements that still hold them count as
    left untouched.
    """
    kind = dtype_name(expected.dtype)
    got_bits, expected_bits = bits(got), bits(expected)
    equal = got_bits == expected_bits
    untouched = np.zeros(got.shape, bool)
    if poison is not None and tensor.role is Role.OUT:
        untouched = got_bits == poison
    error = np.zeros(got.shape, np.float64)
    max_ulp = 0
    if kind in _FLOATS:
        wide_got, wide_expected = got.astype(np.float64), expected.astype(np.float64)
        equal |= np.isnan(wide_got) & np.isnan(wide_expected)
        finite = np.isfinite(wide_got) & np.isfinite(wide_expected)
        np.subtract(wide_got, wide_expected, out=error, where=finite)
        np.abs(error, out=error)
        if finite.any():
            distance = _ordered(got_bits) - _ordered(expected_bits)
            max_ulp = int(np.abs(distance[finite]).max())
        if not tensor.exact:
            size = np.abs(np.where(finite, wide_expected, 0.0))
            equal |= finite & (error <= tensor.atol + tensor.rtol * size)
    else:
        error = np.abs(got.astype(np.float64) - expected.astype(np.float64))
    wrong = ~equal | untouched
    count = int(np.count_nonzero(wrong))
    worst = float(error.max()) if error.size else 0.0
    if not count:
        return Comparison("", 0, worst, max_ulp)
    index = np.unravel_index(int(np.argmax(wrong)), got.shape)
    found = "left untouched" if untouched[index] else f"got {_show(got[index])}"
    difference = (
        f"{name}: {place(index)}: {found}, expected {_show(expected[index])} "
        f"({count} of {got.size} differ)"
    )
    return Comparison(difference, count, worst, max_ulp)


def compare_all(
    got: Mapping[str, Array],
    expected: Mapping[str, Array],
    tensors: Mapping[str, Tensor],
    poison: Mapping[str, int] | None = None,
) -> Verdict:
    """Compares every tensor of ``expected``; the figures add up mismatches and take the worst."""
    results = [
        compare(name, got[name], right, tensors[name], None if poison is None else poison[name])
        for name, right in expected.items()
    ]
    first = next((result.difference for result in results if not result.same), "")
    figures: dict[str, int | float] = {
        "mismatches": sum(result.mismatches for result in results),
        "max_abs_error": max((result.max_abs_error for result in results), default=0.0),
        "max_ulp": max((result.max_ulp for result in results), default=0),
    }
    return Verdict(first, figures)


def _ordered(patterns: Array) -> Array:
    """Bit patterns of floats as integers that rise with the value: neighbours differ by 1.

    Sign and magnitude become two's complement; -0.0 and 0.0 both become 0.
    """
    width = patterns.dtype.itemsize * 8
    magnitude = (patterns & ((1 << (width - 1)) - 1)).astype(np.int64)
    ordered: Array = np.where(patterns >> (width - 1), -magnitude, magnitude)
    return ordered


def _show(value: Any) -> str:
    """An element in few characters, exact enough to tell it from its neighbours."""
    if isinstance(value, np.bool_):
        return str(bool(value))
    if isinstance(value, np.integer):
        return str(int(value))
    number = float(value)
    if np.isnan(number):
        return f"nan (0x{int(bits(np.asarray([value]))[0]):x})"
    return f"{number:.9g}"
