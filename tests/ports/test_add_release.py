"""A new release is made known to the ports by a change of data."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

from ascendport.checkout.tree import Checkout
from ascendport.patching.recognise import Status, match
from ascendport.ports.manifest import load
from tests import scripts
from tests.patching.conftest import KERNEL, KERNEL_TEXT, SCALE, Spec, make_checkout, make_port


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return scripts.script("add_release")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    spec = Spec(KERNEL, SCALE, ["scale"], ["_product"], KERNEL_TEXT)
    port = make_port(tmp_path / "zz_scale", "zz_scale", {"old": [spec]}, release="2.0")
    path = port.folder / "port.toml"
    path.write_text("# kept\n" + path.read_text())
    return port.folder


def run(script: ModuleType, folder: Path, checkout: Checkout, release: str, *more: str) -> int:
    arguments = [release, "--tree", str(checkout.root), "--ports", str(folder)]
    status: int = script.main([*arguments, "--only", "zz_scale", *more])
    return status


def test_a_known_text_gets_the_release_in_order(
    script: ModuleType, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checkout = make_checkout(tmp_path / "tree")
    text = (folder / "port.toml").read_text()
    assert run(script, folder, checkout, "1.0rc1") == 0
    assert (folder / "port.toml").read_text() == text
    assert "zz_scale: variant old" in capsys.readouterr().out
    for release in ("1.0rc1", "10.0", "2.0"):
        assert run(script, folder, checkout, release, "--write") == 0
    written = (folder / "port.toml").read_text()
    assert written == text.replace('["2.0"]', '["1.0rc1", "2.0", "10.0"]')
    assert load(folder).manifest.variants[0].releases() == ("1.0rc1", "2.0", "10.0")


def test_an_unknown_text_is_taken_only_when_asked(
    script: ModuleType, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changed = KERNEL_TEXT.replace(b"row *= factor", b"row = row * factor")
    checkout = make_checkout(tmp_path / "tree", {KERNEL: changed})
    text = (folder / "port.toml").read_text()
    assert run(script, folder, checkout, "3.0", "--write") == 1
    said = capsys.readouterr().out
    assert "zz_scale: no variant for 3.0" in said
    assert "no\n" in said
    assert (folder / "port.toml").read_text() == text
    assert match(load(folder), checkout.read).status is Status.DRIFTED
    assert run(script, folder, checkout, "3.0", "--write", "--variant", "old") == 0
    assert match(load(folder), checkout.read).status is Status.APPLICABLE
    assert (folder / "port.toml").read_text().startswith("# kept\n")


def test_an_absent_symbol_is_never_taken(
    script: ModuleType, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checkout = make_checkout(tmp_path / "tree", {KERNEL: b"other = 1\n"})
    assert run(script, folder, checkout, "3.0", "--write", "--variant", "old") == 1
    assert "absent" in capsys.readouterr().out


def test_wrong_usage(
    script: ModuleType, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert script.main(["3.0", "--tree", str(tmp_path / "none"), "--ports", str(folder)]) == 2
    assert "no such directory" in capsys.readouterr().err
