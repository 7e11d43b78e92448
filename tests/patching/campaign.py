"""Apply and revert under every fault in turn, each followed by an ordinary next command."""

from __future__ import annotations

import itertools
import random
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ascendport import commands
from ascendport.checkout.tree import recognise
from ascendport.errors import UserError
from ascendport.patching.plan import Plan
from ascendport.patching.state import INTENT
from ascendport.patching.status import status
from ascendport.ports.manifest import Port
from tests.patching.conftest import snapshot
from tests.patching.faults import (
    BROKE,
    DIED,
    INTERRUPTED,
    REFUSED,
    Faults,
    How,
    calls_of,
    changes,
    in_child,
)

STATE_DIR = ".ascendport"
_ENDED = {0: "done", DIED: "died", REFUSED: "refused", INTERRUPTED: "interrupted"}


@dataclass(frozen=True)
class Job:
    """A command on a prepared tree. ``folder`` holds the tree; it is copied for each trial."""

    name: str
    folder: Path
    port: Port
    run: Callable[[Path], object]


@dataclass(frozen=True)
class Trial:
    """One fault and what came of it."""

    job: str
    how: How
    call: str
    ended: str
    """died, refused, interrupted, or done: what the command itself said."""
    recovered_by: str
    tree: str
    """before or after."""


def silent(_: str) -> None:
    """Notes that no one reads."""


def apply(root: Path, port: Port) -> None:
    """
    Raises:
        UserError: the port was not applied.
    """
    _done(commands.apply(root, [port.name], [port.folder], silent, dry_run=False, force=False))


def revert(root: Path, port: Port) -> None:
    """
    Raises:
        UserError: the port was not taken out.
    """
    _done(commands.revert(root, [port.name], [port.folder], silent, dry_run=False))


def _done(plan: Plan) -> None:
    if plan.refused:
        raise UserError(plan.refused[0].reason)


def _status(root: Path, port: Port) -> object:
    return commands.status(root, [port.name], [port.folder], silent)


def _dry_apply(root: Path, port: Port) -> object:
    return commands.apply(root, [port.name], [port.folder], silent, dry_run=True, force=False)


def _dry_revert(root: Path, port: Port) -> object:
    return commands.revert(root, [port.name], [port.folder], silent, dry_run=True)


NEXT: tuple[tuple[str, Callable[[Path, Port], object]], ...] = (
    ("status", _status),
    ("apply --dry-run", _dry_apply),
    ("revert --dry-run", _dry_revert),
)
"""Commands that change nothing by themselves: what they find is what recovery left."""


Tree = dict[str, tuple[int, str, int]]
"""Path → mode, hash of the contents, and a file's modification time in ns."""

_NONE = (0, "", 0)


def trees(folder: Path) -> Tree:
    """A tree without the tool's own directory; files with their modification times."""
    return {
        path: (*seen, (folder / path).lstat().st_mtime_ns if stat.S_ISREG(seen[0]) else 0)
        for path, seen in snapshot(folder).items()
        if STATE_DIR not in path
    }


def copied(source: Path, dest: Path) -> Path:
    if dest.exists():
        shutil.rmtree(dest)
    shutil.copytree(source, dest, symlinks=True)
    return dest


class Ends:
    """The only two states that a tree may be in afterwards."""

    def __init__(self, job: Job, scratch: Path) -> None:
        tree = copied(job.folder, scratch / "ends")
        self.before = trees(tree)
        self.clean = not (tree / STATE_DIR).exists()
        self.status_before = self._status(job, tree)
        self.calls = calls_of(tree.resolve(), lambda: job.run(tree))
        self.after = trees(tree)
        self.clean_after = not (tree / STATE_DIR).exists()
        self.status_after = self._status(job, tree)
        self.touched = {
            path
            for path in self.before.keys() | self.after.keys()
            if self.before.get(path, _NONE)[:2] != self.after.get(path, _NONE)[:2]
        }
        assert self.touched, "the job changes nothing"
        assert any(changes(call) for call in self.calls)

    @staticmethod
    def _status(job: Job, tree: Path) -> str:
        return status(recognise(tree), [job.port])[0].status.value

    def end(self, job: Job, tree: Path) -> str:
        """Which of the two the tree is in.

        Raises:
            AssertionError: neither, or the tool says another thing than what is there.
        """
        found = trees(tree)
        for name, wanted, clean, said in (
            ("before", self.before, self.clean, self.status_before),
            ("after", self.after, self.clean_after, self.status_after),
        ):
            if self._same(found, wanted):
                assert (tree / STATE_DIR).exists() is not clean, "the state directory"
                assert self._status(job, tree) == said, "status lies"
                return name
        wrong = [
            path
            for path in sorted(found.keys() | self.before.keys())
            if found.get(path, _NONE)[:2] != self.before.get(path, _NONE)[:2]
        ]
        raise AssertionError(f"neither before nor after: {wrong}")

    def _same(self, found: Tree, wanted: Tree) -> bool:
        if found.keys() != wanted.keys():
            return False
        # Directories of a changed file get a new time; they are compared by mode alone.
        return all(
            seen[:2] == wanted[path][:2] if path in self.touched else seen == wanted[path]
            for path, seen in found.items()
        )


