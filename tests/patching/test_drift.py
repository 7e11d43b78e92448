"""Originals that a port does not know: shown, forced, recognised as superseded, put back."""

from __future__ import annotations

from pathlib import Path

import pytest

from ascendport import commands
from ascendport.checkout.tree import Checkout
from ascendport.errors import UserError
from ascendport.patching.drift import drifts
from ascendport.patching.images import images
from ascendport.patching.journal import execute
from ascendport.patching.plan import Outcome, plan_apply, plan_revert
from ascendport.patching.state import State, read_state
from ascendport.patching.status import Status, status
from ascendport.ports.digest import digest
from ascendport.ports.manifest import Port, load
from tests.patching.conftest import (
    KERNEL,
    KERNEL_TEXT,
    SCALE,
    SHIFT,
    WIRING,
    Spec,
    make_port,
    snapshot,
)

pytestmark = pytest.mark.usefixtures("quick_disk")

DRIFTED = KERNEL_TEXT.replace(b"row + step", b"row - step")
BETTER = KERNEL_TEXT.replace(
    b"    return [row + step for row in rows]", b"    return better(rows, step)"
)


def test_a_refusal_shows_base_theirs_and_ours(checkout: Checkout, shift: Port) -> None:
    checkout.path(KERNEL).write_bytes(DRIFTED)
    plan = plan_apply(checkout, [shift])
    (port,) = plan.refused
    assert port.drift is not None
    asked: list[str] = []

    def original(release: str, file: str) -> bytes:
        asked.append(release)
        return KERNEL_TEXT

    (found,) = drifts(checkout, State(), port.drift, original)
    assert (found.file, found.symbol, found.release) == (KERNEL, "shift", "1.0")
    assert found.base == "def shift(rows, step):\n    return [row + step for row in rows]\n"
    assert found.theirs == found.base.replace("+", "-")
    assert found.ours == SHIFT.decode()
    assert "-    return [row + step for row in rows]\n+    return [row - step" in found.upstream
    assert "+    return list(map(step.__add__, rows))\n" in found.port
    assert asked == ["1.0"]


def test_without_a_known_text_nothing_is_made_up(checkout: Checkout, shift: Port) -> None:
    checkout.path(KERNEL).write_bytes(DRIFTED)
    (port,) = plan_apply(checkout, [shift]).refused
    assert port.drift is not None
    (found,) = drifts(checkout, State(), port.drift, lambda release, file: None)
    assert (found.release, found.base, found.upstream, found.port) == ("", "", "", "")
    assert found.theirs and found.ours


