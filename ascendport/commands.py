"""What the commands do, as functions that return values. Imports are kept inside: status must
not wait for LibCST, and nothing here needs torch or triton."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import ascendport
from ascendport.checkout.tree import Checkout, recognise
from ascendport.errors import ExitCode
from ascendport.ports.catalogue import catalogue, select

if TYPE_CHECKING:
    from ascendport.ascend.soc import Soc
    from ascendport.bench.rows import Row
    from ascendport.checks.outcome import CheckResult
    from ascendport.checks.subject import Options, Subject
    from ascendport.explain.model import Explanation
    from ascendport.explain.run import Problem
    from ascendport.patching.drift import Drift, Original
    from ascendport.patching.export import Commit
    from ascendport.patching.plan import Plan
    from ascendport.patching.status import PortStatus
    from ascendport.ports.manifest import Port
    from ascendport.store.bench import Plan as StorePlan

Note = Callable[[str], None]
Watch = Callable[[str, int, int], None]
Names = Sequence[str]
_PLANS = 5
"""How often a plan is made anew because others write to the same checkout."""
Folders = Sequence[Path]
Wait = float | None
"""How many seconds to wait for another run that writes to the checkout; None: as usual."""


@dataclass(frozen=True)
class Simulation:
    """What simulate found. ``trace``: the trace file's contents; None if none was asked for."""

    tree: Checkout
    port: str
    variant: str
    soc: Soc
    shown: Explanation
    other: Explanation | Problem
    trace: bytes | None = None

    @property
    def code(self) -> ExitCode:
        return ExitCode.OK if self.shown.clean else ExitCode.FAILED


@dataclass(frozen=True)
class Verdict:
    """What verify found: results by port name, and the exit status that they mean."""

    tree: Checkout
    results: dict[str, list[CheckResult]]
    code: ExitCode
    forced: frozenset[str] = frozenset()
    """Ports that are in over an original that they do not know."""


def options(socs: Names, cases: Names, seed: int, large: bool) -> Options:
    """The user's choices, checked.

    Raises:
        UserError: an SoC that does not exist.
    """
    from ascendport.ascend import soc
    from ascendport.checks.subject import Options

    names = tuple(dict.fromkeys(soc.soc(name).name for name in socs))
    return Options(socs=names or soc.DEFAULTS, cases=tuple(cases), seed=seed, large=large)


def one_soc(name: str) -> Soc:
    """The part to simulate on.

    Raises:
        UserError: no such part, or one of A5.
    """
    from ascendport.ascend import soc
    from ascendport.errors import UserError

    part = soc.soc(name)
    if part.family is soc.Family.A5:
        simulated = " or ".join(soc.SHORT[family] for family in (soc.Family.A2, soc.Family.A3))
        raise UserError(
            "A5 programs are compiled, not simulated", where=part.name, next=f"choose {simulated}"
        )
    return part


def _open(path: Path, note: Note, *, reading: bool = True, wait: Wait = None) -> Checkout:
    """The checkout at ``path``; what an interrupted run left behind is ended first.

    ``reading``: without waiting for a run that is under way."""
    from ascendport.patching.journal import recover

    tree = recognise(path)
    if said := recover(tree, note=note, reading=reading, wait_s=_seconds(wait)):
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

    tree = _open(path, note, reading=dry_run, wait=wait)
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
            execute(plan, note=note, wait_s=_seconds(wait))
            return plan
        except StaleError:
            recover(tree, note=note, wait_s=_seconds(wait))
    plan = make()
    if not plan.refused:
        execute(plan, note=note, wait_s=_seconds(wait))
    return plan


def _seconds(wait: Wait) -> float:
    from ascendport.patching.lock import WAIT_S

    return WAIT_S if wait is None else wait


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
    tree = _open(path, note, reading=dry_run, wait=wait)
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

    tree = _open(path, note)
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


