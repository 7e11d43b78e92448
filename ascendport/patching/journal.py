"""Carries out a plan so that a crash at any moment leaves the old tree or the new one.

Order of writing, each step synced to the disk before the next:

1. the texts that either direction needs, as objects;
2. ``intent.json``: the files, with their hashes before and after;
3. each file, by an atomic replace, in the order of the plan;
4. ``state.json``, by an atomic replace. This is the commit;
5. what is not needed any more is removed, ``intent.json`` last; with the last port the whole
   state directory.

`recover` reads the intent: where the state carries its serial the change was committed, and
step 5 is done; else every file is put back.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from ascendport.checkout.tree import Checkout
from ascendport.errors import ExitCode, UserError
from ascendport.patching.plan import Plan
from ascendport.patching.state import (
    IGNORE,
    INTENT,
    LOCK,
    OBJECTS,
    STATE,
    Sha,
    encode,
    read_object,
    read_state,
    sha256,
)
from ascendport.ports.manifest import RelativePath

LOCK_TIMEOUT_S = 30.0

Step = Callable[[str], None]
"""Called in front of every write with what comes next: where tests break off."""


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    file: RelativePath
    before: Sha | None
    after: Sha | None
    mode: int | None
    """Permission bits before the change; None: there was no file."""


class _Intent(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Literal["apply", "revert"]
    serial: int
    entries: tuple[_Entry, ...]
    made: tuple[RelativePath, ...]
    """Directories that the change makes, outer ones first."""
    doomed: tuple[RelativePath, ...]
    """Directories that go with it if they are empty."""


def _nothing(_: str) -> None:
    """No one breaks off."""


def execute(plan: Plan, *, timeout_s: float = LOCK_TIMEOUT_S, step: Step = _nothing) -> None:
    """Makes the plan's changes, all or none.

    ``timeout_s`` is how long to wait for another process that writes to the same checkout. An
    exception on the way puts everything back and is raised on.

    Raises:
        UserError: a port of the plan is refused; the tree changed since the plan was made;
            another process holds the lock; a file cannot be written.
    """
    if plan.refused:
        first = plan.refused[0]
        raise UserError(
            f"port {first.port} is refused, nothing was written",
            where=plan.checkout.root,
            next=first.reason,
            code=ExitCode.FAILED,
        )
    if plan.new_state == plan.state:
        return
    checkout = plan.checkout
    try:
        with _locked(checkout, timeout_s):
            try:
                _check_current(plan)
                _carry_out(plan, step)
            finally:
                _tidy(checkout)
    except OSError as error:
        raise UserError(
            f"cannot write to the checkout ({error.strerror}), everything was put back",
            where=error.filename or checkout.root,
            next="check permissions and free space",
        ) from error


def recover(checkout: Checkout, *, timeout_s: float = LOCK_TIMEOUT_S) -> str | None:
    """Ends what an interrupted run left half done; says what was done, None: nothing was.

    Takes the lock only where something was left, so that reading a clean tree needs no write.

    Raises:
        UserError: a file is neither as it was nor as it was to be, or cannot be written.
    """
    folder = checkout.state_dir
    if not folder.is_dir() or ((folder / STATE).exists() and not (folder / INTENT).exists()):
        return None
    try:
        with _locked(checkout, timeout_s):
            try:
                intent = _read_intent(checkout)
                if intent is None:
                    return None
                if read_state(checkout).serial == intent.serial:
                    _finish(checkout, intent, _nothing)
                    return f"an interrupted {intent.kind} had changed every file: completed"
                _roll_back(checkout, intent)
                return f"an interrupted {intent.kind} was undone: the files are as before it"
            finally:
                _tidy(checkout)
    except OSError as error:
        raise UserError(
            f"cannot end an interrupted run ({error.strerror})",
            where=error.filename or checkout.root,
            next="check permissions and free space",
        ) from error


# --- one change ---


def _carry_out(plan: Plan, step: Step) -> None:
    checkout = plan.checkout
    folder = checkout.state_dir
    intent = _intent(plan)
    texts = dict(plan.objects)
    for change in plan.changes:
        texts.update({sha256(t): t for t in (change.before, change.after) if t is not None})
    step("objects")
    (folder / OBJECTS).mkdir(exist_ok=True)
    for sha, text in sorted(texts.items()):
        path = folder / OBJECTS / sha
        if not path.exists():
            _put(path, text, 0o600, step)
    _sync(folder / OBJECTS)
    try:
        _put(folder / INTENT, intent.model_dump_json().encode(), 0o600, step)
        for made in intent.made:
            step(f"make {made}")
            checkout.path(made).mkdir()
            _sync(checkout.path(made).parent)
        for change, entry in zip(plan.changes, intent.entries, strict=True):
            path = checkout.path(change.file)
            if change.after is None:
                step(f"delete {change.file}")
                path.unlink()
                _sync(path.parent)
            else:
                _put(path, change.after, entry.mode, step)
        _put(folder / STATE, encode(plan.new_state), 0o600, step)
    except BaseException:
        # Also after Ctrl-C: the tree is whole before anything else happens.
        _settle(checkout, intent)
        raise
    try:
        _finish(checkout, intent, step)
    except OSError as error:
        raise UserError(
            f"every file was changed, but tidying up failed ({error.strerror})",
            where=error.filename or folder,
            next="mend what is wrong with the disk; the next command tidies up",
        ) from error


def _settle(checkout: Checkout, intent: _Intent) -> None:
    """After an exception: to the old tree, unless the commit had already happened."""
    try:
        if read_state(checkout).serial == intent.serial:
            _finish(checkout, intent, _nothing)
        else:
            _roll_back(checkout, intent)
    except OSError as error:
        raise UserError(
            f"writing failed, and so did putting the files back ({error.strerror})",
            where=error.filename or checkout.root,
            next="mend what is wrong with the disk; the next command puts them back",
        ) from error


def _intent(plan: Plan) -> _Intent:
    checkout = plan.checkout
    entries = tuple(
        _Entry(
            file=change.file,
            before=None if change.before is None else sha256(change.before),
            after=None if change.after is None else sha256(change.after),
            mode=None
            if change.before is None
            else stat.S_IMODE(checkout.path(change.file).stat().st_mode),
        )
        for change in plan.changes
    )
    return _Intent(
        kind=plan.kind,
        serial=plan.new_state.serial,
        entries=entries,
        made=tuple(d for d in plan.new_state.directories if not checkout.path(d).exists()),
        doomed=tuple(d for d in plan.state.directories if d not in plan.new_state.directories),
    )


def _check_current(plan: Plan) -> None:
    """
    Raises:
        UserError: the tree or the record is not what the plan was made from.
    """
    checkout = plan.checkout
    if (checkout.state_dir / INTENT).exists() or read_state(checkout) != plan.state:
        raise UserError(
            "another run changed the checkout meanwhile", where=checkout.root, next="run again"
        )
    for change in plan.changes:
        if checkout.read(change.file) != change.before:
            raise UserError(
                "the file was edited meanwhile",
                where=checkout.path(change.file),
                next="nothing was written; run again",
            )


def _finish(checkout: Checkout, intent: _Intent, step: Step) -> None:
    """What follows the commit."""
    _drop_directories(checkout, intent.doomed, step)
    keep = read_state(checkout).objects()
    for path in sorted((checkout.state_dir / OBJECTS).iterdir()):
        if path.name not in keep:
            step(f"remove object {path.name}")
            path.unlink()
    step("remove the intent")
    (checkout.state_dir / INTENT).unlink(missing_ok=True)
    _sync(checkout.state_dir)


def _roll_back(checkout: Checkout, intent: _Intent) -> None:
    for entry in intent.entries:
        path = checkout.path(entry.file)
        _temporary(path).unlink(missing_ok=True)
        disk = checkout.read(entry.file)
        found = None if disk is None else sha256(disk)
        if found == entry.before:
            continue
        if found != entry.after:
            kept = checkout.state_dir / OBJECTS
            raise UserError(
                "the file was edited after an interrupted run, so it is left as it is",
                where=path,
                next=f"put the original {kept / str(entry.before)} there and run again"
                if entry.before
                else "move the file away and run again",
            )
        if entry.before is None:
            path.unlink()
            _sync(path.parent)
        else:
            _put(path, read_object(checkout, entry.before), entry.mode, _nothing)
    _drop_directories(checkout, intent.made, _nothing)
    for name in (STATE, INTENT):
        _temporary(checkout.state_dir / name).unlink(missing_ok=True)
    (checkout.state_dir / INTENT).unlink(missing_ok=True)
    _sync(checkout.state_dir)


def _drop_directories(checkout: Checkout, folders: Iterable[str], step: Step) -> None:
    for folder in reversed(tuple(folders)):
        step(f"remove directory {folder}")
        # One that holds something by now is the user's.
        with contextlib.suppress(OSError):
            checkout.path(folder).rmdir()


def _tidy(checkout: Checkout) -> None:
    """Removes the state directory where it records nothing. Called with the lock held."""
    folder = checkout.state_dir
    if (folder / INTENT).exists() or read_state(checkout).ports:
        return
    objects = folder / OBJECTS
    for path in sorted(objects.iterdir()) if objects.is_dir() else ():
        path.unlink()
    if objects.is_dir():
        objects.rmdir()
    for name in (STATE, IGNORE, INTENT):
        (folder / name).unlink(missing_ok=True)
        _temporary(folder / name).unlink(missing_ok=True)
    (folder / LOCK).unlink(missing_ok=True)
    # Something else in it is the user's.
    with contextlib.suppress(OSError):
        folder.rmdir()


def _read_intent(checkout: Checkout) -> _Intent | None:
    path = checkout.state_dir / INTENT
    try:
        return _Intent.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValidationError as error:
        raise UserError(
            "the record of an interrupted run is damaged",
            where=path,
            next=f"put the files back from {checkout.state_dir / OBJECTS}, then remove it",
        ) from error


# --- the disk ---


@contextlib.contextmanager
def _locked(checkout: Checkout, timeout_s: float) -> Iterator[None]:
    """Holds the checkout's lock, making the state directory for it."""
    from filelock import FileLock, Timeout  # of no use to commands that only read

    folder = checkout.state_dir
    if folder.is_symlink():
        raise UserError("the tool's state directory is a symbolic link", where=folder)
    lock = FileLock(folder / LOCK, timeout=timeout_s)
    while True:
        try:
            folder.mkdir(exist_ok=True)
            lock.acquire()
        except Timeout as error:
            raise UserError(
                f"another run has been writing to this checkout for {timeout_s:g} s",
                where=folder / LOCK,
                next="wait for it to end and run again",
            ) from error
        except FileNotFoundError:
            continue  # the run that was in front removed the directory when it ended
        except FileExistsError:
            # mkdir, ours or the lock's, says so too where that run removed the directory
            # between its two looks at it.
            if folder.exists() and not folder.is_dir():
                raise
            continue
        if _holds(lock.lock_file, getattr(lock._context, "lock_file_fd", None)):
            break
        lock.release()
    try:
        if not (folder / IGNORE).exists():
            (folder / IGNORE).write_text("*\n", "utf-8")
        yield
    finally:
        lock.release()


