"""The vLLM that a vllm-ascend release is built for: which version, and its source texts.

Nothing of vLLM is imported or installed. `open_source` takes the first that serves:

1. vLLM as installed in this environment, when its version is the one asked for;
2. single files out of its wheel on the package index, read with HTTP ranges (a wheel has 300 MB,
   the files that are wanted a few hundred kB);
3. where the server knows no ranges, the whole sdist or wheel, whichever is smaller.

What is read from an index is kept in the cache, so that a second use needs no network.
"""

from __future__ import annotations

import csv
import hashlib
import importlib.metadata
import io
import json
import re
import tarfile
import zipfile
import zlib
from abc import ABC, abstractmethod
from base64 import urlsafe_b64decode
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from urllib.request import url2pathname

from ascendport.checkout.cache import Cache
from ascendport.checkout.pins import pins
from ascendport.checkout.tree import Checkout
from ascendport.errors import UserError

if TYPE_CHECKING:
    from ascendport.checkout.index import Artifact, Index, Progress

PROJECT = "vllm"

# --- which version ---

_TAG = r"(?m)^\s*ARG\s+VLLM_TAG\s*=\s*[\"']?([^\s\"'#]+)"
_VERSION = r"v?(\d+(?:\.\d+)+(?:(?:a|b|rc|\.post)\d+)*)"


def pinned_version(checkout: Checkout) -> str:
    """The version of vllm that the tree is built for, e.g. ``0.30.0``.

    What the tree itself says (``ARG VLLM_TAG=v0.30.0`` in its Dockerfiles) wins. Without a
    Dockerfile, as in an installed package, the release's entry in ``pins.toml`` is taken.

    Raises:
        UserError: neither says it, the Dockerfiles differ, or they name something that is not a
            released version.
    """
    tags = _docker_tags(checkout)
    if "Dockerfile" in tags:
        tags = {"Dockerfile": tags["Dockerfile"]}
    if len(set(tags.values())) > 1:
        listed = ", ".join(f"{name} has {tag}" for name, tag in tags.items())
        raise UserError(
            f"the Dockerfiles pin different versions of vllm ({listed})",
            where=checkout.root,
            next="mend their VLLM_TAG",
        )
    for name, tag in tags.items():
        if match := re.fullmatch(_VERSION, tag):
            return match[1]
        raise UserError(
            f"the tree is built for vllm '{tag}', which is not a released version",
            where=checkout.root / name,
            next="use a release of vllm-ascend",
        )
    release = (checkout.release or "").partition("+")[0]
    if version := pins().get(release):
        return version
    said = f"release {checkout.release}" if checkout.release else "a tree that names no release"
    raise UserError(
        f"cannot tell which vllm this tree is built for: no Dockerfile, and {said} is not known",
        where=checkout.root,
        next=f"known releases: {', '.join(pins())}",
    )


def _docker_tags(checkout: Checkout) -> dict[str, str]:
    tags = {}
    for path in sorted(checkout.root.glob("Dockerfile*")):
        text = checkout.read(path.name) if path.is_file() else None
        if text and (match := re.search(_TAG, text.decode("utf-8", "replace"))):
            tags[path.name] = match[1]
    return tags


# --- its files ---


class Access(StrEnum):
    """How the files of a source are had."""

    INSTALLED = "installed"
    """From this environment: its owner may have edited them."""
    RANGES = "ranges"
    """One by one out of a wheel on a server."""
    ARCHIVE = "archive"
    """Out of a whole wheel or sdist on this disk."""


class VllmSource(ABC):
    """Source texts of one version of vLLM. Paths are like ``vllm/v1/sample/sampler.py``."""

    version: str
    access: Access

    @property
    @abstractmethod
    def origin(self) -> str:
        """Where the texts come from, one line for people."""

    @abstractmethod
    def names(self) -> frozenset[str]:
        """The paths of all Python files below ``vllm/``."""

    @abstractmethod
    def read_many(self, paths: Iterable[str]) -> dict[str, bytes]:
        """The contents of those of ``paths`` that exist. One visit to the server for all.

        Raises:
            UserError: they cannot be had, or are not what the wheel's RECORD promises.
        """

    def read(self, path: str) -> bytes | None:
        """The contents of ``path``, or None where vLLM has no such Python file."""
        return self.read_many((path,)).get(path)

    def has(self, path: str) -> bool:
        return path in self.names()


