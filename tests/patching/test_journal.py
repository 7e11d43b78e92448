"""Every change is whole or not there, whatever breaks it off."""

from __future__ import annotations

import json
import os
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from filelock import FileLock

from ascendport.checkout.tree import Checkout, Layout
from ascendport.errors import UserError
from ascendport.patching.disk import temporary_name
from ascendport.patching.images import images
from ascendport.patching.journal import execute, recover
from ascendport.patching.plan import Outcome, Plan, plan_apply, plan_revert
from ascendport.patching.state import INTENT, LOCK, OBJECTS, STATE, read_state
from ascendport.patching.status import Status, status
from ascendport.ports.manifest import Port
from tests.patching.conftest import (
    KERNEL,
    KERNEL_TEXT,
    NEW,
    WIRING,
    Snapshot,
    make_checkout,
    snapshot,
)
from tests.patching.faults import DIED, Faults, calls_of, in_child, watched

pytestmark = pytest.mark.usefixtures("quick_disk")


def without_state(found: Snapshot) -> Snapshot:
    return {path: seen for path, seen in found.items() if ".ascendport" not in path}


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
    assert calls_of(checkout.root, lambda: execute(plan)) == []
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


@pytest.fixture
def crashed(tmp_path: Path, checkout: Checkout, scale: Port) -> Checkout:
    """A checkout that an apply left when it died: every file changed, the record not."""
    twin = make_checkout(tmp_path / "twin")
    calls = calls_of(twin.root, lambda: execute(plan_apply(twin, [scale])))
    at = calls.index(f"open .ascendport/{temporary_name(STATE)}")
    work = Faults(checkout.root, at)
    assert in_child(lambda: execute(plan_apply(checkout, [scale])), work) == DIED
    assert checkout.path(NEW).exists()
    return checkout


def test_what_was_edited_after_a_crash_is_not_overwritten(crashed: Checkout) -> None:
    path = crashed.path(KERNEL)
    path.write_bytes(b"mine = 1\n")
    with pytest.raises(UserError, match="edited after an interrupted run"):
        recover(crashed)
    assert path.read_bytes() == b"mine = 1\n"
    path.write_bytes(KERNEL_TEXT)
    assert "undone" in (recover(crashed) or "")
    assert not crashed.state_dir.exists()
    assert not crashed.path(NEW).parent.exists()


@pytest.mark.parametrize("text", ["new", "old"])
def test_an_edit_after_a_crash_is_kept_where_it_can_be_told(text: str, crashed: Checkout) -> None:
    path = crashed.path(KERNEL)
    edited = path.read_bytes() if text == "new" else KERNEL_TEXT
    assert b"LIMIT = 4\n" in edited
    path.write_bytes(edited.replace(b"LIMIT = 4\n", b"LIMIT = 5\n"))
    assert "undone" in (recover(crashed) or "")
    assert path.read_bytes() == KERNEL_TEXT.replace(b"LIMIT = 4\n", b"LIMIT = 5\n")


def test_status_tells_the_truth_where_a_crash_cannot_be_mended(
    crashed: Checkout, scale: Port, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ascendport.patching import journal

    def refused(*_: object) -> None:
        raise PermissionError(13, "Permission denied", str(crashed.root))

    monkeypatch.setattr(journal, "locked", refused)
    before = snapshot(crashed.root)
    assert "cannot be ended from here" in (recover(crashed, reading=True) or "")
    assert status(crashed, [scale])[0].status is Status.APPLICABLE
    assert images(crashed, scale).before[KERNEL] == KERNEL_TEXT
    assert snapshot(crashed.root) == before
    with pytest.raises(UserError, match="cannot end an interrupted run"):
        recover(crashed)


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
        pytest.raises(UserError, match=r"another run is writing .* waiting for 0.05 s"),
    ):
        execute(plan, wait_s=0.05)
    assert checkout.path(NEW).exists()
    said: list[str] = []
    execute(plan, note=said.append)
    assert said == []
    assert not checkout.path(NEW).exists()


