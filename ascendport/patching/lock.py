"""One writer at a time: a lock in a checkout's state directory, by ``flock``.

The kernel lets go of it when its process ends, however that ends, so nothing is left that a later
run would take for a writer.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from ascendport.checkout.tree import Checkout
from ascendport.errors import UserError
from ascendport.patching import disk
from ascendport.patching.state import IGNORE, LOCK, inside

WAIT_S = 30.0
"""How long who wants to write waits for another who does, unless told otherwise."""

Note = Callable[[str], None]

_POLL_S = 0.05
_OPEN = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
_NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP)


class BusyError(UserError):
    """Another process holds the lock."""


class NoLocksError(UserError):
    """The file system has no locks."""


@contextlib.contextmanager
def locked(checkout: Checkout, wait_s: float, note: Note) -> Iterator[None]:
    """Holds the checkout's lock, making the state directory for it.

    ``note`` is told once that another run is waited for.

    Raises:
        BusyError: another process has held it for ``wait_s`` seconds.
        NoLocksError: the file system has none, so nobody may write.
        UserError: the state directory is a link.
        OSError: the state directory cannot be made or written.
    """
    until = time.monotonic() + wait_s
    told = False
    while (handle := _taken(checkout)) is None:
        if time.monotonic() >= until:
            raise BusyError(
                "another run is writing to this checkout"
                + (f", after waiting for {round(wait_s, 2):g} s too" if told else ""),
                where=checkout.state_dir / LOCK,
                next="wait for it to end and run again, or wait longer with --wait SECONDS",
            )
        if not told:
            note(
                "another run is writing to this checkout: "
                f"waiting up to {round(wait_s, 2):g} s (--wait)"
            )
            told = True
        time.sleep(_POLL_S)
    try:
        if not (checkout.state_dir / IGNORE).exists():
            disk.put(checkout.root, inside(checkout, IGNORE), b"*\n", None)
        yield
    finally:
        os.close(handle)


def _taken(checkout: Checkout) -> int | None:
    """A handle that holds the lock; None: another process holds it."""
    folder = checkout.state_dir
    while True:
        if folder.is_symlink():
            raise UserError("the tool's state directory is a symbolic link", where=folder)
        try:
            disk.make_folder(checkout.root, inside(checkout, ""))
            with disk.folder(checkout.root, inside(checkout, "")) as at:
                return _lock(folder, at)
        except BlockingIOError:
            return None
        except NoLocksError:
            disk.remove_folder(checkout.root, inside(checkout, ""))
            raise
        except FileNotFoundError:
            # The run that was in front removed lock or directory when it ended.
            if not folder.parent.is_dir():
                raise
        except FileExistsError:
            # mkdir says so too where that run removed the directory before the second look.
            if folder.exists() and not folder.is_dir():
                raise


def _lock(folder: Path, at: int) -> int:
    """
    Raises:
        BlockingIOError: another process holds the lock.
        FileNotFoundError: the locked file is no more the one of that name.
        NoLocksError: the file system has none.
    """
    handle = os.open(LOCK, _OPEN, 0o666, dir_fd=at)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
            if os.listdir(at) == [LOCK]:
                os.unlink(LOCK, dir_fd=at)  # it is of no use, and nothing else is there
            raise NoLocksError(
                f"the file system has no locks ({error.strerror}): two runs could not be kept "
                "apart, so none writes",
                where=folder / LOCK,
                next="copy the checkout to a local disk",
            ) from error
        there = os.stat(LOCK, dir_fd=at, follow_symlinks=False)
        if os.path.samestat(os.fstat(handle), there):
            return handle
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), LOCK)
    except BaseException:
        os.close(handle)
        raise
