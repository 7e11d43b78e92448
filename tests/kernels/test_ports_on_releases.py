"""Every port in the repository, on every release: in and out again, on trees of each kind."""

from __future__ import annotations

import hashlib
import os
import zipfile
from pathlib import Path

import pytest

from ascendport import commands
from ascendport.checkout.cache import Cache
from ascendport.checkout.index import Index, download
from ascendport.checkout.tree import Layout, recognise
from ascendport.patching.plan import Outcome
from ascendport.patching.status import Status
from ascendport.ports.catalogue import catalogue
from ascendport.ports.manifest import Port
from tests.conftest import COPIED, EACH_RELEASE, ReleaseCopy

pytestmark = pytest.mark.network

PORTS = [pytest.param(port, id=port.name) for port in catalogue()]


def _hash(root: Path) -> str:
    """Over paths, modes and contents of everything below ``root``."""
    digest = hashlib.sha256()
    for folder, names, files in os.walk(root):
        names.sort()
        for name in sorted([*names, *files]):
            path = Path(folder) / name
            digest.update(f"{path.relative_to(root)}\0{path.lstat().st_mode}\0".encode())
            if path.is_file():
                digest.update(path.read_bytes())
    return digest.hexdigest()


def _note(line: str) -> None:
    raise AssertionError(f"nothing was interrupted, but: {line}")


def _status(root: Path, port: Port) -> Status:
    return commands.status(root, [port.name], (), _note)[1][0].status


def _needs_tests(port: Port) -> bool:
    """Whether the port goes into the checkout's own tests, which an installed package has not."""
    return all(
        any(file.startswith("tests/") for file in variant.needs)
        for variant in port.manifest.variants
    )


def _copied(port: Port) -> tuple[str, ...]:
    """What a copy of a release must have for ``port``."""
    return (*COPIED, "tests/ut/distributed/ascend_store") if _needs_tests(port) else COPIED


def _round(root: Path, port: Port) -> None:
    """applicable → applied → already applied → reverted, and the tree as it was."""
    before = _hash(root)
    assert _status(root, port) is Status.APPLICABLE
    done = commands.apply(root, [port.name], (), _note, dry_run=False, force=False)
    assert [one.outcome for one in done.ports] == [Outcome.APPLIED]
    applied = _hash(root)
    assert applied != before
    assert _status(root, port) is Status.APPLIED
    again = commands.apply(root, [port.name], (), _note, dry_run=False, force=False)
    assert [one.outcome for one in again.ports] == [Outcome.ALREADY_APPLIED]
    assert _hash(root) == applied
    back = commands.revert(root, [port.name], (), _note, dry_run=False)
    assert [one.outcome for one in back.ports] == [Outcome.REVERTED]
    assert _hash(root) == before


@pytest.mark.parametrize("port", PORTS)
@pytest.mark.parametrize("release", EACH_RELEASE)
def test_in_and_out(port: Port, release: str, release_copy: ReleaseCopy, tmp_path: Path) -> None:
    _round(release_copy(release, tmp_path / "tree of ü", _copied(port)), port)


@pytest.mark.parametrize("port", PORTS)
def test_a_file_with_crlf_keeps_it(port: Port, release_copy: ReleaseCopy, tmp_path: Path) -> None:
    root = release_copy("0.30.0rc2", tmp_path / "tree", _copied(port))
    files = {target.file for variant in port.manifest.variants for target in variant.targets}
    for file in files:
        path = root / file
        if path.exists():
            path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    commands.apply(root, [port.name], (), _note, dry_run=False, force=False)
    changed = [root / file for file in files if (root / file).exists()]
    assert all(b"\n" not in path.read_bytes().replace(b"\r\n", b"") for path in changed)
    commands.revert(root, [port.name], (), _note, dry_run=False)
    _round(root, port)


@pytest.mark.parametrize(
    "port",
    [
        pytest.param(
            port,
            id=port.name,
            # One of each kind, and the one that an installed package has no place for.
            marks=()
            if port.name in ("grammar_bitmask", "tp_mismatch", "failure_tests")
            else pytest.mark.slow,
        )
        for port in catalogue()
    ],
)
def test_a_wheel_installed_tree(port: Port, tmp_path: Path) -> None:
    index, cache = Index.of_user(), Cache.of_user()
    wheel = index.find_wheel("vllm-ascend", "0.26.0rc1")
    site = tmp_path / "site-packages"
    with zipfile.ZipFile(download(index, wheel, cache, lambda what, done, total: None)) as archive:
        archive.extractall(site)
    (site / "neighbour.py").write_text("x = 1\n")
    assert recognise(site / "vllm_ascend").layout is Layout.INSTALLED
    if _needs_tests(port):
        before = _hash(site)
        assert _status(site / "vllm_ascend", port) is Status.MISSING
        done = commands.apply(
            site / "vllm_ascend", [port.name], (), _note, dry_run=False, force=False
        )
        assert [one.outcome for one in done.ports] == [Outcome.REFUSED]
        assert _hash(site) == before
    else:
        _round(site / "vllm_ascend", port)
    assert not any(site.rglob(".ascendport"))
