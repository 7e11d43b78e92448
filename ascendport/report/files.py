"""Files that a user named: written whole or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from ascendport.errors import UserError


def write_whole(path: Path, data: bytes, what: str, option: str) -> None:
    """Writes ``data`` to ``path``; what was there stays until all of it is written.

    Args:
        path: the file; a device or pipe is written to directly.
        data: its contents.
        what: what the file is, for the error.
        option: the option that named it.

    Raises:
        UserError: it cannot be written.
    """
    try:
        if path.exists() and not path.is_file() and not path.is_dir():
            path.write_bytes(data)
            return
        # A link keeps leading to the file.
        target = path.resolve()
        handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
        temporary = Path(name)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            temporary.chmod(_mode(target))
            temporary.replace(target)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise _refused(what, error.strerror or str(error), path, option) from error


def check_writable(path: Path, what: str, option: str) -> None:
    """Says at once what `write_whole` would say after the work is done.

    Raises:
        UserError: the folder is not there, or not to be written to; or a folder has that name.
    """
    parent = path.resolve().parent
    if path.is_dir():
        raise _refused(what, "it is a folder", path, option)
    if not parent.is_dir():
        raise _refused(what, "no such folder", path, option)
    if not os.access(path if path.exists() and not path.is_file() else parent, os.W_OK):
        raise _refused(what, "permission denied", path, option)


def _mode(target: Path) -> int:
    """That of the file that is replaced; of a new one, what any new file gets."""
    if target.exists():
        return target.stat().st_mode & 0o7777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


def _refused(what: str, why: str, path: Path, option: str) -> UserError:
    return UserError(
        f"cannot write the {what} ({why})", where=path, next=f"name another file with {option}"
    )