def _holds(path: str, handle: int | None) -> bool:
    """Whether the locked file is still the one under that name: a run that ends removes it."""
    if handle is None:
        return True
    try:
        return os.path.samestat(os.fstat(handle), os.stat(path))  # noqa: PTH116
    except FileNotFoundError:
        return False


def _temporary(path: Path) -> Path:
    return path.with_name(f".{path.name}.ascendport-new")


def _put(path: Path, data: bytes, mode: int | None, step: Step) -> None:
    """Replaces a file's contents at once. A hard link elsewhere keeps the old contents.

    ``mode`` None: what the process's umask gives a new file. Owner and group stay where the
    user may set them.
    """
    temporary = _temporary(path)
    temporary.unlink(missing_ok=True)  # left by a crash
    step(f"write {path.name}")
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            if mode is not None:
                os.fchmod(file.fileno(), mode)
            old = path.stat() if path.exists() else None
            if old is not None:
                _keep_owner(file.fileno(), old, mode)
                _move_time(file.fileno(), old, len(data))
            os.fsync(file.fileno())
        step(f"replace {path.name}")
        temporary.replace(path)
    except Exception:
        temporary.unlink(missing_ok=True)
        raise
    _sync(path.parent)


def _keep_owner(handle: int, old: os.stat_result, mode: int | None) -> None:
    new = os.fstat(handle)
    if (new.st_uid, new.st_gid) != (old.st_uid, old.st_gid):
        with contextlib.suppress(PermissionError):
            os.fchown(handle, old.st_uid, old.st_gid)
            if mode is not None:
                os.fchmod(handle, mode)  # a change of owner clears the set-id bits


def _move_time(handle: int, old: os.stat_result, size: int) -> None:
    """Makes sure Python notices: it takes a .pyc for current by whole seconds and size."""
    if size == old.st_size and int(os.fstat(handle).st_mtime) == int(old.st_mtime):
        os.utime(handle, (old.st_atime, old.st_mtime + 1))


def _sync(folder: Path) -> None:
    """Makes a rename or removal in a directory last."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
