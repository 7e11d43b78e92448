"""Rows of the bench table from a small port: the compiler's, the time model's, a device's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ascendport.bench import compiled, device, modelled
from ascendport.bench.detect import Found
from ascendport.bench.rows import Row, Source
from ascendport.checks.subject import Options
from ascendport.harness.buffers import array_of
from ascendport.harness.case import Role, Tensor, Workload, numpy_dtype
from tests.evil import texts
from tests.evil.build import subject

ONE = Options(socs=("Ascend910B3",), timeout_s=120.0, large=True)
BENCH = texts.changed(
    '"rows": 60, "columns": 16, "dtype": "fp16"}, frozenset({"large"})',
    '"rows": 60, "columns": 16, "dtype": "fp16"}, frozenset({"large", "bench"})',
    texts.CASES,
)


def _by(rows: list[Row], quantity: str) -> Row:
    return next(row for row in rows if row.quantity == quantity)


@pytest.mark.ascend
def test_the_compilers_figures_before_and_after(tmp_path: Path) -> None:
    rows = list(compiled.rows(subject(tmp_path, texts.RIGHT, options=ONE)))
    peak = _by(rows, "UB peak")
    # Tiles of 256 elements before, of 128 after.
    assert peak.before is not None
    assert peak.after is not None
    assert peak.before > peak.after > 0
    assert peak.source is Source.COMPILED
    assert {row.target for row in rows} == {"Ascend910B3"}


@pytest.mark.ascend
def test_a_kernel_that_does_not_compile_is_not_run_and_says_why(tmp_path: Path) -> None:
    rows = list(compiled.rows(subject(tmp_path, texts.OVERFLOWS, options=ONE)))
    assert [row.outcome for row in rows] == ["not_run"]
    assert "Unified Buffer" in rows[0].reason


@pytest.mark.ascend
def test_a_before_that_does_not_compile_leaves_a_gap_with_its_reason(tmp_path: Path) -> None:
    given = subject(tmp_path, texts.RIGHT, options=ONE, before=texts.OVERFLOWS)
    peak = _by(list(compiled.rows(given)), "UB peak")
    assert (peak.before, peak.ratio) == (None, None)
    assert "Unified Buffer" in peak.reason


@pytest.mark.ascend
def test_a_modelled_latency_is_called_modelled_and_carries_its_error(tmp_path: Path) -> None:
    slow = texts.VICTIM.replace("BLOCK=256", "BLOCK=16")
    given = subject(tmp_path, texts.VICTIM, options=ONE, cases=BENCH, before=slow)
    [row] = modelled.rows(given)
    assert row.source is Source.MODELLED
    assert row.case == "rows-60"
    assert row.before is not None
    assert row.after is not None
    assert row.after > 0
    assert "±" in row.reason


@pytest.mark.ascend
def test_the_time_model_says_why_it_has_no_figure(tmp_path: Path) -> None:
    given = subject(tmp_path, texts.OVERFLOWS, options=ONE, cases=BENCH)
    [row] = modelled.rows(given)
    assert (row.outcome, row.after) == ("not_run", None)
    assert "Unified Buffer" in row.reason


def test_without_a_device_each_case_is_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device, "detect", lambda asked: Found(reason="none here"))
    [row] = device.rows(subject(tmp_path, texts.RIGHT, cases=BENCH), "auto")
    assert (row.outcome, row.reason, row.source) == ("not_run", "none here", Source.MEASURED)


@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16", "i32"])
def test_tensors_reach_a_device_with_their_strides_and_come_back(dtype: str) -> None:
    values = np.arange(12).reshape(3, 4).astype(numpy_dtype(dtype))
    tensor = Tensor(values, Role.INOUT, row_stride=7)
    there = device._to_device(tensor, "cpu")
    assert there.stride() == (7, 1)
    there[0, 0] = 5
    assert values[0, 0] == 0
    there[0, 0] = 0
    assert array_of(there).tobytes() == values.tobytes()


def test_wrong_values_on_a_device_are_not_timed() -> None:
    values = np.zeros((2, 3), np.float32)
    inputs = Workload({"out": Tensor(values, Role.OUT)})
    there = {"out": device._to_device(inputs.tensors["out"], "cpu")}
    # OUT tensors hold noise until the kernel writes them.
    assert "out: row 0, column 0" in device._wrong(there, inputs, {"out": values})
    there["out"][:] = 0
    assert device._wrong(there, inputs, {"out": values}) == ""
