import pytest

from ascendport.checks.outcome import CaseResult, CheckResult, Outcome

PASSED = CaseResult("good", Outcome.PASSED)
FAILED = CaseResult("bad", Outcome.FAILED, "3 differ")
SKIPPED = CaseResult("left", Outcome.NOT_RUN, "large")


@pytest.mark.parametrize(
    ("cases", "outcome", "reason"),
    [
        pytest.param((PASSED, PASSED), Outcome.PASSED, "", id="all-passed"),
        pytest.param(
            (PASSED, FAILED, SKIPPED),
            Outcome.FAILED,
            "1 of 2 cases: bad: 3 differ",
            id="one-failed",
        ),
        pytest.param((SKIPPED,), Outcome.NOT_RUN, "large", id="none-ran"),
        pytest.param((), Outcome.NOT_RUN, "no case applies", id="no-cases"),
        pytest.param(
            (PASSED, SKIPPED, SKIPPED),
            Outcome.PASSED,
            "2 of 3 cases not run: 2 large",
            id="what-was-left-out-is-told",
        ),
    ],
)
def test_verdict_over_cases(cases: tuple[CaseResult, ...], outcome: Outcome, reason: str) -> None:
    result = CheckResult.of("check", cases)
    assert (result.outcome, result.reason) == (outcome, reason)
