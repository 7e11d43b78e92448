"""Edits, drift and export as a user meets them on the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ascendport.checkout.tree import Checkout
from ascendport.cli import app
from ascendport.patching import journal, lock
from ascendport.ports.manifest import Port
from tests.patching.conftest import KERNEL, KERNEL_TEXT, snapshot

pytestmark = pytest.mark.usefixtures("quick_disk")


def run(port: Port, *words: str | Path) -> Any:
    command, *rest = words
    wanted = ["--only", port.name, "--ports", str(port.folder)]
    return CliRunner().invoke(app, [str(command), *map(str, rest), *wanted])


def facts(port: Port, *words: str | Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run(port, *words, "--json", "-").stdout)
    return found


def conflicting(checkout: Checkout, port: Port) -> bytes:
    assert run(port, "apply", checkout.root).exit_code == 0
    path = checkout.path(KERNEL)
    mine = path.read_bytes().replace(b"list(map(step.__add__, rows))", b"mine(rows)")
    path.write_bytes(mine)
    return mine


def test_a_conflict_shows_the_place_and_the_ways_out(checkout: Checkout, shift: Port) -> None:
    mine = conflicting(checkout, shift)
    result = run(shift, "revert", checkout.root)
    assert result.exit_code == 1
    for text in ("shift: both changed these lines", "<<<<<<", "||||||", "--theirs", "--keep"):
        assert text in result.stdout
    assert checkout.read(KERNEL) == mine
    (port,) = facts(shift, "revert", checkout.root)["ports"]
    assert "return mine(rows)" in port["conflict"]


def test_theirs_names_the_copy(checkout: Checkout, shift: Port) -> None:
    mine = conflicting(checkout, shift)
    dry = run(shift, "revert", checkout.root, "--theirs", "--dry-run")
    assert "the text with your edits would be kept in" in dry.stdout
    assert checkout.read(KERNEL) == mine
    found = facts(shift, "revert", checkout.root, "--theirs")
    (change,) = found["changes"]
    assert Path(change["copy"]).read_bytes() == mine
    assert checkout.read(KERNEL) == KERNEL_TEXT


def test_keep_leaves_the_file(checkout: Checkout, shift: Port) -> None:
    mine = conflicting(checkout, shift)
    assert run(shift, "revert", checkout.root, "--keep").exit_code == 0
    assert checkout.read(KERNEL) == mine
    assert not checkout.state_dir.exists()


def test_theirs_and_keep_together_are_wrong_usage(checkout: Checkout, shift: Port) -> None:
    result = run(shift, "revert", checkout.root, "--keep", "--theirs")
    assert result.exit_code == 2
    assert "opposites" in result.stderr


def test_status_shows_what_was_edited(checkout: Checkout, shift: Port) -> None:
    conflicting(checkout, shift)
    result = run(shift, "status", checkout.root)
    assert "modified" in result.stdout
    assert "+    return mine(rows)" in result.stdout


def test_drift_shows_three_texts(
    checkout: Checkout, shift: Port, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ascendport.checkout.cached.release_file", lambda *_: KERNEL_TEXT)
    checkout.path(KERNEL).write_bytes(KERNEL_TEXT.replace(b"row + step", b"row - step"))
    result = run(shift, "apply", checkout.root)
    assert result.exit_code == 1
    assert f"shift: shift in {KERNEL}: what upstream changed, from 1.0" in result.stdout
    assert f"shift: shift in {KERNEL}: the port, from 1.0" in result.stdout
    (port,) = facts(shift, "apply", checkout.root)["ports"]
    (drift,) = port["drift"]
    assert (drift["release"], drift["symbol"]) == ("1.0", "shift")
    assert "row + step" in drift["base"] and "row - step" in drift["theirs"]
    assert "__add__" in drift["ours"]


def test_verify_shows_that_a_port_was_forced(checkout: Checkout, shift: Port) -> None:
    checkout.path(KERNEL).write_bytes(KERNEL_TEXT.replace(b"row + step", b"row - step"))
    assert run(shift, "apply", checkout.root, "--force").exit_code == 0
    shown = run(shift, "verify", checkout.root, "--check", "source").stdout
    assert "shift is in by --force" in shown


def test_verify_says_what_it_does_not_look_at(checkout: Checkout, shift: Port) -> None:
    assert run(shift, "apply", checkout.root).exit_code == 0
    assert "modified" not in run(shift, "verify", checkout.root, "--check", "source").stderr
    path = checkout.path(KERNEL)
    path.write_bytes(path.read_bytes() + b"mine = 1\n")
    said = run(shift, "verify", checkout.root, "--check", "source").stderr
    assert f"shift is modified on disk, and looked at without that: {KERNEL} was edited" in said


def test_an_upgrade_is_said(checkout: Checkout, shift: Port) -> None:
    assert run(shift, "apply", checkout.root).exit_code == 0
    text = (shift.folder / "only_0.py").read_text()
    (shift.folder / "only_0.py").write_text(text.replace("list(", "sorted("))
    assert "upgrades it" in run(shift, "status", checkout.root).stdout
    (port,) = facts(shift, "apply", checkout.root)["ports"]
    assert port["status"] == "upgraded"
    assert b"sorted(" in checkout.path(KERNEL).read_bytes()


def test_export_writes_a_patch_and_says_how_to_use_it(
    tmp_path: Path, checkout: Checkout, shift: Port, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    out = tmp_path / "series.patch"
    result = run(shift, "export", checkout.root, "--out", out)
    assert result.exit_code == 0
    assert f"git am {out}" in result.stdout
    assert out.read_bytes().startswith(b"From 0000")
    (commit,) = facts(shift, "export", checkout.root, "--out", out)["commits"]
    assert commit["files"] == [KERNEL]
    assert checkout.read(KERNEL) == KERNEL_TEXT


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--format", "svn"), "no such format"),
        (("--format", "branch", "--out", "x"), "--out is for --format patch"),
        (("--format", "branch"), "needs a git clone"),
        (("--out", "no/such/folder/x"), "No such file"),
    ],
    ids=["format", "both", "no git", "folder"],
)
def test_export_refuses(words: tuple[str, ...], said: str, checkout: Checkout, shift: Port) -> None:
    result = run(shift, "export", checkout.root, *words)
    assert result.exit_code == 2
    assert said in result.stderr and result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "words",
    [
        ("status",),
        ("apply", "--dry-run"),
        ("revert", "--dry-run"),
        ("apply",),
        ("revert",),
        ("verify", "--check", "source"),
        ("bench",),
        ("export", "--out", "/dev/null"),
    ],
    ids=" ".join,
)
def test_every_command_ends_what_an_interrupted_run_left(
    words: tuple[str, ...], checkout: Checkout, shift: Port, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading: list[object] = []

    def recover(tree: Checkout, **how: object) -> str:
        reading.append(how["reading"])
        return "an interrupted apply was undone"

    monkeypatch.setattr(journal, "recover", recover)
    monkeypatch.setattr("ascendport.ascend.toolchain.missing", lambda: "no compiler here")
    command, *rest = words
    result = run(shift, command, checkout.root, *rest)
    assert "an interrupted apply was undone" in result.stderr
    # Who writes nothing does not wait for who does.
    assert reading == [words not in (("apply",), ("revert",))]


@pytest.mark.parametrize("command", ["apply", "revert"])
def test_a_writer_that_may_not_wait_says_so_at_once(
    command: str, checkout: Checkout, scale: Port, shift: Port
) -> None:
    assert run(shift, "apply", checkout.root).exit_code == 0
    before = snapshot(checkout.root)
    port = scale if command == "apply" else shift
    with lock.locked(checkout, 0, print):
        result = run(port, command, checkout.root, "--wait", "0")
        assert result.exit_code == 2
        assert "another run is writing to this checkout: " in result.stderr
        assert "--wait SECONDS" in result.stderr
        result = run(port, command, checkout.root, "--wait", "1")
        assert "waiting up to 1 s" in result.stderr and "after waiting for 1 s" in result.stderr
        assert run(port, command, checkout.root, "--dry-run", "--wait", "0").exit_code == 0
        assert run(port, "status", checkout.root).exit_code == 0
    assert snapshot(checkout.root) == before
    assert run(port, command, checkout.root, "--wait", "0").exit_code == 0


def test_nobody_waits_less_than_not_at_all(checkout: Checkout, shift: Port) -> None:
    assert run(shift, "apply", checkout.root, "--wait", "-1").exit_code == 2
    assert not checkout.state_dir.exists()


def test_revert_of_a_tree_without_a_record_says_so(checkout: Checkout) -> None:
    result = CliRunner().invoke(app, ["revert", str(checkout.root)])
    assert result.exit_code == 0
    assert "no port is recorded here as applied: nothing to take out" in result.stderr
