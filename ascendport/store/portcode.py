"""A store port's ``cases.py``: the scenarios that it is proved on."""

from __future__ import annotations

from ascendport.errors import UserError
from ascendport.harness.portcode import load_file
from ascendport.ports.manifest import Port
from ascendport.store.scenario import Scenario


def every(port: Port) -> tuple[Scenario, ...]:
    """All scenarios of a port.

    Raises:
        UserError: the file is missing, does not run or lists no scenarios; or two share a name.
    """
    path = port.folder / port.manifest.cases
    module = load_file(path, f"_ascendport_{port.name}_cases")
    found = tuple(getattr(module, "CASES", ()))
    if not found or not all(isinstance(one, Scenario) for one in found):
        raise UserError("CASES must be a sequence of scenarios", where=path, next="mend that file")
    known = [one.name for one in found]
    if len(set(known)) != len(known):
        raise UserError("two scenarios share a name", where=path, next="rename one")
    return found


def has_scenarios(port: Port) -> bool:
    """Whether scenarios are among what proves the port: it names no checks, or brings some."""
    return not port.manifest.checks or (port.folder / port.manifest.cases).is_file()


def scenarios(port: Port, variant: str, names: tuple[str, ...] = ()) -> tuple[Scenario, ...]:
    """The scenarios for a variant; only the named ones where names are given.

    Raises:
        UserError: as `every`, or a name that none has.
    """
    found = every(port)
    known = [one.name for one in found]
    strange = [name for name in names if name not in known]
    if strange:
        raise UserError(
            f"no such case: {', '.join(strange)}",
            where=port.folder / port.manifest.cases,
            next=f"choose from {', '.join(known)}",
        )
    return tuple(
        one for one in found if one.applies_to(variant) and (not names or one.name in names)
    )
