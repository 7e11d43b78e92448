"""All Python files of one vllm in a few requests, and summaries of files, kept between runs.

A vllm wheel has 300 MB; its Python files have 9 MB compressed and lie in a handful of runs, so
that eight HTTP ranges bring them all (measured on 0.24.0 … 0.30.0), a quarter of the sdist.
"""

from __future__ import annotations

import gc
import hashlib
import os
import struct
import sys
import threading
import zlib
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ascendport.checkout.cache import Cache
from ascendport.checkout.vllm import PROJECT, Access, VllmSource, open_source
from ascendport.wiring.reading.reader import empty, summarise
from ascendport.wiring.summary import ANALYSIS_VERSION, ModuleSummary

if TYPE_CHECKING:
    from ascendport.checkout.index import Index

Progress = Callable[[str, int, int], None]
Summaries = dict[str, ModuleSummary]

_GAP = 256 * 1024
"""Bytes that are cheaper to fetch and drop than another request."""
_SLACK = 30 + 2048
"""Room for a member's header: 30 bytes, name, extra fields (APPNOTE.TXT 4.3.7)."""
_BATCH = 64


@dataclass(frozen=True)
class _Held(Cache):
    """The user's cache with some objects in memory in front of it."""

    held: dict[str, bytes] = field(default_factory=dict)

    def read_object(self, sha256: str) -> bytes | None:
        found = self.held.get(sha256)
        return found if found is not None else super().read_object(sha256)


def vllm_summaries(
    version: str,
    progress: Progress,
    *,
    index: Index | None = None,
    cache: Cache | None = None,
) -> Summaries:
    """Summaries of every Python file of vllm ``version``, from the cache where they are known.

    Raises:
        UserError: there is no such version, or it cannot be had.
    """
    from ascendport.checkout.index import Index

    index = index or Index.of_user()
    cache = cache or Cache.of_user()
    held = _Held(cache.root)
    source = open_source(version, progress, index=index, cache=held)
    # The order of the files is the order of the evidence.
    names = sorted(source.names())
    if source.access is Access.INSTALLED:
        # Installed files may have been edited: their contents are the key.
        files = _in_order(source, names)
        return summaries(files, f"vllm {version} installed", progress, cache)
    key = _key(f"vllm {version} {_digest(names)}")
    known = cache.fact(key)
    if known is not None:
        return known
    _bring_all(version, source, held, index, progress)
    found = _summarise_all(_in_order(source, names), f"vllm {version}", progress)
    cache.learn(key, found)
    return found


def _in_order(source: VllmSource, names: list[str]) -> dict[str, bytes]:
    found = source.read_many(names)
    return {name: found[name] for name in names}


def summaries(
    files: Mapping[str, bytes], name: str, progress: Progress, cache: Cache | None = None
) -> Summaries:
    """Summaries of ``files`` (path → contents); only files that changed since the last call under
    this ``name`` are parsed."""
    cache = cache or Cache.of_user()
    key = _key(name)
    known: dict[str, Any] = cache.fact(key) or {}
    digests = {path: f"{path} {hashlib.sha256(data).hexdigest()}" for path, data in files.items()}
    missing = {path: files[path] for path, digest in digests.items() if digest not in known}
    fresh = _summarise_all(missing, name, progress)
    found = {path: fresh[path] if path in fresh else known[digests[path]] for path in files}
    if len(missing) > _BATCH or not known:
        cache.learn(key, {digests[path]: summary for path, summary in found.items()})
    return found


def python_files(root: Path, folder: str) -> dict[str, bytes]:
    """Every ``.py`` file below ``root/folder``: POSIX path below ``root`` → contents."""
    found = {}
    for directory, names, files in os.walk(root / folder):
        names[:] = sorted(name for name in names if not name.startswith((".", "__pycache__")))
        for file in sorted(files):
            if file.endswith(".py"):
                path = Path(directory) / file
                found[path.relative_to(root).as_posix()] = path.read_bytes()
    return found


