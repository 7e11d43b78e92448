"""verify: the checks of each port, and what they mean together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ascendport.checkout.tree import Checkout
from ascendport.commands.opening import Folders, Names, Note, Watch, open_checkout
from ascendport.commands.subjects import Misfit, subject_of, with_cases
from ascendport.errors import ExitCode
from ascendport.ports.catalogue import catalogue, select

if TYPE_CHECKING:
    from ascendport.checks.outcome import CheckResult
    from ascendport.checks.registry import Check
    from ascendport.checks.subject import Options
    from ascendport.ports.manifest import Port


@dataclass(frozen=True)
class Verdict:
    """What verify found: results by port name, and the exit status that they mean."""

    tree: Checkout
    results: dict[str, list[CheckResult]]
    code: ExitCode
    forced: frozenset[str] = frozenset()
    """Ports that are in over an original that they do not know."""


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
    ports = select(catalogue(folders), only)
    required = _required(require, checks, ports)
    tree = open_checkout(path, note)
    results: dict[str, list[CheckResult]] = {}
    modified: list[str] = []
    for port, options in zip(ports, with_cases(ports, chosen).values(), strict=True):
        mine = [c for c in checks if c.proves_port(port)]
        if isinstance(options, str):
            results[port.name] = [CheckResult.nothing(c.name, options) for c in mine]
            continue
        subject = subject_of(tree, port, options, watch, modified.append)
        if isinstance(subject, Misfit):
            outcome = Outcome.NOT_RUN if subject.absent else Outcome.FAILED
            # A port that was asked for by name should be there.
            idle = subject.absent and not only
            results[port.name] = [
                CheckResult(c.name, outcome, subject.reason, idle=idle) for c in mine
            ]
            continue
        results[port.name] = []
        for number, one in enumerate(mine):
            watch(f"verify {port.name}", number, len(mine))
            results[port.name].append(one.run(subject))
        if not options.cases:
            own = subject.own(subject.before), subject.own(subject.after)
            last.keep(port.name, *own, results[port.name])
        watch(f"verify {port.name}", len(mine), len(mine))
    for line in modified:
        note(line)
    state = read_state(tree)
    forced = frozenset(name for name in results if name in state.ports and state.ports[name].forced)
    return Verdict(tree, results, exit_code(results, required), forced)


def _required(names: Names, checks: Sequence[Check], ports: Sequence[Port]) -> set[str]:
    """The checks that must run. «all»: those of ``checks`` that are about a port at hand and need
    no device.

    Raises:
        UserError: a name is not a check's.
    """
    from ascendport.checks import registry

    named = [name for name in names if name != "all"]
    required = {check.name for check in registry.select(named)} if named else set()
    if len(named) < len(names):
        required |= {
            check.name
            for check in checks
            if any(map(check.proves_port, ports)) and not check.needs_device
        }
    return required
