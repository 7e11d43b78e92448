"""What the interpreter computes once mended, against NumPy; run in the child, as checks do."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from ascendport.harness.case import Array, Case, Role, Tensor, Workload, numpy_dtype
from ascendport.harness.interpret import Code, Pool, Result, Run
from ascendport.harness.workspace import Tree, write_tree

pytestmark = pytest.mark.ascend

N = 16

PAST_THE_END = "i32-element-past-the-end"

# Each body reads a[N], b[N] and writes out[N]; `lane` is arange(N).
BODIES: dict[str, tuple[str, str]] = {
    "bf16-add": ("bf16", "a + b"),
    "bf16-mul": ("bf16", "a * b"),
    "bf16-compare": ("bf16", "tl.where(a < b, a, b)"),
    "bf16-round-trip": ("bf16", "(a.to(tl.float32) * b.to(tl.float32)).to(tl.bfloat16)"),
    "bf16-constant": ("bf16", "tl.where(a > 0, a, tl.full((16,), -1.5, tl.bfloat16))"),
    "bf16-negate": ("bf16", "-a"),
    "bf16-to-int": ("bf16", "a.to(tl.int32).to(tl.bfloat16)"),
    "bf16-from-fp16": ("bf16", "a.to(tl.float16).to(tl.bfloat16)"),
    "bf16-max": ("bf16", "a * 0 + tl.max(b)"),
    "fp32-maximum-of-nan": ("fp32", "tl.maximum(tl.where(lane < 3, float('nan'), a), b)"),
    "fp32-max-of-nan": ("fp32", "a * 0 + tl.max(tl.where(lane < 3, float('nan'), a))"),
    "fp32-min-of-nan": ("fp32", "a * 0 + tl.min(tl.where(lane < 3, float('nan'), a))"),
    "fp32-max-with-nan": (
        "fp32",
        "tl.maximum(tl.where(lane < 3, float('nan'), a), b, propagate_nan=tl.PropagateNan.ALL)",
    ),
    "fp32-argmax": ("fp32", "a * 0 + tl.argmax(b, 0)"),
    "i32-max-of-rows": ("i32", "tl.max(a[:, None] + b[None, :], axis=1)"),
    "i32-sum": ("i32", "tl.sum(a[None, :] + b[:, None], axis=0)"),
    "i32-cumsum": ("i32", "tl.cumsum(a, 0)"),
    "i32-wraps": ("i32", "a * 2000000011"),
    "i64-keeps": ("i64", "a * 2000000011"),
    "i32-histogram": ("i32", "tl.histogram(lane + 8, 16)"),
    "i32-range-of-scalar": ("i32", "ranged(a, tl.sum(lane))"),
    "fp32-tuple": ("fp32", "swapped(a, b)"),
    "i32-own-reduction": ("i32", "tl.reduce(a[:, None] | b[None, :], 1, both) | lane"),
    "bf16-own-reduction": ("bf16", "tl.reduce(a[:, None] * b[None, :], 0, greater)"),
    "i32-own-reduction-of-all": ("i32", "a * 0 + tl.reduce(a, 0, both)"),
    "i32-elements": ("i32", "reversed_by_element(a, 16)"),
    PAST_THE_END: ("i32", "reversed_by_element(a, 17)"),
}

TEXT = """\
from vllm.triton_utils import tl, triton


@triton.jit
def ranged(a, count):
    for step in tl.range(0, count, 2):
        a += step
    return a


@triton.jit
def pair(a, b):
    return b, a


@triton.jit
def swapped(a, b):
    c, d = pair(a, b)
    return c - d * 0


@triton.jit
def both(a, b):
    return a & b


@triton.jit
def greater(a, b):
    return tl.where(a > b, a, b)


@triton.jit
def reversed_by_element(a, count):
    turned = a * 0
    for at in tl.range(0, count):
        value = tl.get_element(a, (at,)) + tl.zeros((1,), tl.int32)
        turned = tl.insert_slice(turned, value, (15 - at,), (1,), (1,))
    return turned


@triton.jit
def kernel(out_ptr, a_ptr, b_ptr, N: "tl.constexpr"):
    lane = tl.arange(0, N)
    a = tl.load(a_ptr + lane)
    b = tl.load(b_ptr + lane)
    tl.store(out_ptr + lane, {body})
"""

CASES = """\
CASES = ()
workload = None
def launch(entry, tensors, scalars, variant):
    entry[(1,)](tensors["out"], tensors["a"], tensors["b"], N=16, multibuffer=False)
