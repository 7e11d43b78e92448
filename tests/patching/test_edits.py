"""What the user changed in a patched file stays theirs."""

from __future__ import annotations

from pathlib import Path

import pytest

from ascendport.checkout.tree import Checkout
from ascendport.patching import plan as planning
from ascendport.patching.journal import execute
from ascendport.patching.merge import Merged
from ascendport.patching.plan import Edited, Outcome, Plan, PortPlan, plan_apply, plan_revert
from ascendport.patching.state import SAVED, STATE, read_state
from ascendport.patching.status import Status, status
from ascendport.ports.manifest import Port
from tests.patching.conftest import (
    BROUGHT,
    KERNEL,
    KERNEL_TEXT,
    NEW,
    SCALE,
    WIRING,
    WIRING_TEXT,
    Spec,
    make_port,
    snapshot,
)

pytestmark = pytest.mark.usefixtures("quick_disk")


def replaced(checkout: Checkout, file: str, old: bytes, new: bytes) -> bytes:
    """Edits a file as a user does; its new contents."""
    text = checkout.path(file).read_bytes()
    assert text.count(old) == 1
    text = text.replace(old, new)
    checkout.path(file).write_bytes(text)
    return text


def refused(plan: Plan) -> PortPlan:
    (port,) = plan.refused
    assert not plan.changes and plan.new_state == plan.state
    return port


def copies(plan: Plan) -> list[bytes]:
    """What the copies that a plan names hold."""
    return [plan.checkout.path(one.copy).read_bytes() for one in plan.changes if one.copy]


def test_revert_keeps_an_edit_beside_the_change(checkout: Checkout, scale: Port) -> None:
    execute(plan_apply(checkout, [scale]))
    mine = replaced(checkout, KERNEL, b"LIMIT = 4\n", b"LIMIT = 5  # mine\n")
    plan = plan_revert(checkout)
    execute(plan)
    assert checkout.read(KERNEL) == KERNEL_TEXT.replace(b"LIMIT = 4\n", b"LIMIT = 5  # mine\n")
    assert checkout.read(WIRING) == WIRING_TEXT
    assert not checkout.path(NEW).exists()
    assert copies(plan) == [mine]
    assert sorted(path.name for path in checkout.state_dir.iterdir()) == [".gitignore", SAVED]


def test_the_copies_of_two_reverts_lie_side_by_side(checkout: Checkout, scale: Port) -> None:
    kept = []
    for text in (b"LIMIT = 5\n", b"LIMIT = 6\n"):
        execute(plan_apply(checkout, [scale]))
        at = checkout.path(KERNEL).read_bytes()
        checkout.path(KERNEL).write_bytes(at.replace(b"LIMIT = 4\n", text))
        plan = plan_revert(checkout)
        execute(plan)
        kept += copies(plan)
        checkout.path(KERNEL).write_bytes(KERNEL_TEXT)
    assert len(list((checkout.state_dir / SAVED).iterdir())) == 2
    assert b"LIMIT = 5" in kept[0] and b"LIMIT = 6" in kept[1]


def test_line_ends_survive_a_merge(checkout: Checkout, scale: Port) -> None:
    crlf = KERNEL_TEXT.replace(b"\n", b"\r\n")
    checkout.path(KERNEL).write_bytes(crlf)
    execute(plan_apply(checkout, [scale]))
    replaced(checkout, KERNEL, b"LIMIT = 4\r\n", b"LIMIT = 5\r\n")
    execute(plan_revert(checkout))
    assert checkout.read(KERNEL) == crlf.replace(b"LIMIT = 4", b"LIMIT = 5")


def overlapping(checkout: Checkout, scale: Port) -> bytes:
    execute(plan_apply(checkout, [scale]))
    old = b"    return [_product((row, factor)) for row in rows]\n"
    return replaced(checkout, KERNEL, old, b"    return mine(rows)\n")


def test_an_edit_of_the_same_lines_is_shown_and_refused(checkout: Checkout, scale: Port) -> None:
    overlapping(checkout, scale)
    before = snapshot(checkout.root)
    port = refused(plan_revert(checkout))
    assert f"modified: {KERNEL} was edited where the port changes it" in port.reason
    assert "--keep" in port.reason and "--theirs" in port.reason
    lines = port.conflict.splitlines()
    marks = [line for line in lines if line[:2] in ("<<", "||", "==", ">>")]
    assert [mark.lstrip("<|=> ") for mark in marks] == [
        "yours", "as applied", "", "without the port",
    ]  # fmt: skip
    assert lines.index("    return mine(rows)") < lines.index(marks[1])
    assert lines.index("        row *= factor") > lines.index(marks[2])
    assert snapshot(checkout.root) == before


