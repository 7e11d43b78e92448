"""One writer at a time, whatever becomes of the others."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
from pathlib import Path

import pytest

from ascendport.checkout.tree import Checkout
from ascendport.errors import UserError
from ascendport.patching.disk import temporary_name
from ascendport.patching.journal import execute, recover
from ascendport.patching.lock import BusyError, NoLocksError, locked
from ascendport.patching.plan import plan_apply
from ascendport.patching.state import LOCK, STATE, read_state
from ascendport.patching.status import Status, status
from ascendport.ports.manifest import Port
from tests.patching.conftest import make_checkout, snapshot
from tests.patching.faults import DIED, Faults, calls_of, in_child

pytestmark = pytest.mark.usefixtures("quick_disk")


def silent(_: str) -> None:
    """Notes that no one reads."""


def test_a_second_writer_is_told_at_once_or_after_waiting(checkout: Checkout) -> None:
    said: list[str] = []
    with locked(checkout, 0, silent):
        with pytest.raises(BusyError, match=r"another run is writing to this checkout: .*lock"):
            locked(checkout, 0, said.append).__enter__()
        assert said == []
        with pytest.raises(BusyError, match=r"after waiting for 0\.1 s too"):
            locked(checkout, 0.1, said.append).__enter__()
    assert said == ["another run is writing to this checkout: waiting up to 0.1 s (--wait)"]
    with locked(checkout, 0, silent):
        pass


def test_a_killed_writer_leaves_no_lock(checkout: Checkout) -> None:
    ready_r, ready_w = os.pipe()
    child = os.fork()
    if child == 0:
        with locked(checkout, 0, silent):
            os.write(ready_w, b"!")
            signal.pause()
        os._exit(70)
    assert os.read(ready_r, 1) == b"!"
    os.close(ready_r)
    os.close(ready_w)
    with pytest.raises(BusyError):
        locked(checkout, 0, silent).__enter__()
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    with locked(checkout, 0, silent):
        pass


@pytest.mark.parametrize("code", [errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_is_refused(
    code: int, checkout: Checkout, scale: Port, monkeypatch: pytest.MonkeyPatch
) -> None:
    def flock(handle: int, how: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(fcntl, "flock", flock)
    plan = plan_apply(checkout, [scale])
    before = snapshot(checkout.root)
    with pytest.raises(NoLocksError, match=r"has no locks .* so none writes"):
        execute(plan)
    assert snapshot(checkout.root) == before


def test_a_crash_that_cannot_be_ended_for_lack_of_locks_is_looked_through(
    checkout: Checkout, scale: Port, monkeypatch: pytest.MonkeyPatch
) -> None:
    twin = make_checkout(checkout.root.parent / "twin")
    calls = calls_of(twin.root, lambda: execute(plan_apply(twin, [scale])))
    at = calls.index(f"open .ascendport/{temporary_name(STATE)}")
    work = Faults(checkout.root, at)
    assert in_child(lambda: execute(plan_apply(checkout, [scale])), work) == DIED

    def flock(handle: int, how: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", flock)
    before = snapshot(checkout.root)
    assert "cannot be ended from here (no locks" in (recover(checkout, reading=True) or "")
    assert status(checkout, [scale])[0].status is Status.APPLICABLE
    with pytest.raises(NoLocksError):
        recover(checkout)
    assert snapshot(checkout.root) == before


def test_any_other_failure_of_the_lock_is_no_lack_of_locks(
    checkout: Checkout, monkeypatch: pytest.MonkeyPatch
) -> None:
    def flock(handle: int, how: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.raises(OSError, match="Input/output"):
        locked(checkout, 0, silent).__enter__()


@pytest.mark.parametrize("whole", [False, True], ids=["the lock", "its directory"])
def test_a_lock_that_its_holder_removes_is_taken_anew(
    whole: bool, checkout: Checkout, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who waited would else hold a file that nobody else looks at."""
    kept = fcntl.flock
    removed: list[Path] = []

    def flock(handle: int, how: int) -> None:
        if not removed:
            removed.append(checkout.state_dir / LOCK)
            removed[0].unlink()
            if whole:
                checkout.state_dir.rmdir()
        kept(handle, how)

    monkeypatch.setattr(fcntl, "flock", flock)
    with locked(checkout, 0, silent):
        assert removed and removed[0].exists()
        with pytest.raises(BusyError):
            locked(checkout, 0, silent).__enter__()


def test_a_lock_that_is_a_link_is_not_followed(
    tmp_path: Path, checkout: Checkout, scale: Port
) -> None:
    checkout.state_dir.mkdir()
    (checkout.state_dir / LOCK).symlink_to(tmp_path / "outside")
    with pytest.raises(UserError, match="cannot write to the checkout"):
        execute(plan_apply(checkout, [scale]))
    assert not (tmp_path / "outside").exists()
    assert not read_state(checkout).ports
