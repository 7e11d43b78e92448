"""Files below one directory, read and written without following a link on the way.

A path is walked part by part from the root, each part opened relative to the one before and
never through a symbolic link: where somebody puts a link in the place of a directory between two
calls, the call fails and nothing outside is touched. Every call that changes something goes
through ``os``, which is where tests break them off.

Paths are relative, with '/' between their parts; `ascendport.ports.manifest.RelativePath` has
refused '..'.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Collection, Iterator
from pathlib import Path, PurePosixPath

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC

Stamp = tuple[int, int]
"""Modification time in whole seconds and size in bytes, as byte code records them of its source."""


def _nothing() -> None:
    """No last look is asked for."""


@contextlib.contextmanager
def folder(root: Path, rel: str = "") -> Iterator[int]:
    """A handle of the directory ``rel`` below ``root``.

    Raises:
        OSError: it is not there, or it or a directory above it is a link or a file.
    """
    handle = os.open(root, _FOLDER)
    try:
        for part in PurePosixPath(rel).parts:
            try:
                below = os.open(part, _FOLDER, dir_fd=handle)
            except OSError as error:
                error.filename = str(root / rel)
                raise
            os.close(handle)
            handle = below
        yield handle
    finally:
        os.close(handle)


def read(root: Path, rel: str) -> bytes | None:
    """A file's contents; None where it or its directory is not there."""
    parent, name = _split(rel)
    try:
        with folder(root, parent) as at:
            handle = os.open(name, _READ, dir_fd=at)
            try:
                parts = []
                while part := os.read(handle, 1 << 20):
                    parts.append(part)
            finally:
                os.close(handle)
    except FileNotFoundError:
        return None
    return b"".join(parts)


def put(
    root: Path,
    rel: str,
    data: bytes,
    mode: int | None,
    *,
    avoid: Collection[Stamp] = (),
    last_look: Callable[[], None] = _nothing,
) -> None:
    """Replaces a file's contents at once; they are on the disk when this returns.

    A hard link elsewhere keeps the old contents. ``mode`` None: what the process's umask gives a
    new file. Owner, group and extended attributes stay where the user may set them. The new file's
    stamp is none of ``avoid``. ``last_look`` runs in front of the replace and may raise.
    """
    parent, name = _split(rel)
    temporary = temporary_name(name)
    with folder(root, parent) as at:
        _unlink(temporary, at)  # left by a crash
        handle = os.open(temporary, _NEW, 0o666, dir_fd=at)
        try:
            try:
                _write(handle, data)
                if mode is not None:
                    os.fchmod(handle, mode)
                _keep(handle, name, at, mode)
                _move_time(handle, len(data), avoid)
                os.fsync(handle)
            finally:
                os.close(handle)
            last_look()
            os.replace(temporary, name, src_dir_fd=at, dst_dir_fd=at)
        except Exception as error:
            with contextlib.suppress(OSError):
                _unlink(temporary, at)
            if isinstance(error, OSError):
                error.filename = str(root / rel)
            raise
        os.fsync(at)


def remove(root: Path, rel: str) -> None:
    """Removes a file and what a crash may have left beside it; nothing where it is not there."""
    parent, name = _split(rel)
    try:
        with folder(root, parent) as at:
            _unlink(temporary_name(name), at)
            if _unlink(name, at):
                os.fsync(at)
    except FileNotFoundError:
        return


def drop_temporary(root: Path, rel: str) -> None:
    """Removes what a crash may have left beside a file."""
    parent, name = _split(rel)
    with contextlib.suppress(FileNotFoundError), folder(root, parent) as at:
        _unlink(temporary_name(name), at)


def make_folder(root: Path, rel: str) -> None:
    """Makes a directory; nothing where it is there already.

    Raises:
        FileExistsError: something else has its name.
    """
    parent, name = _split(rel)
    with folder(root, parent) as at:
        try:
            os.mkdir(name, dir_fd=at)
        except FileExistsError:
            if not stat.S_ISDIR(os.stat(name, dir_fd=at, follow_symlinks=False).st_mode):
                raise
        os.fsync(at)  # also one that was there: who made it may not have come this far


def remove_folder(root: Path, rel: str) -> None:
    """Removes a directory if it is there and empty: one that holds something is the user's."""
    parent, name = _split(rel)
    with contextlib.suppress(FileNotFoundError), folder(root, parent) as at:
        try:
            os.rmdir(name, dir_fd=at)
        except OSError as error:
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
                return
            raise
        os.fsync(at)


def names(root: Path, rel: str) -> list[str]:
    """What a directory holds, sorted; nothing where it is not there."""
    try:
        with folder(root, rel) as at:
            return sorted(os.listdir(at))  # noqa: PTH208
    except FileNotFoundError:
        return []


def temporary_name(name: str) -> str:
    """Under which name a file's new contents are written, beside it."""
    return f".{name}.ascendport-new"


def _split(rel: str) -> tuple[str, str]:
    parent, _, name = rel.rpartition("/")
    return parent, name


def _unlink(name: str, at: int) -> bool:
    try:
        os.unlink(name, dir_fd=at)
    except FileNotFoundError:
        return False
    return True


def _write(handle: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(handle, left) :]


def _keep(handle: int, name: str, at: int, mode: int | None) -> None:
    """Gives a new file what the old one has beside contents and mode."""
    try:
        source = os.open(name, _READ, dir_fd=at)
    except FileNotFoundError:
        return
    try:
        old, new = os.fstat(source), os.fstat(handle)
        if (new.st_uid, new.st_gid) != (old.st_uid, old.st_gid):
            with contextlib.suppress(PermissionError):
                os.fchown(handle, old.st_uid, old.st_gid)
                if mode is not None:
                    os.fchmod(handle, mode)  # a change of owner clears the set-id bits
        # Some file systems keep no attributes, and some attributes only root may set.
        with contextlib.suppress(OSError, AttributeError):
            for attribute in os.listxattr(source):
                with contextlib.suppress(OSError):
                    os.setxattr(handle, attribute, os.getxattr(source, attribute))
    finally:
        os.close(source)


def _move_time(handle: int, size: int, avoid: Collection[Stamp]) -> None:
    now = os.fstat(handle)
    second = int(now.st_mtime)
    while (second & 0xFFFFFFFF, size & 0xFFFFFFFF) in avoid:
        second += 1
    if second != int(now.st_mtime):
        os.utime(handle, (now.st_atime, second))
