"""What a run of a program gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from ascendport.simulator.ir import Location

if TYPE_CHECKING:
    from ascendport.simulator.trace import Trace


class Kind(StrEnum):
    """What is wrong. The text is how it is shown."""

    GM_READ = "out-of-bounds read"
    GM_WRITE = "out-of-bounds write"
    UB_RANGE = "outside the Unified Buffer"
    UNDEFINED = "undefined value used"
    MISALIGNED = "misaligned access"
    RACE = "hazard between pipes"
    EVENT_MISSING = "wait without a set"
    EVENT_TWICE = "event set twice"
    EVENT_LEFT = "event left set"
    CONFLICT = "conflict between programs"
    LOCK = "lock never free"
    GATHER = "gather index out of range"
    ENDLESS = "loop without an end"
    MISFIT = "operands that do not fit"
    ASSERTION = "assertion failed"


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong, at one place in the program; the first time that it happened.

    ``operation``: the library function or operation. ``program``: flat program id.
    ``other_program``: with whom, for a conflict. ``tensor``: name of the argument, for GM;
    ``offset``: first byte, in the tensor or in UB. ``times``: how often it happened in all.
    """

    kind: Kind
    message: str
    operation: str
    location: Location | None
    program: int
    other_program: int | None = None
    tensor: str = ""
    offset: int | None = None
    times: int = 1

    def __str__(self) -> str:
        place = f"{self.location}: " if self.location else ""
        often = f" ({self.times} times)" if self.times > 1 else ""
        who = f"program {self.program}"
        if self.other_program is not None:
            who = f"programs {self.program} and {self.other_program}"
        return f"{place}{self.kind}: {self.message}; {self.operation}, {who}{often}"


@dataclass(frozen=True)
class Counters:
    """What all programs that ran did. Bytes are those that DMA and scalar accesses moved."""

    programs: int = 0
    calls: Mapping[str, int] = field(default_factory=dict)
    """Library function → calls."""
    bytes_read: int = 0
    bytes_written: int = 0


@dataclass(frozen=True)
class Result:
    """Outputs are in the arrays that were passed in.

    ``stopped``: why the run ended early (a deadlock, an endless loop); empty otherwise.
    ``traces``: flat program id → its stream of operations, for those asked for. ``printed``: what
    the kernel printed, in the order of the programs.
    """

    findings: tuple[Finding, ...]
    counters: Counters
    seconds: float
    stopped: str = ""
    traces: Mapping[int, Trace] = field(default_factory=dict)
    printed: tuple[str, ...] = ()

    @property
    def clean(self) -> bool:
        """Nothing was found and all programs ran to their end."""
        return not self.findings and not self.stopped

    def of(self, kind: Kind) -> tuple[Finding, ...]:
        """Findings of one kind."""
        return tuple(finding for finding in self.findings if finding.kind is kind)
