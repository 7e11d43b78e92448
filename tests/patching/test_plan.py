"""What would change, and what is refused before anything is written."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from ascendport.checkout.tree import Checkout
from ascendport.errors import UserError
from ascendport.patching.journal import execute
from ascendport.patching.plan import Action, Outcome, Plan, diff, plan_apply, plan_revert
from ascendport.patching.state import read_state
from ascendport.patching.status import Status, status
from ascendport.ports.manifest import Port
from tests.patching.conftest import (
    KERNEL,
    KERNEL_TEXT,
    NEW,
    SHIFT,
    WIRING,
    Spec,
    make_port,
    snapshot,
)

pytestmark = pytest.mark.usefixtures("quick_disk")


def reason(plan: Plan) -> str:
    (refused,) = plan.refused
    assert plan.changes == ()
    assert plan.new_state == plan.state
    return refused.reason


def test_apply_and_revert(checkout: Checkout, scale: Port) -> None:
    plan = plan_apply(checkout, [scale])
    actions = [(change.file, change.action) for change in plan.changes]
    assert actions == [(NEW, Action.CREATE), (KERNEL, Action.MODIFY), (WIRING, Action.MODIFY)]
    assert [(one.outcome, one.variant) for one in plan.ports] == [(Outcome.APPLIED, "only")]
    execute(plan)
    plan = plan_revert(checkout)
    actions = [(change.file, change.action) for change in plan.changes]
    assert actions == [(NEW, Action.DELETE), (KERNEL, Action.RESTORE), (WIRING, Action.RESTORE)]
    assert [one.outcome for one in plan.ports] == [Outcome.REVERTED]


def test_reverting_what_is_not_in_is_no_change(checkout: Checkout, scale: Port) -> None:
    plan = plan_revert(checkout, [scale])
    assert [one.outcome for one in plan.ports] == [Outcome.NOT_APPLIED]
    assert not plan.changes and not plan.refused


def test_git_applies_the_diff(checkout: Checkout, scale: Port, tmp_path: Path) -> None:
    crlf = KERNEL_TEXT.replace(b"\n", b"\r\n").removesuffix(b"\r\n")
    checkout.path(KERNEL).write_bytes(crlf)
    plan = plan_apply(checkout, [scale])
    text = diff(plan)
    subprocess.run(["git", "init", "-q"], cwd=checkout.root, check=True)
    command = ["git", "apply", "--whitespace=nowarn", "-"]
    subprocess.run(command, input=text.encode(), cwd=checkout.root, check=True)
    for change in plan.changes:
        assert checkout.read(change.file) == change.after


def test_crlf_survives(checkout: Checkout, scale: Port) -> None:
    crlf = KERNEL_TEXT.replace(b"\n", b"\r\n")
    checkout.path(KERNEL).write_bytes(crlf)
    execute(plan_apply(checkout, [scale]))
    text = checkout.path(KERNEL).read_bytes()
    assert text != crlf and text.count(b"\n") == text.count(b"\r\n")
    execute(plan_revert(checkout))
    assert checkout.path(KERNEL).read_bytes() == crlf


def test_superseded_is_no_change(checkout: Checkout, shift: Port) -> None:
    checkout.path(KERNEL).write_bytes(SHIFT)
    plan = plan_apply(checkout, [shift])
    assert [one.outcome for one in plan.ports] == [Outcome.SUPERSEDED]
    assert not plan.changes and not plan.refused


def test_one_refused_port_stops_all(checkout: Checkout, scale: Port, shift: Port) -> None:
    text = KERNEL_TEXT.replace(b"row + step", b"row - step")
    checkout.path(KERNEL).write_bytes(text)
    plan = plan_apply(checkout, [scale, shift])
    assert "drifted: shift in" in reason(plan)
    assert [one.outcome for one in plan.ports] == [Outcome.APPLIED, Outcome.REFUSED]


def test_two_ports_for_one_symbol(tmp_path: Path, checkout: Checkout, shift: Port) -> None:
    spec = Spec(KERNEL, SHIFT, ["shift"], [], KERNEL_TEXT)
    rival = make_port(tmp_path / "rival", "rival", {"only": [spec]})
    assert "ports rival and shift both change shift" in reason(plan_apply(checkout, [shift, rival]))
    execute(plan_apply(checkout, [shift]))
    assert "both change shift" in reason(plan_apply(checkout, [rival]))


def test_a_class_and_its_method_are_one_symbol(tmp_path: Path, checkout: Checkout) -> None:
    whole = b"class Launcher:\n    def __init__(self, kernel): 1\n    def run(self, rows): 1\n"
    ports = [
        make_port(tmp_path / name, name, {"only": [Spec(KERNEL, whole, [symbol], [], KERNEL_TEXT)]})
        for name, symbol in (("one", "Launcher"), ("two", "Launcher.run"))
    ]
    assert "both change Launcher" in reason(plan_apply(checkout, ports))


def test_force_takes_a_drifted_text_whose_signature_fits(checkout: Checkout, shift: Port) -> None:
    text = KERNEL_TEXT.replace(b"row + step", b"row - step")
    checkout.path(KERNEL).write_bytes(text)
    assert "drifted" in reason(plan_apply(checkout, [shift]))
    execute(plan_apply(checkout, [shift], force=True))
    assert read_state(checkout).ports["shift"].forced
    (found,) = status(checkout, [shift])
    assert found.status is Status.APPLIED and found.forced and "forced" in found.reason
    execute(plan_revert(checkout))
    assert checkout.path(KERNEL).read_bytes() == text


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"def shift(rows, step)", b"def shift(rows, step, by)"),
        (b"def shift(rows, step)", b"def shift(step, rows)"),
        (b"def shift(rows, step)", b"async def shift(rows, step)"),
        (b"def shift(", b"def moved("),
    ],
    ids=["gained an argument", "order", "async", "renamed"],
)
def test_force_does_not_take_another_signature(
    old: bytes, new: bytes, checkout: Checkout, shift: Port
) -> None:
    checkout.path(KERNEL).write_bytes(KERNEL_TEXT.replace(old, new))
    assert plan_apply(checkout, [shift], force=True).refused


def test_a_missing_target_is_refused(checkout: Checkout, shift: Port) -> None:
    checkout.path(KERNEL).unlink()
    assert reason(plan_apply(checkout, [shift], force=True)) == f"missing: no file {KERNEL}"


def read_only_file(checkout: Checkout) -> None:
    checkout.path(WIRING).chmod(0o444)


def read_only_folder(checkout: Checkout) -> None:
    checkout.path(WIRING).parent.chmod(0o555)


def read_only_root(checkout: Checkout) -> None:
    checkout.root.chmod(0o555)


def file_in_the_way(checkout: Checkout) -> None:
    checkout.path(NEW).parent.mkdir(parents=True)
    checkout.path(NEW).write_text("mine\n")


def folder_in_the_way(checkout: Checkout) -> None:
    checkout.path(NEW).mkdir(parents=True)


def file_for_a_folder(checkout: Checkout) -> None:
    (checkout.root / "tests").write_text("mine\n")


def link_inside(checkout: Checkout) -> None:
    path = checkout.path(KERNEL)
    path.rename(path.with_name("real.py"))
    path.symlink_to("real.py")


OBSTACLES: dict[str, tuple[Callable[[Checkout], None], str]] = {
    "read-only file": (read_only_file, "wire.py is read-only"),
    "read-only folder": (read_only_folder, "patch is read-only"),
    "read-only root": (read_only_root, "tree is read-only"),
    "file where one is brought": (file_in_the_way, "brings a file that is there already"),
    "folder where a file is brought": (folder_in_the_way, "is not a regular file"),
    "file where a folder is needed": (file_for_a_folder, "is not a directory"),
    "link inside the tree": (link_inside, "scale.py is a symbolic link"),
}


@pytest.mark.parametrize("case", OBSTACLES)
def test_obstacles_are_found_before_writing(case: str, checkout: Checkout, scale: Port) -> None:
    make, said = OBSTACLES[case]
    make(checkout)
    before = snapshot(checkout.root)
    try:
        assert said in reason(plan_apply(checkout, [scale]))
        assert snapshot(checkout.root) == before
    finally:
        for folder in (checkout.root, checkout.path(WIRING).parent):
            folder.chmod(0o755)


@pytest.mark.parametrize("which", ["file", "folder", "folder of a new file", "dangling"])
def test_a_link_out_of_the_tree_is_refused(
    which: str, tmp_path: Path, checkout: Checkout, scale: Port
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    kernel = checkout.path(KERNEL)
    if which == "file":
        kernel.rename(outside / kernel.name)
        kernel.symlink_to(outside / kernel.name)
    elif which == "folder":
        os.rename(kernel.parent, outside / "ops")  # noqa: PTH104
        kernel.parent.symlink_to(outside / "ops")
    elif which == "dangling":
        kernel.unlink()
        kernel.symlink_to(outside / "absent.py")
    else:
        (checkout.root / "tests").symlink_to(outside)
    before = snapshot(outside)
    with pytest.raises(UserError, match="leads out of the checkout"):
        plan_apply(checkout, [scale])
    assert snapshot(outside) == before


def test_a_state_directory_that_is_a_link_is_refused(
    tmp_path: Path, checkout: Checkout, scale: Port
) -> None:
    (tmp_path / "outside").mkdir()
    checkout.state_dir.symlink_to(tmp_path / "outside")
    with pytest.raises(UserError, match="state directory is a symbolic link"):
        plan_apply(checkout, [scale])


def test_files_that_were_put_back_by_other_means(checkout: Checkout, scale: Port) -> None:
    before = snapshot(checkout.root)
    execute(plan_apply(checkout, [scale]))
    applied = checkout.path(KERNEL).read_bytes()
    checkout.path(KERNEL).write_bytes(KERNEL_TEXT)
    plan = plan_apply(checkout, [scale])
    assert [(one.outcome, one.reason) for one in plan.ports] == [
        (Outcome.APPLIED, f"again: {KERNEL} had been put back")
    ]
    execute(plan)
    assert checkout.path(KERNEL).read_bytes() == applied
    checkout.path(KERNEL).write_bytes(KERNEL_TEXT)
    checkout.path(NEW).unlink()
    execute(plan_revert(checkout))
    assert snapshot(checkout.root) == before


def test_a_splice_that_cannot_be_made_is_refused(tmp_path: Path, checkout: Checkout) -> None:
    source = SHIFT.replace(b"step", b"forgotten")
    spec = Spec(KERNEL, source.replace(b"rows, forgotten)", b"rows, step)", 1), ["shift"], [],
                KERNEL_TEXT)  # fmt: skip
    port = make_port(tmp_path / "p", "broken", {"only": [spec]})
    assert "uses forgotten" in reason(plan_apply(checkout, [port]))


def test_a_file_that_not_even_root_may_write_is_found_before_writing(
    checkout: Checkout, scale: Port, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the kernel answers for an immutable file."""
    kept = os.access

    def access(path: Path, mode: int) -> bool:
        return path != checkout.path(WIRING) and kept(path, mode)

    monkeypatch.setattr(os, "access", access)
    assert "wire.py cannot be written; is it immutable" in reason(plan_apply(checkout, [scale]))
