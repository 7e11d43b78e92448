"""What a report of pytest becomes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ascendport.harness.pytest_child import PytestChild

TESTS = """
import pytest

def test_right(): ...
def test_wrong(): assert 1 == 2, "one\\ntwo"
@pytest.fixture
def broken(): raise RuntimeError("no fixture")
def test_error(broken): ...
@pytest.mark.skip(reason="not here")
def test_skipped(): ...
@pytest.mark.xfail(strict=True, reason="defect a1")
def test_expected(): assert False
@pytest.mark.xfail(strict=True, reason="defect a1")
def test_gone(): ...
"""


def child(tmp_path: Path, text: str, timeout_s: float = 120.0) -> PytestChild:
    file = tmp_path / "test_own.py"
    file.write_text(text)
    options = [str(file), "--rootdir", str(tmp_path), "-p", "no:cacheprovider"]
    return PytestChild(
        options, cwd=tmp_path, scratch=tmp_path, environment=os.environ, timeout_s=timeout_s
    )


def test_each_outcome_and_what_is_said_of_it(tmp_path: Path) -> None:
    found = child(tmp_path, TESTS).outcomes()
    assert {name.rpartition("::")[2]: how for name, how in found.tests.items()} == {
        "test_right": "passed",
        "test_wrong": "failed",
        "test_error": "error",
        "test_skipped": "skipped",
        "test_expected": "xfailed",
        "test_gone": "failed",
    }
    said = {name.rpartition("::")[2]: why for name, why in found.why.items()}
    assert said["test_expected"] == "defect a1"
    assert said["test_skipped"] == "not here"
    assert said["test_wrong"] == "AssertionError: one"
    assert "test_right" not in said
    assert found.passed() == {name for name in found.tests if name.endswith("test_right")}
    assert found.seconds.keys() == found.tests.keys()


@pytest.mark.parametrize(
    ("text", "timeout_s", "said"),
    [
        pytest.param("import os\nos._exit(7)\n", 120.0, "pytest ended with status 7", id="dies"),
        pytest.param("import time\ntime.sleep(999)\n", 2.0, "no end after 2 s", id="hangs"),
    ],
)
def test_no_report(tmp_path: Path, text: str, timeout_s: float, said: str) -> None:
    started = child(tmp_path, text, timeout_s)
    found = started.outcomes()
    assert not found.tests
    assert said in found.problem
    assert started.process.poll() is not None
