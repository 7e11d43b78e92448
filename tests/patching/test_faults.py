"""Every call that apply and revert make on a tree fails, or the process ends there."""

from __future__ import annotations

import errno
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from ascendport.checkout.tree import recognise
from ascendport.patching.disk import put, temporary_name
from ascendport.patching.journal import execute
from ascendport.patching.plan import plan_apply
from ascendport.patching.state import STATE
from ascendport.ports.catalogue import catalogue, select
from ascendport.ports.manifest import Port
from tests.conftest import RELEASES, ReleaseCopy
from tests.patching.campaign import (
    Job,
    Trial,
    apply,
    interrupted_recoveries,
    jobs,
    kills,
    revert,
    trials,
)
from tests.patching.conftest import KERNEL, KERNEL_TEXT, make_checkout, our_files
from tests.patching.faults import DIED, Faults, How, calls_of, changes, in_child, watched

pytestmark = pytest.mark.usefixtures("quick_disk")

KINDS = ("apply", "revert")
ALL: tuple[How, ...] = ("die", "tear", "fail", "full", "interrupt")


def prepared(kind: str, tmp_path: Path, port: Port, shift: Port | None = None) -> Job:
    def make(root: Path) -> Path:
        make_checkout(root)
        (root / KERNEL).chmod(0o755)
        if shift is not None:
            apply(root, shift)
        return root

    return next(job for job in jobs(tmp_path, make, port) if job.name == kind)


def first_of_each(calls: list[str]) -> list[int]:
    """Calls that change something, those that do the same to one path once, objects once."""
    return [at for at, call in enumerate(calls) if changes(call) and call not in calls[:at]]


def short(calls: list[str]) -> list[int]:
    """The calls that a reader of a tree would see the result of."""
    seen = ("replace", "unlink", "mkdir", "rmdir", "write", "fsync")
    return [at for at in first_of_each(calls) if calls[at].startswith(seen)]


def ends(found: Sequence[Trial]) -> Counter[tuple[str, str]]:
    return Counter((trial.ended, trial.tree) for trial in found)


@pytest.mark.parametrize("kind", KINDS)
def test_a_death_at_what_changes_something(kind: str, tmp_path: Path, scale: Port) -> None:
    found = list(trials(prepared(kind, tmp_path, scale), tmp_path, ["die"], short))
    assert len(found) > 30
    assert set(ends(found)) == {("died", "before"), ("died", "after")}


@pytest.mark.parametrize("kind", KINDS)
def test_a_failure_of_what_changes_something(kind: str, tmp_path: Path, scale: Port) -> None:
    def choose(calls: list[str]) -> list[int]:
        commit = calls.index(f"replace .ascendport/{temporary_name(STATE)}")
        return [at for number, at in enumerate(short(calls)) if number % 3 == 0 or at > commit]

    found = list(trials(prepared(kind, tmp_path, scale), tmp_path, ["fail"], choose))
    assert ("refused", "before") in ends(found)
    # What failed after the change was made is told, and the change stands.
    assert ("refused", "after") in ends(found)


@pytest.mark.parametrize("how", ["tear", "full", "interrupt"])
def test_torn_writes_a_full_disk_and_an_interrupt(how: How, tmp_path: Path, scale: Port) -> None:
    job = prepared("apply", tmp_path, scale)

    def choose(calls: list[str]) -> list[int]:
        return [at for at in first_of_each(calls) if calls[at].startswith("write ")]

    found = list(trials(job, tmp_path, [how], choose))
    said = {"tear": "died", "full": "refused", "interrupt": "interrupted"}[how]
    assert set(ends(found)) == {(said, "before")}
    assert len(found) > 4


def test_a_death_in_the_recovery(tmp_path: Path, scale: Port) -> None:
    def choose(calls: list[str]) -> list[int]:
        replaced = [at for at, call in enumerate(calls) if call.startswith("replace vllm_ascend/")]
        return replaced[-1:]

    def counts(call: str) -> bool:
        return call.startswith(("replace", "unlink vllm", "unlink tests", "rmdir tests/ut "))

    job = prepared("apply", tmp_path, scale)
    found = list(interrupted_recoveries(job, tmp_path, choose, counts))
    assert len(found) > 5
    assert {trial.tree for trial in found} == {"before"}


