"""A row of the bench table."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any


class Source(StrEnum):
    """Where a figure comes from. A modelled latency is never called measured."""

    COMPILED = "compiled"
    """Read from the program that the Ascend compiler emits."""
    COUNTED = "counted"
    MODELLED = "modelled"
    MEASURED = "measured"


@dataclass(frozen=True)
class Row:
    """One quantity of one case on one target, before and after.

    ``ratio`` is before/after: above 1 the port is better, for quantities where less is better.
    ``ratio_low`` and ``ratio_high`` bound it where it was measured.
    ``reason``: why there is no figure (``outcome`` is then ``not_run``), or a remark.
    """

    port: str
    case: str
    target: str
    quantity: str
    unit: str
    source: Source
    before: float | int | None = None
    after: float | int | None = None
    ratio_low: float | None = None
    ratio_high: float | None = None
    outcome: str = "ran"
    reason: str = ""
    measured_ratio: float | None = None

    @property
    def ratio(self) -> float | None:
        if self.measured_ratio is not None:
            return self.measured_ratio
        if self.before is None or not self.after:
            return None
        return self.before / self.after

    def facts(self) -> dict[str, Any]:
        facts = asdict(self)
        facts.pop("measured_ratio")
        return {**facts, "source": self.source.value, "ratio": self.ratio}


def latency_not_run(port: str, case: str, target: str, source: Source, reason: str) -> Row:
    """A latency row that says why there is no figure."""
    return not_run(
        port, reason, case=case, target=target, quantity="latency", unit="us", source=source
    )


def not_run(
    port: str,
    reason: str,
    *,
    case: str = "all",
    target: str = "",
    quantity: str = "program",
    unit: str = "",
    source: Source = Source.COMPILED,
) -> Row:
    """A row that says why there is no figure."""
    return Row(port, case, target, quantity, unit, source, outcome="not_run", reason=reason)
