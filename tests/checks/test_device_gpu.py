"""The device check on a real GPU: what only true concurrency shows. Skipped where there is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from ascendport.checks import device
from ascendport.checks.outcome import CheckResult, Outcome
from ascendport.checks.subject import Options
from ascendport.harness.detect import detect
from tests.evil import texts
from tests.evil.build import subject

pytestmark = pytest.mark.skipif(detect("cuda").kind != "cuda", reason=detect("cuda").reason)


def _reasons(result: CheckResult) -> dict[str, str]:
    return {case.case: case.reason for case in result.cases if case.outcome is Outcome.FAILED}


def test_a_right_kernel_passes(tmp_path: Path) -> None:
    result = device.run(subject(tmp_path, texts.RIGHT))
    assert result.outcome is Outcome.PASSED, result.reason
    assert "20 runs of each case, bit for bit the same" in result.reason


def test_a_write_past_a_row_is_caught(tmp_path: Path) -> None:
    result = device.run(subject(tmp_path, texts.EVIL["past-the-row"]))
    assert "run 1 of 20: out: row 0, column 40 (1 past" in _reasons(result)["rows-5"]


def test_a_broken_device_does_not_hold_up_the_other_cases(tmp_path: Path) -> None:
    kernel = texts.changed(
        "tl.store(out_ptr + row * out_stride + lane, x",
        "tl.store(out_ptr + tl.where(rows == 5, 1 << 40, 0) + row * out_stride + lane, x",
    )
    result = device.run(subject(tmp_path, kernel))
    found = _reasons(result)
    assert set(found) == {"rows-5"}
    assert "illegal memory access" in found["rows-5"]


SUMS = """\
from vllm.triton_utils import tl, triton


@triton.jit
def _scale_kernel(out_ptr, x_ptr, x_stride, columns, BLOCK: tl.constexpr):
    lane = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + tl.program_id(0) * x_stride + lane, mask=lane < columns)
    @HOW@


def scale(out, x, factor):
    out.zero_()
    _scale_kernel[(x.shape[0],)](out, x, x.stride(0), x.shape[1], BLOCK=64)
"""
"""Adds up the rows of a matrix, one program a row."""

HOW = {
    # Right within the tolerance, and another sum each time: atomics add in any order.
    "atomics-in-any-order": (
        "tl.atomic_add(out_ptr + lane, x, mask=lane < columns)",
        "not what the first run gave: out: row 0, column",
    ),
    # Programs overwrite each other's sums. One after another, as under the interpreter, they
    # would be right.
    "a-race": (
        "tl.store(out_ptr + lane, tl.load(out_ptr + lane, mask=lane < columns) + x, "
        "mask=lane < columns)",
        "out: row 0, column",
    ),
}

CASES = (
    texts.CASES[: texts.CASES.index("CASES = (")]
    + """\
CASES = (Case("sums", {"rows": 3000, "columns": 40}),)


def workload(case, variant, rng):
    p = case.params
    x = rng.standard_normal((p["rows"], p["columns"]), dtype=np.float32)
    out = Tensor(np.zeros((1, p["columns"]), np.float32), Role.OUT, exact=False, atol=1e-2)
    return Workload({"x": Tensor(x), "out": out}, {"factor": 1.0})


def launch(entry, tensors, scalars, variant):
    entry(tensors["out"], tensors["x"], scalars["factor"])
"""
)

REFERENCE = """\
import numpy as np


def reference(workload, variant):
    sums = workload.tensors["x"].values.astype(np.float64).sum(axis=0, keepdims=True)
    return {"out": sums.astype(np.float32)}
"""


@pytest.mark.parametrize("how", HOW)
def test_what_only_shows_under_true_concurrency(tmp_path: Path, how: str) -> None:
    text, says = HOW[how]
    given = subject(
        tmp_path,
        SUMS.replace("@HOW@", text),
        cases=CASES,
        reference=REFERENCE,
        options=Options(timeout_s=120.0),
    )
    result = device.run(given)
    assert result.outcome is Outcome.FAILED
    assert says in _reasons(result)["sums"]