def test_who_waits_says_so_and_goes_on(checkout: Checkout, scale: Port) -> None:
    execute(plan_apply(checkout, [scale]))
    held = FileLock(checkout.state_dir / LOCK)
    held.acquire()
    said: list[str] = []

    def note(text: str) -> None:
        said.append(text)
        held.release()

    execute(plan_revert(checkout), note=note)
    assert said == ["another run is writing to this checkout: waiting up to 30 s (--wait)"]
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


def test_every_write_is_on_the_disk_before_it_counts(checkout: Checkout, scale: Port) -> None:
    calls = calls_of(checkout.root, lambda: execute(plan_apply(checkout, [scale])))
    replaced = [at for at, call in enumerate(calls) if call.startswith("replace ")]
    assert len(replaced) >= 5
    for at in replaced:
        new = calls[at].removeprefix("replace ")
        since = max(i for i in range(at) if calls[i] == f"write {new}")
        assert f"fsync {new}" in calls[since:at]
        assert calls[at + 1] == f"fsync {new.rpartition('/')[0] or '.'}"
    for call in {call for call in calls if call.startswith("mkdir ")}:
        at = calls.index(call)
        assert calls[at + 1] == f"fsync {call.removeprefix('mkdir ').rpartition('/')[0] or '.'}"


def test_a_state_directory_that_goes_between_two_looks_is_made_again(
    checkout: Checkout, scale: Port, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = os.mkdir
    refused: list[str] = []

    def mkdir(path: str, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        if path == checkout.state_dir.name and not refused:
            refused.append(path)
            raise FileExistsError(17, "File exists", path)
        kept(path, mode, dir_fd=dir_fd)

    monkeypatch.setattr(os, "mkdir", mkdir)
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


@pytest.mark.parametrize(
    ("mode", "readable"), [(0o644, True), (0o640, False)], ids=["open", "private"]
)
def test_who_may_read_the_tree_may_read_the_record(
    mode: int, readable: bool, checkout: Checkout, scale: Port, shift: Port
) -> None:
    """A package that root installed is looked at by others; kept texts of a file that others may
    not read are not shown to them."""
    umask = os.umask(0o022)
    try:
        checkout.path(KERNEL).chmod(mode)
        execute(plan_apply(checkout, [scale]))
        execute(plan_apply(checkout, [shift]))
    finally:
        os.umask(umask)
    kept = [checkout.state_dir / STATE, *(checkout.state_dir / OBJECTS).iterdir()]
    assert len(kept) > 5
    assert {bool(path.stat().st_mode & stat.S_IROTH) for path in kept} == {readable}


def test_a_file_that_cannot_be_replaced_is_named(tmp_path: Path, scale: Port) -> None:
    twin = make_checkout(tmp_path / "twin")
    calls = calls_of(twin.root, lambda: execute(plan_apply(twin, [scale])))
    at = next(at for at, call in enumerate(calls) if call.startswith("replace vllm_ascend/ops"))
    checkout = make_checkout(tmp_path / "tree")
    with (
        watched(Faults(checkout.root, at, "fail")),
        pytest.raises(UserError, match=f"put back: {checkout.path(KERNEL)};"),
    ):
        execute(plan_apply(checkout, [scale]))


@pytest.mark.parametrize("torn", [False, True], ids=["whole", "torn"])
def test_texts_that_a_crash_left_beside_a_port_go(
    torn: bool, tmp_path: Path, checkout: Checkout, scale: Port, shift: Port
) -> None:
    """The port was to go in next to another; the crash came in front of the intent."""
    twin = make_checkout(tmp_path / "twin")
    for tree in (twin, checkout):
        execute(plan_apply(tree, [shift]))
    before = snapshot(checkout.root)
    calls = calls_of(twin.root, lambda: execute(plan_apply(twin, [scale])))
    written = [at for at, call in enumerate(calls) if call.startswith("write .ascendport/objects")]
    work = Faults(checkout.root, written[1], "tear" if torn else "die")
    assert in_child(lambda: execute(plan_apply(checkout, [scale])), work) == DIED
    assert snapshot(checkout.root).keys() > before.keys()
    assert recover(checkout, reading=True) is None
    assert snapshot(checkout.root) == before
