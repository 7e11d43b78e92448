"""The process that runs kernels: started by `interpret`, forks once for each launch.

It imports triton (and torch, once a launch needs it) a single time and then serves jobs. Each job
runs in a fork of its own: it can raise, crash, hang or exit, and the next job starts from the same
clean state. Inputs, outputs and guards are in the job's arena, a file that the parent made and
judges; nothing that a kernel does in here can reach the right answers, which are not here.

Protocol: one JSON object a line. Standard input: `Job` fields. Descriptor given as the first
argument: ``{"id", "status", ...}`` with status ``ran``, ``raised``, ``needs_torch``, ``died`` or
``timeout``.
"""

from __future__ import annotations

import json
import os
import re
import resource
import selectors
import signal
import sys
import sysconfig
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PRELOAD = (
    "numpy",
    "ml_dtypes",
    "triton",
    "triton.language",
    "triton.runtime.interpreter",
    "triton.backends.ascend.compiler",
)


@dataclass
class _Running:
    job: Mapping[str, Any]
    pid: int
    reply: int
    errors: Path
    deadline: float
    received: bytes = b""
    timed_out: bool = False


def run_job(job: Mapping[str, Any]) -> dict[str, Any]:
    """Runs one launch here and now, in the job's arena.

    Answers the reply's fields. Raises what the launch raises.
    """
    from contextlib import ExitStack

    from ascendport.harness import repairs
    from ascendport.harness.buffers import Arena, Layout, uninitialised_is_poison
    from ascendport.harness.driver import first_configuration, stub_driver
    from ascendport.harness.executor import Log, Rules, interpreting
    from ascendport.harness.loading import Device, loaded
    from ascendport.harness.portcode import load_cases
    from ascendport.harness.workspace import Tree

    log = Log()
    device = Device(**job["device"])
    light = not job["torch"]
    repairs.apply()
    with ExitStack() as stack:
        arena = stack.enter_context(
            Arena.attach(Path(job["arena"]), Layout.from_json(job["layout"]))
        )
        tensors, _ = arena.light_tensors() if light else arena.torch_tensors()
        if not light:
            stack.enter_context(uninitialised_is_poison())
        stack.enter_context(stub_driver(device))
        stack.enter_context(first_configuration(log.notes.append))
        stack.enter_context(interpreting(log, Rules(**job["rules"])))
        _, port = load_cases(Path(job["cases"]))
        module = stack.enter_context(
            loaded(Tree.from_json(job["tree"]), job["file"], device, light=light)
        )
        try:
            entry = getattr(module, job["entry"])
        except AttributeError:
            raise AttributeError(f"{job['file']} has no {job['entry']}") from None
        begin = time.perf_counter()
        port.launch(entry, tensors, dict(job["scalars"]), job["variant"])
        return {
            "seconds": time.perf_counter() - begin,
            "launches": [[ran.kernel, list(ran.grid)] for ran in log.launches],
            "notes": log.notes,
        }


def one_line(error: BaseException) -> str:
    """The error in one line: what, and the last place outside the harness and triton."""
    text = " ".join(str(error).split())[:300]
    kind = type(error).__name__
    frames = list(traceback.extract_tb(error.__traceback__))
    while error.__cause__ is not None:
        error = error.__cause__
        frames += traceback.extract_tb(error.__traceback__)
    outside = [frame for frame in frames if _foreign(frame.filename)]
    place = f" ({Path(outside[-1].filename).name}:{outside[-1].lineno})" if outside else ""
    if kind == "InterpreterError":
        return f"{text}{place}"
    return f"{kind}: {text}{place}" if text else f"{kind}{place}"


def _foreign(file: str) -> bool:
    """Whether a source file is the tree's or the port's: not ours, not an installed package."""
    ours = (str(Path(__file__).parent), *set(sysconfig.get_paths().values()))
    return not file.startswith((*ours, "<"))


def _in_fork(job: Mapping[str, Any], reply: int, errors: Path) -> None:
    """The fork's whole life. Never returns."""
    import faulthandler

    from ascendport.harness.light import NeedsTorch

    os.setsid()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sink = os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(sink, 1)
    os.dup2(sink, 2)
    faulthandler.enable()
    try:
        answer = {"status": "ran", **run_job(job)}
    except NeedsTorch as need:
        answer = {"status": "needs_torch", "reason": need.what}
    except SystemExit as leave:
        answer = {"status": "died", "reason": f"left with exit status {leave.code}"}
    except BaseException as error:
        answer = {"status": "raised", "reason": one_line(error)}
    data = json.dumps(answer).encode()
    while data:
        data = data[os.write(reply, data) :]
    os._exit(0)


