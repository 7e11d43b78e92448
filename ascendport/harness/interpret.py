"""Runs launches under Triton's interpreter in other processes, and judges what they left behind.

This process draws the inputs, computes the right answers from copies, and lays everything out in
a sparse file. A fork of the child process runs the kernel on that file. Then this process reads
the outputs and the guards from the same file. So results need no copying between processes, and a
kernel or launcher that changes its inputs, NumPy or the harness itself has only its own fork to
change them in.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import ascendport
from ascendport.errors import UserError
from ascendport.harness.buffers import Arena
from ascendport.harness.case import Array, Case, Workload
from ascendport.harness.compare import compare_all
from ascendport.harness.executor import Rules
from ascendport.harness.loading import Device
from ascendport.harness.workspace import Tree

MODULES = ("triton", "numpy", "ml_dtypes", "torch")
"""What the child needs."""


@dataclass(frozen=True)
class Code:
    """What is launched: ``entry`` of ``file`` (tree-relative) of ``tree``."""

    tree: Tree
    file: str
    entry: str


@dataclass(frozen=True)
class Run:
    """One launch to make and to judge.

    ``key`` comes back with the result.
    """

    key: str
    code: Code
    case: Case
    workload: Workload
    expected: Mapping[str, Array]
    variant: str
    device: Device = field(default_factory=Device)
    rules: Rules = field(default_factory=Rules)


@dataclass(frozen=True)
class Result:
    """What a launch did.

    ``problem``: why it is wrong, one line; empty when every output is right and nothing else
    changed. ``ran``: the launch came to its end. ``outputs``: what it left in the tensors it may
    write, empty unless it came to its end. ``grids``: kernel and grid of each launch.
    """

    key: str
    problem: str = ""
    ran: bool = False
    figures: Mapping[str, int | float | str] = field(default_factory=dict)
    outputs: Mapping[str, Array] = field(default_factory=dict)
    grids: tuple[tuple[str, tuple[int, ...]], ...] = ()
    notes: tuple[str, ...] = ()


class Pool:
    """A child process and up to ``width`` launches at work in it. A context manager.

    ``cases_file``: the port's cases.py, whose ``launch`` is called. ``timeout_s``: for one
    launch. ``scratch``: an empty directory of ours.
    """

    def __init__(
        self,
        cases_file: Path,
        scratch: Path,
        *,
        timeout_s: float = 600.0,
        width: int | None = None,
        keep_outputs: bool = False,
    ) -> None:
        self.cases_file = cases_file.resolve()
        self.scratch = scratch
        self.timeout_s = timeout_s
        self.width = width or os.cpu_count() or 1
        self.keep_outputs = keep_outputs
        self._torch = False
        self._next = 0
        self._buffer = b""
        self._child: subprocess.Popen[bytes] | None = None
        self._replies = -1

    def __enter__(self) -> Pool:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends the child and whatever still runs in it."""
        child, self._child = self._child, None
        if child is not None:
            # Its input's end makes it end its forks; killed at once, it would leave them behind.
            with contextlib.suppress(BrokenPipeError):
                _input(child).close()
            try:
                child.wait(CLOSE_S)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
            os.close(self._replies)

    def run(self, runs: Iterable[Run]) -> Iterator[Result]:
        """Judged results, in the order in which the launches end.

        ``runs`` is read as places become free, so inputs are drawn while kernels run.

        Raises:
            UserError: the child process itself cannot start.
        """
        waiting = iter(runs)
        working: dict[int, tuple[Run, Arena, Path]] = {}
        exhausted = False
        while True:
            while len(working) < self.width and not exhausted:
                run = next(waiting, None)
                if run is None:
                    exhausted = True
                else:
                    self._submit(run, working)
            if not working:
                return
            reply = self._receive(working)
            run, arena, path = working.pop(reply["id"])
            try:
                if reply["status"] == "needs_torch":
                    self._torch = True
                    self._submit(run, working)
                    continue
                yield self._judge(run, arena, reply)
            finally:
                arena.close()
                path.unlink(missing_ok=True)

    def _submit(self, run: Run, working: dict[int, tuple[Run, Arena, Path]]) -> None:
        number = self._next
        self._next += 1
        path = self.scratch / f"arena{number}"
        arena = Arena.in_file(path, run.workload, run.expected)
        working[number] = (run, arena, path)
        job = {
            "id": number,
            "arena": str(path),
            "layout": arena.layout.to_json(),
            "tree": run.code.tree.to_json(),
            "file": run.code.file,
            "entry": run.code.entry,
            "cases": str(self.cases_file),
            "scalars": dict(run.workload.scalars),
            "variant": run.variant,
            "device": asdict(run.device),
            "rules": asdict(run.rules),
            "torch": self._torch,
            "timeout_s": self.timeout_s,
        }
        child = self._started()
        _input(child).write(json.dumps(job).encode() + b"\n")
        _input(child).flush()

    def _started(self) -> subprocess.Popen[bytes]:
        if self._child is None:
            self._replies, write = os.pipe()
            errors = (self.scratch / "child.err").open("wb")
            self._child = subprocess.Popen(
                [sys.executable, "-B", "-m", "ascendport.harness.child", str(write), self.scratch],
                stdin=subprocess.PIPE,
                stdout=errors,
                stderr=errors,
                pass_fds=(write,),
                cwd=self.scratch,
                # Ctrl-C is for this process, which then closes the child in an orderly way.
                start_new_session=True,
                env=child_environment(),
            )
            os.close(write)
            errors.close()
        return self._child

    def _receive(self, working: Mapping[int, object]) -> dict[str, Any]:
        """The next reply. The child reports timeouts itself; past them it is taken for dead."""
        limit = time.monotonic() + self.timeout_s + START_S
        with selectors.DefaultSelector() as selector:
            selector.register(self._replies, selectors.EVENT_READ)
            while b"\n" not in self._buffer:
                left = limit - time.monotonic()
                if left <= 0 or not selector.select(left):
                    self.close()
                    return {"id": next(iter(working)), "status": "died", "reason": "no answer"}
                data = os.read(self._replies, 1 << 16)
                if not data:
                    raise self._failure()
                self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        reply: dict[str, Any] = json.loads(line)
        return reply

    def _failure(self) -> UserError:
        log = self.scratch / "child.err"
        lines = log.read_text("utf-8", "replace").strip().splitlines() if log.is_file() else []
        why = lines[-1] if lines else "it left no message"
        return UserError(
            f"the process that interprets kernels ended ({why})",
            where=sys.executable,
            next="install the extra: pip install 'ascendport[ascend]'",
        )

    def _judge(self, run: Run, arena: Arena, reply: Mapping[str, Any]) -> Result:
        grids = tuple((name, tuple(grid)) for name, grid in reply.get("launches", ()))
        notes = tuple(reply.get("notes", ()))
        outside = arena.changed_outside() or arena.changed_inputs(run.workload)
        if reply["status"] != "ran":
            problem = str(reply.get("reason", reply["status"]))
            if outside:
                problem += f"; {outside}"
            return Result(run.key, problem, grids=grids, notes=notes)
        outputs = {name: arena.read(name) for name in run.expected}
        poison = {item.name: item.poison for item in arena.layout.placements}
        verdict = compare_all(outputs, run.expected, run.workload.tensors, poison)
        figures: dict[str, int | float | str] = dict(verdict.figures)
        figures["seconds"] = round(float(reply["seconds"]), 3)
        figures["launches"] = len(grids)
        return Result(
            run.key,
            outside or verdict.difference,
            ran=True,
            figures=figures,
            outputs=outputs if self.keep_outputs else {},
            grids=grids,
            notes=notes,
        )


START_S = 120.0
"""Seconds allowed for the child to import triton and torch, on top of a launch's own limit."""


CLOSE_S = 30.0
"""Seconds allowed for the child to end; it may be importing torch."""


def child_environment() -> dict[str, str]:
    """The environment of the child: interpreter on, one thread, no byte code."""
    package = str(Path(ascendport.__file__).resolve().parent.parent)
    path = os.environ.get("PYTHONPATH", "")
    return {
        **os.environ,
        "TRITON_INTERPRET": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONWARNINGS": "ignore",
        "PYTHONPATH": f"{package}{os.pathsep}{path}" if path else package,
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }


def missing_modules(names: Iterable[str] = MODULES) -> list[str]:
    """Modules of the extra ``ascend`` that are not installed."""
    from importlib.util import find_spec

    return [name for name in names if find_spec(name) is None]


def _input(child: subprocess.Popen[bytes]) -> IO[bytes]:
    assert child.stdin is not None
    return child.stdin