def test_theirs_takes_the_original_and_keeps_a_copy(checkout: Checkout, scale: Port) -> None:
    mine = overlapping(checkout, scale)
    named = refused(plan_revert(checkout)).reason
    plan = plan_revert(checkout, edited=Edited.THEIRS)
    execute(plan)
    assert checkout.read(KERNEL) == KERNEL_TEXT
    assert copies(plan) == [mine]
    (copy,) = [change.copy for change in plan.changes if change.copy]
    assert copy in named


def test_keep_leaves_the_file_and_forgets_the_port(checkout: Checkout, scale: Port) -> None:
    mine = overlapping(checkout, scale)
    execute(plan_revert(checkout, edited=Edited.KEEP))
    assert checkout.read(KERNEL) == mine
    assert checkout.read(WIRING) == WIRING_TEXT
    assert not checkout.state_dir.exists()


@pytest.mark.parametrize(
    ("edited", "left"), [(Edited.THEIRS, KERNEL_TEXT), (Edited.KEEP, None)], ids=["theirs", "keep"]
)
def test_a_deleted_file(
    edited: Edited, left: bytes | None, checkout: Checkout, scale: Port
) -> None:
    execute(plan_apply(checkout, [scale]))
    checkout.path(KERNEL).unlink()
    assert f"{KERNEL} was deleted" in refused(plan_revert(checkout)).reason
    execute(plan_revert(checkout, edited=edited))
    assert checkout.read(KERNEL) == left


@pytest.mark.parametrize("edited", [Edited.THEIRS, Edited.KEEP])
def test_an_edited_file_that_the_port_brought(
    edited: Edited, checkout: Checkout, scale: Port
) -> None:
    execute(plan_apply(checkout, [scale]))
    mine = BROUGHT + b"mine = 1\n"
    checkout.path(NEW).write_bytes(mine)
    assert f"modified: {NEW} was edited" in refused(plan_revert(checkout)).reason
    plan = plan_revert(checkout, edited=edited)
    execute(plan)
    assert checkout.read(NEW) == (None if edited is Edited.THEIRS else mine)
    assert copies(plan) == ([mine] if edited is Edited.THEIRS else [])


def test_the_named_original_is_the_original(checkout: Checkout, scale: Port) -> None:
    overlapping(checkout, scale)
    said = refused(plan_revert(checkout)).reason
    path = said[said.index("original: ") + len("original: ") :].removesuffix(")")
    assert Path(path).read_bytes() == KERNEL_TEXT


def test_a_second_port_leaves_the_edit_of_a_file_that_they_share(
    checkout: Checkout, scale: Port, shift: Port
) -> None:
    execute(plan_apply(checkout, [scale]))
    replaced(checkout, KERNEL, b"LIMIT = 4\n", b"LIMIT = 5\n")
    execute(plan_apply(checkout, [shift]))
    assert [one.status for one in status(checkout, [scale, shift])] == [Status.MODIFIED] * 2
    text = checkout.path(KERNEL).read_bytes()
    assert b"__add__" in text and b"_product" in text and b"LIMIT = 5\n" in text
    execute(plan_revert(checkout, [scale]))
    text = checkout.path(KERNEL).read_bytes()
    assert b"__add__" in text and b"_product" not in text and b"LIMIT = 5\n" in text
    execute(plan_revert(checkout))
    assert checkout.read(KERNEL) == KERNEL_TEXT.replace(b"LIMIT = 4\n", b"LIMIT = 5\n")


def test_a_merge_that_is_not_python_is_a_conflict(
    checkout: Checkout, scale: Port, monkeypatch: pytest.MonkeyPatch
) -> None:
    execute(plan_apply(checkout, [scale]))
    replaced(checkout, KERNEL, b"LIMIT = 4\n", b"LIMIT = 5\n")
    monkeypatch.setattr(planning, "merge", lambda *_: Merged(b"def (:\n"))
    assert "was edited" in refused(plan_revert(checkout)).reason
    monkeypatch.setattr(planning, "merge", lambda *_: Merged(b"fine = 1\n"))
    assert not plan_revert(checkout).refused


def test_apply_again_leaves_edits_alone(checkout: Checkout, scale: Port) -> None:
    execute(plan_apply(checkout, [scale]))
    replaced(checkout, KERNEL, b"LIMIT = 4\n", b"LIMIT = 5\n")
    plan = plan_apply(checkout, [scale])
    (port,) = plan.ports
    assert port.outcome is Outcome.ALREADY_APPLIED
    assert port.reason == f"{KERNEL} edited since, left so"
    assert not plan.changes


