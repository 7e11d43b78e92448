"""Random small kernels: the Triton interpreter and the simulated program give the same.

Known differences, left out of what is drawn: NaN and infinities in maxima (the interpreter's
maximum drops NaN, a vector instruction's is not published), and division by zero.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ascendport.harness.case import numpy_dtype
from ascendport.simulator import Simulator
from tests.simulator.conftest import Compile

pytestmark = pytest.mark.ascend

TEMPLATE = """
import triton
import triton.language as tl


@triton.jit
def kernel(a_ptr, b_ptr, i_ptr, out_ptr, count_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    f0 = tl.load(a_ptr + at, mask=inside, other=0.5).to(tl.float32)
    f1 = tl.load(b_ptr + at, mask=inside, other=0.25).to(tl.float32)
    i0 = tl.load(i_ptr + at, mask=inside, other=3)
    i1 = at
{steps}
    tl.store(out_ptr + at, {f}.to(out_ptr.dtype.element_ty), mask=inside)
    tl.store(count_ptr + at, {i}, mask=inside)
"""

WORKER = """
import importlib.util, json, sys
import numpy, torch

for line in sys.stdin:
    task = json.loads(line)
    spec = importlib.util.spec_from_file_location(task["name"], task["path"])
    module = importlib.util.module_from_spec(spec)
    sys.modules[task["name"]] = module
    spec.loader.exec_module(module)
    arrays = [torch.from_numpy(numpy.load(path)) for path in task["arrays"]]
    floats = [array.view(getattr(torch, task["dtype"])) for array in arrays[:2] + arrays[3:4]]
    module.kernel[(task["grid"],)](
        floats[0], floats[1], arrays[2], floats[2], arrays[4], task["n"], BLOCK=task["block"]
    )
    for path, array in zip(task["arrays"][3:], arrays[3:]):
        numpy.save(path, array.numpy())
    print("done", flush=True)
"""


class Interpreter:
    """A process in which Triton interprets kernels: it cannot do both in one."""

    def __init__(self) -> None:
        import os

        self.process = subprocess.Popen(
            [sys.executable, "-c", WORKER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "TRITON_INTERPRET": "1"},
        )

    def run(self, **task: Any) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(task) + "\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "done\n"

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(timeout=60)


@pytest.fixture(scope="module")
def interpreter(compile_kernel: Compile) -> Iterator[Interpreter]:
    worker = Interpreter()
    yield worker
    worker.close()


@dataclass
class Kernel:
    """A drawn kernel: its steps, and the values that are stored."""

    steps: list[str]
    f: str
    i: str


@st.composite
def drawn(draw: st.DrawFn) -> Kernel:
    floats, integers, booleans = ["f0", "f1"], ["i0", "i1"], ["inside"]
    steps: list[str] = []

    def one(names: list[str]) -> str:
        return draw(st.sampled_from(names[-4:]))

    for number in range(draw(st.integers(1, 7))):
        kind = draw(
            st.sampled_from(["f2", "f1", "i2", "i1", "compare", "where", "cast", "reduce", "logic"])
        )
        if kind in ("f2", "f1", "cast", "reduce"):
            name = f"g{number}"
            x, y = one(floats), one(floats)
            choices = {
                "f2": [f"{x} + {y}", f"{x} - {y}", f"{x} * {y}", f"tl.maximum({x}, {y})",
                       f"tl.minimum({x}, {y})", f"{x} / (tl.abs({y}) + 1.0)"],
                "f1": [f"tl.exp(-tl.abs({x}))", f"tl.abs({x})", f"tl.sqrt(tl.abs({x}))",
                       f"{x} * 0.375", f"{x} - 1.5", f"tl.log(tl.abs({x}) + 1.0)"],
                "cast": [f"({one(integers)} & 1023).to(tl.float32) * 0.125"],
                "reduce": [f"{x} - tl.max({x}, axis=0)", f"{x} + tl.min({y}, axis=0)"],
            }  # fmt: skip
            steps.append(f"{name} = {draw(st.sampled_from(choices[kind]))}")
            floats.append(name)
        elif kind in ("i2", "i1"):
            name = f"j{number}"
            x, y = one(integers), one(integers)
            binary = [f"{x} + {y}", f"{x} - {y}", f"{x} & {y}", f"{x} | {y}", f"{x} * {y}"]
            unary = [f"{x} + 7", f"{x} & 255", f"{x} * -3", f"tl.maximum({x}, 5)"]
            steps.append(f"{name} = {draw(st.sampled_from(binary if kind == 'i2' else unary))}")
            integers.append(name)
        elif kind in ("compare", "logic"):
            name = f"c{number}"
            operator = draw(st.sampled_from(["<", ">", "<=", ">=", "==", "!="]))
            pool = draw(st.sampled_from([floats, integers]))
            text = f"{one(pool)} {operator} {one(pool)}"
            if kind == "logic":
                text = f"({text}) {draw(st.sampled_from(['&', '|']))} {one(booleans)}"
            steps.append(f"{name} = {text}")
            booleans.append(name)
        else:
            name, pool = draw(st.sampled_from([("w", floats), ("v", integers)]))
            name += str(number)
            steps.append(f"{name} = tl.where({one(booleans)}, {one(pool)}, {one(pool)})")
            pool.append(name)
    return Kernel(steps, floats[-1], integers[-1])


@settings(
    max_examples=14,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
    database=None,
)
@given(
    kernel=drawn(),
    dtype=st.sampled_from(["fp32", "fp16", "bf16"]),
    n=st.integers(1, 130),
    block=st.sampled_from([32, 64]),
    seed=st.integers(0, 2**16),
)
def test_interpreter_and_simulator_agree(
    interpreter: Interpreter,
    compile_kernel: Compile,
    module_of: Callable[[str], Any],
    tmp_path: Path,
    kernel: Kernel,
    dtype: str,
    n: int,
    block: int,
    seed: int,
) -> None:
    steps = "\n".join("    " + step for step in kernel.steps)
    module = module_of(TEMPLATE.format(steps=steps, f=kernel.f, i=kernel.i))
    rng = np.random.default_rng(seed)
    element = numpy_dtype(dtype)
    a, b = ((rng.standard_normal(n) * 1.5).astype(element) for _ in range(2))
    i = rng.integers(-1000, 1000, n).astype(np.int32)
    out, counts = np.zeros(n, element), np.zeros(n, np.int32)
    arrays = [a, b, i, out, counts]
    paths = []
    for number, array in enumerate(arrays):
        path = tmp_path / f"{number}.npy"
        np.save(
            path, array.view(np.int16) if element.itemsize == 2 and number in (0, 1, 3) else array
        )
        paths.append(str(path))
    grid = -(-n // block)
    name = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}[dtype]
    source = module.__file__
    assert source is not None
    interpreter.run(
        name=module.__name__, path=source, arrays=paths, dtype=name, grid=grid, n=n, block=block
    )
    pointer = f"*{dtype}"
    text = compile_kernel(
        module.kernel,
        {
            "a_ptr": pointer,
            "b_ptr": pointer,
            "i_ptr": "*i32",
            "out_ptr": pointer,
            "count_ptr": "*i32",
            "n": n,
            "BLOCK": block,
        },
    )
    values: list[Any] = [a, b, i, out, counts]
    result = Simulator(text).run(values if n == 1 else [*values, n], (grid,))
    assert result.clean, result.findings
    wanted = np.load(paths[3]).view(element).astype(np.float64)
    tolerance = {"fp32": 2e-6, "fp16": 2e-3, "bf16": 1.6e-2}[dtype]
    np.testing.assert_allclose(out.astype(np.float64), wanted, rtol=tolerance, atol=tolerance)
    np.testing.assert_array_equal(counts, np.load(paths[4]))
