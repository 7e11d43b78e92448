"""What a check answers, and what answers mean together: the facts that tables and JSON show."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from ascendport.errors import ExitCode


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
    idle: bool = False
    """Not run since there is nothing of its kind to prove: where it is required, nothing lacks."""

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
        """It cannot run here, though it should."""
        return cls(check, Outcome.NOT_RUN, reason)

    @classmethod
    def nothing(cls, check: str, reason: str) -> CheckResult:
        """There is nothing for it to do: no such case, no such file, no such declaration."""
        return cls(check, Outcome.NOT_RUN, reason, idle=True)


def exit_code(
    results: Mapping[str, Sequence[CheckResult]], required: Collection[str] = ()
) -> ExitCode:
    """What the results of ports, by name, mean together.

    ``required``: checks that must have passed on at least one port, and may lack on none: one that
    could not run on a second port is not made good by the first.
    """
    every = [result for checks in results.values() for result in checks]
    if any(result.outcome is Outcome.FAILED for result in every):
        return ExitCode.FAILED
    passed = {result.check for result in every if result.outcome is Outcome.PASSED}
    lacking = {
        result.check for result in every if result.outcome is Outcome.NOT_RUN and not result.idle
    }
    if not passed or not set(required) <= passed - lacking:
        return ExitCode.NOT_RUN
    return ExitCode.OK
