"""The tree before and the tree after, as places to import from, beside a checkout nobody writes to.

Only the files that a port touches are written, into a temporary directory; everything else is
read where it lies, in the checkout. Real files are needed because triton reads a kernel's source
through `inspect`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any


@dataclass(frozen=True)
class Tree:
    """A checkout with some files replaced. Paths inside it are checkout-relative, POSIX.

    ``overlay`` is looked at first, then ``base``. ``hidden`` paths do not exist in this tree,
    whatever lies on the disk: files that only the other side has.
    """

    overlay: Path
    base: Path | None = None
    hidden: frozenset[str] = frozenset()

    def file(self, relative: str) -> Path | None:
        """Where that file lies, or None."""
        for root in self._roots(relative):
            path = root / relative
            if path.is_file():
                return path
        return None

    def directories(self, relative: str) -> list[Path]:
        """The directories of that name, the first one winning; empty where there is none."""
        return [root / relative for root in self._roots("") if (root / relative).is_dir()]

    def relative(self, path: Path | str) -> str:
        """The checkout-relative path of a file of this tree; the path itself when it is not one."""
        for root in self._roots(""):
            try:
                return Path(path).relative_to(root).as_posix()
            except ValueError:
                continue
        return str(path)

    def _roots(self, relative: str) -> Iterator[Path]:
        yield self.overlay
        if self.base is not None and relative not in self.hidden:
            yield self.base

    def to_json(self) -> dict[str, Any]:
        return {
            "overlay": str(self.overlay),
            "base": None if self.base is None else str(self.base),
            "hidden": sorted(self.hidden),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Tree:
        base = data["base"]
        return cls(
            Path(data["overlay"]),
            None if base is None else Path(base),
            frozenset(data["hidden"]),
        )


@dataclass(frozen=True)
class Workspace:
    """Both trees and a directory for whatever else a run needs (``scratch``)."""

    before: Tree
    after: Tree
    scratch: Path


def write_tree(root: Path, files: Mapping[str, bytes]) -> None:
    """Writes ``files`` (relative POSIX path → contents) under ``root``.

    Raises:
        ValueError: a path that leaves ``root``.
    """
    for relative, contents in files.items():
        pure = PurePosixPath(relative)
        if pure.is_absolute() or ".." in pure.parts:
            raise ValueError(f"not a path inside the tree: {relative}")
        path = root / pure
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(contents)


@contextmanager
def workspace(
    checkout: Path, before: Mapping[str, bytes], after: Mapping[str, bytes]
) -> Iterator[Workspace]:
    """Both trees over ``checkout``, removed at the end of the block."""
    with tempfile.TemporaryDirectory(prefix="ascendport-") as directory:
        # Resolved, so that a file's path compares equal however triton came by it.
        root = Path(directory).resolve()
        sides = {"before": before, "after": after}
        trees = {}
        for side, files in sides.items():
            overlay = root / side
            overlay.mkdir()
            write_tree(overlay, files)
            hidden = (before.keys() | after.keys()) - files.keys()
            trees[side] = Tree(overlay, checkout.resolve(), frozenset(hidden))
        scratch = root / "scratch"
        scratch.mkdir()
        yield Workspace(trees["before"], trees["after"], scratch)
