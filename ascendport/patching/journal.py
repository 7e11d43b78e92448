"""Carries out a plan so that a crash at any moment leaves the old tree or the new one.

Order of writing, each step synced to the disk before the next:

1. the state directory with its lock, and the texts that either direction needs, as objects;
2. ``intent.json``: the files, with their hashes before and after;
3. copies of what the user edited, under ``saved/``; then each file, by an atomic replace, in the
   order of the plan;
4. ``state.json``, by an atomic replace. This is the commit;
5. what is not needed any more is removed, ``intent.json`` last; with the last port the whole
   state directory, but for ``saved/``.

`recover` reads the intent: where the state carries its serial the change was committed, and
step 5 is done; else every file is put back.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Collection, Iterable

from ascendport.checkout.tree import Checkout
from ascendport.errors import ExitCode, UserError
from ascendport.patching import bytecode, disk
from ascendport.patching.lock import WAIT_S, BusyError, NoLocksError, Note, locked
from ascendport.patching.merge import merge
from ascendport.patching.plan import Plan
from ascendport.patching.state import (
    IGNORE,
    INTENT,
    LOCK,
    OBJECTS,
    SAVED,
    STATE,
    Entry,
    Intent,
    encode,
    inside,
    read_intent,
    read_object,
    read_state,
    sha256,
)


class StaleError(UserError):
    """The tree is no more what the plan was made from: plan again."""


def _silent(_: str) -> None:
    """No one is told."""


def execute(plan: Plan, *, wait_s: float = WAIT_S, note: Note = _silent) -> None:
    """Makes the plan's changes, all or none.

    ``wait_s`` is how long to wait for another process that writes to the same checkout;
    ``note`` is told that it waits. An exception on the way puts everything back and is raised on.

    Raises:
        StaleError: the tree changed since the plan was made.
        UserError: a port of the plan is refused; another process holds the lock; a file cannot
            be written.
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
    committed: list[bool] = []
    try:
        with locked(checkout, wait_s, note):
            try:
                _check_current(plan)
                _carry_out(plan)
                committed.append(True)
            finally:
                _tidy(checkout)
    except OSError as error:
        raise _unwritable(error, checkout, bool(committed)) from error


def _unwritable(error: OSError, checkout: Checkout, committed: bool) -> UserError:
    said = "everything was put back"
    if committed:
        said = "every file was changed, but tidying up failed"
    return UserError(
        f"cannot write to the checkout ({error.strerror}), {said}",
        where=error.filename if isinstance(error.filename, str) else checkout.root,
        next="check permissions, links and free space"
        + ("; the next command tidies up" if committed else ""),
    )


def recover(
    checkout: Checkout,
    *,
    wait_s: float = WAIT_S,
    note: Note = _silent,
    reading: bool = False,
) -> str | None:
    """Ends what an interrupted run left half done; says what was done, None: nothing was.

    Takes the lock only where something was left, so that reading a clean tree needs no write.
    ``reading``: waits for no one and fails for no lack of rights. What a command then shows is
    taken from before the change (`ascendport.patching.view`), and the text says so.

    Raises:
        UserError: a file is neither as it was nor as it was to be, or cannot be written.
    """
    if not _left_over(checkout):
        return None
    try:
        with locked(checkout, 0.0 if reading else wait_s, note):
            try:
                intent = read_intent(checkout)
                if intent is None:
                    _drop_objects(checkout)
                    return None
                if read_state(checkout).serial == intent.serial:
                    _finish(checkout, intent)
                    return f"an interrupted {intent.kind} had changed every file: completed"
                _roll_back(checkout, intent)
                return f"an interrupted {intent.kind} was undone: the files are as before it"
            finally:
                _tidy(checkout)
    except BusyError:
        if reading:
            return (
                "another run is writing to this checkout: shown is how it is before or after that"
            )
        raise
    except (OSError, NoLocksError) as error:
        why = error.strerror if isinstance(error, OSError) else "no locks there"
        if reading:
            return (
                f"an interrupted run cannot be ended from here ({why}): "
                "shown is how the checkout was before it"
            )
        if isinstance(error, NoLocksError):
            raise
        raise UserError(
            f"cannot end an interrupted run ({error.strerror})",
            where=error.filename if isinstance(error.filename, str) else checkout.root,
            next="check permissions and free space",
        ) from error