def open_source(
    version: str,
    progress: Progress,
    *,
    index: Index | None = None,
    cache: Cache | None = None,
    installed: bool = True,
) -> VllmSource:
    """The sources of vllm ``version``. ``installed=False`` leaves this environment aside.

    What is checked: a whole file is checked against the SHA-256 that the index gives. A range
    read cannot be: each single file is checked against the SHA-256 in the wheel's RECORD, while
    RECORD itself, like the list of files, is trusted because of TLS to the file server. A server
    that lies consistently would be noticed by a whole download and not by a range read. Installed
    files are taken as they are.

    Raises:
        UserError: no such version, or it cannot be had.
    """
    if installed and (found := _installed(version)):
        return found
    from ascendport.checkout.index import Index

    return _from_index(version, progress, index or Index.of_user(), cache or Cache.of_user())


def _is_source(path: str) -> bool:
    return path.startswith("vllm/") and path.endswith(".py")


# --- 1. installed ---


class _Installed(VllmSource):
    access = Access.INSTALLED

    def __init__(self, version: str, folder: Path, title: str) -> None:
        self.version = version
        self._folder = folder
        self._title = title
        self._names: frozenset[str] | None = None

    @property
    def origin(self) -> str:
        return f"{self._title} installed in {self._folder}"

    def names(self) -> frozenset[str]:
        if self._names is None:
            files = (self._folder / "vllm").rglob("*.py")
            self._names = frozenset(path.relative_to(self._folder).as_posix() for path in files)
        return self._names

    def read_many(self, paths: Iterable[str]) -> dict[str, bytes]:
        found = {}
        for path in paths:
            if path in self.names():
                found[path] = (self._folder / path).read_bytes()
        return found


def _installed(version: str) -> _Installed | None:
    """vLLM in this environment, if it is that version (a local part such as +cpu aside)."""
    for distribution in importlib.metadata.distributions():
        name = (distribution.name or "").lower().replace("_", "-")
        if name != PROJECT and not name.startswith(f"{PROJECT}-"):
            continue
        if distribution.version.partition("+")[0] != version:
            continue
        if any(str(file) == "vllm/__init__.py" for file in distribution.files or ()):
            folder = Path(str(distribution.locate_file("")))
        elif (source := _editable(distribution)) is not None:
            folder = source
        else:
            continue  # vllm-ascend and other plugins
        if (folder / "vllm" / "__init__.py").is_file():
            return _Installed(version, folder, f"{name} {distribution.version}")
    return None


def _editable(distribution: importlib.metadata.Distribution) -> Path | None:
    """The source directory of an editable install (PEP 610), or None."""
    try:
        origin = json.loads(distribution.read_text("direct_url.json") or "{}")
        if origin.get("dir_info", {}).get("editable") and origin["url"].startswith("file:"):
            return Path(url2pathname(urlsplit(origin["url"]).path))
    except (ValueError, AttributeError, KeyError):
        pass
    return None


# --- 2. and 3. from the index ---

Bring = Callable[[list[str]], Iterator[tuple[str, bytes]]]
"""Gives (path, contents) for each of the paths."""


class _Recorded(VllmSource):
    """Files whose hashes are known in advance, kept in the cache as they are read."""

    def __init__(
        self,
        version: str,
        access: Access,
        title: str,
        how: str,
        record: Mapping[str, str],
        bring: Bring,
        cache: Cache,
    ) -> None:
        self.version = version
        self.access = access
        self._title = title
        self._how = how
        self._record = record
        self._bring = bring
        self._cache = cache
        self._kept: set[str] = set()
        self._brought: set[str] = set()

    @property
    def origin(self) -> str:
        counts = [
            f"{len(paths)} files {text}"
            for paths, text in ((self._brought, self._how), (self._kept, "from the cache"))
            if paths
        ]
        return ", ".join((self._title, *counts))

    def names(self) -> frozenset[str]:
        return frozenset(self._record)

    def read_many(self, paths: Iterable[str]) -> dict[str, bytes]:
        found: dict[str, bytes] = {}
        missing = []
        for path in dict.fromkeys(paths):
            if path not in self._record:
                continue
            data = self._cache.read_object(self._record[path])
            if data is None:
                missing.append(path)
            else:
                found[path] = data
                if path not in self._brought:
                    self._kept.add(path)
        for path, data in self._bring(missing) if missing else ():
            if hashlib.sha256(data).hexdigest() != self._record[path]:
                raise UserError(
                    f"{path} is not the file that its package's list of hashes names",
                    where=self._title,
                    next="try again; if it stays so, use another index",
                )
            self._cache.add_object(data)
            self._brought.add(path)
            found[path] = data
        return found


