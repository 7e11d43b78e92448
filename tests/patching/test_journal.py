"""Every change is whole or not there, whatever breaks it off."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from filelock import FileLock

from ascendport.checkout.tree import Checkout, Layout
from ascendport.errors import UserError
from ascendport.patching.journal import execute, recover
from ascendport.patching.plan import Outcome, Plan, plan_apply, plan_revert
from ascendport.patching.state import INTENT, LOCK, OBJECTS, STATE, read_state
from ascendport.patching.status import Status, status
from ascendport.ports.manifest import Port
from tests.patching.conftest import KERNEL, NEW, WIRING, Snapshot, make_checkout, snapshot

pytestmark = pytest.mark.usefixtures("quick_disk")


def without_state(found: Snapshot) -> Snapshot:
    return {path: seen for path, seen in found.items() if ".ascendport" not in path}


def steps_of(plan: Plan) -> list[str]:
    seen: list[str] = []
    execute(plan, step=seen.append)
    return seen


def breaking_points(steps: list[str]) -> list[int]:
    """The steps to break off at: all, but of those that do the same to one object after the
    other only the first of each kind."""
    kinds = [re.sub(r"[0-9a-f]{64}", "object", step) for step in steps]
    return [at for at, kind in enumerate(kinds) if "object" not in kind or kind not in kinds[:at]]


class Breaker:
    """Does something at the n-th step."""

    def __init__(self, at: int, action: Callable[[], None]) -> None:
        self.left = at
        self.action = action

    def __call__(self, what: str) -> None:
        if self.left == 0:
            self.action()
        self.left -= 1


def in_child(work: Callable[[], None]) -> int:
    """Runs ``work`` in a forked process; its exit status."""
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException:
            os._exit(70)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def crash() -> None:
    os._exit(9)


def test_apply_then_revert_leaves_nothing(checkout: Checkout, scale: Port) -> None:
    kernel = checkout.path(KERNEL)
    kernel.chmod(0o755)
    before = snapshot(checkout.root)
    execute(plan_apply(checkout, [scale]))
    applied = snapshot(checkout.root)
    assert b"All rows at once." in kernel.read_bytes()
    assert stat.S_IMODE(kernel.stat().st_mode) == 0o755
    assert checkout.path(NEW).is_file()
    assert without_state(applied) != before
    execute(plan_revert(checkout, [scale]))
    assert snapshot(checkout.root) == before


def test_second_apply_writes_nothing(checkout: Checkout, scale: Port) -> None:
    execute(plan_apply(checkout, [scale]))
    before = snapshot(checkout.root)
    plan = plan_apply(checkout, [scale])
    assert [port.outcome for port in plan.ports] == [Outcome.ALREADY_APPLIED]
    assert plan.changes == ()
    assert steps_of(plan) == []
    assert snapshot(checkout.root) == before


@pytest.mark.parametrize("first", ["scale", "shift"])
def test_two_ports_on_one_file_revert_in_either_order(
    first: str, tmp_path: Path, checkout: Checkout, scale: Port, shift: Port
) -> None:
    pristine = snapshot(checkout.root)
    ports = {"scale": scale, "shift": shift}
    second = next(name for name in ports if name != first)
    alone = make_checkout(tmp_path / "alone")
    execute(plan_apply(alone, [ports[second]]))
    execute(plan_apply(checkout, [ports[first]]))
    execute(plan_apply(checkout, [ports[second]]))
    both = checkout.path(KERNEL).read_bytes()
    assert b"_product" in both and b"__add__" in both
    execute(plan_revert(checkout, [ports[first]]))
    assert without_state(snapshot(checkout.root)) == without_state(snapshot(alone.root))
    assert [one.status for one in status(checkout, [ports[second]])] == [Status.APPLIED]
    execute(plan_revert(checkout, [ports[second]]))
    assert snapshot(checkout.root) == pristine


def test_order_of_applying_does_not_matter(
    tmp_path: Path, checkout: Checkout, scale: Port, shift: Port
) -> None:
    other = make_checkout(tmp_path / "other")
    execute(plan_apply(checkout, [scale]))
    execute(plan_apply(checkout, [shift]))
    execute(plan_apply(other, [shift, scale]))
    assert without_state(snapshot(checkout.root)) == without_state(snapshot(other.root))


def test_a_folder_that_is_gone_does_not_keep_a_port_in(
    checkout: Checkout, scale: Port, shift: Port
) -> None:
    before = snapshot(checkout.root)
    execute(plan_apply(checkout, [scale, shift]))
    for port in (scale, shift):
        for path in port.folder.iterdir():
            path.unlink()
    execute(plan_revert(checkout, ["scale"]))
    assert b"__add__" in checkout.path(KERNEL).read_bytes()
    execute(plan_revert(checkout))
    assert snapshot(checkout.root) == before


@pytest.mark.parametrize(
    ("kind", "others"),
    [("apply", False), ("revert", False), ("revert", True)],
    ids=["apply", "revert", "revert next to another port"],
)
def test_a_crash_at_any_step_is_recovered_from(
    kind: str, others: bool, tmp_path: Path, scale: Port, shift: Port
) -> None:
    def prepared(name: str) -> Checkout:
        checkout = make_checkout(tmp_path / name)
        if others:
            execute(plan_apply(checkout, [shift]))
        if kind == "revert":
            execute(plan_apply(checkout, [scale]))
        return checkout

    def plan(checkout: Checkout) -> Plan:
        return plan_apply(checkout, [scale]) if kind == "apply" else plan_revert(checkout, [scale])

    done = prepared("done")
    before = snapshot(done.root)
    steps = steps_of(plan(done))
    after = snapshot(done.root)
    if done.state_dir.exists():
        # The serial counts on; all else must be as if nothing had broken off.
        del after[f".ascendport/{STATE}"]
        before.pop(f".ascendport/{STATE}", None)
    assert len(steps) > 10
    ends = set()
    for at in breaking_points(steps):
        checkout = prepared(f"at{at}")
        assert in_child(lambda c=checkout, n=at: execute(plan(c), step=Breaker(n, crash))) == 9  # type: ignore[misc]
        said = recover(checkout)
        found = snapshot(checkout.root)
        found.pop(f".ascendport/{STATE}", None)
        # The lock file stays where another port keeps the directory.
        end = "before" if without_state(found) == without_state(before) else "after"
        assert without_state(found) == without_state(before if end == "before" else after), steps[
            at
        ]
        ends.add(end)
        assert said is None or ("undone" if end == "before" else "completed") in said
        assert recover(checkout) is None
        assert not (checkout.state_dir / INTENT).exists()
        execute(plan(checkout))
        final = snapshot(checkout.root)
        final.pop(f".ascendport/{STATE}", None)
        assert final == after, steps[at]
    assert ends == {"before", "after"}


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
@pytest.mark.parametrize("kind", ["apply", "revert"])
def test_an_exception_at_any_step_puts_everything_back(
    error: BaseException, kind: str, tmp_path: Path, scale: Port
) -> None:
    def fail() -> None:
        raise error

    def prepared(name: str) -> Checkout:
        checkout = make_checkout(tmp_path / name)
        if kind == "revert":
            execute(plan_apply(checkout, [scale]))
        return checkout

    def plan(checkout: Checkout) -> Plan:
        return plan_apply(checkout, [scale]) if kind == "apply" else plan_revert(checkout, [scale])

    steps = steps_of(plan(prepared("done")))
    commit = max(at for at, step in enumerate(steps) if step == f"replace {STATE}")
    for at in breaking_points(steps):
        checkout = prepared(f"at{at}")
        before = snapshot(checkout.root)
        with pytest.raises((UserError, KeyboardInterrupt)):
            execute(plan(checkout), step=Breaker(at, fail))
        if at <= commit:
            found = snapshot(checkout.root)
            assert without_state(found) == without_state(before), steps[at]
            assert checkout.state_dir.exists() == (kind == "revert")
            assert recover(checkout) is None
        else:
            recover(checkout)
            assert checkout.path(NEW).exists() == (kind == "apply")
        assert not (checkout.state_dir / INTENT).exists()


def test_what_was_edited_after_a_crash_is_not_overwritten(checkout: Checkout, scale: Port) -> None:
    def run() -> None:
        steps = iter(range(10**6))

        def step(what: str) -> None:
            next(steps)
            if what == f"write {STATE}":
                crash()

        execute(plan_apply(checkout, [scale]), step=step)

    original = checkout.path(KERNEL).read_bytes()
    assert in_child(run) == 9
    checkout.path(KERNEL).write_bytes(b"mine = 1\n")
    with pytest.raises(UserError, match="edited after an interrupted run"):
        recover(checkout)
    assert checkout.path(KERNEL).read_bytes() == b"mine = 1\n"
    checkout.path(KERNEL).write_bytes(original)
    assert "undone" in (recover(checkout) or "")
    assert not checkout.state_dir.exists()
    assert not checkout.path(NEW).parent.exists()


def test_a_damaged_intent_is_reported(checkout: Checkout, scale: Port) -> None:
    execute(plan_apply(checkout, [scale]))
    (checkout.state_dir / INTENT).write_text("{")
    with pytest.raises(UserError, match="interrupted run is damaged"):
        recover(checkout)


def test_reading_leaves_no_trace(checkout: Checkout, scale: Port) -> None:
    before = snapshot(checkout.root)
    assert recover(checkout) is None
    status(checkout, [scale])
    plan_apply(checkout, [scale])
    plan_revert(checkout)
    assert snapshot(checkout.root) == before


def test_a_held_lock_is_waited_for_then_reported(checkout: Checkout, scale: Port) -> None:
    execute(plan_apply(checkout, [scale]))
    plan = plan_revert(checkout)
    with (
        FileLock(checkout.state_dir / LOCK),
        pytest.raises(UserError, match=r"another run has been writing .* 0.05 s"),
    ):
        execute(plan, timeout_s=0.05)
    assert checkout.path(NEW).exists()
    execute(plan)
    assert not checkout.path(NEW).exists()


def test_an_edit_between_plan_and_writing_is_noticed(checkout: Checkout, scale: Port) -> None:
    plan = plan_apply(checkout, [scale])
    edited = checkout.path(WIRING).read_bytes() + b"mine = 1\n"
    checkout.path(WIRING).write_bytes(edited)
    before = snapshot(checkout.root)
    with pytest.raises(UserError, match="edited meanwhile"):
        execute(plan)
    assert snapshot(checkout.root) == before


def test_a_plan_made_before_another_run_is_refused(
    checkout: Checkout, scale: Port, shift: Port
) -> None:
    stale = plan_apply(checkout, [shift])
    execute(plan_apply(checkout, [scale]))
    with pytest.raises(UserError, match="another run changed the checkout"):
        execute(stale)
    assert set(read_state(checkout).ports) == {"scale"}


def test_processes_that_write_at_once_do_not_harm_each_other(
    checkout: Checkout, scale: Port, shift: Port
) -> None:
    before = snapshot(checkout.root)

    def churn(port: Port) -> None:
        def until_done(make: Callable[[], Plan]) -> None:
            while True:
                try:
                    recover(checkout)
                    return execute(make())
                except UserError as error:
                    if "run again" not in str(error) and "cannot be read" not in str(error):
                        raise

        for _ in range(6):
            until_done(lambda: plan_apply(checkout, [port]))
            until_done(lambda: plan_revert(checkout, [port]))

    children = []
    for port in (scale, shift):
        child = os.fork()
        if child == 0:
            try:
                churn(port)
            except BaseException as error:
                os.write(2, f"{error!r}\n".encode())
                os._exit(70)
            os._exit(0)
        children.append(child)
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    assert codes == [0, 0]
    assert snapshot(checkout.root) == before


def test_a_refused_plan_is_not_carried_out(checkout: Checkout, scale: Port) -> None:
    checkout.path(NEW).parent.mkdir(parents=True)
    checkout.path(NEW).write_text("mine\n")
    before = snapshot(checkout.root)
    with pytest.raises(UserError, match="port scale is refused, nothing was written"):
        execute(plan_apply(checkout, [scale]))
    assert snapshot(checkout.root) == before


def test_a_hard_link_elsewhere_keeps_the_old_text(
    tmp_path: Path, checkout: Checkout, scale: Port
) -> None:
    link = tmp_path / "link.py"
    link.hardlink_to(checkout.path(KERNEL))
    before = link.read_bytes()
    execute(plan_apply(checkout, [scale]))
    assert link.read_bytes() == before
    assert checkout.path(KERNEL).read_bytes() != before


def test_the_users_own_files_stay(checkout: Checkout, scale: Port) -> None:
    execute(plan_apply(checkout, [scale]))
    mine = checkout.path(NEW).with_name("mine.py")
    mine.write_text("mine\n")
    execute(plan_revert(checkout))
    assert mine.read_text() == "mine\n"
    assert not checkout.path(NEW).exists()
    assert not checkout.state_dir.exists()


def test_python_notices_a_change_of_equal_size(tmp_path: Path, checkout: Checkout) -> None:
    from tests.patching.conftest import Spec, make_port

    file = "vllm_ascend/one.py"
    checkout.path(file).write_bytes(b"value = 1\n")
    spec = Spec(file, b"value = 2\n", ["value"], [], b"value = 1\n")
    port = make_port(tmp_path / "one", "one", {"only": [spec]})
    second = int(checkout.path(file).stat().st_mtime)
    execute(plan_apply(checkout, [port]))
    stamp = int(checkout.path(file).stat().st_mtime)
    assert stamp != second
    execute(plan_revert(checkout))
    assert int(checkout.path(file).stat().st_mtime) != stamp


def test_objects_are_as_many_as_needed(checkout: Checkout, scale: Port, shift: Port) -> None:
    execute(plan_apply(checkout, [scale, shift]))
    execute(plan_revert(checkout, [scale]))
    kept = {path.name for path in (checkout.state_dir / OBJECTS).iterdir()}
    assert kept == set(read_state(checkout).objects())
    assert json.loads((checkout.state_dir / STATE).read_text())["ports"].keys() == {"shift"}


def test_a_damaged_object_is_not_written_back(checkout: Checkout, scale: Port) -> None:
    execute(plan_apply(checkout, [scale]))
    record = read_state(checkout).files[KERNEL]
    (checkout.state_dir / OBJECTS / str(record.before)).write_bytes(b"damaged")
    before = snapshot(checkout.root)
    with pytest.raises(UserError, match="is damaged"):
        plan_revert(checkout)
    assert snapshot(checkout.root) == before


@pytest.mark.parametrize(
    "text",
    ["{", "[]", '{"version": 2}', '{"files": {"../../etc/x": {"before": null, "after": "00"}}}'],
    ids=["not JSON", "not an object", "newer", "path outside"],
)
def test_a_bad_record_is_refused(text: str, checkout: Checkout, scale: Port) -> None:
    checkout.state_dir.mkdir()
    (checkout.state_dir / STATE).write_text(text)
    with pytest.raises(UserError, match="damaged or from another version"):
        plan_apply(checkout, [scale])


def test_git_sees_only_the_changes(checkout: Checkout, scale: Port) -> None:
    def git(*args: str) -> str:
        command = ["git", "-c", "user.name=t", "-c", "user.email=t@example.org", *args]
        done = subprocess.run(command, cwd=checkout.root, check=True, capture_output=True)
        return done.stdout.decode()

    git("init", "-q")
    git("add", "-A")
    git("commit", "-qm", "start")
    clone = Checkout(checkout.root, Layout.GIT)
    execute(plan_apply(clone, [scale]))
    changed = git("status", "--porcelain", "--untracked-files=all").splitlines()
    assert sorted(changed) == sorted([f" M {KERNEL}", f" M {WIRING}", f"?? {NEW}"])
    execute(plan_revert(clone))
    assert git("status", "--porcelain", "--ignored") == ""


def test_an_installed_tree_keeps_its_record_in_the_package(checkout: Checkout, scale: Port) -> None:
    installed = Checkout(checkout.root, Layout.INSTALLED)
    before = snapshot(checkout.root)
    execute(plan_apply(installed, [scale]))
    assert (checkout.root / "vllm_ascend" / ".ascendport" / STATE).is_file()
    assert not (checkout.root / ".ascendport").exists()
    execute(plan_revert(installed))
    assert snapshot(checkout.root) == before


def test_every_write_is_on_the_disk_before_it_counts(
    checkout: Checkout, scale: Port, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []

    def fsync(handle: int) -> None:
        kind = "folder" if stat.S_ISDIR(os.fstat(handle).st_mode) else "file"
        events.append(f"sync {kind}")

    monkeypatch.setattr(os, "fsync", fsync)
    execute(plan_apply(checkout, [scale]), step=events.append)
    replaced = [at for at, event in enumerate(events) if event.startswith("replace ")]
    assert len(replaced) >= 5
    for at in replaced:
        assert events[at - 1] == "sync file"
        assert events[at + 1] == "sync folder"


def test_a_state_directory_that_goes_between_two_looks_is_made_again(
    checkout: Checkout, scale: Port, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = Path.mkdir
    refused: list[Path] = []

    def mkdir(path: Path, mode: int = 0o777, parents: bool = False, exist_ok: bool = False) -> None:
        if path == checkout.state_dir and not refused:
            refused.append(path)
            raise FileExistsError(17, "File exists", str(path))
        kept(path, mode, parents, exist_ok)

    monkeypatch.setattr(Path, "mkdir", mkdir)
    execute(plan_apply(checkout, [scale]))
    assert refused
    assert set(read_state(checkout).ports) == {"scale"}


def test_a_file_where_the_state_directory_belongs_is_refused(
    checkout: Checkout, scale: Port
) -> None:
    checkout.state_dir.write_text("mine\n")
    plan = plan_apply(checkout, [scale])
    assert [port.port for port in plan.refused] == ["scale"]
    with pytest.raises(UserError, match="nothing was written"):
        execute(plan)
    assert checkout.state_dir.read_text() == "mine\n"