def test_apply_fetches_the_known_release_once(
    checkout: Checkout, shift: Port, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkout.path(KERNEL).write_bytes(DRIFTED)
    fetched: list[str] = []
    monkeypatch.setattr(
        "ascendport.checkout.fetch.sdist", lambda release, progress: fetched.append(release)
    )
    monkeypatch.setattr(
        "ascendport.checkout.cached.release_file",
        lambda release, file: KERNEL_TEXT if fetched else None,
    )
    said: list[str] = []
    found = commands.drifts(plan_apply(checkout, [shift]), said.append)
    assert fetched == ["1.0"]
    assert said == ["fetching 1.0, to show what the port knows"]
    assert found["shift"][0].release == "1.0"


def test_a_release_that_cannot_be_fetched_is_said(
    checkout: Checkout, shift: Port, monkeypatch: pytest.MonkeyPatch
) -> None:
    def offline(*_: object) -> None:
        raise UserError("no network")

    checkout.path(KERNEL).write_bytes(DRIFTED)
    monkeypatch.setattr("ascendport.checkout.fetch.sdist", offline)
    monkeypatch.setattr("ascendport.checkout.cached.release_file", lambda *_: None)
    said: list[str] = []
    assert commands.drifts(plan_apply(checkout, [shift]), said.append)["shift"][0].base == ""
    assert said[-1] == "not fetched: no network"


def test_verify_says_that_a_port_was_forced(checkout: Checkout, shift: Port) -> None:
    from ascendport.checks.subject import Options
    from ascendport.report import facts

    def verdict() -> commands.Verdict:
        return commands.verify(
            checkout.root, ["shift"], [shift.folder], ["source"], [], Options(), print, watch
        )

    def watch(what: str, done: int, total: int) -> None:
        pass

    def said() -> bool:
        found = verdict()
        (port,) = facts.verify(found.tree, found.results, {}, found.forced)["ports"]
        return bool(port["forced"])

    assert not said()
    checkout.path(KERNEL).write_bytes(DRIFTED)
    execute(plan_apply(checkout, [shift], force=True))
    assert said()


def superseded_by(port: Port, symbol: str, text: bytes) -> Port:
    """The port with upstream's better text in its manifest."""
    path = port.folder / "port.toml"
    found = digest(text, symbol)
    table = f'[variants.targets.superseded.{symbol}]\n"{found}" = ["2.0"]\n'
    path.write_text(path.read_text() + table)
    return load(port.folder)


def test_a_better_text_of_upstream_supersedes(checkout: Checkout, shift: Port) -> None:
    checkout.path(KERNEL).write_bytes(BETTER)
    assert status(checkout, [shift])[0].status is Status.DRIFTED
    port = superseded_by(shift, "shift", BETTER)
    found = status(checkout, [port])[0]
    assert found.status is Status.SUPERSEDED
    assert "upstream has taken the change" in found.reason
    assert digest(BETTER, "shift") in found.reason and "2.0" in found.reason
    plan = plan_apply(checkout, [port], force=True)
    assert [one.outcome for one in plan.ports] == [Outcome.SUPERSEDED]
    assert not plan.changes


def test_half_of_a_better_text_does_not_supersede(checkout: Checkout, scale: Port) -> None:
    text = KERNEL_TEXT.replace(b"        row *= factor\n", b"        better(row)\n")
    path = scale.folder / "port.toml"
    table = f'[variants.targets.superseded.scale]\n"{digest(text, "scale")}" = ["2.0"]\n'
    old = path.read_text()
    at = old.index("[[variants.targets]]", old.index("[[variants.targets]]") + 1)
    path.write_text(old[:at] + table + old[at:])
    port = load(scale.folder)
    checkout.path(KERNEL).write_bytes(text)
    assert status(checkout, [port])[0].status is Status.DRIFTED


def test_a_manifest_with_a_stray_superseded_symbol_is_refused(shift: Port) -> None:
    with pytest.raises(UserError, match="scale, which is neither replaced nor decorated"):
        superseded_by(shift, "scale", KERNEL_TEXT)


# --- a pull of the checkout, with ports in it ---

PULLED = KERNEL_TEXT.replace(b"LIMIT = 4\n", b"LIMIT = 40\n")


def test_a_port_goes_into_what_a_pull_brought(checkout: Checkout, scale: Port) -> None:
    execute(plan_apply(checkout, [scale]))
    checkout.path(KERNEL).write_bytes(PULLED)
    found = status(checkout, [scale])[0]
    assert found.status is Status.MODIFIED and f"{KERNEL} holds no port" in found.reason
    assert found.reason.endswith("'ascendport apply' puts it in again")
    assert images(checkout, scale).before[KERNEL] == PULLED
    plan = plan_apply(checkout, [scale])
    assert [one.reason for one in plan.ports] == [f"again: {KERNEL} had been put back"]
    execute(plan)
    text = checkout.path(KERNEL).read_bytes()
    assert b"LIMIT = 40\n" in text and b"_product" in text
    assert status(checkout, [scale])[0].status is Status.APPLIED
    execute(plan_revert(checkout))
    assert checkout.read(KERNEL) == PULLED
    assert not checkout.state_dir.exists()


def test_revert_after_a_pull_leaves_what_it_brought(checkout: Checkout, scale: Port) -> None:
    execute(plan_apply(checkout, [scale]))
    checkout.path(KERNEL).write_bytes(PULLED)
    execute(plan_revert(checkout))
    assert checkout.read(KERNEL) == PULLED
    assert not checkout.state_dir.exists()


def test_a_port_that_a_pull_superseded_leaves_the_record(checkout: Checkout, shift: Port) -> None:
    execute(plan_apply(checkout, [shift]))
    port = superseded_by(shift, "shift", BETTER)
    checkout.path(KERNEL).write_bytes(BETTER)
    plan = plan_apply(checkout, [port])
    assert [one.outcome for one in plan.ports] == [Outcome.SUPERSEDED]
    execute(plan)
    assert checkout.read(KERNEL) == BETTER
    assert not read_state(checkout).ports


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"    return [_product((row, factor)) for row in rows]", b"    return mine(rows)"),
        (b"def _product(values):", b"def _product(values, mine=1):"),
    ],
    ids=["replaced symbol", "added symbol"],
)
def test_an_edited_port_is_no_original(
    old: bytes, new: bytes, checkout: Checkout, scale: Port
) -> None:
    execute(plan_apply(checkout, [scale]))
    text = checkout.path(KERNEL).read_bytes()
    assert old in text
    checkout.path(KERNEL).write_bytes(text.replace(old, new))
    assert "was edited since" in status(checkout, [scale])[0].reason
    before = snapshot(checkout.root)
    assert plan_revert(checkout).refused
    assert snapshot(checkout.root) == before