def _from_index(version: str, progress: Progress, index: Index, cache: Cache) -> VllmSource:
    from ascendport.checkout.index import remembered

    wheel = sdist = None
    refusal: UserError | None = None
    try:
        wheel = remembered(cache, index, PROJECT, version, "wheel")
    except UserError as error:
        refusal = error
    if (
        wheel is not None
        and wheel.local_path is None
        and (source := _by_ranges(version, wheel, progress, index, cache))
    ):
        return source
    if wheel is None or wheel.local_path is None:
        try:
            sdist = remembered(cache, index, PROJECT, version, "sdist")
        except UserError as error:
            refusal = refusal or error
    if wheel is not None and (sdist is None or _smaller(index, wheel, sdist)):
        return _whole_wheel(version, wheel, progress, index, cache)
    if sdist is not None:
        return _whole_sdist(version, sdist, progress, index, cache)
    assert refusal is not None
    raise refusal


def _smaller(index: Index, wheel: Artifact, sdist: Artifact) -> bool:
    one, other = index.size(wheel), index.size(sdist)
    return one is not None and (other is None or one < other)


def _by_ranges(
    version: str, wheel: Artifact, progress: Progress, index: Index, cache: Cache
) -> VllmSource | None:
    """Single files of a wheel on a server; None where its server does not give ranges."""
    from remotezip import RemoteZip, RemoteZipError

    from ascendport.checkout.http import BROKEN, reason_of
    from ascendport.checkout.index import HELP

    def opened() -> AbstractContextManager[zipfile.ZipFile]:
        # Some servers know ranges, and not the range «the last N bytes».
        archive: zipfile.ZipFile
        try:
            archive = RemoteZip(wheel.url, session=index.session)
        except RemoteZipError:
            archive = RemoteZip(wheel.url, session=index.session, support_suffix_range=False)
        return archive

    def bring(paths: list[str]) -> Iterator[tuple[str, bytes]]:
        left = list(paths)
        attempts = 1 + min(index.settings.retries, 2)
        while left:
            try:
                with opened() as archive:
                    while left:
                        progress(f"{wheel.filename}: {left[0]}", len(paths) - len(left), len(paths))
                        data = archive.read(left[0])
                        yield left.pop(0), data
            except (RemoteZipError, *BROKEN, *_DAMAGE) as error:
                attempts -= 1
                if attempts:
                    continue
                cache.forget(index.key(PROJECT, version, "wheel"))
                reason = reason_of(error.__context__ or error)
                raise UserError(
                    f"cannot read out of {wheel.filename} ({reason})", where=wheel.url, next=HELP
                ) from error
        progress(wheel.filename, len(paths), len(paths))

    def read_record() -> dict[str, str] | None:
        try:
            with opened() as archive:
                return _parse_record(archive)
        except (RemoteZipError, *BROKEN, *_DAMAGE):
            return None

    key = f"record\n{wheel.sha256}"
    known = cache.fact(key) if wheel.sha256 else None
    record = _known_record(known)
    if record is None:
        progress(f"{wheel.filename}: list of files", 0, 1)
        record = read_record()
        if record is None:
            return None
        progress(f"{wheel.filename}: list of files", 1, 1)
        if wheel.sha256:
            cache.learn(key, {"record": record, "sha256": _record_hash(record)})
    title = f"wheel {wheel.filename}"
    return _Recorded(version, Access.RANGES, title, "read by ranges", record, bring, cache)


