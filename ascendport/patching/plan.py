"""What applying or reverting ports would change, worked out without writing anything.

A plan is all or nothing: where one of the chosen ports is refused it holds no changes. The
journal carries it out.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path, PurePosixPath
from typing import Literal

import ascendport
from ascendport.checkout.tree import Checkout
from ascendport.errors import UserError
from ascendport.patching.bytecode import source_of, unchecked
from ascendport.patching.install import Install, compose
from ascendport.patching.merge import merge
from ascendport.patching.putback import holds, put_back
from ascendport.patching.recognise import Match, Status, match
from ascendport.patching.state import (
    OBJECTS,
    SAVED,
    FileRecord,
    State,
    inside,
    pristine,
    read_object,
    read_state,
    sha256,
)
from ascendport.patching.text import unified
from ascendport.patching.view import steady
from ascendport.ports.digest import parse
from ascendport.ports.manifest import Port


class Action(StrEnum):
    """What happens to one file."""

    CREATE = "create"
    MODIFY = "modify"
    DELETE = "delete"
    RESTORE = "restore"
    """Back to the bytes it had before any port."""


class Outcome(StrEnum):
    """What the plan does with one port."""

    APPLIED = "applied"
    ALREADY_APPLIED = "already applied"
    SUPERSEDED = "superseded"
    UPGRADED = "upgraded"
    """An older text of the port gave way to the folder's."""
    REVERTED = "reverted"
    NOT_APPLIED = "not applied"
    REFUSED = "refused"


class Edited(StrEnum):
    """What revert does where the user and the port changed the same lines."""

    REFUSE = "refuse"
    THEIRS = "theirs"
    """Upstream's text; the user's goes to a copy."""
    KEEP = "keep"
    """The file stays as the user has it."""


@dataclass(frozen=True)
class Change:
    """One file's change. None: there is no such file."""

    port: str
    """The first of the chosen ports that touches the file."""
    file: str
    action: Action
    before: bytes | None
    after: bytes | None
    copy: str | None = None
    """Where the user's own text is kept, as a path in the checkout; None: nothing of the user's
    is replaced."""


@dataclass(frozen=True)
class PortPlan:
    """What becomes of one port."""

    port: str
    outcome: Outcome
    variant: str | None = None
    reason: str = ""
    forced: bool = False
    conflict: str = ""
    """Where the user and the port changed the same lines: a diff3 view."""
    drift: Match | None = None
    """What does not match, where that is why the port is refused."""


@dataclass(frozen=True)
class Plan:
    """All changes of one apply or revert."""

    checkout: Checkout
    kind: Literal["apply", "revert"]
    ports: tuple[PortPlan, ...]
    changes: tuple[Change, ...]
    state: State
    """The record that the plan was made from."""
    new_state: State
    objects: Mapping[str, bytes]
    """Texts that the new record refers to, by hash."""

    @property
    def refused(self) -> tuple[PortPlan, ...]:
        """The ports because of which nothing is changed."""
        return tuple(port for port in self.ports if port.outcome is Outcome.REFUSED)


class _RefusedError(Exception):
    """One port cannot be done; the text says why."""

    def __init__(self, reason: str, *, conflict: str = "", drift: Match | None = None) -> None:
        super().__init__(reason)
        self.conflict = conflict
        self.drift = drift


