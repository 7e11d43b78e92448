"""Runs a checkout's own store tests, before and after, each on a copy in a child process."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree

import ascendport
from ascendport.harness.workspace import write_tree
from ascendport.store.loading import installed_vllm

TESTS = "tests/ut/distributed/ascend_store"
NEEDS = ("pytest", "torch", "numpy", "prometheus_client", "regex", "zmq")
BUILD_INFO = "vllm_ascend/_build_info.py"
"""Written by vllm-ascend's build; some releases import it."""


@dataclass(frozen=True)
class Outcomes:
    """``tests``: identifier → passed, failed, skipped, xfailed (expected to fail, and did) or
    error. ``why``: identifier → what is said of a test that did not pass. ``problem``: why there
    are none; ``said``: the end of what pytest printed."""

    tests: Mapping[str, str]
    problem: str = ""
    said: str = ""
    why: Mapping[str, str] = field(default_factory=dict)

    def passed(self) -> frozenset[str]:
        return frozenset(name for name, outcome in self.tests.items() if outcome == "passed")


def missing(root: Path) -> str:
    """Why the tests of the checkout at ``root`` cannot run here; empty: they can."""
    if not (root / TESTS).is_dir():
        return f"the checkout has no {TESTS}"
    absent = [name for name in NEEDS if importlib.util.find_spec(name) is None]
    if absent:
        return f"needs {', '.join(absent)}; pip install 'ascendport[store]' pytest"
    return ""


def which() -> str:
    """Which vllm the tests see, in words."""
    version = installed_vllm()
    return f"vllm {version}" if version else "the tests' mocks of vllm"


@contextmanager
def running(
    root: Path,
    files: Mapping[str, bytes],
    timeout_s: float,
    tests: Sequence[str] = (TESTS,),
    more: Sequence[str] = (),
) -> Iterator[Running]:
    """Starts the tests on a copy of the checkout with ``files`` (path → contents) in it. They are
    stopped, and the copy removed, at the end of the block.

    ``tests``: files and folders; ``more``: further options of pytest."""
    with tempfile.TemporaryDirectory(prefix="ascendport-") as directory:
        copy = Path(directory) / "tree"
        _copy(root, copy)
        write_tree(copy, files)
        started = Running(copy, timeout_s, tests, more)
        try:
            yield started
        finally:
            started.stop()


class Running:
    """pytest in a child process of its own session."""

    def __init__(
        self, tree: Path, timeout_s: float, tests: Sequence[str], more: Sequence[str]
    ) -> None:
        self.report = tree.parent / "report.xml"
        self.log = tree.parent / "log"
        self.timeout_s = timeout_s
        command = [sys.executable, "-m", "pytest", *tests, "-q", "-p", "no:cacheprovider", *more]
        command += ["-c", os.devnull, "--rootdir", str(tree), "--continue-on-collection-errors"]
        command += [f"--junitxml={self.report}"]
        if not installed_vllm():
            command += ["--noconftest", "-p", "ascendport.store.pytest_plugin"]
        package = Path(ascendport.__file__).parent.parent
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join((str(tree), str(package))),
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTEST_ADDOPTS": "",
        }
        with self.log.open("wb") as out:
            self.process = subprocess.Popen(
                command,
                cwd=tree,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )

    def outcomes(self) -> Outcomes:
        """Waits for the end."""
        try:
            self.process.wait(self.timeout_s)
        except subprocess.TimeoutExpired:
            self.stop()
            return Outcomes({}, f"no end after {self.timeout_s:g} s")
        said = "\n".join(self.log.read_text("utf-8", "replace").splitlines()[-3:])
        try:
            tree = ElementTree.parse(self.report)
        except (OSError, ElementTree.ParseError):
            return Outcomes({}, f"pytest ended with status {self.process.returncode}", said)
        cases = list(tree.iter("testcase"))
        why = {_name(case): _why(case) for case in cases if _outcome(case) != "passed"}
        return Outcomes({_name(case): _outcome(case) for case in cases}, "", said, why)

    def stop(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def _name(case: ElementTree.Element) -> str:
    return f"{case.get('classname', '')}::{case.get('name', '')}"


def _outcome(case: ElementTree.Element) -> str:
    for found in ("failure", "error", "skipped"):
        said = case.find(found)
        if said is not None:
            if said.get("type") == "pytest.xfail":
                return "xfailed"
            return {"failure": "failed"}.get(found, found)
    return "passed"


def _why(case: ElementTree.Element) -> str:
    said = [child.get("message", "") for child in case if child.get("message")]
    return said[0] if said else ""


def _copy(root: Path, copy: Path) -> None:
    """What the tests can import: the package's Python files and the unit tests."""

    def other(folder: str, names: list[str]) -> list[str]:
        return [
            name
            for name in names
            if not (Path(folder) / name).is_dir() and not name.endswith((".py", ".json", ".toml"))
        ]

    # Without their modes: a file that nobody may write would stay the one before.
    for folder in ("vllm_ascend", "tests/ut"):
        shutil.copytree(root / folder, copy / folder, ignore=other, copy_function=shutil.copyfile)
    if (root / "tests/__init__.py").is_file():
        shutil.copyfile(root / "tests/__init__.py", copy / "tests/__init__.py")
    if not (copy / BUILD_INFO).exists():
        (copy / BUILD_INFO).write_text('__device_type__ = "A2"\n')