def test_a_text_that_is_not_python_is_no_original(checkout: Checkout, scale: Port) -> None:
    execute(plan_apply(checkout, [scale]))
    checkout.path(WIRING).write_bytes(b"def (:\n")
    assert f"{WIRING} was edited since" in status(checkout, [scale])[0].reason
    assert plan_revert(checkout).refused


def test_a_forced_port_is_upgraded_without_force(checkout: Checkout, shift: Port) -> None:
    checkout.path(KERNEL).write_bytes(DRIFTED)
    execute(plan_apply(checkout, [shift], force=True))
    (shift.folder / "only_0.py").write_bytes(SHIFT.replace(b"list(", b"sorted("))
    plan = plan_apply(checkout, [shift])
    assert [(one.outcome, one.forced) for one in plan.ports] == [(Outcome.UPGRADED, True)]
    execute(plan)
    assert b"sorted(" in checkout.path(KERNEL).read_bytes()


def test_an_upgrade_that_does_not_fit_is_refused(
    checkout: Checkout, scale: Port, tmp_path: Path
) -> None:
    execute(plan_apply(checkout, [scale]))
    (scale.folder / "only_0.py").write_bytes(SCALE)
    manifest = scale.folder / "port.toml"
    known = digest(KERNEL_TEXT, "scale")
    manifest.write_text(manifest.read_text().replace(known, "0" * 16))
    (port,) = plan_apply(checkout, [load(scale.folder)]).refused
    assert "an older text of the port is in" in port.reason


# --- another release checked out over a tree with ports in it ---

OLD_FILE = "vllm_ascend/ops/older.py"
OLD_TEXT = b"def moved(rows):\n    return rows\n\n\ndef stays(rows):\n    return rows\n"
NEW_RELEASE = KERNEL_TEXT.replace(b"row + step", b"step + row").replace(
    b"row *= factor", b"row = row * factor"
)


@pytest.fixture
def moving(tmp_path: Path, checkout: Checkout) -> Port:
    """A port that changes another symbol and a further file in the older release."""
    checkout.path(OLD_FILE).write_bytes(OLD_TEXT)
    mine = b"def moved(rows):\n    return list(rows)\n"
    older = [
        Spec(KERNEL, SCALE, ["scale"], ["_product"], KERNEL_TEXT),
        Spec(OLD_FILE, mine, ["moved"], [], OLD_TEXT),
    ]
    newer = [Spec(KERNEL, SHIFT, ["shift"], [], NEW_RELEASE)]
    return make_port(tmp_path / "moving", "moving", {"older": older, "newer": newer})


def checked_out(checkout: Checkout, older: bytes | None) -> None:
    """The newer release takes the place of the files, as ``git checkout -f`` does."""
    checkout.path(KERNEL).write_bytes(NEW_RELEASE)
    if older is None:
        checkout.path(OLD_FILE).unlink()
    else:
        checkout.path(OLD_FILE).write_bytes(older)


@pytest.mark.parametrize(
    "older", [None, OLD_TEXT, OLD_TEXT.replace(b"(rows)", b"(rows, by)")],
    ids=["gone", "as it was", "another text"],
)  # fmt: skip
def test_a_port_goes_into_another_release_in_its_form_for_that(
    older: bytes | None, checkout: Checkout, moving: Port
) -> None:
    execute(plan_apply(checkout, [moving]))
    checked_out(checkout, older)
    found = status(checkout, [moving])[0]
    assert found.status is Status.MODIFIED
    assert f"{KERNEL} holds no port" in found.reason and "edited" not in found.reason
    plan = plan_apply(checkout, [moving])
    assert [(one.outcome, one.variant) for one in plan.ports] == [(Outcome.UPGRADED, "newer")]
    assert [(change.file, change.copy) for change in plan.changes] == [(KERNEL, None)]
    execute(plan)
    assert b"__add__" in checkout.path(KERNEL).read_bytes()
    assert status(checkout, [moving])[0].status is Status.APPLIED
    execute(plan_revert(checkout))
    assert (checkout.read(KERNEL), checkout.read(OLD_FILE)) == (NEW_RELEASE, older)
    assert not checkout.state_dir.exists()