def _key(name: str) -> str:
    python = f"{sys.version_info[0]}.{sys.version_info[1]}"
    return f"wiring {ANALYSIS_VERSION} python {python} {name}"


def _digest(texts: list[str]) -> str:
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:16]


def _summarise_one(item: tuple[str, bytes]) -> tuple[str, ModuleSummary]:
    path, source = item
    return path, summarise(source, path) or empty()


def _summarise_all(files: Mapping[str, bytes], name: str, progress: Progress) -> Summaries:
    """Two thirds of the time go into ``ast.parse``; with many files a second process halves it."""
    found: Summaries = {}
    workers = min(4, os.cpu_count() or 1)
    # A forked child of a process with threads may inherit a lock that nobody releases.
    parallel = len(files) > 4 * _BATCH and workers > 1 and threading.active_count() == 1
    collecting = gc.isenabled()
    gc.disable()  # Syntax trees are many small objects without cycles.
    try:
        if parallel and hasattr(os, "fork"):
            import multiprocessing

            context = multiprocessing.get_context("fork")
            with ProcessPoolExecutor(workers, mp_context=context) as pool:
                results = pool.map(_summarise_one, files.items(), chunksize=_BATCH)
                _gather(results, found, len(files), name, progress)
        else:
            _gather(map(_summarise_one, files.items()), found, len(files), name, progress)
    finally:
        if collecting:
            gc.enable()
    return found


def _gather(
    results: Iterator[tuple[str, ModuleSummary]],
    found: Summaries,
    total: int,
    name: str,
    progress: Progress,
) -> None:
    for path, summary in results:
        found[path] = summary
        if len(found) % _BATCH == 0 or len(found) == total:
            progress(f"{name}: reading names", len(found), total)


def _bring_all(
    version: str, source: VllmSource, held: _Held, index: Index, progress: Progress
) -> None:
    """Fills ``held`` with the wheel's Python files. Anything amiss leaves files out: the source
    then reads them one by one and checks them itself, as it checks these."""
    from remotezip import RemoteZip, RemoteZipError

    from ascendport.checkout.http import BROKEN
    from ascendport.checkout.index import remembered

    if source.access is not Access.RANGES:
        return
    wheel = remembered(held, index, PROJECT, version, "wheel")
    wanted = source.names()
    try:
        with RemoteZip(wheel.url, session=index.session) as archive:
            members = sorted(
                (info for info in archive.infolist() if info.filename in wanted),
                key=lambda info: info.header_offset,
            )
        runs = _runs(members)
        for number, (start, stop, inside) in enumerate(runs):
            progress(f"{wheel.filename}: Python files", number, len(runs))
            answer = index.session.get(wheel.url, headers={"Range": f"bytes={start}-{stop - 1}"})
            answer.raise_for_status()
            if answer.status_code != 206:
                return
            for data in _members(answer.content, start, inside):
                held.held[hashlib.sha256(data).hexdigest()] = data
        progress(f"{wheel.filename}: Python files", len(runs), len(runs))
    except (RemoteZipError, *BROKEN, zlib.error, struct.error):
        return


def _runs(members: list[Any]) -> list[tuple[int, int, list[Any]]]:
    """Members in the order of the file, joined where little lies between: (start, stop, them)."""
    runs: list[tuple[int, int, list[Any]]] = []
    for info in members:
        stop = info.header_offset + _SLACK + len(info.filename.encode()) + info.compress_size
        if runs and info.header_offset - runs[-1][1] < _GAP:
            start, _, inside = runs[-1]
            runs[-1] = (start, stop, [*inside, info])
        else:
            runs.append((info.header_offset, stop, [info]))
    return runs


def _members(data: bytes, start: int, inside: list[Any]) -> Iterator[bytes]:
    for info in inside:
        at = info.header_offset - start
        name, extra = struct.unpack("<HH", data[at + 26 : at + 30])
        body = at + 30 + name + extra
        packed = data[body : body + info.compress_size]
        if info.compress_type == 8:
            yield zlib.decompress(packed, -15)
        elif info.compress_type == 0:
            yield packed
