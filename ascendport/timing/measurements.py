"""Published latencies: read from measurements.toml, which holds the source of each."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

ORIGINS = ("vllm-ascend", "vllm", "own")


@dataclass(frozen=True)
class Row:
    """One launch. ``case``: its sizes, by name. ``us``: published; None: only a ratio is."""

    case: Mapping[str, int]
    us: float | None = None

    @property
    def name(self) -> str:
        """The case as text."""
        return ", ".join(f"{name} {value}" for name, value in self.case.items())


@dataclass(frozen=True)
class Measured:
    """A kernel that others measured.

    ``origin``: whose source is lowered; own ones stand in for a kernel whose source is not public.
    ``file``: below the root of ``release``; of own ones a module beside scripts/fit_table.py.
    ``without``: text that is taken out of the source first. ``fitted``: whether constants are
    fitted on it; ``why`` not. ``gives``: the constant that follows from it, so that it checks
    nothing. ``in_service``: as in `pipes.Machine`.
    """

    name: str
    kernel: str
    file: str
    soc: str
    source: str
    rows: tuple[Row, ...]
    fitted: bool = False
    release: str = ""
    origin: str = "vllm-ascend"
    without: tuple[str, ...] = ()
    note: str = ""
    why: str = ""
    gives: str = ""
    in_service: bool = False


@dataclass(frozen=True)
class Ratio:
    """How much faster one launch is than another: between ``low`` and ``high``, published.

    ``before``, ``after``: the kernel's name here, and the number of its row.
    """

    name: str
    before: tuple[str, int]
    after: tuple[str, int]
    low: float
    high: float
    source: str


@cache
def _tables() -> dict[str, Any]:
    text = files(__package__).joinpath("measurements.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


@cache
def measurements() -> tuple[Measured, ...]:
    """All kernels."""
    return tuple(
        Measured(
            name,
            **{
                **entry,
                "rows": tuple(Row(**row) for row in entry["rows"]),
                "without": tuple(entry.get("without", ())),
            },
        )
        for name, entry in _tables().items()
        if name != "ratio"
    )


@cache
def ratios() -> tuple[Ratio, ...]:
    """All published ratios."""
    return tuple(
        Ratio(**{**entry, "before": tuple(entry["before"]), "after": tuple(entry["after"])})
        for entry in _tables()["ratio"]
    )
