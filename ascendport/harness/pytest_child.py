"""pytest in a child process of its own session, and what its report says."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from xml.etree import ElementTree

from ascendport.orphans import die_with

_SAID = 300
"""Longest line that is kept of what is said of a test."""


@dataclass(frozen=True)
class Outcomes:
    """``tests``: identifier → passed, failed, skipped, xfailed (expected to fail, and did) or
    error. ``problem``: why there are none. ``why``: identifier → the first line of what is said of
    one that did not pass. ``seconds``: identifier → how long it took, by the clock."""

    tests: Mapping[str, str]
    problem: str = ""
    why: Mapping[str, str] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)

    def passed(self) -> frozenset[str]:
        return frozenset(name for name, outcome in self.tests.items() if outcome == "passed")


class PytestChild:
    """pytest with these options; it ends with this process."""

    def __init__(
        self,
        options: Sequence[str],
        *,
        cwd: Path,
        scratch: Path,
        environment: Mapping[str, str],
        timeout_s: float,
    ) -> None:
        """``scratch``: a directory of ours, for report and log. ``timeout_s``: for all tests."""
        self.report = scratch / "report.xml"
        self.log = scratch / "log"
        self.timeout_s = timeout_s
        command = [sys.executable, "-B", "-m", "pytest", *options, "-q", "-p", "no:cacheprovider"]
        command += ["-c", os.devnull, "--continue-on-collection-errors"]
        with self.log.open("wb") as out:
            self.process = subprocess.Popen(
                [*command, f"--junitxml={self.report}"],
                cwd=cwd,
                env={**environment, "PYTEST_ADDOPTS": ""},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
                preexec_fn=partial(die_with, os.getpid()),
            )

    def outcomes(self) -> Outcomes:
        """Waits for the end."""
        try:
            self.process.wait(self.timeout_s)
        except subprocess.TimeoutExpired:
            self.stop()
            return Outcomes({}, f"no end after {self.timeout_s:g} s")
        try:
            cases = list(ElementTree.parse(self.report).iter("testcase"))
        except (OSError, ElementTree.ParseError):
            lines = self.log.read_text("utf-8", "replace").strip().splitlines()
            said = lines[-1] if lines else "it left no message"
            return Outcomes({}, f"pytest ended with status {self.process.returncode} ({said})")
        tests, why, seconds = {}, {}, {}
        for case in cases:
            name = f"{case.get('classname', '')}::{case.get('name', '')}".replace("::::", "::")
            seconds[name] = float(case.get("time", 0))
            tests[name], said = _outcome(case)
            if tests[name] != "passed":
                why[name] = said
        return Outcomes(tests, "", why, seconds)

    def stop(self) -> None:
        """Ends it, and what it started."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def _outcome(case: ElementTree.Element) -> tuple[str, str]:
    """How a test ended, and the first line of what is said of it."""
    for kind, word in (("failure", "failed"), ("error", "error"), ("skipped", "skipped")):
        element = case.find(kind)
        if element is not None:
            expected = element.get("type") == "pytest.xfail"
            said = (element.get("message") or "").strip().partition("\n")[0][:_SAID]
            return "xfailed" if expected else word, said
    return "passed", ""
