"""What changes a checkout, or says how it stands: status, apply, revert, export."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import ascendport
from ascendport.checkout.tree import Checkout
from ascendport.commands.opening import Folders, Names, Note, Wait, open_checkout, wait_seconds
from ascendport.ports.catalogue import catalogue, select

if TYPE_CHECKING:
    from ascendport.patching.drift import Drift, Original
    from ascendport.patching.export import Commit
    from ascendport.patching.plan import Plan
    from ascendport.patching.status import PortStatus
    from ascendport.ports.manifest import Port

_PLANS = 5
"""How often a plan is made anew because others write to the same checkout."""


def status(
    path: Path, only: Names, folders: Folders, note: Note
) -> tuple[Checkout, list[PortStatus]]:
    from ascendport.checkout.cached import release_file
    from ascendport.patching.status import status as status_of

    tree = open_checkout(path, note)
    return tree, status_of(tree, select(catalogue(folders), only), release_file)


def apply(
    path: Path,
    only: Names,
    folders: Folders,
    note: Note,
    *,
    dry_run: bool,
    force: bool,
    wait: Wait = None,
) -> Plan:
    """``wait``: how many seconds to wait for another run that writes to the checkout."""
    from ascendport.patching.plan import plan_apply

    tree = open_checkout(path, note, reading=dry_run, wait=wait)
    return _carried_out(
        tree,
        lambda: plan_apply(tree, _fitting(tree, only, folders), force=force),
        note,
        dry_run=dry_run,
        wait=wait,
    )


def _carried_out(
    tree: Checkout, make: Callable[[], Plan], note: Note, *, dry_run: bool, wait: Wait
) -> Plan:
    """The plan, carried out unless it is refused or only to be shown. Made anew where another
    run changed the checkout between plan and writing."""
    from ascendport.patching.journal import StaleError, execute, recover

    for _ in range(_PLANS - 1):
        plan = make()
        if dry_run or plan.refused:
            return plan
        try:
            execute(plan, note=note, wait_s=wait_seconds(wait))
            return plan
        except StaleError:
            recover(tree, note=note, wait_s=wait_seconds(wait))
    plan = make()
    if not plan.refused:
        execute(plan, note=note, wait_s=wait_seconds(wait))
    return plan


def _fitting(tree: Checkout, only: Names, folders: Folders) -> list[Port]:
    """The ports that apply is about: those named; without names all that the tree has targets
    for, so that a store port for another release does not stop the kernels."""
    from ascendport.patching.status import Status
    from ascendport.patching.status import status as status_of

    chosen = select(catalogue(folders), only)
    if only:
        return chosen
    states = status_of(tree, chosen)
    return [state.port for state in states if state.status is not Status.MISSING]


def revert(
    path: Path,
    only: Names,
    folders: Folders,
    note: Note,
    *,
    dry_run: bool,
    theirs: bool = False,
    keep: bool = False,
    wait: Wait = None,
) -> Plan:
    """Works from the checkout's own record: a port's folder may be gone. ``theirs`` and ``keep``
    say which text stays where the user edited what the port changes; ``wait`` is as for `apply`.

    Raises:
        UserError: both of them are given.
    """
    from ascendport.errors import UserError
    from ascendport.patching.plan import Edited, plan_revert
    from ascendport.patching.state import read_state

    if theirs and keep:
        raise UserError("--theirs and --keep are opposites", next="give one of them")
    edited = Edited.THEIRS if theirs else Edited.KEEP if keep else Edited.REFUSE
    tree = open_checkout(path, note, reading=dry_run, wait=wait)
    recorded = read_state(tree).ports
    unknown = [name for name in only if name not in recorded]
    if unknown:
        select(catalogue(folders), unknown)
    if not recorded and not only:
        note("no port is recorded here as applied: nothing to take out")
    return _carried_out(
        tree,
        lambda: plan_revert(tree, list(only) or None, edited=edited, known=_known(folders)),
        note,
        dry_run=dry_run,
        wait=wait,
    )


def _known(folders: Folders) -> list[Port]:
    """The ports at hand; none where a folder of one is damaged, which must not stop revert."""
    from ascendport.errors import UserError

    try:
        return catalogue(folders)
    except UserError:
        return []


@dataclass(frozen=True)
class Exported:
    """The series that export wrote, and where to."""

    tree: Checkout
    commits: tuple[Commit, ...]
    where: str
    """A file's path, or a branch and its last commit."""


def export(
    path: Path, only: Names, folders: Folders, note: Note, *, out: Path | None, branch: str | None
) -> Exported:
    """What apply would do, as a mailbox in ``out`` or, with ``branch``, as a branch.

    Raises:
        UserError: a port does not fit, or the file or the branch cannot be made.
    """
    from ascendport.checks import last
    from ascendport.patching import export as as_series
    from ascendport.patching.images import images
    from ascendport.patching.plan import plan_apply
    from ascendport.report.files import write_whole

    tree = open_checkout(path, note)
    ports = _fitting(tree, only, folders)
    plan = plan_apply(tree, ports)
    figures: dict[str, str] = {}
    for port in ports if not plan.refused else ():
        if port.name in plan.new_state.ports:
            made = images(tree, port)
            figures[port.name] = last.figures(port.name, made.before, made.after)
    commits = as_series.as_committed(tree, as_series.series(plan, ports, figures))
    if branch is not None:
        last_commit = as_series.branch(tree, commits, branch)
        return Exported(tree, commits, f"{branch} ({last_commit[:12]})")
    out = out or Path(f"{ascendport.__name__}.patch")
    data = as_series.patch(commits, as_series.author_of(tree))
    write_whole(out, data, "patch", "--out")
    return Exported(tree, commits, str(out))


def drifts(plan: Plan, note: Note) -> dict[str, list[Drift]]:
    """For each port that a plan refuses because of an unknown text: that text beside the nearest
    known one, whose release is fetched where the cache does not hold it."""
    from ascendport.patching.drift import drifts as drifts_of

    known = _originals(note)
    return {
        port.port: drifts_of(plan.checkout, plan.state, port.drift, known)
        for port in plan.refused
        if port.drift is not None
    }


def _originals(note: Note) -> Original:
    """Texts of releases; of those that are not in the cache the first asked for is fetched."""
    from ascendport.checkout.cached import release_file
    from ascendport.errors import UserError

    asked: list[str] = []

    @lru_cache
    def original(release: str, file: str) -> bytes | None:
        text = release_file(release, file)
        if text is not None or asked:
            return text
        asked.append(release)
        from ascendport.checkout.fetch import sdist  # slow to load, seldom needed

        note(f"fetching {release}, to show what the port knows")
        try:
            sdist(release, lambda what, done, total: None)
        except UserError as error:
            note(f"not fetched: {error}")
        return release_file(release, file)

    return original
