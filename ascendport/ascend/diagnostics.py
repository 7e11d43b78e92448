"""Why a compiler refused, as one line. Nothing here runs or imports a compiler."""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass
from enum import StrEnum


class Stage(StrEnum):
    """Which program refused."""

    LOAD = "load"
    """Importing the module that holds the kernel."""
    TRITON = "triton"
    """Python to Triton IR."""
    ADAPTER = "triton-adapter-opt"
    """Triton IR to linalg."""
    BISHENGIR = "bishengir-compile"
    """linalg to the finished program."""


class Kind(StrEnum):
    """What sort of refusal it is."""

    KERNEL = "the kernel does not compile"
    """An error in the kernel's own text."""
    UNSUPPORTED_TOOLCHAIN = "not checkable with this toolchain"
    """The kernel uses what the installed version does not know: no verdict on the kernel."""
    OVERFLOW = "on-chip buffer overflow"
    UNSUPPORTED_OPERATION = "unsupported operation"
    LOWERING = "lowering failed"
    CRASH = "compiler crash"
    TIMEOUT = "timeout"
    NO_PROGRAM = "no program"
    """The compiler ended without an error and without a program."""


@dataclass(frozen=True)
class Refusal:
    """A verdict, not an exception."""

    stage: Stage
    kind: Kind
    reason: str
    """One line."""
    kernel_line: int | None = None
    """Line in the kernel's file, where the message has one."""
    detail: str = ""
    """What the compiler said, whole."""

    @property
    def is_verdict(self) -> bool:
        """False where the toolchain is at fault or too old: the kernel was not judged."""
        return self.kind is not Kind.UNSUPPORTED_TOOLCHAIN


_BUFFERS = {
    "ub": "Unified Buffer",
    "cbuf": "L1 buffer",
    "l1": "L1 buffer",
    "cc": "L0C buffer",
    "l0c": "L0C buffer",
}
_OVERFLOW = re.compile(r"(\w+) overflow, requires (\d+) bits while (\d+) bits available")
_PLACE = re.compile(r'"([^"]+)":(\d+):\d+')
_ERROR = re.compile(r"^(?P<place>.*?)(?<!\w)error: (?P<text>.*)$", re.MULTILINE)
_OPERATION = re.compile(r"'([\w.]+)' op (.*)")
_LEGALIZE = re.compile(r"failed to legalize (?:unresolved materialization|operation '([\w.]+)')")
_PIPELINE = re.compile(r"Failed to run \w+ pipeline")
_LLVM_CRASH = ("PLEASE submit a bug report", "Stack dump:", "Assertion `")
_TRITON_LIBRARY = ("/triton/language/", "/triton/triton_patch/")
_MAX_REASON = 240


def one_line(text: str) -> str:
    """``text`` with white space folded, cut to a length that a table can show."""
    folded = " ".join(text.split())
    return folded if len(folded) <= _MAX_REASON else folded[: _MAX_REASON - 1] + "…"


def kernel_line(place: str) -> int | None:
    """The line in a location such as ``loc("k.py":7:16)``, fused and call-site forms included.

    Places inside Triton's own library are passed over: the caller's line is wanted.
    """
    for file, line in _PLACE.findall(place):
        if not any(part in file for part in _TRITON_LIBRARY) and int(line) > 0:
            return int(line)
    return None


def _kib(bits: str) -> str:
    return f"{int(bits) / 8192:g} KiB"


def explain(stage: Stage, stderr: str, returncode: int) -> Refusal:
    """What a compiler that refused said on stderr, and its exit status, as a refusal.

    ``returncode`` is negative for a signal, as `subprocess` gives it. Later attempts of the
    same run repeat errors: the first telling one counts, but the last overflow, which is the
    smallest that the compiler could reach.
    """

    def refusal(kind: Kind, reason: str, line: int | None = None) -> Refusal:
        return Refusal(stage, kind, one_line(reason), line, stderr)

    if returncode < 0 or any(mark in stderr for mark in _LLVM_CRASH):
        return refusal(Kind.CRASH, f"{stage} crashed ({_how_it_died(returncode)})")
    errors = [(match["place"], match["text"]) for match in _ERROR.finditer(stderr)]
    overflows = [(found, place) for place, text in errors if (found := _OVERFLOW.search(text))]
    if overflows:
        found, place = overflows[-1]
        buffer = _BUFFERS.get(found[1].lower(), found[1])
        reason = f"{buffer} overflow: needs {_kib(found[2])} of {_kib(found[3])}"
        return refusal(Kind.OVERFLOW, reason, kernel_line(place))
    telling = [(place, text) for place, text in errors if not _PIPELINE.search(text)]
    for place, text in telling:
        line = kernel_line(place)
        at = f" at line {line}" if line else ""
        if legalize := _LEGALIZE.search(text):
            name = legalize[1] or "(cast)"
            return refusal(Kind.UNSUPPORTED_OPERATION, f"no lowering for {name}{at}", line)
        if operation := _OPERATION.search(text):
            why = operation[2].removeprefix("failed to verify that ")
            return refusal(Kind.UNSUPPORTED_OPERATION, f"{operation[1]}{at}: {why}", line)
    if telling:
        place, text = telling[0]
        return refusal(Kind.LOWERING, text, kernel_line(place))
    if errors:
        place, text = errors[0]
        return refusal(Kind.LOWERING, f"{text}, no reason given", kernel_line(place))
    last = stderr.strip().splitlines()[-1:] or ["no message"]
    return refusal(Kind.LOWERING, f"{stage} ended with exit status {returncode}: {last[0]}")


def _how_it_died(returncode: int) -> str:
    if returncode >= 0:
        return f"exit status {returncode}"
    try:
        return signal.Signals(-returncode).name
    except ValueError:
        return f"signal {-returncode}"
