"""What checks, benchmarks and simulations are given: a port on a tree, with the user's choices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ascendport.checkout.tree import Checkout
from ascendport.commands.opening import Names, Note, Watch
from ascendport.errors import ExitCode

if TYPE_CHECKING:
    from ascendport.ascend.soc import Soc
    from ascendport.checks.subject import Options, Subject
    from ascendport.ports.manifest import Port


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


def with_cases(ports: Sequence[Port], chosen: Options) -> dict[str, Options | str]:
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


@dataclass(frozen=True)
class Misfit:
    """Why a port cannot be looked at on a tree. ``absent``: the tree has no target for it."""

    reason: str
    absent: bool = False

    @property
    def code(self) -> ExitCode:
        """The exit status that it means by itself."""
        return ExitCode.NOT_RUN if self.absent else ExitCode.FAILED


def subject_of(
    tree: Checkout, port: Port, chosen: Options, watch: Watch, note: Note = lambda line: None
) -> Subject | Misfit:
    """What is looked at are texts made in memory: ``note`` is told where the disk has others."""
    from ascendport.checks.subject import Subject
    from ascendport.errors import UserError
    from ascendport.patching.images import images
    from ascendport.patching.status import Status
    from ascendport.patching.status import status as status_of

    found = status_of(tree, [port])[0]
    if found.status in (Status.MISSING, Status.SUPERSEDED, Status.DRIFTED):
        reason = f"{found.status.value}: {found.reason}"
        return Misfit(reason, absent=found.status is Status.MISSING)
    try:
        made = images(tree, port)
    except UserError as error:
        return Misfit(str(error))
    if found.status is Status.MODIFIED:
        note(
            f"{port.name} is modified on disk, and looked at without that: {found.reason}; to take "
            "edits or a merge of git's into the original: revert, then apply"
        )
    before, after = ({**made.beside, **own} for own in (made.before, made.after))
    return Subject(tree, port, made.variant, before, after, chosen, watch)
