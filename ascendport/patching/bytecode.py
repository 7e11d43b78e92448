"""Compiled caches that would hide a change of their source from Python.

Python takes a cached module for current when the whole second of the source's modification time
and its size are those that the cache names, or, with a cache that was made unchecked, always
(PEP 3147 for where caches are, PEP 552 for their header). So a changed file never gets a stamp
that a cache of it names, and unchecked caches are taken away with the change and put back with
the original.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from ascendport.checkout.tree import Checkout
from ascendport.patching import disk

_HEADER = struct.Struct("<4sIII")
"""Magic number, flags, modification time, size."""
_HASHED, _CHECKED = 1, 2


def stamps(checkout: Checkout, file: str) -> frozenset[disk.Stamp]:
    """The stamps that a text of ``file`` must not have: those of its caches, and its own."""
    if not file.endswith(".py"):
        return frozenset()
    found = set()
    try:
        seen = checkout.path(file).lstat()
        # Caches may also be kept elsewhere (PYTHONPYCACHEPREFIX), made from what is there.
        found.add((int(seen.st_mtime) & 0xFFFFFFFF, seen.st_size & 0xFFFFFFFF))
    except (FileNotFoundError, NotADirectoryError):
        pass
    for _, _, flags, stamp in _caches(checkout, file):
        if not flags & _HASHED:
            found.add(stamp)
    return frozenset(found)


def unchecked(checkout: Checkout, file: str) -> dict[str, bytes]:
    """Path → contents of the caches of ``file`` that Python uses whatever the source holds."""
    return {
        rel: data
        for rel, data, flags, _ in _caches(checkout, file)
        if flags & _HASHED and not flags & _CHECKED
    }


def source_of(cache: str) -> str:
    """The source of a cache's path: ``a/__pycache__/b.cpython-311.pyc`` → ``a/b.py``."""
    folder, _, name = cache.rpartition("/")
    parent = folder.removesuffix("__pycache__")
    return f"{parent}{name.partition('.')[0]}.py"


def _caches(checkout: Checkout, file: str) -> Iterator[tuple[str, bytes, int, disk.Stamp]]:
    if not file.endswith(".py"):
        return
    parent, slash, name = file.rpartition("/")
    folder = f"{parent}{slash}__pycache__"
    stem = name.removesuffix(".py")
    try:
        found = disk.names(checkout.root, folder)
    except OSError:
        return  # a link or a file of that name: what is behind it is left alone
    for cache in found:
        if cache.partition(".")[0] != stem or not cache.endswith(".pyc"):
            continue
        rel = f"{folder}/{cache}"
        data = disk.read(checkout.root, rel)
        if data is not None and len(data) >= _HEADER.size:
            _, flags, second, size = _HEADER.unpack_from(data)
            yield rel, data, flags, (second, size)