def _left_over(checkout: Checkout) -> bool:
    """Whether the state directory holds more, or less, than a run that ended leaves."""
    try:
        names = set(os.listdir(checkout.state_dir))  # noqa: PTH208
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise UserError(
            f"cannot read the tool's record ({error.strerror})",
            where=checkout.state_dir,
            next="check permissions and the disk",
        ) from error
    settled = {IGNORE, SAVED}
    state = read_state(checkout) if STATE in names else None
    if state is not None and state.ports:
        settled |= {STATE, OBJECTS, LOCK}
        if OBJECTS in names and not _stored(checkout) <= state.objects():
            return True
    # What is not the tool's is the user's, and says nothing.
    own = {IGNORE, SAVED, STATE, OBJECTS, LOCK, INTENT}
    own |= {disk.temporary_name(name) for name in (IGNORE, STATE, INTENT)}
    return not names or bool(names & own - settled) or names == {IGNORE}


def _stored(checkout: Checkout) -> set[str]:
    """The names of the kept texts, and of what a crash left among them."""
    with contextlib.suppress(OSError):
        return set(os.listdir(checkout.state_dir / OBJECTS))  # noqa: PTH208
    return set()


# --- one change ---


def _carry_out(plan: Plan) -> None:
    checkout = plan.checkout
    root = checkout.root
    intent = _intent(plan)
    written: list[str] = []
    texts = dict(plan.objects)
    for change in plan.changes:
        texts.update({sha256(t): t for t in (change.before, change.after) if t is not None})
    objects = inside(checkout, OBJECTS)
    mode = _record_mode(plan)
    disk.make_folder(root, objects)
    there = set(disk.names(root, objects))
    for sha, text in sorted(texts.items()):
        if sha not in there:
            disk.put(root, f"{objects}/{sha}", text, mode)
    try:
        disk.put(root, inside(checkout, INTENT), intent.model_dump_json().encode(), mode)
        if intent.saved:
            disk.make_folder(root, inside(checkout, SAVED))
        copies = {change.copy: change.before for change in plan.changes}
        for path in intent.saved:
            disk.put(root, path, copies[path] or b"", mode)
        for made in intent.made:
            disk.make_folder(root, made)
        for change, entry in zip(plan.changes, intent.entries, strict=True):
            written.append(change.file)
            try:
                _write(checkout, change.file, change.before, change.after, entry.mode)
            except StaleError:
                written.pop()
                raise
        disk.put(root, inside(checkout, STATE), encode(plan.new_state), mode)
    except BaseException as error:
        # Also after Ctrl-C: the tree is whole before anything else happens.
        stands = _settle(checkout, intent, written)
        if stands and isinstance(error, OSError):
            raise _unwritable(error, checkout, True) from error
        raise
    try:
        _finish(checkout, intent)
    except OSError as error:
        raise _unwritable(error, checkout, True) from error


def _record_mode(plan: Plan) -> int | None:
    """The permissions of record and kept texts. None, those of any new file, so that whoever may
    read the tree can ask where it stands; the owner's alone where others may not read a file of
    which a text is kept."""
    files = {*plan.new_state.files, *(change.file for change in plan.changes)}
    paths = [path for file in files if (path := plan.checkout.path(file)).exists()]
    return None if all(path.stat().st_mode & stat.S_IROTH for path in paths) else 0o600


def _write(
    checkout: Checkout, file: str, before: bytes | None, after: bytes | None, mode: int | None
) -> None:
    """Changes one file that holds ``before``.

    Raises:
        StaleError: it holds something else.
    """

    def last_look() -> None:
        if disk.read(checkout.root, file) != before:
            raise StaleError(
                "the file was edited meanwhile, everything was put back",
                where=checkout.path(file),
                next="run again",
            )

    if after is None:
        last_look()
        disk.remove(checkout.root, file)
        return
    avoid = bytecode.stamps(checkout, file)
    disk.put(checkout.root, file, after, mode, avoid=avoid, last_look=last_look)


def _settle(checkout: Checkout, intent: Intent, written: Collection[str]) -> bool:
    """After an exception: to the old tree, unless the commit had already happened. True: the
    change stands. ``written``: the files that were, or may have been, replaced."""
    try:
        if read_state(checkout).serial == intent.serial:
            _finish(checkout, intent)
            return True
        _roll_back(checkout, intent, written)
    except OSError as error:
        raise UserError(
            f"writing failed, and so did putting the files back ({error.strerror})",
            where=error.filename if isinstance(error.filename, str) else checkout.root,
            next="mend what is wrong with the disk; the next command puts them back",
        ) from error
    return False