def plan_apply(checkout: Checkout, ports: Sequence[Port], *, force: bool = False) -> Plan:
    """What putting ``ports`` into ``checkout`` would change.

    A port that is in already is left alone; where its folder has another text that one takes its
    place, and where some of its files were put back by other means it is put in again. Edits that
    the user made since stay. ``force`` accepts an original that the port does not know, if the
    signatures that callers see still fit.

    Raises:
        UserError: a target leads out of the checkout, the record is damaged, or a port's own
            text is.
    """

    def make(view: Checkout) -> Plan:
        recorded = read_state(view)
        _check_state_dir(view)
        state = put_back(view, recorded, ports)
        installs = _recorded(view, state)
        outcomes: list[PortPlan] = []
        chosen: list[Install] = []
        fresh: list[str] = []
        for port in ports:
            try:
                outcome, changed = _apply_one(view, state, port, installs, force)
                chosen.extend(changed)
                if changed and outcome.outcome is Outcome.SUPERSEDED:
                    del installs[port.name]
                elif changed:
                    installs[port.name] = changed[-1]
                    fresh.append(port.name)
            except _RefusedError as refusal:
                outcome = _refused(PortPlan(port.name, Outcome.REFUSED), refusal)
            outcomes.append(outcome)
        colliding = _collisions(view, state, installs, fresh)
        outcomes = [
            _refused(PortPlan(one.port, Outcome.REFUSED), colliding[one.port])
            if one.port in colliding
            else one
            for one in outcomes
        ]
        plan = _plan(view, "apply", state, installs, chosen, outcomes, Edited.REFUSE)
        return _recorded_as(plan, recorded)

    return replace(steady(checkout, make), checkout=checkout)


def plan_revert(
    checkout: Checkout,
    ports: Sequence[Port | str] | None = None,
    *,
    edited: Edited = Edited.REFUSE,
    known: Sequence[Port] = (),
) -> Plan:
    """What taking ``ports`` (None: all that are in) out of ``checkout`` would change.

    Works from the record alone: a port's folder may be gone. Other ports in the same files stay,
    and so do edits that the user made since. ``edited`` says what to do where such an edit
    touches lines that the port changed. ``known``: ports whose manifests tell an original from
    an edit where the files were checked out anew.

    Raises:
        UserError: a file leads out of the checkout, or the record is damaged.
    """

    def make(view: Checkout) -> Plan:
        recorded = read_state(view)
        _check_state_dir(view)
        state = put_back(view, recorded, known)
        names = list(state.ports) if ports is None else [_name(port) for port in ports]
        installs = _recorded(view, state)
        outcomes: list[PortPlan] = []
        chosen: list[Install] = []
        for name in dict.fromkeys(names):
            if name not in installs:
                outcomes.append(PortPlan(name, Outcome.NOT_APPLIED))
                continue
            record = state.ports[name]
            for file in record.files():
                _check_inside(view, file)
            outcomes.append(PortPlan(name, Outcome.REVERTED, record.variant, forced=record.forced))
            chosen.append(installs.pop(name))
        plan = _plan(view, "revert", state, installs, chosen, outcomes, edited)
        return _recorded_as(plan, recorded)

    return replace(steady(checkout, make), checkout=checkout)


def diff(plan: Plan) -> str:
    """The plan's changes as a unified diff that patch(1) and git apply take, plain text."""
    return "".join(
        unified(change.before, change.after, f"a/{change.file}", f"b/{change.file}")
        for change in plan.changes
    )


def _recorded_as(plan: Plan, recorded: State) -> Plan:
    """The plan with the record as it is on disk as what it starts from."""
    new = recorded if plan.new_state is plan.state else plan.new_state
    return replace(plan, state=recorded, new_state=new)


def _name(port: Port | str) -> str:
    return port if isinstance(port, str) else port.name


def _recorded(checkout: Checkout, state: State) -> dict[str, Install]:
    return {
        name: Install.of_record(name, record, lambda sha: read_object(checkout, sha))
        for name, record in state.ports.items()
    }


def _refused(port: PortPlan, refusal: _RefusedError) -> PortPlan:
    return replace(
        port,
        outcome=Outcome.REFUSED,
        reason=str(refusal),
        conflict=refusal.conflict,
        drift=refusal.drift,
    )