def test_revert_forgets_a_port_that_another_release_took_away(
    checkout: Checkout, moving: Port
) -> None:
    execute(plan_apply(checkout, [moving]))
    checked_out(checkout, None)
    before = {KERNEL: NEW_RELEASE, OLD_FILE: None}
    # From the record alone it cannot be told from an edit of the port's lines.
    assert plan_revert(checkout).refused
    commands.revert(checkout.root, ["moving"], [moving.folder], print, dry_run=False)
    assert {file: checkout.read(file) for file in before} == before
    assert not checkout.state_dir.exists()


def test_what_is_left_of_a_port_is_no_other_release(checkout: Checkout, moving: Port) -> None:
    """One file was checked out, the other still has the port in it, with an edit."""
    execute(plan_apply(checkout, [moving]))
    checkout.path(KERNEL).write_bytes(NEW_RELEASE)
    path = checkout.path(OLD_FILE)
    mine = path.read_bytes().replace(b"def stays(rows):", b"def stays(rows, mine):")
    path.write_bytes(mine)
    assert f"{OLD_FILE} was edited since" in status(checkout, [moving])[0].reason
    plan = plan_apply(checkout, [moving])
    execute(plan)
    assert checkout.read(OLD_FILE) == OLD_TEXT.replace(b"stays(rows)", b"stays(rows, mine)")
    assert [checkout.path(one.copy).read_bytes() for one in plan.changes if one.copy] == [mine]


def test_a_damaged_folder_of_a_port_does_not_stop_revert(checkout: Checkout, moving: Port) -> None:
    before = snapshot(checkout.root)
    execute(plan_apply(checkout, [moving]))
    (moving.folder / "newer_0.py").write_bytes(b"def (:\n")
    checkout.path(KERNEL).write_bytes(KERNEL_TEXT)
    checkout.path(OLD_FILE).write_bytes(checkout.path(OLD_FILE).read_bytes() + b"# mine\n")
    commands.revert(checkout.root, ["moving"], [moving.folder], print, dry_run=False)
    assert checkout.read(OLD_FILE) == OLD_TEXT + b"# mine\n"
    (moving.folder / "port.toml").write_text("name = [")
    execute(plan_revert(checkout))
    checkout.path(OLD_FILE).write_bytes(OLD_TEXT)
    found = {path: seen for path, seen in snapshot(checkout.root).items() if path in before}
    assert found == before


def test_ports_that_share_a_file_come_into_their_new_forms_together(
    checkout: Checkout, tmp_path: Path
) -> None:
    """The form that one of them had in the old tree leans on what the new one does not have."""
    new = KERNEL_TEXT.replace(b"LIMIT = 4\n\n\n", b"").replace(b"LIMIT = 4\n", b"")
    new = new.replace(b"row + step", b"step + row").replace(b"row *= factor", b"row += factor")
    scaling = {
        name: [Spec(KERNEL, SCALE, ["scale"], ["_product"], known)]
        for name, known in (("old", KERNEL_TEXT), ("new", new))
    }
    scale = make_port(tmp_path / "zz_scale", "zz_scale", scaling)
    old_form = b"def shift(rows, step):\n    return rows[:LIMIT]\n"
    specs = {
        "old": [Spec(KERNEL, old_form, ["shift"], [], KERNEL_TEXT)],
        "new": [Spec(KERNEL, SHIFT, ["shift"], [], new)],
    }
    shift = make_port(tmp_path / "zz_shift", "zz_shift", specs)
    execute(plan_apply(checkout, [scale, shift]))
    checkout.path(KERNEL).write_bytes(new)
    plan = plan_apply(checkout, [scale, shift])
    assert not plan.refused
    execute(plan)
    text = checkout.path(KERNEL).read_bytes()
    assert b"_product" in text and b"step.__add__" in text and b"LIMIT" not in text
    execute(plan_revert(checkout))
    assert checkout.read(KERNEL) == new
