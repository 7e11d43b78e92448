"""Files kept between runs, named by their SHA-256, so that nothing is fetched twice.

Layout of the directory: ``files/<sha256>/<name>`` for whole downloads, ``objects/<sha256>`` for
single small files, ``facts/<sha256 of key>.json`` for what was learned about them, ``tmp/`` for
what is being written, ``locks/``. A file appears under its final name only when it is whole and
its hash was checked. Every read checks the hash again; a damaged file is removed and counts as
absent.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from ascendport.errors import UserError

VARIABLE = "ASCENDPORT_CACHE"
_STALE_S = 24 * 3600
"""Age at which a temporary file is taken for one left by a killed process."""


class HashMismatchError(Exception):
    """A download's contents are not those that were promised.

    ``expected`` and ``actual`` are SHA-256 in hexadecimal.
    """

    def __init__(self, expected: str, actual: str) -> None:
        super().__init__(f"SHA-256 is {actual}, not {expected}")
        self.expected = expected
        self.actual = actual


def directory() -> Path:
    """The cache directory: ``$ASCENDPORT_CACHE``, else the user's cache directory."""
    if given := os.environ.get(VARIABLE):
        return Path(given).expanduser().absolute()
    import platformdirs

    return Path(platformdirs.user_cache_dir("ascendport", appauthor=False))


def sha256_of(path: Path) -> str:
    """SHA-256 of a file, hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@dataclass(frozen=True)
class Cache:
    """The cache in the directory ``root``, which need not exist. Safe for several processes."""

    root: Path

    @classmethod
    def of_user(cls) -> Cache:
        return cls(directory())

    def get(self, sha256: str, name: str) -> Path | None:
        """The whole, undamaged file with that hash, or None. A damaged one is removed."""
        path = self._file(sha256, name)
        try:
            if sha256_of(path) == sha256:
                return path
            path.unlink()
        except FileNotFoundError:
            pass
        return None

    def obtain(self, sha256: str | None, name: str, produce: Callable[[BinaryIO], None]) -> Path:
        """The file with hash ``sha256``, made by ``produce`` (which writes its bytes to the
        stream it is given) where the cache does not hold it undamaged.

        Without a hash ``produce`` always runs, and the file is kept under the hash it has.
        Of two processes that want the same hash, one produces and the other waits.

        Raises:
            HashMismatchError: what ``produce`` wrote has another hash. Nothing is kept.
            UserError: the cache directory cannot be written.
        """
        with contextlib.ExitStack() as stack:
            if sha256 is not None:
                stack.enter_context(self.lock(sha256))
                if (found := self.get(sha256, name)) is not None:
                    return found
            temporary = stack.enter_context(self._temporary())
            with temporary.open("wb") as file:
                produce(file)
                file.flush()
                os.fsync(file.fileno())
            actual = sha256_of(temporary)
            if sha256 is not None and actual != sha256:
                raise HashMismatchError(sha256, actual)
            target = self._file(actual, name)
            with self._writing():
                target.parent.mkdir(parents=True, exist_ok=True)
                temporary.replace(target)
            return target

    def read_object(self, sha256: str) -> bytes | None:
        """The undamaged bytes with that hash, or None. Damaged ones are removed."""
        path = self.root / "objects" / sha256
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return None
        if hashlib.sha256(data).hexdigest() == sha256:
            return data
        path.unlink(missing_ok=True)
        return None

    def add_object(self, data: bytes) -> str:
        """Keeps ``data``; returns its SHA-256."""
        sha256 = hashlib.sha256(data).hexdigest()
        self._write(self.root / "objects" / sha256, data)
        return sha256

    def fact(self, key: str) -> dict[str, Any] | None:
        """What `learn` was told under ``key``, or None. A damaged record counts as absent."""
        try:
            record = json.loads(self._fact(key).read_bytes())
        except (FileNotFoundError, ValueError):
            return None
        if isinstance(record, dict) and record.get("key") == key:
            value = record.get("value")
            return value if isinstance(value, dict) else None
        return None

    def learn(self, key: str, value: dict[str, Any]) -> None:
        """Keeps a small JSON object under ``key``."""
        self._write(self._fact(key), json.dumps({"key": key, "value": value}).encode())

    def forget(self, key: str) -> None:
        """Drops what `learn` kept under ``key``."""
        with self._writing():
            self._fact(key).unlink(missing_ok=True)

    @contextlib.contextmanager
    def lock(self, name: str) -> Iterator[None]:
        """Holds the lock ``name`` against other threads and processes."""
        from filelock import FileLock

        with self._writing():
            (self.root / "locks").mkdir(parents=True, exist_ok=True)
        with FileLock(self.root / "locks" / f"{name}.lock"):
            yield

    def _file(self, sha256: str, name: str) -> Path:
        return self.root / "files" / sha256 / Path(name).name

    def _fact(self, key: str) -> Path:
        return self.root / "facts" / f"{hashlib.sha256(key.encode()).hexdigest()}.json"

    def _write(self, path: Path, data: bytes) -> None:
        with self._writing(), self._temporary() as temporary:
            temporary.write_bytes(data)
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary.replace(path)

    @contextlib.contextmanager
    def _temporary(self) -> Iterator[Path]:
        """A path in the cache to write to, gone afterwards unless it was moved away."""
        folder = self.root / "tmp"
        with self._writing():
            folder.mkdir(parents=True, exist_ok=True)
            for left in folder.iterdir():
                with contextlib.suppress(FileNotFoundError):
                    if left.stat().st_mtime < time.time() - _STALE_S:
                        left.unlink()
            handle, name = tempfile.mkstemp(dir=folder)
            os.close(handle)
        try:
            yield Path(name)
        finally:
            Path(name).unlink(missing_ok=True)

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise UserError(
                f"cannot write to the cache ({error.strerror})",
                where=self.root,
                next=f"set {VARIABLE} to a directory that you may write to",
            ) from error