def _apply_one(
    checkout: Checkout, state: State, port: Port, installs: Mapping[str, Install], force: bool
) -> tuple[PortPlan, tuple[Install, ...]]:
    """What becomes of the port, and what changes: nothing, its install, or the old and the new."""
    declared = [t.file for variant in port.manifest.variants for t in variant.targets]
    for file in dict.fromkeys(declared):
        _check_inside(checkout, file)
    found = match(port, lambda file: pristine(checkout, state, file))
    present = installs.get(port.name)
    if found.status is Status.SUPERSEDED:
        own = found.variant.name if found.variant else None
        gone = (present,) if present else ()
        return PortPlan(port.name, Outcome.SUPERSEDED, own, found.reason), gone
    forced = found.forcible and (force or (present is not None and present.forced))
    if found.variant is None or not (found.status is Status.APPLICABLE or forced):
        older = " (an older text of the port is in)" if present else ""
        raise _RefusedError(f"{found.status}: {found.reason}{older}", drift=found)
    install = Install.of_port(port, found.variant, forced=forced)
    for file in install.files():
        _check_inside(checkout, file)
    if install == present:
        return _again(checkout, state, install)
    for file in install.files():
        if obstacle := _obstacle(checkout, file):
            raise _RefusedError(obstacle)
    done = Outcome.UPGRADED if present else Outcome.APPLIED
    outcome = PortPlan(port.name, done, found.variant.name, forced=forced)
    return outcome, (present, install) if present else (install,)


def _collisions(
    checkout: Checkout, state: State, installs: Mapping[str, Install], fresh: Sequence[str]
) -> dict[str, _RefusedError]:
    """Those of the ports ``fresh`` that cannot go in beside the others, and why.

    Each is tried beside the ports that stay as they are and those in front of it: what the record
    has of a port that comes into another form says nothing of the tree as it will be.
    """
    settled = [install for name, install in installs.items() if name not in fresh]
    found = {}
    for name in fresh:
        try:
            for file in installs[name].files():
                compose(file, pristine(checkout, state, file), [*settled, installs[name]])
        except UserError as error:
            found[name] = _RefusedError(str(error))
        else:
            settled.append(installs[name])
    return found


def _again(
    checkout: Checkout, state: State, install: Install
) -> tuple[PortPlan, tuple[Install, ...]]:
    """A port whose text is in: what is to do is to put it back where it was taken out by other
    means."""
    stale, edited = [], []
    for file in install.files():
        record = state.files[file]
        disk = checkout.read(file)
        found = _hash(disk)
        if found == record.after:
            continue
        if found == record.before:
            stale.append(file)
        elif holds(checkout, state, install.name, file, disk):
            edited.append(file)
        else:
            gone = "deleted" if disk is None else "edited until nothing of the port was left"
            kept = checkout.state_dir / OBJECTS / record.after
            raise _RefusedError(
                f"modified: {file} was {gone} since it was applied; revert first: --keep leaves "
                f"the file as it is, --theirs takes the original (as applied: {kept})"
            )
    outcome = Outcome.APPLIED if stale else Outcome.ALREADY_APPLIED
    reasons = [f"again: {', '.join(stale)} had been put back"] if stale else []
    reasons += [f"{', '.join(edited)} edited since, left so"] if edited else []
    done = PortPlan(port=install.name, outcome=outcome, variant=install.variant,
                    reason="; ".join(reasons), forced=install.forced)  # fmt: skip
    return done, (install,) if stale else ()