def _intent(plan: Plan) -> Intent:
    checkout = plan.checkout
    entries = tuple(
        Entry(
            file=change.file,
            before=None if change.before is None else sha256(change.before),
            after=None if change.after is None else sha256(change.after),
            mode=None
            if change.before is None
            else stat.S_IMODE(checkout.path(change.file).stat().st_mode),
        )
        for change in plan.changes
    )
    copies = {change.copy for change in plan.changes if change.copy}
    return Intent(
        kind=plan.kind,
        serial=plan.new_state.serial,
        entries=entries,
        saved=tuple(sorted(copy for copy in copies if not checkout.path(copy).exists())),
        made=tuple(d for d in plan.new_state.directories if not checkout.path(d).exists()),
        doomed=tuple(d for d in plan.state.directories if d not in plan.new_state.directories),
    )


def _check_current(plan: Plan) -> None:
    """
    Raises:
        StaleError: the tree or the record is not what the plan was made from.
    """
    checkout = plan.checkout
    if (checkout.state_dir / INTENT).exists() or read_state(checkout) != plan.state:
        raise StaleError(
            "another run changed the checkout meanwhile", where=checkout.root, next="run again"
        )
    for change in plan.changes:
        if checkout.read(change.file) != change.before:
            raise StaleError(
                "the file was edited meanwhile",
                where=checkout.path(change.file),
                next="nothing was written; run again",
            )


def _finish(checkout: Checkout, intent: Intent) -> None:
    """What follows the commit."""
    _drop_directories(checkout, intent.doomed)
    _drop_objects(checkout)
    disk.remove(checkout.root, inside(checkout, INTENT))


def _roll_back(checkout: Checkout, intent: Intent, written: Collection[str] | None = None) -> None:
    """Puts the files back; ``written``: those that can have been changed, None: it is not known.

    Raises:
        UserError: the user edited one of them meanwhile, and the edit cannot be told from the
            change.
    """
    root = checkout.root
    for entry in intent.entries:
        if written is not None and entry.file not in written:
            continue
        disk.drop_temporary(root, entry.file)
        now = disk.read(root, entry.file)
        found = None if now is None else sha256(now)
        if found == entry.before:
            continue
        before = None if entry.before is None else read_object(checkout, entry.before)
        if found != entry.after:
            before = _with_edit(checkout, entry, now, before)
        if now != before:
            _write(checkout, entry.file, now, before, entry.mode)
    _drop_directories(checkout, intent.made)
    for path in intent.saved:
        disk.remove(root, path)
    if intent.saved:
        disk.remove_folder(root, inside(checkout, SAVED))
    _drop_objects(checkout)
    disk.remove(root, inside(checkout, INTENT))


def _with_edit(checkout: Checkout, entry: Entry, now: bytes | None, before: bytes | None) -> bytes:
    """The text to put back where the user edited the file after the crash, whichever text it
    was that they edited.

    Raises:
        UserError: the edit cannot be told from the change.
    """
    if now is not None and before is not None and entry.after is not None:
        merged = merge(read_object(checkout, entry.after), now, before)
        if not merged.conflicts:
            return merged.text
    kept = checkout.state_dir / OBJECTS
    raise UserError(
        "the file was edited after an interrupted run, so it is left as it is",
        where=checkout.path(entry.file),
        next=f"put the original {kept / entry.before} there and run again"
        if entry.before
        else "move the file away and run again",
    )


def _drop_objects(checkout: Checkout) -> None:
    """Removes the texts that the record does not refer to."""
    keep = read_state(checkout).objects()
    objects = inside(checkout, OBJECTS)
    for name in disk.names(checkout.root, objects):
        if name not in keep:
            disk.remove(checkout.root, f"{objects}/{name}")


def _drop_directories(checkout: Checkout, folders: Iterable[str]) -> None:
    for folder in reversed(tuple(folders)):
        disk.remove_folder(checkout.root, folder)


def _tidy(checkout: Checkout) -> None:
    """Removes the state directory where it records nothing. Called with the lock held."""
    root = checkout.root
    for name in (IGNORE, STATE, INTENT):
        disk.drop_temporary(root, inside(checkout, name))
    if (checkout.state_dir / INTENT).exists() or read_state(checkout).ports:
        return
    objects = inside(checkout, OBJECTS)
    for name in disk.names(root, objects):
        disk.remove(root, f"{objects}/{name}")
    disk.remove_folder(root, objects)
    disk.remove_folder(root, inside(checkout, SAVED))
    for name in (STATE, INTENT):
        disk.remove(root, inside(checkout, name))
    if not (checkout.state_dir / SAVED).exists():
        disk.remove(root, inside(checkout, IGNORE))
    disk.remove(root, inside(checkout, LOCK))
    # Something else in it is the user's.
    disk.remove_folder(root, inside(checkout, ""))
