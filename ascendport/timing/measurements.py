"""Published latencies: read from measurements.toml, which holds the source of each."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files


@dataclass(frozen=True)
class Row:
    """One published latency. ``case``: sizes of the launch, by name."""

    case: Mapping[str, int]
    us: float

    @property
    def name(self) -> str:
        """The case as text."""
        return ", ".join(f"{name} {value}" for name, value in self.case.items())


@dataclass(frozen=True)
class Measured:
    """A kernel that others measured.

    ``file``: below the root of ``release``. ``fitted``: whether constants are fitted on it;
    ``why`` not. ``vector_loops``: as in `pipes.Machine`.
    """

    name: str
    kernel: str
    file: str
    release: str
    soc: str
    source: str
    fitted: bool
    rows: tuple[Row, ...]
    note: str = ""
    why: str = ""
    vector_loops: bool = False


@cache
def measurements() -> tuple[Measured, ...]:
    """All of them."""
    text = files(__package__).joinpath("measurements.toml").read_text(encoding="utf-8")
    return tuple(
        Measured(name, **{**entry, "rows": tuple(Row(**row) for row in entry["rows"])})
        for name, entry in tomllib.loads(text).items()
    )
