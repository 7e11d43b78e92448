"""A checkout's failure tests: which defects they show on a tree, and which are gone.

The tests are the new files of a port. One that shows a defect is a strict expected failure, whose
reason reads ``defect NAME``, until the tree can do what the mend brings.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from ascendport.checks.subject import Subject
from ascendport.errors import UserError
from ascendport.harness.pytest_child import Outcomes
from ascendport.patching.recognise import Status, match
from ascendport.ports.manifest import load
from ascendport.store.upstream import running

_DEFECT = re.compile(r"^defect (\S+)")
_OPTIONS = ("-p", "no:randomly")


@dataclass(frozen=True)
class Suite:
    """``files``: path in the checkout → contents; ``modules``: the paths that pytest is given."""

    files: Mapping[str, bytes]
    modules: tuple[str, ...]


@dataclass(frozen=True)
class Shown:
    """What the tests say of one tree.

    ``expected``: test → the defect that it is expected to fail for, and did; ``broken``: test →
    why it failed though nobody expects it to, or passed though it is expected to fail.
    """

    passed: frozenset[str] = frozenset()
    expected: Mapping[str, str] = field(default_factory=dict)
    broken: Mapping[str, str] = field(default_factory=dict)
    skipped: Mapping[str, str] = field(default_factory=dict)
    problem: str = ""

    def defects(self) -> dict[str, list[str]]:
        """Defect → the tests that are expected to fail for it, in order."""
        found: dict[str, list[str]] = {}
        for test, name in sorted(self.expected.items()):
            found.setdefault(name, []).append(test)
        return dict(sorted(found.items()))


def tests_of(subject: Subject) -> Suite:
    """The tests that prove a port: its own new files, or those of the port that it names.

    Raises:
        UserError: the named port is not beside this one, does not fit the tree, or has no tests.
    """
    port = subject.port
    if port.manifest.tests:
        other = load(port.folder.parent / port.manifest.tests)
        found = match(other, subject.checkout.read)
        variant = found.variant
        if found.status is Status.MISSING or variant is None:
            raise UserError(f"{other.name} does not fit: {found.reason}", where=other.folder)
        files = {new.file: other.read(new.source) for new in variant.new_files}
    else:
        files = {new.file: subject.after[new.file] for new in subject.variant.new_files}
    modules = tuple(file for file in files if PurePosixPath(file).name.startswith("test_"))
    if not modules:
        raise UserError(f"port {port.name} brings no tests", where=port.folder)
    return Suite(files, modules)


def shown(
    root: Path, files: Mapping[str, bytes], tests: Suite, timeout_s: float, *, raw: bool = False
) -> Shown:
    """Runs the tests on a copy of the tree at ``root`` with ``files`` in it.

    ``raw``: expected failures are failures (pytest's ``--runxfail``)."""
    more = (*_OPTIONS, "--runxfail") if raw else _OPTIONS
    with running(root, {**files, **tests.files}, timeout_s, tests.modules, more) as started:
        return judged(started.outcomes())


def judged(outcomes: Outcomes) -> Shown:
    """What pytest answered, sorted."""
    if outcomes.problem:
        return Shown(problem=outcomes.problem)
    expected: dict[str, str] = {}
    broken: dict[str, str] = {}
    skipped: dict[str, str] = {}
    for test, outcome in outcomes.tests.items():
        said = outcomes.why.get(test, "")
        found = _DEFECT.match(said)
        if outcome == "xfailed" and found:
            expected[test] = found[1]
        elif outcome == "xfailed":
            broken[test] = f"expected to fail for no named defect: {said}"
        elif outcome in ("failed", "error"):
            broken[test] = said or outcome
        elif outcome == "skipped":
            skipped[test] = said
    return Shown(outcomes.passed(), expected, broken, skipped)


def short(test: str) -> str:
    """A test's name without its folder and classes."""
    return test.rpartition("::")[2]


def some(tests: Sequence[str], most: int = 2) -> str:
    """The first of several tests in words."""
    named = ", ".join(short(test) for test in tests[:most])
    return f"{named} and {len(tests) - most} more" if len(tests) > most else named
