"""Findings as they come up: one for each place and way, with how often it happened."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ascendport.simulator.ir import Location
from ascendport.simulator.result import Finding, Kind
from ascendport.simulator.sites import AccessSite, CallSite, EventSite, Site, WorkSite


class Findings:
    """Keeps the first of each and counts the rest."""

    def __init__(self) -> None:
        self._found: dict[tuple[Any, ...], Finding] = {}

    def add(
        self,
        kind: Kind,
        message: str,
        site: Site,
        program: int,
        *,
        tensor: str = "",
        offset: int | None = None,
        other: int | None = None,
        detail: tuple[Any, ...] = (),
        times: int = 1,
    ) -> None:
        """``detail`` tells apart findings of one kind at one place."""
        key = (kind, site.number, tensor, detail)
        known = self._found.get(key)
        if known is not None:
            self._found[key] = replace(known, times=known.times + times)
            return
        self._found[key] = Finding(
            kind, message, operation(site), location(site), program, other, tensor, offset, times
        )

    def all(self) -> tuple[Finding, ...]:
        """In the order in which they came up first."""
        return tuple(self._found.values())


def location(site: Site) -> Location | None:
    """Where a place of the program stands in the kernel; scalar work has no single place."""
    return None if isinstance(site, WorkSite) else site.location


def line_of(site: Site) -> str:
    """`` (line N)``, or nothing where that is not known."""
    place = location(site)
    return f" (line {place.line})" if place else ""


def operation(site: Site) -> str:
    """What stands at a place of the program."""
    if isinstance(site, CallSite):
        return site.callee
    if isinstance(site, EventSite):
        return site.kind
    return site.operation if isinstance(site, AccessSite) else "scalar code"