def _crash_place(errors: Path) -> str:
    """Where Python was at a crash, from what faulthandler wrote: innermost file outside triton."""
    text = errors.read_text("utf-8", "replace") if errors.is_file() else ""
    for file, line in re.findall(r'File "([^"]+)", line (\d+) in', text):
        if _foreign(file):
            return f" ({Path(file).name}:{line})"
    return ""


def _finish(running: _Running) -> dict[str, Any]:
    """What became of a fork whose reply has ended. Kills whatever it left behind."""
    if running.timed_out:
        _kill(running.pid)
    _, status = os.waitpid(running.pid, 0)
    _kill(running.pid)  # others of its session
    answer: dict[str, Any]
    try:
        answer = json.loads(running.received)
    except ValueError:
        answer = {}
    if running.timed_out:
        seconds = running.job["timeout_s"]
        answer = {"status": "timeout", "reason": f"no end after {seconds:g} s"}
    elif os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        reason = f"crashed with {signal.Signals(number).name}{_crash_place(running.errors)}"
        answer = {"status": "died", "reason": reason}
    elif not isinstance(answer, dict) or "status" not in answer:
        reason = f"left with exit status {os.WEXITSTATUS(status)}"
        answer = {"status": "died", "reason": reason}
    running.errors.unlink(missing_ok=True)
    return {**answer, "id": running.job["id"]}


def _kill(pid: int) -> None:
    for kill in (os.killpg, os.kill):
        try:
            kill(pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            continue


class Server:
    """Reads jobs, forks for each, and reports how it ended."""

    def __init__(self, output: int, scratch: Path) -> None:
        self.output = output
        self.scratch = scratch
        self.running: dict[int, _Running] = {}
        self.selector = selectors.DefaultSelector()
        self.pending = b""

    def serve(self) -> None:
        """Until standard input ends, which is the end of every job too: nobody would judge it.

        That also happens when the parent dies, however it dies.
        """
        self.selector.register(0, selectors.EVENT_READ)
        while True:
            for key, _ in self.selector.select(self._wait()):
                if key.fd == 0:
                    if not self._read_jobs():
                        for running in self.running.values():
                            _kill(running.pid)
                        return
                elif key.fd in self.running:
                    self._read_reply(key.fd)
            self._expire()

    def _wait(self) -> float | None:
        if not self.running:
            return None
        soonest = min(running.deadline for running in self.running.values())
        return max(0.0, soonest - time.monotonic())

    def _read_jobs(self) -> bool:
        data = os.read(0, 1 << 16)
        if not data:
            return False
        *lines, self.pending = (self.pending + data).split(b"\n")
        for line in lines:
            self._start(json.loads(line))
        return True

    def _start(self, job: Mapping[str, Any]) -> None:
        if job["torch"] and "torch" not in sys.modules:
            import torch

            torch.set_num_threads(1)
        read, write = os.pipe()
        errors = self.scratch / f"job{job['id']}.err"
        pid = os.fork()
        if pid == 0:
            os.close(read)
            os.close(self.output)
            for other in self.running:
                os.close(other)
            _in_fork(job, write, errors)
        os.close(write)
        deadline = time.monotonic() + job["timeout_s"]
        self.running[read] = _Running(job, pid, read, errors, deadline)
        self.selector.register(read, selectors.EVENT_READ)

    def _read_reply(self, reply: int) -> None:
        data = os.read(reply, 1 << 16)
        running = self.running[reply]
        running.received += data
        if not data:
            self._end(running)

    def _expire(self) -> None:
        for running in list(self.running.values()):
            if time.monotonic() >= running.deadline:
                running.timed_out = True
                self._end(running)

    def _end(self, running: _Running) -> None:
        self.selector.unregister(running.reply)
        os.close(running.reply)
        del self.running[running.reply]
        data = json.dumps(_finish(running)).encode() + b"\n"
        while data:
            data = data[os.write(self.output, data) :]


def main() -> None:
    output, scratch = int(sys.argv[1]), Path(sys.argv[2])
    os.set_inheritable(output, False)
    import importlib

    for name in PRELOAD:
        importlib.import_module(name)
    Server(output, scratch).serve()


if __name__ == "__main__":
    main()
