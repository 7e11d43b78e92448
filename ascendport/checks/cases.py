"""Which cases a user means."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence

from ascendport.errors import UserError
from ascendport.harness.case import Case
from ascendport.harness.portcode import load_port
from ascendport.ports.manifest import Kind, Port

_FEW = 6
"""Cases of a port that a message names."""


def of_ports(ports: Sequence[Port], names: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Port → those of ``names`` that its cases have, each once.

    Raises:
        UserError: no case of these ports has one of the names; offers those that come near.
    """
    known = {port.name: _names(port) for port in ports}
    for name in names:
        if not any(name in cases for cases in known.values()):
            raise UserError("no such case", where=name, next=_offer(name, known))
    return {
        port: tuple(name for name in dict.fromkeys(names) if name in cases)
        for port, cases in known.items()
    }


def _names(port: Port) -> list[str]:
    if port.kind is Kind.STORE:
        from ascendport.store.portcode import every, has_scenarios

        if not has_scenarios(port):
            return []
        return [scenario.name for scenario in every(port)]
    return [case.name for case in load_port(port).cases]


def _offer(name: str, known: Mapping[str, Sequence[str]]) -> str:
    every = list(dict.fromkeys(case for cases in known.values() for case in cases))
    if not every:
        return "no port has cases: leave --case out"
    near = difflib.get_close_matches(name, every, n=3, cutoff=0.5)
    if near:
        return f"did you mean {' or '.join(near)}?"
    return "; ".join(f"{port} has {_some(cases)}" for port, cases in known.items() if cases)


def _some(cases: Sequence[str]) -> str:
    """All of few; of many the first, and how many there are."""
    if len(cases) <= _FEW:
        return ", ".join(cases)
    return f"{', '.join(cases[:_FEW])} and {len(cases) - _FEW} more"


def default(cases: Sequence[Case]) -> Case | None:
    """The case that shows most where the user names none: the first that is timed, else the first
    that is compiled for each SoC, else the first; None where there is none."""
    for tag in ("bench", "compile"):
        for case in cases:
            if tag in case.tags:
                return case
    return cases[0] if cases else None
