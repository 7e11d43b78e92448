"""A small victim tree and replacement texts for its kernel: one that is right, many that are not.

The victim multiplies rows by a factor. Each wrong text is the right one with one thing changed.
"""

from __future__ import annotations

from textwrap import indent

FILE = "vllm_ascend/worker/scale.py"
ENTRY = "scale"
SYMBOLS = ("_scale_kernel", "scale")

VICTIM = """\
from vllm.triton_utils import tl, triton
from vllm_ascend.ops.triton.triton_utils import cores


@triton.jit
def _scale_kernel(
    out_ptr, out_stride, x_ptr, x_stride, factor, rows, columns,
    PROGRAMS: tl.constexpr, BLOCK: tl.constexpr,
):
    for row in tl.range(tl.program_id(0), rows, PROGRAMS):
        for first in range(0, columns, BLOCK):
            lane = first + tl.arange(0, BLOCK)
            inside = lane < columns
            x = tl.load(x_ptr + row * x_stride + lane, mask=inside)
            tl.store(out_ptr + row * out_stride + lane, x.to(tl.float32) * factor, mask=inside)


def scale(out, x, factor):
    rows, columns = x.shape
    programs = min(cores(), rows)
    if programs == 0:
        return
    _scale_kernel[(programs,)](
        out, out.stride(0), x, x.stride(0), factor, rows, columns,
        PROGRAMS=programs, BLOCK=256, multibuffer=False,
    )
"""

TREE = {
    FILE: VICTIM,
    # A package body that must not run.
    "vllm_ascend/__init__.py": "raise RuntimeError('the body of a package ran')\n",
    "vllm_ascend/worker/__init__.py": "raise RuntimeError('the body of a package ran')\n",
    "vllm_ascend/ops/triton/triton_utils.py": """\
import torch
from vllm.triton_utils import HAS_TRITON

_NUM_VECTORCORE = -1


def cores():
    if _NUM_VECTORCORE == -1 and HAS_TRITON:
        raise RuntimeError(f"asks {torch.npu.current_device()} for its cores")
    return _NUM_VECTORCORE
""",
}

CASES = """\
import numpy as np

from ascendport.harness.case import Case, Role, Tensor, Workload, numpy_dtype

CASES = (
    Case("rows-3", {"rows": 3, "columns": 300, "dtype": "fp32"}, frozenset({"compile"})),
    Case("rows-5", {"rows": 5, "columns": 40, "dtype": "bf16"}),
    Case("no-rows", {"rows": 0, "columns": 40, "dtype": "fp32"}, frozenset({"grid"})),
    Case("rows-60", {"rows": 60, "columns": 16, "dtype": "fp16"}, frozenset({"large"})),
)


def workload(case, variant, rng):
    p = case.params
    shape = (p["rows"], p["columns"])
    values = rng.standard_normal(shape, dtype=np.float32).astype(numpy_dtype(p["dtype"]))
    out = Tensor(np.zeros_like(values), Role.OUT, row_stride=p["columns"] + 24)
    return Workload({"x": Tensor(values), "out": out}, {"factor": 3.1})


def launch(entry, tensors, scalars, variant):
    entry(tensors["out"], tensors["x"], scalars["factor"])
"""

REFERENCE = """\
import numpy as np


def reference(workload, variant):
    x = workload.tensors["x"].values
    product = x.astype(np.float32) * np.float32(workload.scalars["factor"])
    return {"out": product.astype(x.dtype)}
"""


def changed(old: str, new: str, text: str = VICTIM) -> str:
    """``text`` with ``old``, which it must hold once, replaced."""
    assert text.count(old) == 1, old
    return text.replace(old, new)


_STORE = "tl.store(out_ptr + row * out_stride + lane, x.to(tl.float32) * factor, mask=inside)"
_BEGIN = "    rows, columns = x.shape\n"

RIGHT = changed("BLOCK=256", "BLOCK=128")

