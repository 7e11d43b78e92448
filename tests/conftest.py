"""Fixtures for every test: real releases of vllm-ascend, fetched once per user.

The trees come from the package index through the project's own `fetch` and stay in
``<cache>/trees``, so a second run needs no network. `release_tree` gives a pristine tree that
nobody may change; `release_copy` copies what a test needs into a directory of its own.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings as hypothesis_settings

from ascendport.checkout.cache import Cache
from ascendport.checkout.pins import releases
from ascendport.checkout.pipconfig import Settings, settings

# Tests import code of the pristine trees, also in children: no byte code may land in there.
sys.dont_write_bytecode = True
os.environ["PYTHONDONTWRITEBYTECODE"] = "1"

# How long an example takes says how busy the machine is, not whether the code is right.
hypothesis_settings.register_profile("ascendport", deadline=None)
hypothesis_settings.load_profile("ascendport")

RELEASES = releases()

KEY_RELEASES = ("0.24.0rc1", "0.26.0rc1", "0.28.0rc1", RELEASES[-1])
"""The oldest, the newest, and the first of each layout between."""

EACH_RELEASE = [
    pytest.param(release, marks=() if release in KEY_RELEASES else pytest.mark.slow)
    for release in RELEASES
]
"""For tests that take seconds on each: the others run with ``-m slow``."""

ReleaseTree = Callable[[str], Path]
ReleaseCopy = Callable[..., Path]

COPIED = ("vllm_ascend", "PKG-INFO", "setup.py", "pyproject.toml", "Dockerfile*")
"""What `release_copy` copies by default."""


def _listing(root: Path) -> str:
    """A digest over path, size and modification time of every file below ``root``."""
    digest = hashlib.sha256()
    for folder, names, files in os.walk(root):
        names.sort()
        for name in sorted(files):
            path = Path(folder) / name
            seen = path.lstat()
            digest.update(
                f"{path.relative_to(root)}\0{seen.st_size}\0{seen.st_mtime_ns}\n".encode()
            )
    return digest.hexdigest()


def _protect(root: Path) -> None:
    for folder, _, files in os.walk(root):
        for name in files:
            path = Path(folder) / name
            if not path.is_symlink():
                path.chmod(path.stat().st_mode & ~(stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH))


def _pristine(release: str, cache: Cache, user: Settings) -> Path:
    """The tree of ``release`` in the cache, unpacked where it is missing or was changed."""
    trees = cache.root / "trees"
    root = trees / release
    stamp = trees / f"{release}.listing"
    if root.is_dir() and stamp.is_file() and stamp.read_text() == _listing(root):
        return root
    stamp.unlink(missing_ok=True)
    shutil.rmtree(root, ignore_errors=True)
    from ascendport.checkout.fetch import fetch
    from ascendport.checkout.index import Index

    fetch(release, root, lambda what, done, total: None, index=Index(user), cache=cache)
    _protect(root)
    stamp.write_text(_listing(root))
    return root


@pytest.fixture(scope="session")
def release_tree() -> ReleaseTree:
    """``release_tree("0.30.0rc2")``: the pristine tree of that release. Never write to it.

    At the first use in a session it is compared with what was unpacked, and unpacked again where
    they differ.
    """
    # Taken here, as a test may change the environment before it asks for a tree.
    cache = Cache.of_user()
    user = settings()
    checked: dict[str, Path] = {}

    def tree(release: str) -> Path:
        if release not in checked:
            with cache.lock(f"tree-{release}"):
                checked[release] = _pristine(release, cache, user)
        return checked[release]

    return tree


@pytest.fixture(scope="session")
def release_copy(release_tree: ReleaseTree) -> ReleaseCopy:
    """``release_copy(release, dest, only=None) -> dest``: a writable copy to change.

    ``only``: paths or glob patterns below the root; default: `COPIED`, which makes ``dest`` a
    checkout of layout «source tree». Every pattern must match.
    """

    def copy(release: str, dest: Path, only: tuple[str, ...] | None = None) -> Path:
        root = release_tree(release)
        for pattern in only or COPIED:
            found = sorted(root.glob(pattern))
            assert found, f"{release} has no {pattern}"
            for source in found:
                target = dest / source.relative_to(root)
                target.parent.mkdir(parents=True, exist_ok=True)
                if source.is_dir():
                    shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True)
                else:
                    shutil.copy2(source, target)
        for folder, _, files in os.walk(dest):
            for name in files:
                path = Path(folder) / name
                if not path.is_symlink():
                    path.chmod(path.stat().st_mode | stat.S_IWUSR)
        return dest

    return copy