def _whole_wheel(
    version: str, wheel: Artifact, progress: Progress, index: Index, cache: Cache
) -> VllmSource:
    from ascendport.checkout.index import download

    path = download(index, wheel, cache, progress)

    def bring(paths: list[str]) -> Iterator[tuple[str, bytes]]:
        try:
            with zipfile.ZipFile(path) as archive:
                for name in paths:
                    yield name, archive.read(name)
        except _DAMAGE as error:
            raise _damaged(wheel, error) from error

    try:
        with zipfile.ZipFile(path) as archive:
            record = _parse_record(archive)
    except _DAMAGE as error:
        raise _damaged(wheel, error) from error
    title = f"wheel {path}"
    return _Recorded(version, Access.ARCHIVE, title, "read", record, bring, cache)


def _whole_sdist(
    version: str, sdist: Artifact, progress: Progress, index: Index, cache: Cache
) -> VllmSource:
    from ascendport.checkout.index import download

    path = download(index, sdist, cache, progress)

    def every(wanted: frozenset[str] | None) -> Iterator[tuple[str, bytes]]:
        """(path below the top folder, contents) of the Python files, in one pass."""
        try:
            with tarfile.open(path) as archive:
                for member in archive:
                    name = member.name.partition("/")[2]
                    if not member.isreg() or not _is_source(name):
                        continue
                    if (wanted is None or name in wanted) and (file := archive.extractfile(member)):
                        yield name, file.read()
        except (tarfile.TarError, *_DAMAGE) as error:
            raise _damaged(sdist, error) from error

    key = f"sdist record\n{sdist.sha256}"
    record = _known_record(cache.fact(key) if sdist.sha256 else None)
    if record is None:
        progress(f"{sdist.filename}: list of files", 0, 1)
        record = {name: hashlib.sha256(data).hexdigest() for name, data in every(None)}
        progress(f"{sdist.filename}: list of files", 1, 1)
        if sdist.sha256:
            cache.learn(key, {"record": record, "sha256": _record_hash(record)})
    return _Recorded(
        version,
        Access.ARCHIVE,
        f"sdist {sdist.filename}",
        "unpacked",
        record,
        lambda paths: every(frozenset(paths)),
        cache,
    )


_DAMAGE = (zipfile.BadZipFile, zlib.error, EOFError, KeyError, ValueError, OSError)
"""What the standard library raises on archives that are cut off or scrambled."""


def _damaged(artifact: Artifact, error: BaseException) -> UserError:
    return UserError(
        f"{artifact.filename} is damaged ({error or type(error).__name__})",
        where=artifact.url,
        next="try again; if it stays so, use another index",
    )


def _parse_record(archive: zipfile.ZipFile) -> dict[str, str]:
    """Path → SHA-256 (hexadecimal) of the Python files below ``vllm/``.

    Format of RECORD: https://packaging.python.org/en/latest/specifications/
    recording-installed-packages/#the-record-file
    """
    name = next(
        (
            name
            for name in archive.namelist()
            if name.endswith(".dist-info/RECORD") and name.count("/") == 1
        ),
        None,
    )
    if name is None:
        raise zipfile.BadZipFile("no RECORD")
    record = {}
    for row in csv.reader(io.StringIO(archive.read(name).decode("utf-8"))):
        if len(row) >= 2 and _is_source(row[0]) and row[1].startswith("sha256="):
            digest = row[1].removeprefix("sha256=")
            record[row[0]] = urlsafe_b64decode(digest + "=" * (-len(digest) % 4)).hex()
    return record


def _record_hash(record: Mapping[str, str]) -> str:
    lines = "".join(f"{path}\0{digest}\n" for path, digest in sorted(record.items()))
    return hashlib.sha256(lines.encode()).hexdigest()


def _known_record(fact: Mapping[str, object] | None) -> dict[str, str] | None:
    """The record in a cached fact; None where there is none or it is damaged."""
    if fact is None or not isinstance(record := fact.get("record"), dict):
        return None
    known = {str(path): str(digest) for path, digest in record.items()}
    return known if _record_hash(known) == fact.get("sha256") else None
