"""Breaks off, or fails, any one call that work makes on a directory.

Calls are counted where Python code makes them: the functions of ``os``, ``open`` and ``flock``.
Only those that concern a path below the directory count, whether it is named by path, by handle
or by handle and name.
"""

from __future__ import annotations

import builtins
import contextlib
import errno
import fcntl
import io
import os
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NoReturn

from ascendport.errors import UserError

How = Literal["die", "tear", "fail", "full", "interrupt"]
"""die: the process ends in front of the call. tear: it ends with half of the data written. fail:
the call fails once. full: from this call on, nothing new fits on the disk. interrupt: Ctrl-C."""

DIED, REFUSED, INTERRUPTED, BROKE = 9, 10, 11, 70
"""Exit statuses of a child: ended by a fault, with a UserError, by Ctrl-C, with anything else."""

_OS = (
    *("open", "read", "write", "pwrite", "sendfile", "close", "fsync", "truncate", "ftruncate"),
    *("replace", "rename", "unlink", "remove", "mkdir", "rmdir", "link", "symlink"),
    *("chmod", "fchmod", "chown", "fchown", "utime", "listxattr", "getxattr", "setxattr"),
    *("stat", "lstat", "fstat", "listdir", "scandir"),
)
_LOOKS = frozenset(
    {"read", "stat", "lstat", "fstat", "listdir", "scandir", "listxattr", "getxattr"}
)
_GROW = frozenset({"write", "mkdir", "symlink", "link", "setxattr"})

_readlink, _exit, _real_write = os.readlink, os._exit, os.write


@dataclass
class Faults:
    """Counts the calls below ``root`` and does something about number ``at``."""

    root: Path
    at: int | None = None
    how: How = "die"
    calls: list[str] = field(default_factory=list)
    full: bool = False
    then: Callable[[], None] | None = None
    """In place of a fault: what to do in front of the call, which is then made."""

    def before(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> OSError | None:
        """What the call is to fail with; None: it is made."""
        where = _where(args, kwargs)
        if where is None or not where.startswith(str(self.root)):
            return None
        number = len(self.calls)
        creates = name in _GROW or (name == "open" and _creates(args))
        self.calls.append(f"{name} {_plain(where.removeprefix(str(self.root)))}")
        if self.full and creates:
            return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), where)
        if number != self.at:
            return None
        if self.then is not None:
            self.then()
            return None
        if self.how == "fail":
            return OSError(errno.EIO, os.strerror(errno.EIO), where)
        if self.how == "full":
            self.full = True
            return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), where) if creates else None
        if self.how == "interrupt":
            raise KeyboardInterrupt
        if self.how == "tear" and name == "write":
            _real_write(args[0], bytes(args[1])[: len(args[1]) // 2])
        return _exit(DIED)


@contextlib.contextmanager
def watched(faults: Faults) -> Iterator[Faults]:
    """Every call goes through ``faults`` meanwhile."""
    kept: list[tuple[Any, str, Any]] = []
    places: list[tuple[Any, str]] = [(os, name) for name in _OS if hasattr(os, name)]
    places += [(io, "open"), (builtins, "open"), (fcntl, "flock")]
    for module, name in places:
        real = getattr(module, name)
        kept.append((module, name, real))
        setattr(module, name, _wrapped(faults, name, real))
    try:
        yield faults
    finally:
        for module, name, real in kept:
            setattr(module, name, real)


def _wrapped(faults: Faults, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        error = faults.before(name, args, kwargs)
        if error is not None:
            if name == "close":
                real(*args, **kwargs)
            raise error
        return real(*args, **kwargs)

    return call


def calls_of(root: Path, work: Callable[[], object]) -> list[str]:
    """The calls that ``work`` makes below ``root``, in order."""
    with watched(Faults(root)) as faults:
        work()
    return faults.calls


def in_child(work: Callable[[], object], faults: Faults | None = None) -> int:
    """Runs ``work`` in a forked process; its exit status."""
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        _child(work, faults)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _child(work: Callable[[], object], faults: Faults | None) -> NoReturn:
    try:
        with watched(faults) if faults else contextlib.nullcontext():
            work()
    except UserError:
        _exit(REFUSED)
    except KeyboardInterrupt:
        _exit(INTERRUPTED)
    except BaseException as error:
        _real_write(2, f"{error!r}\n".encode())
        _exit(BROKE)
    _exit(0)
    raise AssertionError


def changes(call: str) -> bool:
    """Whether a call may change something."""
    return call.partition(" ")[0] not in _LOOKS


def _where(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    if not args:
        return None
    base = kwargs.get("dir_fd", kwargs.get("src_dir_fd"))
    first = args[0]
    try:
        if isinstance(first, int):
            return _readlink(f"/proc/self/fd/{first}")
        if hasattr(first, "fileno"):
            return _readlink(f"/proc/self/fd/{first.fileno()}")
        name = os.fsdecode(first)
        if base is not None:
            return f"{_readlink(f'/proc/self/fd/{base}')}/{name}"
        return name
    except (OSError, TypeError, ValueError):
        return None


def _creates(args: tuple[Any, ...]) -> bool:
    flags = args[1] if len(args) > 1 else 0
    return isinstance(flags, int) and bool(flags & os.O_CREAT)


def _plain(path: str) -> str:
    return re.sub(r"[0-9a-f]{64}", "OBJECT", path).lstrip("/") or "."
