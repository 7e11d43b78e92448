"""The fixtures that every test leans on: a changed tree is noticed and replaced."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from ascendport.checkout.cache import Cache
from ascendport.checkout.pipconfig import Settings
from ascendport.checkout.tree import PACKAGE, Layout, recognise
from tests.checkout.conftest import Mirror, ascend_files, tar_of
from tests.conftest import RELEASES, ReleaseCopy, ReleaseTree, _pristine

RELEASE = "9.9.0rc1"


def damage_contents(root: Path) -> None:
    path = root / PACKAGE / "utils.py"
    path.chmod(0o644)
    path.write_bytes(b"damaged\n")


def damage_by_removing(root: Path) -> None:
    (root / PACKAGE / "_version.py").unlink()


def damage_by_adding(root: Path) -> None:
    (root / PACKAGE / "stray.py").write_bytes(b"")


@pytest.mark.parametrize("damage", [damage_contents, damage_by_removing, damage_by_adding])
def test_changed_tree_is_unpacked_again(
    mirror: Mirror, cache: Cache, damage: Callable[[Path], None]
) -> None:
    files = ascend_files(RELEASE)
    mirror.add("vllm-ascend", f"vllm_ascend-{RELEASE}.tar.gz", tar_of(files, "top"))
    user = Settings(index_urls=(mirror.url,), retries=0)
    root = _pristine(RELEASE, cache, user)
    inode = root.stat().st_ino
    assert _pristine(RELEASE, cache, user).stat().st_ino == inode
    damage(root)
    again = _pristine(RELEASE, cache, user)
    found = {
        path.relative_to(again).as_posix(): path.read_bytes()
        for path in again.rglob("*")
        if path.is_file()
    }
    assert found == files
    assert not any(
        path.stat().st_mode & stat.S_IWUSR for path in again.rglob("*") if path.is_file()
    )


@pytest.mark.network
def test_copy_is_a_writable_checkout(
    release_tree: ReleaseTree, release_copy: ReleaseCopy, tmp_path: Path
) -> None:
    release = RELEASES[0]
    root = release_copy(release, tmp_path / "copy")
    assert recognise(root).layout is Layout.SOURCE
    (root / PACKAGE / "utils.py").write_bytes(b"changed\n")
    assert (release_tree(release) / PACKAGE / "utils.py").read_bytes() != b"changed\n"
    assert all(os.access(path, os.W_OK) for path in (root / PACKAGE).glob("*.py"))


@pytest.mark.network
def test_copy_of_a_part(release_copy: ReleaseCopy, tmp_path: Path) -> None:
    root = release_copy(RELEASES[0], tmp_path, ("vllm_ascend/ops/*.py", "PKG-INFO"))
    assert {path.name for path in root.iterdir()} == {PACKAGE, "PKG-INFO"}
    assert {path.name for path in (root / PACKAGE).iterdir()} == {"ops"}
    with pytest.raises(AssertionError, match="has no nothing"):
        release_copy(RELEASES[0], tmp_path / "x", ("nothing*",))