def _plan(
    checkout: Checkout,
    kind: Literal["apply", "revert"],
    state: State,
    installs: Mapping[str, Install],
    chosen: Sequence[Install],
    outcomes: Sequence[PortPlan],
    edited: Edited,
) -> Plan:
    """The plan that makes ``installs`` the ports in the checkout; ``chosen`` are those that
    come or go."""
    if not chosen or any(outcome.outcome is Outcome.REFUSED for outcome in outcomes):
        return Plan(checkout, kind, tuple(outcomes), (), state, state, {})
    touched: dict[str, str] = {}
    for install in chosen:
        for file in install.files():
            touched.setdefault(file, install.name)
    staying = {file for install in installs.values() for file in install.files()}
    changes: list[Change] = []
    files = dict(state.files)
    caches = dict(state.caches)
    objects: dict[str, bytes] = {}
    blocked: dict[str, _RefusedError] = {}
    for file, port in sorted(touched.items()):
        original = pristine(checkout, state, file)
        after = compose(file, original, installs.values())
        disk = checkout.read(file)
        if file in staying and after is not None:
            before = None if original is None else sha256(original)
            files[file] = FileRecord(before=before, after=sha256(after))
            objects.update({sha256(text): text for text in (original, after) if text is not None})
        else:
            files.pop(file, None)
        try:
            result, copy = _resolved(checkout, state, file, disk, after, edited, kind)
            if disk != result and (reason := _obstacle(checkout, file)):
                raise _RefusedError(reason)
        except _RefusedError as refusal:
            blocked.setdefault(port, refusal)
            continue
        if disk != result:
            action = _action(original, disk, result)
            changes.append(Change(port, file, action, disk, result, copy))
        for change in _cache_changes(checkout, caches, port, file, original, result):
            changes.append(change)
            if change.after is None and change.before is not None:
                caches[change.file] = sha256(change.before)
                objects[sha256(change.before)] = change.before
        for cache in [name for name in caches if file not in files and source_of(name) == file]:
            del caches[cache]
    if blocked:
        refused = tuple(
            _refused(one, blocked[one.port]) if one.port in blocked else one for one in outcomes
        )
        return Plan(checkout, kind, refused, (), state, state, {})
    for install in installs.values():
        objects.update({sha256(text): text for text in install.texts()})
    new_state = State(
        tool=ascendport.__version__,
        serial=state.serial + 1,
        ports={name: installs[name].record() for name in sorted(installs)},
        files=dict(sorted(files.items())),
        directories=_directories(checkout, state, files),
        caches=dict(sorted(caches.items())),
    )
    ordered = tuple(sorted(changes, key=lambda change: change.file))
    return Plan(checkout, kind, tuple(outcomes), ordered, state, new_state, objects)


def _resolved(
    checkout: Checkout,
    state: State,
    file: str,
    disk: bytes | None,
    wanted: bytes | None,
    edited: Edited,
    verb: str,
) -> tuple[bytes | None, str | None]:
    """What the file is to hold, the user's edits since the last change kept; and where a copy of
    the user's text goes, None: nowhere."""
    record = state.files.get(file)
    found = _hash(disk)
    if record is None or disk == wanted or found in (record.after, record.before):
        return wanted, None
    ours = read_object(checkout, record.after)
    if wanted == ours:
        return disk, None
    copy = None
    if disk is not None:
        name = f"{PurePosixPath(file).name}.{sha256(disk)[:12]}"
        copy = inside(checkout, f"{SAVED}/{name}")
    if edited is Edited.THEIRS:
        return wanted, copy
    conflict = ""
    if disk is not None and wanted is not None:
        without = "without the port" if verb == "revert" else "with the new text"
        merged = merge(ours, disk, wanted, ("yours", "as applied", without))
        if not merged.conflicts and _parses_as_well(file, disk, merged.text):
            return merged.text, copy
        conflict = merged.conflicts
    if edited is Edited.KEEP:
        return disk, None
    what = "was deleted" if disk is None else "was edited where the port changes it"
    ways = "'revert --keep' leaves the file as it is, 'revert --theirs' takes the original" + (
        f" and keeps yours in {copy}" if copy else ""
    )
    kept = checkout.state_dir / OBJECTS
    original = str(kept / record.before) if record.before else "none, a port brought it"
    raise _RefusedError(
        f"modified: {file} {what} since it was applied; {ways} "
        f"(as applied: {kept / record.after}; original: {original})",
        conflict=conflict,
    )


