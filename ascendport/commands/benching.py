"""bench: rows of before and after, of kernels and of the store."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ascendport.checkout.tree import Checkout
from ascendport.commands.opening import Folders, Names, Note, Watch, open_checkout
from ascendport.commands.subjects import Misfit, subject_of, with_cases
from ascendport.errors import ExitCode
from ascendport.ports.catalogue import catalogue, select

if TYPE_CHECKING:
    from ascendport.bench.rows import Row
    from ascendport.checks.subject import Options
    from ascendport.store.bench import Plan as StorePlan


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
    tree = open_checkout(path, note)
    rows: list[Row] = []
    code = ExitCode.OK
    ports = select(catalogue(folders), only)
    for port, options in zip(ports, with_cases(ports, chosen).values(), strict=True):
        if port.kind is not Kind.KERNEL:
            if only:
                rows.append(not_run(port.name, "a store port has no kernel to time"))
            continue
        if isinstance(options, str):
            rows.append(not_run(port.name, options))
            continue
        subject = subject_of(tree, port, options, watch, note)
        if isinstance(subject, Misfit):
            rows.append(not_run(port.name, subject.reason))
            if not subject.absent:
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

    tree = open_checkout(path, note)
    rows: list[Row] = []
    code = ExitCode.OK
    for port in select(catalogue(folders), only):
        # What is timed are saves and loads as scenarios have them.
        if port.kind is not Kind.STORE or not has_scenarios(port):
            if only:
                reason = "a port without saves and loads to time"
                rows.append(not_run(port.name, reason, quantity="total", source=Source.MEASURED))
            continue
        subject = subject_of(tree, port, chosen, watch, note)
        if isinstance(subject, Misfit):
            reason = subject.reason
            rows.append(not_run(port.name, reason, quantity="total", source=Source.MEASURED))
            if not subject.absent:
                code = ExitCode.FAILED
            continue
        rows += rows_of(subject, plan)
    if code is ExitCode.OK and not any(row.outcome == "ran" for row in rows):
        code = ExitCode.NOT_RUN
    return tree, rows, code
