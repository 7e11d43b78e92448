"""What a check answers. Nothing here computes: these are the facts that tables and JSON show."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Outcome(StrEnum):
    """How a check ended. ``NOT_RUN`` always has a reason and is never shown as passed."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_RUN = "not_run"


Figure = str | int | float | bool | None


@dataclass(frozen=True)
class CaseResult:
    """One case of a check: its name, how it ended, one-line reason, and figures."""

    case: str
    outcome: Outcome
    reason: str = ""
    figures: Mapping[str, Figure] = field(default_factory=dict)


@dataclass(frozen=True)
class CheckResult:
    """One check on one port."""

    check: str
    outcome: Outcome
    reason: str = ""
    cases: tuple[CaseResult, ...] = ()

    @classmethod
    def of(cls, check: str, cases: tuple[CaseResult, ...], reason: str = "") -> CheckResult:
        """The verdict over cases: failed if one failed, not run if none ran, else passed.

        A mixture of passed and not run is passed, with the number left out in the reason.
        """
        failed = [case for case in cases if case.outcome is Outcome.FAILED]
        ran = [case for case in cases if case.outcome is not Outcome.NOT_RUN]
        skipped = len(cases) - len(ran)
        if failed:
            first = failed[0]
            summary = f"{len(failed)} of {len(ran)} cases: {first.case}: {first.reason}"
            return cls(check, Outcome.FAILED, summary, cases)
        if not ran:
            why = reason or (cases[0].reason if cases else "no case applies")
            return cls(check, Outcome.NOT_RUN, why, cases)
        if skipped and not reason:
            reasons = Counter(case.reason for case in cases if case.outcome is Outcome.NOT_RUN)
            counted = "; ".join(f"{count} {why}" for why, count in reasons.most_common())
            reason = f"{skipped} of {len(cases)} cases not run: {counted}"
        return cls(check, Outcome.PASSED, reason, cases)

    @classmethod
    def not_run(cls, check: str, reason: str) -> CheckResult:
        return cls(check, Outcome.NOT_RUN, reason)