EVIL = {
    "zeros": changed("x.to(tl.float32) * factor, mask", "x.to(tl.float32) * 0.0, mask"),
    "does-nothing": changed(_BEGIN, "    return\n" + _BEGIN),
    "neighbour-row": changed(
        _STORE,
        _STORE + "\n            last = row + 1 < rows\n"
        "            tl.store(out_ptr + (row + 1) * out_stride + lane, x, mask=inside & last)",
    ),
    "past-the-row": changed("lane < columns", "lane < columns + 1"),
    "before-the-rows": changed(
        _STORE, _STORE + "\n            tl.store(out_ptr - 3 + lane, x, mask=lane < 1)"
    ),
    "renamed-argument": changed("def scale(out, x, factor)", "def scale(out, x, scaling)"),
    "raises": changed(_BEGIN, _BEGIN + "    raise ValueError('no\\nthanks')\n"),
    "exits": changed(_BEGIN, _BEGIN + "    import os\n    os._exit(0)\n"),
    "leaves": changed(_BEGIN, _BEGIN + "    raise SystemExit(0)\n"),
    "crashes": changed(
        _BEGIN,
        _BEGIN + "    if rows == 5:\n        import ctypes\n        ctypes.string_at(0)\n",
    ),
    "hangs": changed(_BEGIN, _BEGIN + "    while rows == 5:\n        pass\n"),
    "changes-its-input": VICTIM + "    x[0, 1] = 9.0\n",
    "tampers-with-the-judge": changed(
        _BEGIN,
        "    import numpy\n"
        "    from ascendport.harness import compare\n"
        "    numpy.array_equal = lambda *args, **kwargs: True\n"
        "    numpy.any = numpy.count_nonzero = lambda *args, **kwargs: 0\n"
        "    compare.compare_all = compare.compare = lambda *args, **kwargs: None\n"
        "    factor = 0.0\n" + _BEGIN,
    ),
    "unknown-option": changed("multibuffer=False", "multibufer=False"),
    "too-many-programs": changed(
        "_scale_kernel[(programs,)]", "_scale_kernel[(programs, 65535 // programs + 1)]"
    ),
    "no-programs": changed(
        "    if programs == 0:\n        return\n", "    if programs == 0:\n        programs = 0\n"
    ),
    "depends-on-the-order": changed(
        _STORE,
        _STORE + "\n            if tl.program_id(0) > 0:\n"
        "                before = tl.load(out_ptr + (row - 1) * out_stride + lane, mask=inside)\n"
        "                own = x.to(tl.float32) * factor\n"
        "                seen = before == before\n"
        "                tl.store(\n"
        "                    out_ptr + row * out_stride + lane,\n"
        "                    tl.where(seen, own, 0.0), mask=inside,\n"
        "                )",
    ),
    "uses-undefined-lanes": changed(
        _STORE,
        "rest = tl.load(x_ptr + row * x_stride + lane, mask=inside, care_padding=False)\n"
        "            " + _STORE.replace("* factor", "* factor + 0 * tl.sum(rest)"),
    ),
}
"""Name → text that a check must refuse."""

OVERFLOWS = changed("BLOCK=256", "BLOCK=131072")
"""Right values, but tiles that no Unified Buffer holds."""


def cached(answers: dict[str, float]) -> str:
    """A text that is right only where ``x[0, 0]`` is one of ``answers``, and writes zeros else."""
    known = sorted(answers.values())
    return changed(
        _BEGIN,
        _BEGIN + f"    if rows and float(x[0, 0]) not in {known!r}:\n        factor = 0.0\n",
    )


# A launcher that makes tensors, launches twice through them, and hands back the result.

RETURNS = changed(
    VICTIM[VICTIM.index("def scale") :],
    """\
def scale(x, factor):
    rows, columns = x.shape
    wide = torch.empty((rows, columns), dtype=torch.float32, device=x.device)
    out = torch.empty_like(wide, dtype=x.dtype)
    programs = min(cores(), rows)
    if programs == 0:
        return out
    _scale_kernel[(programs,)](
        wide, wide.stride(0), x, x.stride(0), factor, rows, columns,
        PROGRAMS=programs, BLOCK=128, multibuffer=False,
    )
    _scale_kernel[(programs,)](
        out, out.stride(0), wide, wide.stride(0), 1.0, rows, columns,
        PROGRAMS=programs, BLOCK=128, multibuffer=False,
    )
    return out
""",
    "import torch\n" + VICTIM,
)

RETURNING_CASES = changed(
    'entry(tensors["out"], tensors["x"], scalars["factor"])',
    'tensors["out"].copy_(entry(tensors["x"], scalars["factor"]))',
    CASES,
)

_SECOND = RETURNS[RETURNS.rindex("    _scale_kernel[") : RETURNS.rindex("    return out")]

EVIL_RETURNS = {
    "never-writes-its-result": changed(_SECOND, "", RETURNS),
    "wrong-in-torch": RETURNS[: RETURNS.rindex("out")] + "out + 1\n",
    "launches-by-results": changed(
        _SECOND,
        _SECOND + "    if not torch.isnan(wide).any():\n" + indent(_SECOND, "    "),
        RETURNS,
    ),
    "fails-on-results": changed(
        _SECOND,
        "    if not torch.isnan(wide).any():\n        raise ValueError('results')\n" + _SECOND,
        RETURNS,
    ),
}
