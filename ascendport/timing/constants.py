"""The numbers of the time model: read from constants.toml, which holds the source of each."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import Any

from ascendport.errors import UserError

KINDS = ("published", "inferred", "assumed", "fitted")
CONFIDENCES = ("H", "M", "L")


@dataclass(frozen=True)
class Constant:
    """One entry of the table. ``value``: a number, or numbers by name or by size."""

    name: str
    value: Any
    unit: str
    source: str
    confidence: str
    kind: str
    note: str = ""


@dataclass(frozen=True)
class Constants:
    """The table."""

    entries: Mapping[str, Constant]

    def __getitem__(self, name: str) -> float:
        """A constant that is one number."""
        return float(self.entries[name].value)

    def by_name(self, name: str) -> Mapping[str, Any]:
        """A constant that is several numbers, by name."""
        value: Mapping[str, Any] = self.entries[name].value
        return value

    def by_size(self, name: str) -> tuple[tuple[float, float], ...]:
        """A constant that is a curve: (size, value), sizes ascending."""
        return tuple(
            sorted((float(size), float(value)) for size, value in self.by_name(name).items())
        )

    def having(self, **values: Any) -> Constants:
        """The same table with other values: how the fit tries them."""
        changed = {name: replace(self.entries[name], value=value) for name, value in values.items()}
        return Constants({**self.entries, **changed})


def parse(text: str, where: str = "constants.toml") -> Constants:
    """The table in ``text``.

    Raises:
        UserError: an entry lacks a value, unit or source, or has a kind or confidence that is
            not known.
    """
    entries: dict[str, Constant] = {}
    for name, entry in tomllib.loads(text).items():
        try:
            constant = Constant(name, **entry)
        except TypeError:
            raise UserError(
                "a constant needs value, unit, source, confidence and kind",
                where=f"{where}: {name}",
                next="add what is missing",
            ) from None
        sound = constant.kind in KINDS and constant.confidence in CONFIDENCES
        if not sound or not constant.source or not constant.unit:
            raise UserError(
                f"kind is one of {', '.join(KINDS)}; confidence H, M or L; source, unit not empty",
                where=f"{where}: {name}",
                next="mend that entry",
            )
        entries[name] = constant
    return Constants(entries)


@cache
def constants() -> Constants:
    """The table that ships with the model."""
    return parse(files(__package__).joinpath("constants.toml").read_text(encoding="utf-8"))


def along(curve: tuple[tuple[float, float], ...], size: float) -> float:
    """The value at ``size`` on a curve, linear between points, flat beyond its ends."""
    before = curve[0]
    for point in curve:
        if size <= point[0]:
            if point[0] == before[0]:
                return point[1]
            share = (size - before[0]) / (point[0] - before[0])
            return before[1] + share * (point[1] - before[1])
        before = point
    return before[1]
