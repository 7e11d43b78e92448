from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from ascendport.checks.outcome import CaseResult, CheckResult, Outcome
from ascendport.errors import UserError
from ascendport.report import facts, junit


def _document(*results: CheckResult) -> ElementTree.Element:
    checks: list[Any] = [facts._check(result) for result in results]
    return ElementTree.fromstring(junit.document({"ports": [{"name": "p", "checks": checks}]}))


def test_cases_become_test_cases() -> None:
    cases = (
        CaseResult("a", Outcome.PASSED),
        CaseResult("b", Outcome.FAILED, "3 < 4 & so"),
        CaseResult("c", Outcome.NOT_RUN, "large"),
    )
    suite = _document(CheckResult.of("oracle", cases))[0]
    assert dict(suite.attrib) == {"name": "p", "tests": "3", "failures": "1", "skipped": "1"}
    assert [node.get("name") for node in suite] == ["a", "b", "c"]
    assert suite[1][0].get("message") == "3 < 4 & so"
    assert suite[2][0].tag == "skipped"


def test_a_check_without_cases_is_a_test_case() -> None:
    suite = _document(CheckResult.not_run("compile", "no compiler"))[0]
    assert suite.get("skipped") == "1"
    assert suite[0][0].get("message") == "no compiler"


def test_a_verdict_that_no_case_bears_is_not_lost() -> None:
    cases = (CaseResult("a", Outcome.PASSED),)
    suite = _document(CheckResult("oracle", Outcome.FAILED, "cases cannot fail", cases))[0]
    assert suite.get("failures") == "1"
    assert suite[1][0].get("message") == "cases cannot fail"


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="JUnit"):
        junit.write({"ports": []}, tmp_path / "no" / "file.xml")
