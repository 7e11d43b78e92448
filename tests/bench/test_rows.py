"""Rows of the bench table from a small port: the compiler's, the time model's, a device's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ascendport.bench import compiled, device, modelled
from ascendport.bench.rows import Row, Source
from ascendport.checks.subject import Options
from ascendport.harness.buffers import layout
from ascendport.harness.case import Role, Tensor, Workload
from ascendport.harness.detect import Found
from ascendport.harness.on_device import DeviceMemory
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


def test_wrong_values_on_a_device_are_not_timed() -> None:
    values = np.zeros((2, 3), np.float32)
    inputs = Workload({"out": Tensor(values, Role.OUT)})
    memory = DeviceMemory(layout(inputs), lambda _: values, "cpu")
    memory.fill()
    # OUT tensors hold poison until the kernel writes them.
    said = device._wrong(memory, inputs, {"out": values})
    assert said.startswith("out: row 0, column 0: left untouched")
    memory.tensors["out"][:] = 0
    assert device._wrong(memory, inputs, {"out": values}) == ""
