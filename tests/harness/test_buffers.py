"""Guards see every byte that a kernel changes outside its tensors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ascendport.harness.buffers import (
    WINDOW,
    Arena,
    Layout,
    bits,
    layout,
    light_tensors,
    poison_for,
)
from ascendport.harness.case import DTYPES, Role, Tensor, Workload, numpy_dtype


def rows(shape: tuple[int, int], stride: int | None = None, role: Role = Role.INOUT) -> Workload:
    values = np.arange(shape[0] * shape[1], dtype=np.float32).reshape(shape)
    return Workload({"first": Tensor(np.arange(3)), "x": Tensor(values, role, row_stride=stride)})


@contextmanager
def arena(path: Path, workload: Workload) -> Iterator[tuple[Arena, Arena]]:
    """The judge's arena and the one that a kernel would write to."""
    with Arena.in_file(path / "a", workload) as judge:
        plan = Layout.from_json(judge.layout.to_json())
        assert plan == judge.layout
        with Arena.attach(path / "a", plan) as worker:
            yield judge, worker


def poke(worker: Arena, element: int, name: str = "x") -> None:
    item = worker.placement(name)
    worker._bytes[item.start + element * item.itemsize] ^= 1


@pytest.mark.parametrize("name", DTYPES)
def test_contents_round_trip(tmp_path: Path, name: str) -> None:
    values = np.arange(6).reshape(2, 3).astype(numpy_dtype(name))
    workload = Workload({"x": Tensor(values, Role.INOUT, row_stride=5)})
    with arena(tmp_path, workload) as (judge, worker):
        assert worker.read("x").tobytes() == values.tobytes()
        assert worker.read("x").dtype == values.dtype
        assert judge.changed_outside() is None


@pytest.mark.parametrize(
    ("shape", "stride", "element", "says"),
    [
        ((3, 10), None, -1, "x: 1 before the first element changed"),
        ((3, 10), None, 30, "x: row 2, column 10 (1 past the row's end) changed"),
        ((3, 10), 16, 12, "x: row 0, column 12 (3 past the row's end) changed"),
        ((3, 10), 16, 16 + 15, "x: row 1, column 15 (6 past the row's end) changed"),
        ((2, 10), 2**20, WINDOW + 9, f"x: row 0, column {WINDOW + 9} ({WINDOW} past"),
        ((2, 10), 2**20, 2**19, f"x: row 0, column {2**19} ("),
        ((2, 10), 2**20, 2**20 - 1, f"x: row 0, column {2**20 - 1} ("),
        ((0, 10), None, 0, "x: element 0 (1 past the end)"),
    ],
    ids=["before", "after", "gap", "gap-2", "window-end", "far-away", "before-row-1", "no-rows"],
)
def test_one_changed_byte_is_found_and_named(
    tmp_path: Path, shape: tuple[int, int], stride: int | None, element: int, says: str
) -> None:
    with arena(tmp_path, rows(shape, stride)) as (judge, worker):
        assert judge.changed_outside() is None
        poke(worker, element)
        found = judge.changed_outside()
        assert found is not None
        assert found.startswith(says)


@settings(max_examples=40, deadline=None)
@given(
    count=st.integers(0, 5),
    columns=st.integers(1, 40),
    gap=st.integers(0, 3 * WINDOW),
    position=st.floats(0, 1),
)
def test_exactly_the_bytes_outside_rows_are_guarded(
    tmp_path_factory: pytest.TempPathFactory, count: int, columns: int, gap: int, position: float
) -> None:
    path = tmp_path_factory.mktemp("arena")
    with arena(path, rows((count, columns), columns + gap)) as (judge, worker):
        item = judge.placement("x")
        element = -WINDOW + int(position * (item.extent + 2 * WINDOW - 1))
        inside = 0 <= element < item.extent and element % item.row_step < columns
        poke(worker, element)
        assert (judge.changed_outside() is None) == inside


def test_changed_input_is_named(tmp_path: Path) -> None:
    workload = rows((2, 4), role=Role.IN)
    with arena(tmp_path, workload) as (judge, worker):
        assert judge.changed_inputs(workload) is None
        poke(worker, 6)
        assert judge.changed_inputs(workload) == "x: row 1, column 2, an input, changed"
        assert judge.changed_outside() is None


def test_output_starts_as_poison(tmp_path: Path) -> None:
    with arena(tmp_path, rows((2, 4), role=Role.OUT)) as (judge, worker):
        assert set(bits(worker.read("x")).ravel().tolist()) == {judge.placement("x").poison}
        assert np.isnan(worker.read("x")).all()


@pytest.mark.parametrize("name", DTYPES)
def test_poison_is_no_right_answer(name: str) -> None:
    first = poison_for(name)
    dtype = numpy_dtype(name)
    answers = np.array([first], f"u{dtype.itemsize}").view(dtype)
    second = poison_for(name, answers)
    assert second != first
    if name in ("fp32", "fp16", "bf16"):
        poison = np.array([second], f"u{dtype.itemsize}").view(dtype)
        assert np.isnan(poison.astype(np.float64)).all()


def test_rows_beyond_2_31_cost_nothing(tmp_path: Path) -> None:
    values = np.ones((3, 1000), ml_dtypes.bfloat16)
    workload = Workload({"x": Tensor(values, Role.INOUT, row_stride=2**30 + 8)})
    assert layout(workload).size > 2**32
    with arena(tmp_path, workload) as (judge, worker):
        assert (tmp_path / "a").stat().st_blocks * 512 < 2**20
        assert judge.changed_outside() is None
        poke(worker, 2**30 + 2**29)
        found = judge.changed_outside()
        assert found is not None
        assert "row 1" in found


def test_torch_sees_the_same_memory(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    values = np.arange(6, dtype=np.float32).reshape(2, 3).astype(ml_dtypes.bfloat16)
    workload = Workload({"x": Tensor(values, Role.INOUT, row_stride=5), "m": Tensor(values > 2)})
    with arena(tmp_path, workload) as (judge, worker):
        tensors, describe = worker.torch_tensors()
        x = tensors["x"]
        assert (x.dtype, tuple(x.shape), x.stride()) == (torch.bfloat16, (2, 3), (5, 1))
        assert tensors["m"].dtype == torch.bool
        assert tensors["m"].tolist() == (values > 2).tolist()
        x[1, 2] = 9
        assert float(judge.read("x")[1, 2]) == 9
        assert judge.changed_outside() is None
        part = describe(x[1:])
        assert (part.tensor, part.offset, part.shape) == ("x", 5, (1, 3))
        assert describe(torch.zeros(2)).tensor == ""
        del x, tensors


def test_light_tensors_have_the_same_shape_without_memory() -> None:
    workload = rows((3, 10), 16)
    tensors, describe = light_tensors(workload)
    x = tensors["x"]
    assert (x.shape, x.stride(), str(x.dtype), x.numel()) == ((3, 10), (16, 1), "torch.float32", 30)
    assert not x.is_contiguous()
    assert x.data_ptr() % 512 == 0
    assert describe(x).tensor == "x"


@pytest.mark.parametrize("shared", [False, True])
def test_rows_far_apart_take_no_memory_between_them(shared: bool) -> None:
    values = np.arange(3 * 40, dtype=np.int32).reshape(3, 40)
    # 40 GiB from first to last, more than a small machine would promise.
    workload = Workload({"x": Tensor(values, Role.INOUT, row_stride=5 * 2**30)})
    with Arena.anonymous(workload, shared=shared) as arena:
        assert (arena.read("x") == values).all()
