"""Reading a checkout while another process changes it, without waiting for it.

A change is whole at one moment, the replace of the record. Until then a reader sees the files
that the change is about as they were, from the texts that the change keeps for undoing it. What
was read while a run began or ended is read again.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import TypeVar

from ascendport.checkout.tree import Checkout
from ascendport.errors import UserError
from ascendport.patching.state import INTENT, STATE, read_intent, read_object, read_state

T = TypeVar("T")

_TRIES = 200
_PAUSE_S = 0.01


@dataclass(frozen=True)
class _Settled(Checkout):
    """A checkout in which some files are as they were before a change."""

    before: Mapping[str, str | None] | None = None
    """Hash of each such file's text; None: there was no such file."""

    def read(self, rel: str) -> bytes | None:
        if self.before is None or rel not in self.before:
            return super().read(rel)
        sha = self.before[rel]
        return None if sha is None else read_object(self, sha)


def steady(checkout: Checkout, look: Callable[[Checkout], T]) -> T:
    """What ``look`` finds on a checkout that is wholly before or wholly after any change.

    ``look`` reads through `Checkout.read` and `read_state`, writes nothing, and may be called
    several times.

    Raises:
        UserError: what ``look`` raises; the disk cannot be read.
    """
    for attempt in range(_TRIES):
        stamp: tuple[object, ...] | None = None
        try:
            stamp = _stamp(checkout)
            found = look(_settled(checkout))
        except OSError as error:
            if not _changed(checkout, stamp):
                raise UserError(
                    f"cannot read the checkout ({error.strerror})",
                    where=error.filename if isinstance(error.filename, str) else checkout.root,
                    next="check permissions and the disk",
                ) from error
        except UserError:
            if not _changed(checkout, stamp):
                raise
        else:
            if not _changed(checkout, stamp):
                return found
        time.sleep(_PAUSE_S if attempt else 0)
    raise UserError(
        "the checkout changes faster than it can be read", where=checkout.root, next="run again"
    )


def _settled(checkout: Checkout) -> Checkout:
    if not (checkout.state_dir / INTENT).exists():
        return checkout
    intent = read_intent(checkout)
    if intent is None or read_state(checkout).serial == intent.serial:
        return checkout
    given = {field.name: getattr(checkout, field.name) for field in fields(Checkout)}
    return _Settled(**given, before={entry.file: entry.before for entry in intent.entries})


def _changed(checkout: Checkout, stamp: tuple[object, ...] | None) -> bool:
    """Whether a run began, committed or ended since; None: what it was could not be read."""
    if stamp is None:
        return False
    with contextlib.suppress(OSError):
        return _stamp(checkout) != stamp
    return True


def _stamp(checkout: Checkout) -> tuple[object, ...]:
    """Changes whenever a run begins, commits or ends."""
    folder = checkout.state_dir
    seen: list[object] = []
    for path in (folder.parent, folder, folder / STATE, folder / INTENT):
        try:
            found = os.lstat(path)
        except (FileNotFoundError, NotADirectoryError):
            seen.append(None)
            continue
        seen.append((found.st_ino, found.st_mtime_ns))
    return tuple(seen)