def trials(
    job: Job,
    scratch: Path,
    hows: Sequence[How] = ("die", "tear", "fail", "full", "interrupt"),
    choose: Callable[[list[str]], Iterable[int]] = lambda calls: range(len(calls)),
) -> Iterator[Trial]:
    """Every chosen call of the job under every fault.

    Raises:
        AssertionError: a tree was left that is neither before nor after.
    """
    ends = Ends(job, scratch)
    turn = itertools.cycle(NEXT)
    for at in choose(ends.calls):
        call = ends.calls[at]
        for how in hows:
            if how == "tear" and not call.startswith("write "):
                continue
            if how in ("full", "interrupt") and not changes(call):
                continue
            tree = copied(job.folder, scratch / "trial")
            faults = Faults(tree.resolve(), at, how)
            code = in_child(lambda: job.run(tree), faults)  # noqa: B023
            where = f"{job.name}, {how} at call {at}: {call}"
            assert code in _ENDED, f"{where}: ended with {code}"
            name, command = next(turn)
            try:
                command(tree, job.port)
                end = ends.end(job, tree)
                assert not (recognise(tree).state_dir / INTENT).exists()
                # What a command says it did is so.
                assert code != 0 or end == "after", "it said done"
            except (AssertionError, UserError) as error:
                raise AssertionError(f"{where}, ended {code}, then {name}: {error}") from error
            yield Trial(job.name, how, call, _ENDED[code], name, end)


def interrupted_recoveries(
    job: Job,
    scratch: Path,
    choose: Callable[[list[str]], Iterable[int]],
    counts: Callable[[str], bool] = lambda call: True,
) -> Iterator[Trial]:
    """A death in the job, then a death in the command that recovers, at each call that counts."""
    ends = Ends(job, scratch)
    for at in choose(ends.calls):
        broken = copied(job.folder, scratch / "broken")
        if in_child(lambda: job.run(broken), Faults(broken.resolve(), at)) != DIED:  # noqa: B023
            continue
        tree = copied(broken, scratch / "trial")
        calls = calls_of(tree.resolve(), lambda: _status(tree, job.port))  # noqa: B023
        for second, call in enumerate(calls):
            if not counts(call):
                continue
            tree = copied(broken, scratch / "trial")
            faults = Faults(tree.resolve(), second)
            code = in_child(lambda: _status(tree, job.port), faults)  # noqa: B023
            assert code in (0, DIED), code
            _status(tree, job.port)
            where = f"{job.name}, died at {at} ({ends.calls[at]}), recovery at {second} ({call})"
            try:
                end = ends.end(job, tree)
            except AssertionError as error:
                raise AssertionError(f"{where}: {error}") from error
            yield Trial(f"{job.name}, then recovery", "die", call, "died", "status", end)


def kills(job: Job, scratch: Path, runs: int, seed: int) -> Iterator[Trial]:
    """kill -9 from outside, at a random moment of a process that runs the job."""
    import os
    import signal
    import time

    ends = Ends(job, scratch)
    tree = copied(job.folder, scratch / "timed")
    start = time.perf_counter()
    assert in_child(lambda: job.run(tree)) == 0
    usual = time.perf_counter() - start
    draw = random.Random(seed)
    turn = itertools.cycle(NEXT)
    for _ in range(runs):
        tree = copied(job.folder, scratch / "trial")
        child = os.fork()
        if child == 0:
            try:
                job.run(tree)
            except BaseException:
                os._exit(BROKE)
            os._exit(0)
        time.sleep(draw.uniform(0, 1.2 * usual))
        os.kill(child, signal.SIGKILL)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert code in (0, -signal.SIGKILL), code
        name, command = next(turn)
        command(tree, job.port)
        end = ends.end(job, tree)
        assert code != 0 or end == "after"
        yield Trial(job.name, "die", "(any)", "done" if code == 0 else "died", name, end)


def jobs(root: Path, make: Callable[[Path], Path], port: Port) -> list[Job]:
    """Apply to a tree, and revert from one."""
    fresh = make(root / "fresh")
    applied = make(root / "applied")
    apply(applied, port)
    return [
        Job("apply", fresh, port, lambda tree: apply(tree, port)),
        Job("revert", applied, port, lambda tree: revert(tree, port)),
    ]
