"""A checkout's own tests of what a kernel port replaces, run under Triton's interpreter."""

from __future__ import annotations

import ast
import json
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

from ascendport.harness.interpret import child_environment
from ascendport.harness.loading import module_name
from ascendport.harness.workspace import Tree
from ascendport.orphans import die_with

TESTS = "tests"
"""Folder of a checkout that holds its tests."""

TREE = "ASCENDPORT_TREE"
"""Environment variable that tells `pytest_plugin` the tree: `Tree.to_json` as JSON."""

LIMIT_S = 60.0
"""CPU seconds of one test: some launch as many programs as serving would, to see whether an NPU
takes it. A test that needs more is skipped."""

TOO_LONG = f"more than {LIMIT_S:g} s of CPU under the interpreter"

STANDS_IN = "Triton's interpreter in the place of the compiler, the CPU in the place of the NPU"


@dataclass(frozen=True)
class Outcomes:
    """``tests``: identifier → passed, failed, skipped or error. ``why``: identifier → the first
    line of what is said of one that did not pass. ``seconds``: identifier → how long it took, by
    the clock. ``problem``: why there are none."""

    tests: Mapping[str, str]
    why: Mapping[str, str]
    problem: str = ""
    seconds: Mapping[str, float] = field(default_factory=dict)

    def passed(self) -> frozenset[str]:
        return frozenset(name for name, outcome in self.tests.items() if outcome == "passed")


def files_testing(root: Path, wanted: Mapping[str, frozenset[str]]) -> tuple[str, ...]:
    """The checkout's test files, relative to ``root``, that import one of the symbols ``wanted``
    (file of the tree → symbols)."""
    modules = {module_name(file): symbols for file, symbols in wanted.items()}
    mentioned = [name.rpartition(".")[2].encode() for name in modules]
    found = []
    for file in sorted((root / TESTS).rglob("test_*.py")):
        text = file.read_bytes()
        if any(name in text for name in mentioned) and _imports(text, modules):
            found.append(file.relative_to(root).as_posix())
    return tuple(found)


def _imports(text: bytes, modules: Mapping[str, frozenset[str]]) -> bool:
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return False
    return any(
        alias.name in modules.get(node.module or "", ())
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    )


class Running:
    """pytest on some test files of a tree, in a child process of its own session.

    Tests that upstream skips run too: what the marks say concerns an NPU and its compiler.
    """

    def __init__(self, tree: Tree, tests: Sequence[str], scratch: Path, timeout_s: float) -> None:
        """``scratch``: an empty directory of ours. ``timeout_s``: for all of them."""
        self.report = scratch / "report.xml"
        self.log = scratch / "log"
        self.timeout_s = timeout_s
        files = [str(tree.file(test)) for test in tests]
        command = [sys.executable, "-B", "-m", "pytest", *files, "-q"]
        command += ["-p", "no:cacheprovider", "-p", "no:skipping"]
        command += ["-p", "ascendport.harness.pytest_plugin", "--noconftest"]
        command += ["-c", os.devnull, "--import-mode=importlib"]
        # What pytest names a test by is its place below this folder.
        command += ["--rootdir", str(tree.base or tree.overlay)]
        command += ["--continue-on-collection-errors", f"--junitxml={self.report}"]
        environment = {
            **child_environment(),
            TREE: json.dumps(tree.to_json()),
            "PYTEST_ADDOPTS": "",
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        }
        with self.log.open("wb") as out:
            self.process = subprocess.Popen(
                command,
                cwd=scratch,
                env=environment,
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
            return Outcomes({}, {}, f"no end after {self.timeout_s:g} s")
        try:
            cases = list(ElementTree.parse(self.report).iter("testcase"))
        except (OSError, ElementTree.ParseError):
            lines = self.log.read_text("utf-8", "replace").strip().splitlines()
            said = lines[-1] if lines else "it left no message"
            return Outcomes({}, {}, f"pytest ended with status {self.process.returncode} ({said})")
        tests, why, seconds = {}, {}, {}
        for case in cases:
            name = f"{case.get('classname', '')}::{case.get('name', '')}".replace("::::", "::")
            tests[name] = "passed"
            seconds[name] = float(case.get("time", 0))
            for kind, word in (("failure", "failed"), ("error", "error"), ("skipped", "skipped")):
                element = case.find(kind)
                if element is not None:
                    tests[name] = word
                    why[name] = (element.get("message") or "").strip().partition("\n")[0][:300]
                    break
        return Outcomes(tests, why, seconds=seconds)

    def stop(self) -> None:
        """Ends it, and what it started."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
