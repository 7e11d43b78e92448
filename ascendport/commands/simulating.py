"""simulate: one case of a kernel port, explained."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ascendport.checkout.tree import Checkout
from ascendport.commands.opening import Folders, Note, Watch, open_checkout
from ascendport.commands.subjects import Misfit, subject_of
from ascendport.errors import ExitCode
from ascendport.ports.catalogue import catalogue, select

if TYPE_CHECKING:
    from ascendport.ascend.soc import Soc
    from ascendport.explain.model import Explanation
    from ascendport.explain.run import Problem


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
    tree = open_checkout(path, note)
    chosen = Options(socs=(part.name,), cases=(case,) if case else (), seed=seed, large=True)
    subject = subject_of(tree, port, chosen, watch, note)
    if isinstance(subject, Misfit):
        raise UserError(subject.reason, where=f"{name} on {tree.root}", code=subject.code)
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