"""


def inputs(kind: str) -> tuple[Array, Array]:
    rng, dtype = np.random.default_rng(3), numpy_dtype(kind)

    def draw() -> Array:
        plain = rng.integers(-1000, 1000, N) if kind.startswith("i") else rng.standard_normal(N) * 9
        return plain.astype(dtype)

    return draw(), draw()


def right(name: str, a: Array, b: Array) -> Array:
    wide = (a.astype(np.float32), b.astype(np.float32))
    lane = np.arange(N)
    with np.errstate(all="ignore"):
        answers: dict[str, Callable[[], Array]] = {
            "bf16-add": lambda: wide[0] + wide[1],
            "bf16-mul": lambda: wide[0] * wide[1],
            "bf16-compare": lambda: np.minimum(*wide),
            "bf16-round-trip": lambda: wide[0] * wide[1],
            "bf16-constant": lambda: np.where(wide[0] > 0, wide[0], np.float32(-1.5)),
            "bf16-negate": lambda: -wide[0],
            "bf16-to-int": lambda: np.trunc(wide[0]),
            "bf16-from-fp16": lambda: wide[0],
            "bf16-max": lambda: np.full(N, wide[1].max()),
            "fp32-maximum-of-nan": lambda: np.where(lane < 3, b, np.maximum(a, b)),
            "fp32-max-of-nan": lambda: np.full(N, a[3:].max()),
            "fp32-min-of-nan": lambda: np.full(N, a[3:].min()),
            "fp32-max-with-nan": lambda: np.where(lane < 3, np.nan, np.maximum(a, b)),
            "fp32-argmax": lambda: np.full(N, b.argmax()),
            "i32-max-of-rows": lambda: a + b.max(),
            "i32-sum": lambda: a * N + b.sum(),
            "i32-cumsum": lambda: np.cumsum(a),
            "i32-wraps": lambda: a * np.int32(2000000011),
            "i64-keeps": lambda: a * 2000000011,
            "i32-histogram": lambda: np.where(lane >= 8, 1, 0),
            "i32-range-of-scalar": lambda: a + sum(range(0, 120, 2)),
            "fp32-tuple": lambda: b - a * 0,
            "i32-own-reduction": lambda: np.bitwise_and.reduce(a[:, None] | b[None, :], 1) | lane,
            "bf16-own-reduction": lambda: np.max(wide[0][:, None] * wide[1][None, :], 0),
            "i32-own-reduction-of-all": lambda: np.full(N, np.bitwise_and.reduce(a)),
            "i32-elements": lambda: a[::-1],
            PAST_THE_END: lambda: a[::-1],
        }
        answer: Array = np.asarray(answers[name]())
        return answer.astype(a.dtype)


def test_closing_ends_what_still_runs(tmp_path: Path) -> None:
    """A launch that hangs does not outlive whoever asked for it."""
    note = tmp_path / "pid"
    text = f"""\
import os
from pathlib import Path

def kernel(*args):
    Path({str(note)!r}).write_text(str(os.getpid()))
    while True:
        pass
"""
    cases = "CASES = ()\nworkload = None\ndef launch(entry, *args): entry()\n"
    files = {"tree/vllm_ascend/a.py": text, "cases.py": cases, "scratch/empty": ""}
    write_tree(tmp_path, {name: body.encode() for name, body in files.items()})
    values = np.zeros(2, np.float32)
    workload = Workload({"x": Tensor(values, Role.INOUT)})
    code = Code(Tree(tmp_path / "tree"), "vllm_ascend/a.py", "kernel")
    run = Run("x", code, Case("x"), workload, {"x": values}, "v")

    def stop_once_it_runs() -> Iterator[Run]:
        yield run
        while not note.is_file() or not note.read_text():
            time.sleep(0.01)
        raise KeyboardInterrupt

    pool = Pool(tmp_path / "cases.py", tmp_path / "scratch", timeout_s=60, width=2)
    with pytest.raises(KeyboardInterrupt), pool:
        next(pool.run(stop_once_it_runs()))
    for _ in range(500):
        try:
            os.kill(int(note.read_text()), 0)
        except ProcessLookupError:
            return
        time.sleep(0.01)
    pytest.fail("the launch is still running")


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Result]:
    root = tmp_path_factory.mktemp("interpret")
    (root / "cases.py").write_text(CASES)
    scratch = root / "scratch"
    scratch.mkdir()
    runs = []
    for name, (kind, body) in BODIES.items():
        file = f"vllm_ascend/{name.replace('-', '_')}.py"
        write_tree(root / "tree", {file: TEXT.format(body=body).encode()})
        a, b = inputs(kind)
        workload = Workload({"a": Tensor(a), "b": Tensor(b), "out": Tensor(a, Role.OUT)})
        code = Code(Tree(root / "tree"), file, "kernel")
        runs.append(Run(name, code, Case(name), workload, {"out": right(name, a, b)}, "v"))
    with Pool(root / "cases.py", scratch, timeout_s=60) as pool:
        return {result.key: result for result in pool.run(runs)}


@pytest.mark.parametrize("name", [name for name in BODIES if not name.endswith(PAST_THE_END)])
def test_interpreter_computes_as_compiled_code(results: dict[str, Result], name: str) -> None:
    assert results[name].problem == ""


def test_an_element_past_the_end_is_an_error(results: dict[str, Result]) -> None:
    assert "IndexError: element 16 … 16 of a tensor of 16" in results[PAST_THE_END].problem
