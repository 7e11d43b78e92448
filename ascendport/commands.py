"""What the commands do, as functions that return values. Imports are kept inside: status must
not wait for LibCST, and nothing here needs torch or triton."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ascendport.checkout.tree import Checkout, recognise
from ascendport.errors import ExitCode
from ascendport.ports.catalogue import catalogue, select

if TYPE_CHECKING:
    from ascendport.bench.rows import Row
    from ascendport.checks.outcome import CheckResult
    from ascendport.checks.subject import Options, Subject
    from ascendport.patching.plan import Plan
    from ascendport.patching.status import PortStatus
    from ascendport.ports.manifest import Port

Note = Callable[[str], None]
Watch = Callable[[str, int, int], None]
Names = Sequence[str]
Folders = Sequence[Path]


@dataclass(frozen=True)
class Verdict:
    """What verify found: results by port name, and the exit status that they mean."""

    tree: Checkout
    results: dict[str, list[CheckResult]]
    code: ExitCode


def options(socs: Names, cases: Names, seed: int, large: bool) -> Options:
    """The user's choices, checked.

    Raises:
        UserError: an SoC that does not exist.
    """
    from ascendport.ascend import soc
    from ascendport.checks.subject import Options

    names = tuple(soc.soc(name).name for name in socs)
    return Options(socs=names or soc.DEFAULTS, cases=tuple(cases), seed=seed, large=large)


def _open(path: Path, note: Note) -> Checkout:
    """The checkout at ``path``; what an interrupted run left behind is ended first."""
    from ascendport.patching.journal import recover

    tree = recognise(path)
    if said := recover(tree):
        note(said)
    return tree


def status(
    path: Path, only: Names, folders: Folders, note: Note
) -> tuple[Checkout, list[PortStatus]]:
    from ascendport.checkout.cached import release_file
    from ascendport.patching.status import status as status_of

    tree = _open(path, note)
    return tree, status_of(tree, select(catalogue(folders), only), release_file)


def apply(
    path: Path, only: Names, folders: Folders, note: Note, *, dry_run: bool, force: bool
) -> Plan:
    from ascendport.patching.journal import execute
    from ascendport.patching.plan import plan_apply

    tree = _open(path, note)
    plan = plan_apply(tree, _fitting(tree, only, folders), force=force)
    if not dry_run and not plan.refused:
        execute(plan)
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


def revert(path: Path, only: Names, folders: Folders, note: Note, *, dry_run: bool) -> Plan:
    """Works from the checkout's own record: a port's folder may be gone."""
    from ascendport.patching.journal import execute
    from ascendport.patching.plan import plan_revert
    from ascendport.patching.state import read_state

    tree = _open(path, note)
    recorded = read_state(tree).ports
    unknown = [name for name in only if name not in recorded]
    if unknown:
        select(catalogue(folders), unknown)
    plan = plan_revert(tree, list(only) or None)
    if not dry_run and not plan.refused:
        execute(plan)
    return plan


def verify(
    path: Path,
    only: Names,
    folders: Folders,
    check: Names,
    require: Names,
    chosen: Options,
    note: Note,
    watch: Watch,
) -> Verdict:
    """Runs the checks of each port that the tree has a target for.

    The exit status is 1 where a check failed or a port does not fit the tree, otherwise 3 where
    a required check did not run or nothing could be verified.
    """
    from ascendport.checks import registry
    from ascendport.checks.outcome import CheckResult, Outcome

    checks = registry.select(check)
    required = {c.name for c in registry.select([name for name in require if name != "all"])}
    if not require:
        required = set()
    elif "all" in require:
        required = {c.name for c in checks}
    tree = _open(path, note)
    results: dict[str, list[CheckResult]] = {}
    for port in select(catalogue(folders), only):
        mine = [c for c in checks if port.kind in c.kinds]
        subject = _subject(tree, port, chosen, watch)
        if isinstance(subject, str):
            absent, reason = subject.startswith("missing"), subject
            outcome = Outcome.NOT_RUN if absent else Outcome.FAILED
            results[port.name] = [CheckResult(c.name, outcome, reason) for c in mine]
            continue
        results[port.name] = []
        for number, one in enumerate(mine):
            watch(f"verify {port.name}", number, len(mine))
            results[port.name].append(one.run(subject))
        watch(f"verify {port.name}", len(mine), len(mine))
    return Verdict(tree, results, _code(results, required))


def _code(results: dict[str, list[CheckResult]], required: set[str]) -> ExitCode:
    from ascendport.checks.outcome import Outcome

    every = [result for checks in results.values() for result in checks]
    if any(result.outcome is Outcome.FAILED for result in every):
        return ExitCode.FAILED
    ran = {result.check for result in every if result.outcome is Outcome.PASSED}
    skipped = {result.check for result in every if result.outcome is Outcome.NOT_RUN}
    if required & (skipped - ran) or required - ran or not ran:
        return ExitCode.NOT_RUN
    return ExitCode.OK


def _subject(tree: Checkout, port: Port, chosen: Options, watch: Watch) -> Subject | str:
    """What the checks are given; or the port's status and reason where it does not fit."""
    from ascendport.checks.subject import Subject
    from ascendport.errors import UserError
    from ascendport.patching.images import images
    from ascendport.patching.status import Status
    from ascendport.patching.status import status as status_of

    state = status_of(tree, [port])[0]
    if state.status in (Status.MISSING, Status.SUPERSEDED, Status.DRIFTED):
        return f"{state.status.value}: {state.reason}"
    try:
        made = images(tree, port)
    except UserError as error:
        return str(error)
    return Subject(tree, port, made.variant, made.before, made.after, chosen, watch)


def bench(
    path: Path,
    only: Names,
    folders: Folders,
    chosen: Options,
    device: str,
    note: Note,
    watch: Watch,
) -> tuple[Checkout, list[Row], ExitCode]:
    """Rows for each kernel port that the tree has a target for.

    The exit status is 1 where a port does not fit the tree, 3 where nothing could be measured.
    """
    from ascendport.bench import compiled, detect, modelled
    from ascendport.bench import device as on_device
    from ascendport.bench.rows import not_run
    from ascendport.ports.manifest import Kind

    detect.check(device)
    tree = _open(path, note)
    rows: list[Row] = []
    code = ExitCode.OK
    for port in select(catalogue(folders), only):
        if port.kind is not Kind.KERNEL:
            continue
        subject = _subject(tree, port, chosen, watch)
        if isinstance(subject, str):
            rows.append(not_run(port.name, subject))
            if not subject.startswith("missing"):
                code = ExitCode.FAILED
            continue
        rows += compiled.rows(subject)
        rows += modelled.rows(subject)
        rows += on_device.rows(subject, device)
    if code is ExitCode.OK and not any(row.outcome == "ran" for row in rows):
        code = ExitCode.NOT_RUN
    return tree, rows, code