def _parses_as_well(file: str, disk: bytes, merged: bytes) -> bool:
    """Whether a merge left Python that was Python."""
    if not file.endswith(".py"):
        return True
    try:
        parse(disk)
    except UserError:
        return True
    try:
        parse(merged)
    except UserError:
        return False
    return True


def _cache_changes(
    checkout: Checkout,
    caches: Mapping[str, str],
    port: str,
    file: str,
    original: bytes | None,
    result: bytes | None,
) -> list[Change]:
    """Compiled caches to take away because Python would not look at the changed file, and those
    to put back with the original."""
    if result != original:
        return [
            Change(port, cache, Action.DELETE, data, None)
            for cache, data in unchecked(checkout, file).items()
            if cache not in caches
        ]
    back = []
    for cache, sha in caches.items():
        if source_of(cache) == file and checkout.path(cache).parent.is_dir():
            data, now = read_object(checkout, sha), checkout.read(cache)
            if now != data:
                action = Action.CREATE if now is None else Action.RESTORE
                back.append(Change(port, cache, action, now, data))
    return back


def _action(original: bytes | None, disk: bytes | None, after: bytes | None) -> Action:
    if after is None:
        return Action.DELETE
    if disk is None:
        return Action.CREATE
    return Action.RESTORE if after == original else Action.MODIFY


def _directories(
    checkout: Checkout, state: State, files: Mapping[str, FileRecord]
) -> tuple[str, ...]:
    """Directories that the tool made or will make for ``files``, outer ones first."""
    parents = {str(p) for file in files for p in PurePosixPath(file).parents if p.parts}
    made = [folder for folder in state.directories if folder in parents]
    new = [folder for folder in parents if not checkout.path(folder).exists()]
    return tuple(sorted({*made, *new}, key=lambda folder: (folder.count("/"), folder)))


# --- may it be written? ---


def _hash(data: bytes | None) -> str | None:
    return None if data is None else sha256(data)


def _check_inside(checkout: Checkout, file: str) -> None:
    """
    Raises:
        UserError: the file or a directory on its way is a link that leads out of the checkout.
    """
    path = checkout.path(file)
    if not path.resolve().is_relative_to(checkout.root.resolve()):
        raise UserError(
            "a symbolic link leads out of the checkout",
            where=path,
            next="nothing is written there; replace the link by the file",
        )


def _check_state_dir(checkout: Checkout) -> None:
    if checkout.state_dir.is_symlink():
        raise UserError(
            "the tool's state directory is a symbolic link",
            where=checkout.state_dir,
            next="remove the link",
        )


def _obstacle(checkout: Checkout, file: str) -> str | None:
    """Why the file cannot be written, or None. Permission bits count for root too."""
    path = checkout.path(file)
    if path.is_symlink():
        return f"{file} is a symbolic link; replace it by the file"
    for above in PurePosixPath(file).parents:
        if above.parts and checkout.path(str(above)).is_symlink():
            return f"{above} is a symbolic link; replace it by the directory"
    if path.exists():
        if not path.is_file():
            return f"{file} is not a regular file"
        seen = path.stat()
        if not seen.st_mode & _WRITE:
            return f"{file} is read-only; make it writable"
        if os.geteuid() not in (0, seen.st_uid):
            # Only root can give a new file to somebody else.
            return f"{file} belongs to another user (uid {seen.st_uid}); run as that user"
        if not os.access(path, os.W_OK):
            # An immutable file, or one that is mounted read-only: root meets those too.
            return f"{file} cannot be written; is it immutable (lsattr) or mounted read-only?"
    for folder in (_existing(path.parent), _existing(checkout.state_dir)):
        if not folder.is_dir():
            return f"{folder} is not a directory"
        if not folder.stat().st_mode & _WRITE or not os.access(folder, os.W_OK):
            return f"the directory {folder} is read-only; make it writable"
    return None


_WRITE = stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH


def _existing(folder: Path) -> Path:
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return folder
