"""Values for guessed arguments, and a process in which Triton interprets kernels.

Both sides draw the same values from the same seed, so nothing but names travels between them.
"""

from __future__ import annotations

import json
import mmap
import os
import re
import selectors
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from survey_kernels import Found, Kernels

DTYPES: dict[str, Any] = {
    "fp32": np.dtype(np.float32),
    "fp16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "i1": np.dtype(np.int8),
    "i8": np.dtype(np.int8),
    "i16": np.dtype(np.int16),
    "i32": np.dtype(np.int32),
    "i64": np.dtype(np.int64),
}
"""Element type of a pointer → NumPy's; booleans are bytes of 0 and 1."""

ELEMENTS = 1 << 17
"""Of each tensor: enough for the numbers that are guessed."""
MARGIN = 1 << 28
"""Bytes between tensors of an interpreted launch: what lies outside reads as 0."""
GRID = (2, 2, 1)
START_SECONDS = 180.0
_CUMULATIVE = re.compile(r"cu_|cum|start_loc|indptr|offsets?(_ptr)?$")


def is_tensor(value: Any) -> bool:
    """Whether a guessed argument stands for a tensor."""
    return isinstance(value, str) and value.startswith("*")


def draw(arguments: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """Tensors for those arguments that stand for one.

    Integers are small, offsets rise, floats are normal.
    """
    rng = np.random.default_rng(seed)
    made: dict[str, Any] = {}
    for name, value in arguments.items():
        if not is_tensor(value):
            continue
        kind = value[1:]
        array: Any
        if kind == "i1":
            array = rng.integers(0, 2, ELEMENTS)
        elif kind[0] == "i" and _CUMULATIVE.search(name.lower()):
            array = np.minimum(np.cumsum(rng.integers(0, 5, ELEMENTS)), 120)
        elif kind[0] == "i":
            array = rng.integers(0, 20, ELEMENTS)
        else:
            array = rng.standard_normal(ELEMENTS)
        made[name] = array.astype(DTYPES[kind])
    return made


def constants_to_json(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Guessed arguments as JSON; types of Triton by name."""
    return {
        name: {"dtype": str(value)} if type(value).__module__.startswith("triton") else value
        for name, value in arguments.items()
    }


def constants_from_json(data: Mapping[str, Any]) -> dict[str, Any]:
    """The opposite."""
    import triton.language as tl

    names = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}
    return {
        name: getattr(tl, str(names.get(value["dtype"], value["dtype"])))
        if isinstance(value, dict)
        else value
        for name, value in data.items()
    }


class Interpreter:
    """The process. It is started again after a launch that did not end."""

    def __init__(self, tree: Path, timeout_s: float) -> None:
        self.tree = tree
        self.timeout_s = timeout_s
        self._process: subprocess.Popen[str] | None = None

    def run(self, found: Found, arguments: Mapping[str, Any], seed: int) -> dict[str, Any] | str:
        """Tensors after the launch by name; or why there are none, in one line."""
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(self.tree)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                env={**os.environ, "TRITON_INTERPRET": "1"},
            )
            # Its imports take seconds; they are no part of a launch.
            self._answer(self._process, START_SECONDS)
        process = self._process
        assert process.stdin is not None and process.stdout is not None
        with tempfile.TemporaryDirectory() as folder:
            target = Path(folder, "out.npz")
            task = {
                "file": found.file,
                "name": found.name,
                "arguments": constants_to_json(arguments),
                "seed": seed,
                "target": str(target),
            }
            process.stdin.write(json.dumps(task) + "\n")
            process.stdin.flush()
            said = self._answer(process, self.timeout_s)
            if not said:
                late = process.poll() is None
                self.close()
                if late:
                    return f"the interpreter gave no answer in {self.timeout_s:g} s"
                return "the interpreter crashed"
            answer = json.loads(said)
            if answer["error"]:
                return str(answer["error"])
            with np.load(target) as saved:
                return {name: saved[name].view(DTYPES[arguments[name][1:]]) for name in saved.files}

    @staticmethod
    def _answer(process: subprocess.Popen[str], seconds: float) -> str:
        """The next line; nothing where none comes in that time."""
        assert process.stdout is not None
        with selectors.DefaultSelector() as ready:
            ready.register(process.stdout, selectors.EVENT_READ)
            return process.stdout.readline() if ready.select(seconds) else ""

    def close(self) -> None:
        """Ends the process."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


# --- inside that process ---------------------------------------------------------------------


def _laid_out(arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Copies of the arrays, far apart in memory that reads as 0."""
    memory = mmap.mmap(-1, MARGIN * (len(arrays) + 1), flags=mmap.MAP_PRIVATE | _NO_RESERVE)
    made = {}
    for number, (name, array) in enumerate(arrays.items()):
        start = MARGIN * number + MARGIN // 2
        copy = np.frombuffer(memory, array.dtype, array.size, start)
        copy[...] = array
        made[name] = copy
    return made


_NO_RESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000)


def _interpret(kernels: Kernels, task: Mapping[str, Any]) -> None:
    import torch

    arguments = constants_from_json(task["arguments"])
    arrays = _laid_out(draw(arguments, task["seed"]))
    types = {"fp16": torch.float16, "bf16": torch.bfloat16, "i1": torch.bool}
    given = dict(arguments)
    for name, array in arrays.items():
        kind = arguments[name][1:]
        plain = array.view(np.int16) if kind in ("fp16", "bf16") else array
        tensor = torch.from_numpy(plain)
        given[name] = tensor.view(types[kind]) if kind in types else tensor
    kernel = kernels.get(Found(task["file"], task["name"], False))
    kernel[GRID](**given)
    bytes_of = {name: array.view(np.uint8) for name, array in arrays.items()}
    np.savez(task["target"], **bytes_of)


def _complete() -> None:
    """Adds what triton-ascend's interpreter lacks and kernels use: gathers, ``~`` of booleans."""
    import triton.language as tl
    from triton.runtime import interpreter

    def gather(self: Any, source: Any, indices: Any, axis: int) -> Any:
        data = np.take_along_axis(source.data, indices.data, axis)
        return interpreter.TensorHandle(data, source.dtype.scalar)

    builder: Any = interpreter.InterpreterBuilder
    plain_ones = builder.get_all_ones_value

    def ones(self: Any, kind: Any) -> Any:
        if kind == tl.int1:
            return interpreter.TensorHandle(np.array([True]), tl.int1)
        return plain_ones(self, kind)

    builder.get_all_ones_value = ones
    builder.create_gather = gather
    builder.get_int1_ty = lambda self: tl.int1


def main() -> None:
    """Reads tasks, one a line, and answers with one line each."""
    tree = Path(sys.argv[1])
    from ascendport.harness import repairs

    repairs.apply()
    _complete()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what kernels print
    with tempfile.TemporaryDirectory() as scratch:
        kernels = Kernels(tree, Path(scratch))
        import torch  # noqa: F401 - here, where it is no part of a launch

        answers.write("ready\n")
        answers.flush()
        for line in sys.stdin:
            error = ""
            try:
                _interpret(kernels, json.loads(line))
            except Exception as problem:  # whatever the interpreter raises
                cause: BaseException = problem
                while cause.__cause__ is not None:
                    cause = cause.__cause__
                error = f"{type(cause).__name__}: {str(cause).partition(chr(10))[0]}"[:200]
            answers.write(json.dumps({"error": error}) + "\n")
            answers.flush()


if __name__ == "__main__":
    main()