def test_kills_from_outside(tmp_path: Path, scale: Port) -> None:
    found = list(kills(prepared("apply", tmp_path, scale), tmp_path, 15, seed=1))
    assert len(found) == 15


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_kills_from_outside_500(kind: str, tmp_path: Path, scale: Port, shift: Port) -> None:
    found = list(kills(prepared(kind, tmp_path, scale, shift), tmp_path, 250, seed=2))
    assert {trial.tree for trial in found} == {"before", "after"}


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_every_call_under_every_fault(kind: str, tmp_path: Path, scale: Port, shift: Port) -> None:
    """Next to another port in the same file."""
    found = list(trials(prepared(kind, tmp_path, scale, shift), tmp_path, ALL))
    assert len(found) > 1000


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_death_in_every_recovery(kind: str, tmp_path: Path, scale: Port) -> None:
    def some(calls: list[str]) -> list[int]:
        return [*short(calls)[::3], short(calls)[-1]]  # the last: after the moment of change

    job = prepared(kind, tmp_path, scale)
    found = list(interrupted_recoveries(job, tmp_path, some, changes))
    assert {trial.tree for trial in found} == {"before", "after"}


@pytest.mark.slow
@pytest.mark.network
@pytest.mark.parametrize("kind", KINDS)
def test_a_port_of_ours_on_a_release(kind: str, tmp_path: Path, release_copy: ReleaseCopy) -> None:
    (port,) = select(catalogue(), ["grammar_bitmask"])
    files = our_files(RELEASES[-1], [port])
    made = jobs(tmp_path, lambda root: release_copy(RELEASES[-1], root, files), port)
    job = next(one for one in made if one.name == kind)
    found = list(trials(job, tmp_path, ALL, first_of_each))
    assert {trial.tree for trial in found} == {"before", "after"}


# --- the shim itself ---


def test_a_fault_is_where_it_was_asked_for(tmp_path: Path) -> None:
    def work() -> None:
        put(tmp_path, "file", b"text", None)

    calls = calls_of(tmp_path, work)
    assert calls == [
        "open .",
        "unlink .file.ascendport-new",
        "open .file.ascendport-new",
        "write .file.ascendport-new",
        "open file",
        "fstat .file.ascendport-new",
        "fsync .file.ascendport-new",
        "close .file.ascendport-new",
        "replace .file.ascendport-new",
        "fsync .",
        "close .",
    ]
    (tmp_path / "file").unlink()
    at = calls.index("replace .file.ascendport-new")
    assert in_child(work, Faults(tmp_path, at)) == DIED
    assert [path.name for path in tmp_path.iterdir()] == [".file.ascendport-new"]
    assert in_child(work, Faults(tmp_path, at + 1)) == DIED
    assert (tmp_path / "file").read_bytes() == b"text"
    torn = calls.index("write .file.ascendport-new")
    assert in_child(work, Faults(tmp_path, torn, "tear")) == DIED
    assert (tmp_path / ".file.ascendport-new").read_bytes() == b"te"


def test_a_full_disk_stays_full(tmp_path: Path) -> None:
    said = []
    with watched(Faults(tmp_path, 0, "full")):
        for name in ("one", "two"):
            try:
                (tmp_path / name).mkdir()
            except OSError as error:
                said.append(error.errno)
    assert said == [errno.ENOSPC] * 2


def test_a_journal_without_its_order_is_caught(
    tmp_path: Path, scale: Port, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The trials fail where files are written in place, without an intent that says so."""
    from ascendport.patching import journal

    def in_place(
        checkout: object, file: str, before: object, after: bytes | None, mode: object
    ) -> None:
        path = checkout.path(file)  # type: ignore[attr-defined]
        if after is None:
            path.unlink()
            return
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.write(handle, after)
        os.close(handle)

    monkeypatch.setattr(journal, "_write", in_place)
    job = prepared("apply", tmp_path, scale)

    def choose(calls: list[str]) -> list[int]:
        return [at for at, call in enumerate(calls) if call == f"write {KERNEL}"]

    with pytest.raises(AssertionError, match="edited after an interrupted run"):
        list(trials(job, tmp_path, ["die"], choose))


def test_execute_is_what_the_commands_run(tmp_path: Path, scale: Port) -> None:
    """A library caller gets the same guarantees as the command line."""
    root = make_checkout(tmp_path / "tree").root
    execute(plan_apply(recognise(root), [scale]))
    assert (root / KERNEL).read_bytes() != KERNEL_TEXT
    revert(root, scale)
    assert (root / KERNEL).read_bytes() == KERNEL_TEXT
