"""Small checkouts and ports, with texts of our own."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import pytest

from ascendport.checkout.tree import MARKERS, PACKAGE, Checkout, Layout
from ascendport.ports import catalogue
from ascendport.ports.digest import digests
from ascendport.ports.manifest import MANIFEST, Port, load

KERNEL = "vllm_ascend/ops/scale.py"
WIRING = "vllm_ascend/patch/wire.py"
NEW = "tests/ut/ops/deep/test_scale.py"

KERNEL_TEXT = b'''"""Scales rows."""

import math

from lib import jit

LIMIT = 4


# Slow, row by row.
@jit
def scale(rows, factor):
    """One row after the other."""
    for row in rows:
        row *= factor
    return rows


class Launcher:
    def __init__(self, kernel):
        self.kernel = kernel

    def run(self, rows):
        return self.kernel(rows, math.tau)


def shift(rows, step):
    return [row + step for row in rows]
'''

WIRING_TEXT = b"""from lib import core
from vllm_ascend.ops.scale import scale, shift

# what the core calls
core.scale = scale
core.shift = shift
"""

SCALE = b"""from functools import reduce

from lib import jit


def _product(values):
    return reduce(lambda a, b: a * b, values, 1)


# All rows at once.
@jit
def scale(rows, factor):
    return [_product((row, factor)) for row in rows]
"""

SHIFT = b"""def shift(rows, step):
    return list(map(step.__add__, rows))
"""

WIRE = b"""from lib import core
from vllm_ascend.ops.scale import shift

core.shift = shift or None
"""

BROUGHT = b"""def test_scale():
    assert [2 * 3] == [6]
"""


@dataclass(frozen=True)
class Spec:
    """One target of a port to be."""

    file: str
    source: bytes
    replace: Sequence[str] = ()
    add: Sequence[str] = ()
    known: bytes = b""
    """The original whose digests the port knows."""
    decorate: Mapping[str, str] = field(default_factory=dict)


def quoted(items: Sequence[str]) -> str:
    return "[" + ", ".join(f"'{item}'" for item in items) + "]"


def make_port(
    folder: Path,
    name: str,
    variants: Mapping[str, Sequence[Spec]],
    new_files: Mapping[str, bytes] | None = None,
    release: str = "1.0",
) -> Port:
    """Writes a port's folder and loads it; its digests are those of each spec's original."""
    folder.mkdir(parents=True, exist_ok=True)
    text = [f'name = "{name}"', 'kind = "kernel"', 'summary = "a port for tests"']
    text.append('task = "https://example.org/1"')
    for variant, specs in variants.items():
        text += ["[[variants]]", f'name = "{variant}"']
        if not specs:
            text.append(f"seen_in = ['{release}']")
        for path, data in (new_files or {}).items():
            source = path.replace("/", "_")
            (folder / source).write_bytes(data)
            text += ["[[variants.new_files]]", f'file = "{path}"', f'source = "{source}"']
        for at, spec in enumerate(specs):
            source = f"{variant}_{at}.py"
            (folder / source).write_bytes(spec.source)
            text += ["[[variants.targets]]", f'file = "{spec.file}"', f'source = "{source}"']
            text += [f"replace = {quoted(spec.replace)}", f"add = {quoted(spec.add)}"]
            if spec.decorate:
                text.append("[variants.targets.decorate]")
                text += [f"'{symbol}' = '{name}'" for symbol, name in spec.decorate.items()]
            known = digests(spec.known, [*spec.replace, *spec.decorate])
            for symbol, digest in known.items():
                text.append(f"[variants.targets.digests.'{symbol}']")
                text.append(f'"{digest or "0" * 16}" = ["{release}"]')
    (folder / "port.toml").write_text("\n".join(text) + "\n", "utf-8")
    return load(folder)


def make_checkout(root: Path, files: Mapping[str, bytes] | None = None) -> Checkout:
    """A tree that is recognised as a checkout, with a kernel and its wiring."""
    contents = {f"{PACKAGE}/{name}": text + b"\n" for name, text in MARKERS}
    contents |= {KERNEL: KERNEL_TEXT, WIRING: WIRING_TEXT, "setup.py": b"\n"}
    contents |= files or {}
    for name, data in contents.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return Checkout(root.resolve(), Layout.SOURCE, "1.0")


def our_files(release: str, ports: Sequence[Port]) -> tuple[str, ...]:
    """What recognising a release and our ports in it ask for."""
    files = {f"{PACKAGE}/{name}" for name, _ in MARKERS} | {"setup.py"}
    for variant in (variant for port in ports for variant in port.manifest.variants):
        if release in variant.releases():
            files |= {*(target.file for target in variant.targets), *variant.needs}
    return tuple(sorted(files))


Snapshot = dict[str, tuple[int, str]]


def snapshot(root: Path) -> Snapshot:
    """Every path below ``root`` with its mode and the hash of its contents."""
    found: Snapshot = {}
    for folder, names, files in os.walk(root):
        for name in (*names, *files):
            path = Path(folder) / name
            seen = path.lstat()
            data = path.read_bytes() if stat.S_ISREG(seen.st_mode) else b""
            found[str(path.relative_to(root))] = (
                seen.st_mode,
                hashlib.sha256(data).hexdigest(),
            )
    return found


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return make_checkout(tmp_path / "größer als" / "tree")


@pytest.fixture
def scale(tmp_path: Path) -> Port:
    """Replaces a kernel, rewires, brings a helper, an import and a file."""
    specs = [
        Spec(KERNEL, SCALE, ["scale"], ["_product"], KERNEL_TEXT),
        Spec(WIRING, WIRE, ["core.shift"], [], WIRING_TEXT),
    ]
    return make_port(tmp_path / "ports" / "scale", "scale", {"only": specs}, {NEW: BROUGHT})


@pytest.fixture
def shift(tmp_path: Path) -> Port:
    """Replaces another symbol of the same kernel file."""
    spec = Spec(KERNEL, SHIFT, ["shift"], [], KERNEL_TEXT)
    return make_port(tmp_path / "ports" / "shift", "shift", {"only": [spec]})


@pytest.fixture
def quick_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """No waiting for the disk: the crashes of these tests end processes, not the machine."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)


@lru_cache(maxsize=512)
def _loaded(folder: Path, manifest: bytes) -> Port:
    return load(folder)


def quick_load(folder: Path) -> Port:
    """`load`, each text of a manifest parsed once: every command reads those of all our ports,
    which is most of what one run of it on a small tree costs."""
    path = folder / MANIFEST
    return _loaded(folder, path.read_bytes()) if path.is_file() else load(folder)


@pytest.fixture(autouse=True)
def quick_catalogue(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogue, "load", quick_load)
