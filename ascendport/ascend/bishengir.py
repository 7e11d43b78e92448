"""linalg text to the finished program, with the AscendNPU IR compiler.

The compiler's last step hands the program to an assembler of CANN (`hivmc`, `hivmc-a5`). Without
one the Ascend 950 compiler takes the absence for a failed compilation and goes through its
fallbacks (five runs, 1 s), so that the program it leaves is that of the *last* fallback, not the
one that a machine with CANN would run. Here a stand-in takes the assembler's place: a shell
script that notes which file it was handed and ends well. Hence the rule for success, the same
for all parts: exit status 0, and the assembler was handed a program. A message on stderr does
not decide: a run that first overflows and then fits says both.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ascendport.ascend import toolchain
from ascendport.ascend.diagnostics import Kind, Refusal, Stage, explain, one_line
from ascendport.ascend.soc import Family, Soc
from ascendport.orphans import die_with

TIMEOUT_S = 120.0
_ASSEMBLERS = ("hivmc", "hivmc-a5")
_HANDED = "ASCENDPORT_HANDED"
# `--version` is asked first on A2 and A3; the compiler copes with an empty answer.
_STAND_IN = f"""#!/bin/sh
[ "$1" = --version ] && exit 0
printf %s "$1" > "${_HANDED}"
"""


@dataclass(frozen=True)
class Program:
    """A finished program."""

    text: str
    """MLIR, with source locations."""
    soc: Soc
    notes: tuple[str, ...]
    """What the compiler gave up to get there: each message once."""
    seconds: float
    """Wall time of the compiler."""


@dataclass(frozen=True)
class CompileRequest:
    """One program to make. The fields are those of `compile_program`."""

    linalg: str
    soc: Soc
    multibuffer: bool = True
    flags: tuple[str, ...] = ()


_stand_in_lock = threading.Lock()
_stand_in: tempfile.TemporaryDirectory[str] | None = None


def _stand_in_folder() -> Path:
    """Folder of the stand-ins, made once a process.

    Once, because a script cannot be run while another thread's newborn child still holds the
    descriptor that wrote it ("text file busy").
    """
    global _stand_in
    with _stand_in_lock:
        if _stand_in is None or not Path(_stand_in.name, _ASSEMBLERS[-1]).is_file():
            _stand_in = tempfile.TemporaryDirectory(
                prefix="ascendport-", ignore_cleanup_errors=True
            )
            for name in _ASSEMBLERS:
                script = Path(_stand_in.name, name)
                script.write_text(_STAND_IN)
                script.chmod(0o755)
        return Path(_stand_in.name)


def command(request: CompileRequest, source: Path, out: Path, temps: Path) -> list[str]:
    """The command line without the binary, as triton-ascend 3.2.0 calls the compiler."""
    line = [
        str(source),
        request.soc.target,
        f"--enable-auto-multi-buffer={request.multibuffer}",
        "--enable-hfusion-compile=true",
        "--enable-triton-kernel-compile=true",
        f"--save-temps={temps}",
        "--mlir-print-debuginfo",
        "--enable-debug-info=true",
        "-o",
        str(out),
        *request.flags,
    ]
    if request.soc.family is not Family.A5:
        line.append("--enable-hivm-compile=true")
    if not any(flag.startswith("--enable-auto-bind-sub-block=") for flag in request.flags):
        line.append("--enable-auto-bind-sub-block=True")
    return line


def compile_program(
    linalg: str,
    soc: Soc,
    *,
    multibuffer: bool = True,
    flags: tuple[str, ...] = (),
    timeout_s: float = TIMEOUT_S,
    compiler: Path | None = None,
) -> Program | Refusal:
    """Compiles one kernel for one part. Thread-safe; about 0.15 s on A2 and A3, 0.3 s on A5.

    Args:
        linalg: what `lowering.lower` gives.
        soc: the part.
        multibuffer: the launch option; False is `--enable-auto-multi-buffer=False`.
        flags: further compiler flags, as `Linalg.flags` has them.
        timeout_s: longest time, seconds; then the compiler and its children are killed.
        compiler: another binary than the installed one.

    Raises:
        FileNotFoundError: the compiler is not installed; ask `toolchain.missing` first.
    """
    request = CompileRequest(linalg, soc, multibuffer, flags)
    binary = compiler or toolchain.binary(soc.compiler)
    with tempfile.TemporaryDirectory(prefix="ascendport-") as folder:
        return _compile_in(Path(folder), binary, request, timeout_s)


def _compile_in(
    folder: Path, binary: Path, request: CompileRequest, timeout_s: float
) -> Program | Refusal:
    handed = folder / "handed"
    source = folder / "kernel.mlir"
    source.write_text(request.linalg)
    line = [str(binary), *command(request, source, folder / "kernel.o", folder / "temps")]
    path = os.pathsep.join([str(_stand_in_folder()), os.environ.get("PATH", os.defpath)])
    env = {**os.environ, "PATH": path, _HANDED: str(handed)}
    start = time.monotonic()
    ended = _run(line, folder, env, timeout_s)
    seconds = time.monotonic() - start
    if ended is None:
        return Refusal(
            Stage.BISHENGIR, Kind.TIMEOUT, f"{binary.name} was stopped after {timeout_s:g} s"
        )
    returncode, said = ended
    if returncode == 0 and handed.is_file():
        return _program(Path(handed.read_text()), request.soc, said, seconds)
    if returncode == 0:
        reason = f"{binary.name} ended well but made no program"
        return Refusal(Stage.BISHENGIR, Kind.NO_PROGRAM, reason, None, said)
    if "Cannot find hivmc" in said:
        # The script could not be run: not the kernel's fault.
        reason = f"programs in {folder.parent} cannot be run (mounted noexec?); set TMPDIR"
        return Refusal(Stage.BISHENGIR, Kind.UNSUPPORTED_TOOLCHAIN, reason, None, said)
    return explain(Stage.BISHENGIR, said, returncode)


def _program(saved: Path, soc: Soc, said: str, seconds: float) -> Program | Refusal:
    try:
        text = saved.read_text()
    except OSError:
        text = ""
    if "func.func" not in text:
        reason = "the file handed to the assembler holds no program"
        return Refusal(Stage.BISHENGIR, Kind.NO_PROGRAM, reason, None, said)
    return Program(text, soc, _notes(said), seconds)


def _notes(said: str) -> tuple[str, ...]:
    """Messages of a run that ended well: [NOTE] lines, and errors of attempts given up."""
    notes: dict[str, None] = {}
    for line in said.splitlines():
        if "[NOTE]" in line:
            notes[one_line(line.partition("[NOTE]")[2])] = None
        elif "overflow, requires" in line:
            notes["an attempt was given up: " + explain(Stage.BISHENGIR, line, 1).reason] = None
    return tuple(notes)


def _run(
    line: list[str], folder: Path, env: dict[str, str], timeout_s: float
) -> tuple[int, str] | None:
    """Exit status and what was said; None on timeout. The process group never outlives it."""
    with subprocess.Popen(
        line,
        cwd=folder,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
        preexec_fn=partial(die_with, os.getpid()),
    ) as process:
        try:
            said, _ = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            return None
        finally:
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)
        return process.returncode, said


def compile_many(
    requests: Sequence[CompileRequest],
    *,
    jobs: int | None = None,
    timeout_s: float = TIMEOUT_S,
) -> list[Program | Refusal]:
    """Compiles all, in the order given. Equal requests are compiled once.

    Args:
        requests: what to compile.
        jobs: compilers that run side by side; default: the number of CPUs.
        timeout_s: longest time for each, seconds.

    Raises:
        FileNotFoundError: as `compile_program`.
    """

    def one(request: CompileRequest) -> Program | Refusal:
        return compile_program(
            request.linalg,
            request.soc,
            multibuffer=request.multibuffer,
            flags=request.flags,
            timeout_s=timeout_s,
        )

    distinct = list(dict.fromkeys(requests))
    with ThreadPoolExecutor(max_workers=jobs or os.cpu_count() or 1) as pool:
        done = dict(zip(distinct, pool.map(one, distinct), strict=True))
    return [done[request] for request in requests]
