"""The ports there are: folders that hold a ``port.toml``."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import ascendport
from ascendport.errors import UserError
from ascendport.ports.manifest import MANIFEST, Port, load

VARIABLE = "ASCENDPORT_PORTS"
"""Environment variable: more folders, separated as in ``PATH``."""

SHELVES = ("kernels", "store_patches")


def catalogue(extra: Sequence[Path] = ()) -> list[Port]:
    """All ports, sorted by kind and name.

    They come with the package (``ascendport/_ports`` in a wheel, the folders next to the
    package in a source checkout), from ``$ASCENDPORT_PORTS`` and from ``extra``. Each of the
    latter is a port's folder or a folder of ports.

    Raises:
        UserError: a manifest is not valid, a named folder holds no port, or two ports share a
            name.
    """
    found: dict[str, Port] = {}
    folders = [*_own(), *(folder for given in _given(extra) for folder in _ports_in(given))]
    for folder in dict.fromkeys(folder.resolve() for folder in folders):
        port = load(folder)
        if port.name in found:
            raise UserError(
                f"two ports are named {port.name}",
                where=f"{found[port.name].folder} and {port.folder}",
                next="rename one of them",
            )
        found[port.name] = port
    return sorted(found.values(), key=lambda port: (port.kind, port.name))


def select(ports: Sequence[Port], names: Sequence[str]) -> list[Port]:
    """The named ports, each once, in the order of ``ports``; all where no name is given.

    Raises:
        UserError: no port has one of the names; offers those that come near.
    """
    known = [port.name for port in ports]
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name.replace("-", "_"), known, n=3, cutoff=0.5)
            offer = " or ".join(near)
            raise UserError(
                "no such port",
                where=name,
                next=f"did you mean {offer}?" if offer else "'ascendport list' shows all",
            )
    return [port for port in ports if not names or port.name in names]


def _own() -> Iterator[Path]:
    package = Path(ascendport.__file__).parent
    inside = package / "_ports"
    # A wheel has no repository around it: what lies next to the package there is not ours.
    base = inside if inside.is_dir() else package.parent
    if base is inside or (base / "pyproject.toml").is_file():
        for shelf in SHELVES:
            yield from _children(base / shelf)


def _given(extra: Sequence[Path]) -> Iterator[Path]:
    yield from (Path(part) for part in os.environ.get(VARIABLE, "").split(os.pathsep) if part)
    yield from extra


def _ports_in(folder: Path) -> list[Path]:
    found = [folder] if (folder / MANIFEST).is_file() else list(_children(folder))
    if not found:
        raise UserError(
            f"no port there: neither it nor a folder in it holds a {MANIFEST}",
            where=folder,
            next=f"check --ports and ${VARIABLE}",
        )
    return found


def _children(folder: Path) -> Iterator[Path]:
    if folder.is_dir():
        for child in sorted(folder.iterdir()):
            if (child / MANIFEST).is_file():
                yield child
