"""What the tool has done to a checkout, as kept in the checkout's state directory.

::

    .gitignore       "*": git sees nothing of the directory
    lock             held by whoever writes
    state.json       which ports are in, and each file's hash before and after
    intent.json      only while a change is under way, and after a crash in one
    objects/<sha256> every text that undoing or rebuilding a change needs
    saved/…          copies of the user's own texts, where a command replaced them

The state is enough to take a port out again without the port's folder: it keeps the port's own
texts too, so that a file that two ports share can be rebuilt with one of them.
"""

from __future__ import annotations

import hashlib
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ascendport.checkout.tree import Checkout
from ascendport.errors import UserError
from ascendport.ports.manifest import RelativePath

STATE = "state.json"
INTENT = "intent.json"
OBJECTS = "objects"
SAVED = "saved"
"""Copies of texts that the user edited and a command replaced. The tool never removes one."""
IGNORE = ".gitignore"
LOCK = "lock"

Sha = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class TargetRecord(_Record):
    """What a port does to one file; ``source`` is the object with the port's text."""

    file: RelativePath
    source: Sha
    replace: tuple[str, ...]
    add: tuple[str, ...]
    decorate: dict[str, str] = {}

    @property
    def changes(self) -> tuple[str, ...]:
        """Symbols whose originals the file had: those replaced, then those decorated."""
        return (*self.replace, *self.decorate)


class NewFileRecord(_Record):
    """A file that a port brings."""

    file: RelativePath
    source: Sha


class PortRecord(_Record):
    """One port that is in the checkout."""

    variant: str
    forced: bool = False
    """Installed over an original whose digest is not known, because the user asked."""
    targets: tuple[TargetRecord, ...]
    new_files: tuple[NewFileRecord, ...] = ()

    def files(self) -> tuple[str, ...]:
        """Every file that the port touches, in a fixed order."""
        targets = [record.file for record in self.targets]
        return tuple(dict.fromkeys(targets + [record.file for record in self.new_files]))


class FileRecord(_Record):
    """A file before any port touched it (None: it was not there) and as the tool left it."""

    before: Sha | None
    after: Sha


class State(_Record):
    """All that the tool has changed in one checkout."""

    version: Literal[1] = 1
    tool: str = ""
    serial: int = 0
    """Counts the changes: tells whether an interrupted one was committed."""
    ports: dict[str, PortRecord] = {}
    files: dict[RelativePath, FileRecord] = {}
    directories: tuple[RelativePath, ...] = ()
    """Directories that the tool made, outer ones first."""
    caches: dict[RelativePath, Sha] = {}
    """Compiled caches that would have hidden a change, taken away until the original is back."""

    def objects(self) -> frozenset[str]:
        """Every object that the state refers to."""
        found = {sha for record in self.files.values() for sha in (record.before, record.after)}
        for port in self.ports.values():
            found |= {target.source for target in port.targets}
            found |= {new.source for new in port.new_files}
        return frozenset(sha for sha in found if sha) | frozenset(self.caches.values())


class Entry(_Record):
    """What a change does to one file."""

    file: RelativePath
    before: Sha | None
    after: Sha | None
    mode: int | None
    """Permission bits before the change; None: there was no file."""


class Intent(_Record):
    """A change that is under way, or was when its process ended."""

    kind: Literal["apply", "revert"]
    serial: int
    entries: tuple[Entry, ...]
    saved: tuple[RelativePath, ...] = ()
    """Copies of the user's texts that the change makes."""
    made: tuple[RelativePath, ...]
    """Directories that the change makes, outer ones first."""
    doomed: tuple[RelativePath, ...]
    """Directories that go with it if they are empty."""


def inside(checkout: Checkout, name: str) -> str:
    """The checkout-relative path of ``name`` in the state directory; of itself for ``""``."""
    folder = checkout.state_dir.relative_to(checkout.root).as_posix()
    return f"{folder}/{name}" if name else folder


def sha256(data: bytes) -> str:
    """SHA-256 in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def encode(state: State) -> bytes:
    """The state as state.json holds it."""
    return (state.model_dump_json(indent=2) + "\n").encode()


def read_state(checkout: Checkout) -> State:
    """The recorded state; an empty one where nothing is recorded. Writes nothing.

    Raises:
        UserError: the record cannot be read or is not valid.
    """
    path = checkout.state_dir / STATE
    try:
        return State.model_validate_json(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return State()
    except OSError as error:
        raise UserError(f"cannot read the tool's record ({error.strerror})", where=path) from error
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(str(part) for part in first["loc"]) or "(whole)"
        raise UserError(
            f"the tool's record of its changes is damaged or from another version "
            f"(key {key}: {first['msg']})",
            where=path,
            next=f"use the version that wrote it; originals are kept in {path.parent / OBJECTS}",
        ) from error


def read_intent(checkout: Checkout) -> Intent | None:
    """The change that is under way, None: none is. Writes nothing.

    Raises:
        UserError: its record is damaged.
    """
    path = checkout.state_dir / INTENT
    try:
        return Intent.model_validate_json(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except ValidationError as error:
        raise UserError(
            "the record of an interrupted run is damaged",
            where=path,
            next=f"put the files back from {checkout.state_dir / OBJECTS}, then remove it",
        ) from error


def read_object(checkout: Checkout, sha: str) -> bytes:
    """A kept text, its hash checked.

    Raises:
        UserError: it is gone or damaged.
    """
    path = checkout.state_dir / OBJECTS / sha
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UserError(
            f"a text kept for undoing changes cannot be read ({error.strerror})", where=path
        ) from error
    if sha256(data) != sha:
        raise UserError("a text kept for undoing changes is damaged", where=path)
    return data


def pristine(checkout: Checkout, state: State, file: str) -> bytes | None:
    """A file's contents without any port in it: the kept original, else what is on disk."""
    record = state.files.get(file)
    if record is None:
        return checkout.read(file)
    if record.before is None:
        return None
    disk = checkout.read(file)
    if disk is not None and sha256(disk) == record.before:
        return disk
    return read_object(checkout, record.before)
