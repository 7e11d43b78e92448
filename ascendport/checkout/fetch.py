"""A release of vllm-ascend from the package index, unpacked into a directory of the user's.

Nothing is built and no code of the release is run: the sdist is a tar file, and it is unpacked
through `tarfile`'s data filter (PEP 706).
"""

from __future__ import annotations

import contextlib
import lzma
import shutil
import sys
import tarfile
import tempfile
import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from ascendport.checkout.cache import Cache
from ascendport.checkout.index import Artifact, Index, Progress, download, remembered
from ascendport.checkout.tree import PACKAGE, Checkout, checkout_at, missing_markers
from ascendport.errors import UserError

PROJECT = "vllm-ascend"


def fetch(
    release: str,
    dest: Path,
    progress: Progress,
    *,
    index: Index | None = None,
    cache: Cache | None = None,
) -> Checkout:
    """Unpacks the sdist of vllm-ascend ``release`` so that ``dest`` is the tree's root.

    ``dest`` must not exist or be an empty directory. It holds the whole tree or, on failure and
    on Ctrl-C, is as it was. The checkout's ``notes`` say so where the index gave no hash to check
    the file against.

    Raises:
        UserError: ``dest`` is in use or cannot be written, no such release, no network, a damaged
            file.
    """
    _require_free(dest)
    dest = dest.resolve()  # what is beside a link may be on another disk than its target
    artifact, archive = _sdist(release, progress, index, cache)
    with _parents(dest), _beside(dest) as folder:
        root = unpack(archive, folder, progress)
        if missing := missing_markers(root):
            raise UserError(
                f"the sdist is not a vllm-ascend tree: it lacks {missing[0]}",
                where=artifact.url,
                next="use another index",
            )
        _move(root, dest)
    notes = () if artifact.sha256 else (_unchecked(artifact),)
    return replace(checkout_at(dest), notes=notes)


def sdist(
    release: str, progress: Progress, *, index: Index | None = None, cache: Cache | None = None
) -> Path:
    """The sdist of vllm-ascend ``release``: in the cache, or where a ``file:`` index keeps it.

    Raises:
        UserError: no such release, no network, a damaged file.
    """
    return _sdist(release, progress, index, cache)[1]


def unpack(archive: Path, folder: Path, progress: Progress) -> Path:
    """Unpacks an sdist into ``folder``; returns its only top directory.

    Raises:
        UserError: the archive is damaged, has no single top directory, or has a member that would
            land outside it.
    """
    if not hasattr(tarfile, "data_filter"):
        raise UserError(
            "this Python cannot unpack archives safely",
            where=sys.version.split()[0],
            next="use Python 3.11.4 or later",
        )
    what = f"unpacking {archive.name}"
    size = archive.stat().st_size
    try:
        # One pass: going back in a compressed file means to decompress it again.
        with archive.open("rb") as raw, tarfile.open(fileobj=raw) as tar:
            for count, member in enumerate(tar):
                if count % 256 == 0:
                    progress(what, raw.tell(), size)
                tar.extract(member, folder, filter="data")
        progress(what, size, size)
    except (tarfile.TarError, EOFError, ValueError, zlib.error, lzma.LZMAError) as error:
        raise _damaged(archive, error) from error
    except OSError as error:
        if error.errno is None:  # gzip and bz2 report bad data so
            raise _damaged(archive, error) from error
        raise _unwritable(error, folder) from error
    tops = list(folder.iterdir())
    if len(tops) != 1 or not tops[0].is_dir():
        raise UserError(
            f"cannot unpack the sdist: {len(tops)} entries at its top, not one directory",
            where=archive,
            next="use another index",
        )
    return tops[0]


def _sdist(
    release: str, progress: Progress, index: Index | None, cache: Cache | None
) -> tuple[Artifact, Path]:
    index = index or Index.of_user()
    cache = cache or Cache.of_user()
    artifact = remembered(cache, index, PROJECT, release, "sdist")
    try:
        return artifact, download(index, artifact, cache, progress)
    except UserError:
        # The answer that was kept may be old: the file may have moved.
        cache.forget(index.key(PROJECT, release, "sdist"))
        fresh = remembered(cache, index, PROJECT, release, "sdist")
        if fresh == artifact:
            raise
        return fresh, download(index, fresh, cache, progress)


def _unchecked(artifact: Artifact) -> str:
    return f"{artifact.filename}: the index gives no SHA-256, so its contents were not checked"


def _damaged(archive: Path, error: Exception) -> UserError:
    return UserError(f"cannot unpack the sdist ({error})", where=archive, next="use another index")


def _require_free(dest: Path) -> None:
    try:
        if not dest.exists() and not dest.is_symlink():
            return
        taken = not dest.is_dir() or any(dest.iterdir())
    except OSError as error:
        raise _unwritable(error, dest) from error
    if taken:
        kind = "a directory that is not empty" if dest.is_dir() else "a file"
        raise UserError(f"the destination is {kind}", where=dest, next="name a new directory")


def _unwritable(error: OSError, path: Path) -> UserError:
    return UserError(
        f"cannot write there ({error.strerror or error})",
        where=error.filename or path,
        next="name a directory that you may write to, on a disk with room",
    )


@contextlib.contextmanager
def _parents(dest: Path) -> Iterator[None]:
    """Makes the directories above ``dest``; takes away on failure those that it made."""
    made = []
    try:
        for folder in reversed(dest.parents):
            if not folder.exists():
                folder.mkdir()
                made.append(folder)
        yield
    except BaseException as error:
        for folder in reversed(made):
            with contextlib.suppress(OSError):
                folder.rmdir()
        if isinstance(error, OSError):
            raise _unwritable(error, dest) from error
        raise


@contextlib.contextmanager
def _beside(dest: Path) -> Iterator[Path]:
    """A new directory on the same disk as ``dest``, gone afterwards."""
    folder = Path(tempfile.mkdtemp(prefix=f".{dest.name}.", dir=dest.parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _move(root: Path, dest: Path) -> None:
    if not dest.exists():
        root.rename(dest)
        return
    # An empty directory that is there already may be somebody's current one: it stays the same
    # directory and is filled. The package comes last, so that no part of it looks like a checkout.
    children = sorted(root.iterdir(), key=lambda child: child.name == PACKAGE)
    try:
        for child in children:
            child.rename(dest / child.name)
    except BaseException:
        for child in list(dest.iterdir()):
            if child.is_dir() and not child.is_symlink():
                shutil.rmtree(child, ignore_errors=True)
            else:
                child.unlink(missing_ok=True)
        raise
