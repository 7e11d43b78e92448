"""Memory on a device, with the CPU in a device's place; stand-ins by the interpreter."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

import numpy as np
import pytest

from ascendport.harness import on_device
from ascendport.harness.buffers import WINDOW, layout
from ascendport.harness.case import Role, Tensor, Workload, numpy_dtype
from ascendport.harness.interpret import child_environment
from ascendport.harness.on_device import DeviceMemory

DTYPES = ["fp32", "fp16", "bf16", "i64", "i32", "i8", "i1"]


def _memory(workload: Workload) -> DeviceMemory:
    memory = DeviceMemory(layout(workload), lambda name: workload.tensors[name].values, "cpu")
    memory.fill()
    return memory


@pytest.mark.parametrize("dtype", DTYPES)
def test_tensors_reach_a_device_with_their_strides_and_come_back(dtype: str) -> None:
    values = np.arange(12).reshape(3, 4).astype(numpy_dtype(dtype))
    kept = values.copy()
    memory = _memory(Workload({"x": Tensor(values, Role.INOUT, row_stride=7)}))
    there = memory.tensors["x"]
    assert (there.stride(), tuple(there.shape)) == ((7, 1), (3, 4))
    assert memory.array("x", memory.written()["x"]).tobytes() == kept.tobytes()
    there[0, 0] = 1
    assert values.tobytes() == kept.tobytes()
    memory.fill()
    assert memory.array("x", memory.written()["x"]).tobytes() == kept.tobytes()


@pytest.mark.parametrize(
    ("at", "says"),
    [
        pytest.param(-1, "x: 1 before the first element changed", id="before"),
        pytest.param(5, "x: row 0, column 5 (2 past the row's end) changed", id="between-rows"),
        pytest.param(11, "x: row 1, column 4 (1 past the row's end) changed", id="behind"),
        pytest.param(11 + WINDOW - 1, "(4096 past the row's end) changed", id="end-of-the-margin"),
    ],
)
def test_a_write_outside_of_a_tensor_is_seen(at: int, says: str) -> None:
    values = np.ones((2, 4), np.float32)
    memory = _memory(Workload({"x": Tensor(values, Role.INOUT, row_stride=7)}))
    assert memory.spoilt() == ""
    memory.fill()
    memory._all["x"].flat[WINDOW + at] = 3
    assert says in memory.spoilt()


def test_a_far_write_between_rows_is_seen() -> None:
    """Rows far apart: all that lies between is looked at, not only what is near them."""
    values = np.ones((2, 4), np.int32)
    memory = _memory(Workload({"x": Tensor(values, Role.INOUT, row_stride=1 << 20)}))
    memory._all["x"].flat[WINDOW + (1 << 19)] = 3
    assert (
        memory.spoilt()
        == f"x: row 0, column {1 << 19} ({(1 << 19) - 3} past the row's end) changed"
    )


def test_a_changed_input_is_seen() -> None:
    inputs = {"x": Tensor(np.ones(3, np.int32)), "y": Tensor(np.ones(3, np.int32), Role.OUT)}
    memory = _memory(Workload(inputs))
    assert memory.changed_inputs() == ""
    memory.tensors["x"][2] = 5
    assert memory.changed_inputs() == "x: element 2, an input, changed"
    assert set(memory.written()) == {"y"}


def test_a_tensor_without_rows() -> None:
    memory = _memory(Workload({"x": Tensor(np.ones((0, 4), np.float32), Role.INOUT)}))
    assert memory.array("x", memory.written()["x"]).shape == (0, 4)
    assert memory.spoilt() == ""


def test_a_text_names_the_stand_ins_that_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(on_device, "stand_ins", lambda: ("get_element", "insert_slice"))
    assert on_device.stand_ins_in([b"a", b"x = get_element(y, (0,))"]) == ("get_element",)
    assert on_device.stand_ins_in([b"a"]) == ()


STAND_INS = """
import numpy as np
import torch
import triton
import triton.language as tl

from ascendport.harness import repairs
from ascendport.harness.ascend_language import get_element, insert_slice
from ascendport.harness.executor import Log, interpreting

with interpreting(Log()):
    @triton.jit
    def kernel(out_ptr, x_ptr, at, value, SIZE: tl.constexpr):
        lane = tl.arange(0, SIZE)
        x = tl.load(x_ptr + lane)
        found = get_element(x, (at,))
        part = tl.full((1,), 0, tl.int32) + value
        tl.store(out_ptr + lane, insert_slice(x, part, (at,), (1,), (1,)))
        tl.store(out_ptr + SIZE, found)

    repairs.apply()
    x = torch.arange(16, dtype=torch.int32) * 3 - 20
    for at in (0, 7, 15):
        out = torch.zeros(17, dtype=torch.int32)
        kernel[(1,)](out, x, at, -9, SIZE=16)
        right = x.clone()
        right[at] = -9
        assert out[16] == x[at], (at, out)
        assert torch.equal(out[:16], right), (at, out)
"""


@pytest.mark.ascend
@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="needs triton")
def test_stand_ins_do_what_triton_ascends_functions_do() -> None:
    """By the interpreter; docs/device.md has a run on a GPU."""
    ran = subprocess.run(
        [sys.executable, "-c", STAND_INS],
        env=child_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