def _with_cases(ports: Sequence[Port], chosen: Options) -> dict[str, Options | str]:
    """The options of each port: those of the named cases that it has; or why it has none.

    Raises:
        UserError: no port has a case of that name.
    """
    if not chosen.cases:
        return {port.name: chosen for port in ports}
    from ascendport.checks.cases import of_ports

    named = of_ports(ports, chosen.cases)
    reason = f"no case of it is named {' or '.join(chosen.cases)}"
    return {
        port.name: replace(chosen, cases=cases) if (cases := named.get(port.name)) else reason
        for port in ports
    }


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
    a required check did not run on a port that it is about, or nothing could be verified.
    """
    from ascendport.checks import last, registry
    from ascendport.checks.outcome import CheckResult, Outcome, exit_code
    from ascendport.patching.state import read_state

    checks = registry.select(check)
    required = {c.name for c in registry.select([name for name in require if name != "all"])}
    if not require:
        required = set()
    elif "all" in require:
        # A check that is about no port at hand could never run.
        at_hand = select(catalogue(folders), only)
        required |= {
            c.name for c in checks if any(map(c.proves_port, at_hand)) and not c.needs_device
        }
    tree = _open(path, note)
    results: dict[str, list[CheckResult]] = {}
    ports = select(catalogue(folders), only)
    for port, options in zip(ports, _with_cases(ports, chosen).values(), strict=True):
        mine = [c for c in checks if c.proves_port(port)]
        if isinstance(options, str):
            results[port.name] = [CheckResult.nothing(c.name, options) for c in mine]
            continue
        subject = _subject(tree, port, options, watch)
        if isinstance(subject, str):
            absent, reason = subject.startswith("missing"), subject
            outcome = Outcome.NOT_RUN if absent else Outcome.FAILED
            # A port that was asked for by name should be there.
            idle = absent and not only
            results[port.name] = [CheckResult(c.name, outcome, reason, idle=idle) for c in mine]
            continue
        results[port.name] = []
        for number, one in enumerate(mine):
            watch(f"verify {port.name}", number, len(mine))
            results[port.name].append(one.run(subject))
        if not options.cases:
            own = subject.own(subject.before), subject.own(subject.after)
            last.keep(port.name, *own, results[port.name])
        watch(f"verify {port.name}", len(mine), len(mine))
    state = read_state(tree)
    _say_modified(tree, ports, note)
    forced = frozenset(name for name in results if name in state.ports and state.ports[name].forced)
    return Verdict(tree, results, exit_code(results, required), forced)


def _say_modified(tree: Checkout, ports: Sequence[Port], note: Note) -> None:
    """Checks are of texts made in memory: where the disk has others, that must be said."""
    from ascendport.patching.status import Status
    from ascendport.patching.status import status as status_of

    for found in status_of(tree, ports):
        if found.status is Status.MODIFIED:
            note(
                f"{found.port.name} is modified on disk, and checked without that: {found.reason}; "
                "to take edits or a merge of git's into the original: revert, then apply"
            )


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
    before, after = ({**made.beside, **own} for own in (made.before, made.after))
    return Subject(tree, port, made.variant, before, after, chosen, watch)


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
    from ascendport.bench import compiled, modelled
    from ascendport.bench import device as on_device
    from ascendport.bench.rows import not_run
    from ascendport.harness import detect
    from ascendport.ports.manifest import Kind

    detect.check(device)
    tree = _open(path, note)
    rows: list[Row] = []
    code = ExitCode.OK
    ports = select(catalogue(folders), only)
    for port, options in zip(ports, _with_cases(ports, chosen).values(), strict=True):
        if port.kind is not Kind.KERNEL:
            if only:
                rows.append(not_run(port.name, "a store port has no kernel to time"))
            continue
        if isinstance(options, str):
            rows.append(not_run(port.name, options))
            continue
        subject = _subject(tree, port, options, watch)
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


def store_plan(
    sizes: Names, blocks: Sequence[int], layers: int, backend: str, ranks: int, *, sweep: bool
) -> StorePlan:
    """What the store benchmark times, checked.

    Raises:
        UserError: a choice that cannot be.
    """
    from ascendport.store.bench import plan

    return plan(sizes, blocks, layers, backend, ranks, sweep=sweep)


def bench_store(
    path: Path,
    only: Names,
    folders: Folders,
    plan: StorePlan,
    chosen: Options,
    note: Note,
    watch: Watch,
) -> tuple[Checkout, list[Row], ExitCode]:
    """Rows for each store port that the tree has a target for. Exit status as of `bench`."""
    from ascendport.bench.rows import Source, not_run
    from ascendport.ports.manifest import Kind
    from ascendport.store.bench import rows as rows_of
    from ascendport.store.portcode import has_scenarios

    tree = _open(path, note)
    rows: list[Row] = []
    code = ExitCode.OK
    for port in select(catalogue(folders), only):
        # What is timed are saves and loads as scenarios have them.
        if port.kind is not Kind.STORE or not has_scenarios(port):
            if only:
                reason = "a port without saves and loads to time"
                rows.append(not_run(port.name, reason, quantity="total", source=Source.MEASURED))
            continue
        subject = _subject(tree, port, chosen, watch)
        if isinstance(subject, str):
            rows.append(not_run(port.name, subject, quantity="total", source=Source.MEASURED))
            if not subject.startswith("missing"):
                code = ExitCode.FAILED
            continue
        rows += rows_of(subject, plan)
    if code is ExitCode.OK and not any(row.outcome == "ran" for row in rows):
        code = ExitCode.NOT_RUN
    return tree, rows, code


def simulate(
    path: Path,
    name: str,
    folders: Folders,
    case: str | None,
    part: Soc,
    side: str,
    seed: int,
    note: Note,
    watch: Watch,
    *,
    trace: bool,
) -> Simulation:
    """Explains one case of a kernel port on one part; without a name, the one that shows most.

    Raises:
        UserError: what cannot be simulated, and why: status 2 for what was asked wrongly, 1 where
            the port does not fit the tree or its kernel fails, 3 where something is missing here.
    """
    from ascendport.ascend import toolchain
    from ascendport.checks import cases
    from ascendport.checks.subject import Options
    from ascendport.errors import UserError
    from ascendport.explain.model import without_events
    from ascendport.explain.run import explain, trace_file
    from ascendport.harness.portcode import load_port
    from ascendport.ports.manifest import Kind

    port = select(catalogue(folders), [name])[0]
    if port.kind is not Kind.KERNEL:
        kernels = [one.name for one in catalogue(folders) if one.kind is Kind.KERNEL]
        raise UserError(
            "a store port has no kernel to simulate",
            where=name,
            next=f"choose from {', '.join(kernels)}",
        )
    if case:
        cases.of_ports([port], [case])
    tree = _open(path, note)
    chosen = Options(socs=(part.name,), cases=(case,) if case else (), seed=seed, large=True)
    subject = _subject(tree, port, chosen, watch)
    if isinstance(subject, str):
        absent = subject.startswith("missing")
        raise UserError(
            subject,
            where=f"{name} on {tree.root}",
            code=ExitCode.NOT_RUN if absent else ExitCode.FAILED,
        )
    variant = subject.variant.name
    code = load_port(port)
    wanted = cases.default(code.of(variant, chosen.cases))
    if wanted is None:
        others = [one.name for one in code.of(variant)]
        raise UserError(
            f"{f'case {case} is not' if case else 'no case is'} for variant {variant}",
            where=code.cases_file,
            next=f"choose from {', '.join(others)}" if others else "add one",
            code=ExitCode.USAGE if others else ExitCode.NOT_RUN,
        )
    if reason := toolchain.missing():
        raise UserError("nothing can be compiled here", next=reason, code=ExitCode.NOT_RUN)
    found = explain(subject, wanted.name, part.name, side, trace=trace)
    written = trace_file(found.shown) if trace else None
    shown = without_events(found.shown)
    return Simulation(tree, name, variant, part, shown, found.other, written)
