"""Power loss, as far as the order of writes and fsync can tell.

A change is recorded call by call. For the moment after each call the worst disks that POSIX allows
are built: what was synced is there; of what was not synced nothing, everything, or everything with
empty files. Recovery must make of each of them the tree before or the tree after.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from ascendport.checkout.tree import recognise
from ascendport.patching.journal import recover
from ascendport.patching.status import status
from ascendport.ports.manifest import Port
from tests.patching.campaign import apply, revert, trees
from tests.patching.conftest import make_checkout

STATE_DIR = ".ascendport"


@dataclass
class Node:
    """A file's contents, now and on the disk; a directory's names, now and on the disk."""

    mode: int
    data: bytes = b""
    synced: bytes | None = None
    names: dict[str, Node] | None = None
    synced_names: dict[str, Node] = field(default_factory=dict)


def loaded(path: Path) -> Node:
    """A tree that lies on the disk as it is."""
    mode = stat.S_IMODE(path.stat().st_mode)
    if path.is_dir():
        names = {child.name: loaded(child) for child in path.iterdir()}
        return Node(mode, names=names, synced_names=dict(names))
    data = path.read_bytes()
    return Node(mode, data, data)


def stored(node: Node, path: Path, which: str) -> None:
    """Writes what the disk may hold. ``which``: lost, kept, or empty for what was not synced."""
    if node.names is None:
        data = node.data if which == "kept" else node.synced
        path.write_bytes(data if data is not None else b"")
        path.chmod(node.mode)
        return
    path.mkdir()
    for name, child in (node.synced_names if which == "lost" else node.names).items():
        stored(child, path / name, which)
    path.chmod(node.mode)


class Disk:
    """Follows the calls of ``os`` below ``root``."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.tree = loaded(root)
        self.moments = 0
        self.umask = os.umask(0)
        os.umask(self.umask)

    def node(self, path: str) -> Node | None:
        found: Node | None = self.tree
        for part in Path(path).relative_to(self.root).parts:
            if found is None or found.names is None:
                return None
            found = found.names.get(part)
        return found

    def names(self, path: str) -> dict[str, Node]:
        parent = self.node(str(Path(path).parent))
        assert parent is not None and parent.names is not None
        return parent.names

    def did(self, call: str, path: str, second: str, data: bytes) -> None:
        name = Path(path).name
        if call == "create":
            self.names(path).setdefault(name, Node(int.from_bytes(data, "big") & ~self.umask))
        elif call == "mkdir":
            self.names(path).setdefault(name, Node(0o777 & ~self.umask, names={}))
        elif call == "write":
            node = self.node(path)
            assert node is not None
            node.data += data
        elif call == "fchmod":
            node = self.node(path)
            assert node is not None
            node.mode = int.from_bytes(data, "big")
        elif call in ("unlink", "rmdir"):
            self.names(path).pop(name, None)
        elif call == "replace":
            self.names(second)[Path(second).name] = self.names(path).pop(name)
        elif call == "fsync":
            node = self.node(path)
            if node is None:
                return
            if node.names is None:
                node.synced = node.data
            else:
                node.synced_names = dict(node.names)


def recorded(
    root: Path, work: Callable[[], object], after_each: Callable[[Disk], None], *, synced: bool
) -> None:
    """Runs ``work``; calls ``after_each`` with the disk after every call that changes it.
    ``synced`` False: as if ``fsync`` did nothing."""
    disk = Disk(root)
    kept = {name: getattr(os, name) for name in ("open", "write", "mkdir", "unlink", "rmdir",
                                                 "replace", "fsync", "fchmod")}  # fmt: skip

    def path_of(first: Any, base: int | None) -> str:
        if isinstance(first, int):
            return str(Path(f"/proc/self/fd/{first}").readlink())
        name = os.fsdecode(first)
        return f"{path_of(base, None)}/{name}" if base is not None else name

    def wrap(name: str) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            path = path_of(args[0], kwargs.get("dir_fd", kwargs.get("src_dir_fd")))
            second, data, what = "", b"", name
            if name == "replace":
                second = path_of(args[1], kwargs.get("dst_dir_fd"))
            if name == "fchmod":
                data = int(args[1]).to_bytes(2, "big")
            result = None if name == "fsync" else kept[name](*args, **kwargs)
            if name == "write":
                data = bytes(args[1])[:result]
            if name == "open":
                what = "create" if args[1] & os.O_CREAT else ""
                data = int(args[2] if len(args) > 2 else 0).to_bytes(2, "big")
            if what and path.startswith(str(root)) and (name != "fsync" or synced):
                disk.did(what, path, second, data)
                after_each(disk)
            return result

        return call

    try:
        for name in kept:
            setattr(os, name, wrap(name))
        work()
    finally:
        for name, real in kept.items():
            setattr(os, name, real)


def losses(
    kind: str, tmp_path: Path, port: Port, *, synced: bool = True, every: int = 1
) -> Iterator[str]:
    """For each disk that power loss may leave: before, after, or what is wrong with it."""
    root = make_checkout(tmp_path / "tree").root
    if kind == "revert":
        apply(root, port)
    before = {path: seen[:2] for path, seen in trees(root).items()}
    disks: list[Path] = []

    def after_each(disk: Disk) -> None:
        disk.moments += 1
        if disk.moments % every:
            return
        for which in ("lost", "kept", "empty"):
            dest = tmp_path / f"{which}{disk.moments}"
            stored(disk.tree, dest, which)
            disks.append(dest)

    act = apply if kind == "apply" else revert
    recorded(root, lambda: act(root, port), after_each, synced=synced)
    after = {path: seen[:2] for path, seen in trees(root).items()}
    assert len(disks) > 10
    for dest in disks:
        try:
            recover(recognise(dest))
            found = {path: seen[:2] for path, seen in trees(dest).items()}
            said = status(recognise(dest), [port])[0].status.value
        except Exception as error:
            found, said = {}, repr(error)
        old, new = ("applicable", "applied")[:: 1 if kind == "apply" else -1]
        if found == before and said == old:
            yield "before"
        elif found == after and said == new:
            yield "after"
        else:
            yield f"{dest.name}: {said}"
        shutil.rmtree(dest)


@pytest.mark.parametrize("kind", ["apply", "revert"])
def test_power_loss_leaves_before_or_after(kind: str, tmp_path: Path, scale: Port) -> None:
    assert set(losses(kind, tmp_path, scale, every=4)) == {"before", "after"}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["apply", "revert"])
def test_power_loss_after_every_call(kind: str, tmp_path: Path, scale: Port) -> None:
    assert set(losses(kind, tmp_path, scale)) == {"before", "after"}


def test_without_fsync_power_loss_does_harm(tmp_path: Path, scale: Port) -> None:
    """The disks are bad enough to tell whether anything is synced."""
    found = set(losses("apply", tmp_path, scale, synced=False, every=5))
    assert found - {"before", "after"}
