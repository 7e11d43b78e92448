import pytest

from ascendport.checks.outcome import CaseResult, CheckResult, Outcome, exit_code
from ascendport.errors import ExitCode

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


RAN = CheckResult("compile", Outcome.PASSED)
BAD = CheckResult("compile", Outcome.FAILED, "3 differ")
LACKS = CheckResult.not_run("compile", "no compiler")
IDLE = CheckResult.nothing("compile", "no case of it is named x")
OTHER = CheckResult("source", Outcome.PASSED)


@pytest.mark.parametrize(
    ("results", "required", "code"),
    [
        pytest.param([[RAN], [LACKS]], [], ExitCode.OK, id="not-required"),
        pytest.param([[RAN], [LACKS]], ["compile"], ExitCode.NOT_RUN, id="lacks-on-one-port"),
        pytest.param([[RAN], [IDLE]], ["compile"], ExitCode.OK, id="nothing-to-do-on-one-port"),
        pytest.param([[OTHER, IDLE]], ["compile"], ExitCode.NOT_RUN, id="nothing-to-do-anywhere"),
        pytest.param([[OTHER]], ["compile"], ExitCode.NOT_RUN, id="required-and-not-asked-for"),
        pytest.param([[OTHER, LACKS]], ["source"], ExitCode.OK, id="another-is-required"),
        pytest.param([[LACKS], [IDLE]], [], ExitCode.NOT_RUN, id="nothing-verified"),
        pytest.param([], [], ExitCode.NOT_RUN, id="no-port"),
        pytest.param([[BAD], [LACKS]], ["compile"], ExitCode.FAILED, id="failed-comes-first"),
    ],
)
def test_what_results_mean_together(
    results: list[list[CheckResult]], required: list[str], code: ExitCode
) -> None:
    assert exit_code({str(at): one for at, one in enumerate(results)}, required) is code
