"""What applying or reverting ports would change, worked out without writing anything.

A plan is all or nothing: where one of the chosen ports is refused it holds no changes. The
journal carries it out.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path, PurePosixPath
from typing import Literal

import ascendport
from ascendport.checkout.tree import Checkout
from ascendport.errors import UserError
from ascendport.patching.install import Install, compose
from ascendport.patching.recognise import Status, match
from ascendport.patching.state import (
    OBJECTS,
    FileRecord,
    State,
    pristine,
    read_object,
    read_state,
    sha256,
)
from ascendport.patching.text import unified
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
    REVERTED = "reverted"
    NOT_APPLIED = "not applied"
    REFUSED = "refused"


@dataclass(frozen=True)
class Change:
    """One file's change. None: there is no such file."""

    port: str
    """The first of the chosen ports that touches the file."""
    file: str
    action: Action
    before: bytes | None
    after: bytes | None


@dataclass(frozen=True)
class PortPlan:
    """What becomes of one port."""

    port: str
    outcome: Outcome
    variant: str | None = None
    reason: str = ""
    forced: bool = False


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


def plan_apply(checkout: Checkout, ports: Sequence[Port], *, force: bool = False) -> Plan:
    """What putting ``ports`` into ``checkout`` would change.

    A port that is in already is left alone; where some of its files were put back by other
    means it is put in again. ``force`` accepts an original that the port does not know, if the
    signatures that callers see still fit.

    Raises:
        UserError: a target leads out of the checkout, the record is damaged, or a port's own
            text is.
    """
    state = read_state(checkout)
    _check_state_dir(checkout)
    installs = _recorded(checkout, state)
    outcomes: list[PortPlan] = []
    chosen: list[Install] = []
    for port in ports:
        try:
            outcome, install = _apply_one(checkout, state, port, installs, force)
            if install is not None:
                installs[port.name] = install
                chosen.append(install)
        except _RefusedError as refusal:
            outcome = PortPlan(port.name, Outcome.REFUSED, reason=str(refusal))
        outcomes.append(outcome)
    return _plan(checkout, "apply", state, installs, chosen, outcomes)


def plan_revert(checkout: Checkout, ports: Sequence[Port | str] | None = None) -> Plan:
    """What taking ``ports`` (None: all that are in) out of ``checkout`` would change.

    Works from the record alone: a port's folder may be gone. Other ports in the same files stay.

    Raises:
        UserError: a file leads out of the checkout, or the record is damaged.
    """
    state = read_state(checkout)
    _check_state_dir(checkout)
    names = list(state.ports) if ports is None else [_name(port) for port in ports]
    installs = _recorded(checkout, state)
    outcomes: list[PortPlan] = []
    chosen: list[Install] = []
    for name in dict.fromkeys(names):
        if name not in installs:
            outcomes.append(PortPlan(name, Outcome.NOT_APPLIED))
            continue
        record = state.ports[name]
        try:
            _check_unedited(checkout, state, record.files(), "revert")
            outcome = PortPlan(name, Outcome.REVERTED, record.variant, forced=record.forced)
            chosen.append(installs.pop(name))
        except _RefusedError as refusal:
            outcome = PortPlan(name, Outcome.REFUSED, record.variant, str(refusal))
        outcomes.append(outcome)
    return _plan(checkout, "revert", state, installs, chosen, outcomes)


def diff(plan: Plan) -> str:
    """The plan's changes as a unified diff that patch(1) and git apply take, plain text."""
    return "".join(
        unified(change.before, change.after, f"a/{change.file}", f"b/{change.file}")
        for change in plan.changes
    )


def _name(port: Port | str) -> str:
    return port if isinstance(port, str) else port.name


def _recorded(checkout: Checkout, state: State) -> dict[str, Install]:
    return {
        name: Install.of_record(name, record, lambda sha: read_object(checkout, sha))
        for name, record in state.ports.items()
    }


def _apply_one(
    checkout: Checkout, state: State, port: Port, installs: Mapping[str, Install], force: bool
) -> tuple[PortPlan, Install | None]:
    if port.name in installs:
        install = installs[port.name]
        _check_unedited(checkout, state, install.files(), "apply")
        stale = [
            file
            for file in install.files()
            if _hash(checkout.read(file)) != state.files[file].after
        ]
        done = Outcome.APPLIED if stale else Outcome.ALREADY_APPLIED
        reason = f"again: {', '.join(stale)} had been put back" if stale else ""
        again = PortPlan(port.name, done, install.variant, reason, install.forced)
        return again, install if stale else None
    declared = [t.file for variant in port.manifest.variants for t in variant.targets]
    for file in dict.fromkeys(declared):
        _check_inside(checkout, file)
    found = match(port, lambda file: pristine(checkout, state, file))
    if found.status is Status.SUPERSEDED:
        own = found.variant.name if found.variant else None
        return PortPlan(port.name, Outcome.SUPERSEDED, own, found.reason), None
    forced = force and found.forcible
    if found.variant is None or not (found.status is Status.APPLICABLE or forced):
        raise _RefusedError(f"{found.status}: {found.reason}")
    install = Install.of_port(port, found.variant, forced=forced)
    for file in install.files():
        _check_inside(checkout, file)
        if obstacle := _obstacle(checkout, file):
            raise _RefusedError(obstacle)
    _check_unedited(checkout, state, install.files(), "apply")
    for file in install.files():
        try:
            compose(file, pristine(checkout, state, file), [*installs.values(), install])
        except UserError as error:
            raise _RefusedError(str(error)) from error
    plan = PortPlan(port.name, Outcome.APPLIED, found.variant.name, forced=forced)
    return plan, install


def _plan(
    checkout: Checkout,
    kind: Literal["apply", "revert"],
    state: State,
    installs: Mapping[str, Install],
    chosen: Sequence[Install],
    outcomes: Sequence[PortPlan],
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
    objects: dict[str, bytes] = {}
    blocked: dict[str, str] = {}
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
        if disk != after:
            if reason := _obstacle(checkout, file):
                blocked.setdefault(port, reason)
            changes.append(Change(port, file, _action(original, disk, after), disk, after))
    if blocked:
        refused = tuple(
            PortPlan(one.port, Outcome.REFUSED, one.variant, blocked[one.port], one.forced)
            if one.port in blocked
            else one
            for one in outcomes
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
    )
    return Plan(checkout, kind, tuple(outcomes), tuple(changes), state, new_state, objects)


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


def _check_unedited(checkout: Checkout, state: State, files: Iterable[str], verb: str) -> None:
    """Refuses where a file is neither as the tool left it nor as it was before."""
    for file in files:
        _check_inside(checkout, file)
        record = state.files.get(file)
        found = _hash(checkout.read(file))
        if record is None or found in (record.after, record.before):
            continue
        what = "was deleted" if found is None else "was edited"
        kept = checkout.state_dir / OBJECTS
        original = str(kept / record.before) if record.before else "none, a port brought it"
        raise _RefusedError(
            f"modified: {file} {what} since it was applied; undo that edit "
            f"('ascendport status' shows it; as applied: {kept / record.after}; "
            f"original: {original}) and {verb} again"
        )


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
    if path.exists():
        if not path.is_file():
            return f"{file} is not a regular file"
        if not path.stat().st_mode & _WRITE:
            return f"{file} is read-only; make it writable"
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