NEWER = SCALE.replace(b"for row in rows]", b"for row in tuple(rows)]")


def newer(port: Port) -> None:
    """Gives the port's folder a newer text."""
    (port.folder / "only_0.py").write_bytes(NEWER)


def test_an_older_text_of_the_port_is_upgraded_in_one_step(checkout: Checkout, scale: Port) -> None:
    pristine = snapshot(checkout.root)
    execute(plan_apply(checkout, [scale]))
    newer(scale)
    assert "an older text of the port" in status(checkout, [scale])[0].reason
    plan = plan_apply(checkout, [scale])
    assert [one.outcome for one in plan.ports] == [Outcome.UPGRADED]
    assert [change.file for change in plan.changes] == [KERNEL]
    execute(plan)
    assert b"tuple(rows)" in checkout.path(KERNEL).read_bytes()
    assert status(checkout, [scale])[0].reason == ""
    assert [one.outcome for one in plan_apply(checkout, [scale]).ports] == [Outcome.ALREADY_APPLIED]
    execute(plan_revert(checkout))
    assert snapshot(checkout.root) == pristine


def test_an_upgrade_keeps_edits_or_is_refused(checkout: Checkout, scale: Port) -> None:
    execute(plan_apply(checkout, [scale]))
    applied = checkout.path(KERNEL).read_bytes()
    newer(scale)
    mine = replaced(checkout, KERNEL, b"LIMIT = 4\n", b"LIMIT = 5\n")
    plan = plan_apply(checkout, [scale])
    execute(plan)
    text = checkout.path(KERNEL).read_bytes()
    assert b"tuple(rows)" in text and b"LIMIT = 5\n" in text
    assert copies(plan) == [mine]
    checkout.path(KERNEL).write_bytes(text.replace(b"tuple(rows)", b"mine(rows)"))
    (scale.folder / "only_0.py").write_bytes(SCALE)
    port = refused(plan_apply(checkout, [scale]))
    assert "mine(rows)" in port.conflict and "with the new text" in port.conflict
    assert applied != text


def test_an_upgrade_to_other_files_puts_the_old_ones_back(
    tmp_path: Path, checkout: Checkout, scale: Port
) -> None:
    pristine = snapshot(checkout.root)
    execute(plan_apply(checkout, [scale]))
    spec = Spec(KERNEL, SCALE, ["scale"], ["_product"], KERNEL_TEXT)
    smaller = make_port(tmp_path / "smaller", "scale", {"only": [spec]})
    execute(plan_apply(checkout, [smaller]))
    assert checkout.read(WIRING) == WIRING_TEXT
    assert not checkout.path(NEW).parent.exists()
    assert set(read_state(checkout).files) == {KERNEL}
    execute(plan_revert(checkout))
    assert snapshot(checkout.root) == pristine
    assert not (checkout.state_dir / STATE).exists()


@pytest.mark.parametrize("how", ["deleted", "edited until nothing of the port was left"])
def test_apply_does_not_call_applied_what_is_gone(
    how: str, checkout: Checkout, shift: Port
) -> None:
    execute(plan_apply(checkout, [shift]))
    path = checkout.path(KERNEL)
    if how == "deleted":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes().replace(b"list(map(step.__add__, rows))", b"mine"))
    before = snapshot(checkout.root)
    port = refused(plan_apply(checkout, [shift]))
    assert port.reason.startswith(f"modified: {KERNEL} was {how} since it was applied; revert")
    assert snapshot(checkout.root) == before
    execute(plan_revert(checkout, edited=Edited.THEIRS))
    assert not plan_apply(checkout, [shift]).refused


def test_a_file_that_a_port_leaves_as_it_is_is_applied_once(
    tmp_path: Path, checkout: Checkout
) -> None:
    specs = [
        Spec(KERNEL, SCALE, ["scale"], ["_product"], KERNEL_TEXT),
        Spec(WIRING, b"core.shift = shift\n", ["core.shift"], [], WIRING_TEXT),
    ]
    port = make_port(tmp_path / "same", "same", {"only": specs})
    execute(plan_apply(checkout, [port]))
    assert checkout.read(WIRING) == WIRING_TEXT
    plan = plan_apply(checkout, [port])
    assert [one.outcome for one in plan.ports] == [Outcome.ALREADY_APPLIED]
    assert plan.new_state == plan.state
