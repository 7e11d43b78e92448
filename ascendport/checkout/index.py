"""The package index as the user's pip sees it: which file is the sdist or wheel of a version."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import BinaryIO

import requests
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version
from unearth import Link, Package, PackageFinder
from unearth.collector import is_secure_origin

from ascendport.checkout.cache import Cache, HashMismatchError, sha256_of
from ascendport.checkout.http import BROKEN, PageFetcher, Session, reason_of, without_credentials
from ascendport.checkout.pipconfig import Settings, settings
from ascendport.errors import UserError

Progress = Callable[[str, int, int], None]
"""Called with (what, done, total) in bytes or pieces; total 0: not known."""

HELP = (
    "check the network, or tell pip of a proxy (PIP_PROXY), an index mirror (PIP_INDEX_URL)"
    " or a directory with the file (PIP_FIND_LINKS)"
)

_TAR = (".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")
_BLOCK = 1 << 18

# What is skipped is told in errors; unearth would also write it to stderr.
logging.getLogger("unearth").addHandler(logging.NullHandler())


@dataclass(frozen=True)
class Artifact:
    """One file of the index."""

    filename: str
    url: str
    """Without credentials."""
    sha256: str | None
    """Hexadecimal, as the index gives it; None: it gives none."""
    version: str

    @property
    def local_path(self) -> Path | None:
        """The file on this disk for a ``file:`` URL, else None."""
        return Link(self.url).file_path if self.url.startswith("file:") else None


class Index:
    """The index that ``settings`` describe. ``session`` makes all its requests."""

    def __init__(self, settings: Settings, session: Session | None = None) -> None:
        self.settings = settings
        self.session = session or Session(settings)
        self.failures: dict[str, str] = {}
        """Places that could not be asked: URL without credentials, or path → reason."""
        self._found: dict[str, tuple[Artifact, ...]] = {}

    @classmethod
    def of_user(cls) -> Index:
        """The index of the user's pip configuration.

        Raises:
            UserError: the configuration cannot be understood.
        """
        return cls(settings())

    def find_sdist(self, project: str, version: str) -> Artifact:
        """The source distribution of that version.

        Raises:
            UserError: no such version, no sdist of it, or no index could be reached.
        """
        return self._find(project, version, "sdist")[0]

    def find_wheel(self, project: str, version: str) -> Artifact:
        """The smallest wheel of that version, for whatever platform and Python.

        Raises:
            UserError: no such version, no wheel of it, or no index could be reached.
        """
        wheels = self._find(project, version, "wheel")
        if len(wheels) == 1:
            return wheels[0]
        sizes = {wheel: self.size(wheel) for wheel in wheels}
        return min(wheels, key=lambda wheel: (sizes[wheel] is None, sizes[wheel] or 0))

    def size(self, artifact: Artifact) -> int | None:
        """Its size in bytes, asked of its server; None: not known."""
        if (path := artifact.local_path) is not None:
            return path.stat().st_size if path.is_file() else None
        try:
            answer = self.session.head(artifact.url, allow_redirects=True)
            answer.raise_for_status()
            return int(answer.headers["Content-Length"])
        except (requests.RequestException, KeyError, ValueError):
            return None

    def key(self, project: str, version: str, kind: str) -> str:
        """A name for «this file on these indexes», without credentials."""
        sources = (*self.settings.index_urls, "links", *self.settings.find_links)
        shown = [without_credentials(source) for source in sources]
        return "\n".join((kind, canonicalize_name(project), version, *shown))

    def _find(self, project: str, version: str, kind: str) -> tuple[Artifact, ...]:
        try:
            wanted = Version(version)
        except InvalidVersion:
            wanted = None
        files = self._files(project)
        of_kind = [file for file in files if file.filename.endswith(_ending(kind))]
        exact = [file for file in of_kind if Version(file.version) == wanted]
        # A local build (1.0+cpu) of the version will do where the version itself is missing.
        found = exact or [
            file for file in of_kind if wanted and Version(file.version).public == str(wanted)
        ]
        if not found:
            raise _unknown(project, version, kind, wanted, files, self.failures)
        # The index gives the order; a file that can be checked goes before one that cannot.
        return tuple(sorted(found, key=lambda file: file.sha256 is None))

    def _files(self, project: str) -> tuple[Artifact, ...]:
        """Every file of the project on every index, best version first.

        Raises:
            UserError: there is none, with the reason.
        """
        if project in self._found:
            return self._found[project]
        pages = PageFetcher(self.session)
        self.failures = pages.failures
        finder = self._finder(pages)
        packages = finder.find_all_packages(project, allow_yanked=True)
        files = tuple(_artifact(package) for package in packages if package.version)
        if files:
            self._found[project] = files
            return files
        if pages.failures:
            url, reason = next(iter(pages.failures.items()))
            raise UserError(f"cannot reach the package index ({reason})", where=url, next=HELP)
        searched = ", ".join(without_credentials(str(source["url"])) for source in finder.sources)
        raise UserError(
            f"no package {project} on the package index", where=searched or "no index", next=HELP
        )

    def _finder(self, pages: PageFetcher) -> PackageFinder:
        # An empty list of sources would make unearth take PyPI: the first one is set below.
        finder = PackageFinder(pages, ignore_compatibility=True)
        finder.sources.clear()
        for url in self.settings.index_urls:
            shown = without_credentials(url)
            if is_secure_origin(pages, Link(shown)):
                finder.add_index_url(shown)
            else:
                pages.failures[shown] = "plain http, and not a trusted-host of pip"
        for link in self.settings.find_links:
            path = Path(link).expanduser()
            if path.exists():
                finder.add_find_links(str(path.absolute()))
            elif "://" in link or link.startswith("file:"):
                finder.add_find_links(without_credentials(link))
            else:
                pages.failures[link] = "no such directory"
        return finder


def _ending(kind: str) -> tuple[str, ...]:
    return _TAR if kind == "sdist" else (".whl",)


def _artifact(package: Package) -> Artifact:
    link = package.link
    hashes = {name: values[0] for name, values in (link.hash_option or {}).items()}
    sha256 = hashes.get("sha256")
    return Artifact(
        filename=link.filename,
        url=without_credentials(link.url_without_fragment),
        sha256=sha256.lower() if sha256 else None,
        version=str(package.version),
    )


def _unknown(
    project: str,
    version: str,
    kind: str,
    wanted: Version | None,
    files: tuple[Artifact, ...],
    failures: Mapping[str, str],
) -> UserError:
    """No such version, or no file of that kind: with the nearest ones that there are."""
    every = {Version(file.version) for file in files}
    of_kind = {Version(file.version) for file in files if file.filename.endswith(_ending(kind))}
    have = sorted(of_kind or every)
    also = "".join(f"; not asked: {place} ({reason})" for place, reason in failures.items())
    if wanted is None:
        what, near = f"'{version}' is not a version of {project}", have[-4:]
    else:
        above = next((i for i, other in enumerate(have) if other > wanted), len(have))
        near = have[max(0, above - 2) : above + 2]
        what = f"no {project} {version}"
        if wanted in every:
            what = f"{project} {version} has no {kind}"
    nearest = ", ".join(str(other) for other in near)
    return UserError(
        what, where="package index", next=f"nearest: {nearest}; newest: {have[-1]}{also}"
    )


# --- getting a file ---


def remembered(cache: Cache, index: Index, project: str, version: str, kind: str) -> Artifact:
    """As ``index.find_sdist`` / ``find_wheel``, without asking the index a second time.

    Only an answer with a hash is kept: it can be checked whenever the file is used.
    """
    key = index.key(project, version, kind)
    try:
        return Artifact(**(cache.fact(key) or {}))
    except TypeError:
        pass
    find = index.find_sdist if kind == "sdist" else index.find_wheel
    artifact = find(project, version)
    if artifact.sha256 is not None:
        cache.learn(key, asdict(artifact))
    return artifact


def download(index: Index, artifact: Artifact, cache: Cache, progress: Progress) -> Path:
    """The whole file, from the cache or from its server, checked against the index's hash.

    A ``file:`` URL is used where it lies, checked too.

    Raises:
        UserError: it cannot be had, or its contents are not what the index promises.
    """
    path = artifact.local_path
    try:
        if path is not None:
            return _checked(path, artifact)
        return cache.obtain(
            artifact.sha256,
            artifact.filename,
            lambda file: _transfer(index, artifact, file, progress),
        )
    except HashMismatchError as error:
        raise UserError(
            f"{artifact.filename} is damaged or not the file that the index names ({error})",
            where=artifact.url,
            next="try again; if it stays so, the mirror is at fault: use another index",
        ) from error


def _checked(path: Path, artifact: Artifact) -> Path:
    try:
        actual = sha256_of(path)
    except OSError as error:
        raise UserError(
            f"cannot read a file of the index ({error.strerror})", where=path, next=HELP
        ) from error
    if artifact.sha256 is not None and actual != artifact.sha256:
        raise HashMismatchError(artifact.sha256, actual)
    return path


def _transfer(index: Index, artifact: Artifact, file: BinaryIO, progress: Progress) -> None:
    """Writes the file's bytes to ``file``. A connection that breaks off is made again."""
    attempts = 1 + min(index.settings.retries, 2)
    for attempt in range(attempts):
        file.seek(0)
        file.truncate()
        try:
            with index.session.get(artifact.url, stream=True) as answer:
                answer.raise_for_status()
                total = int(answer.headers.get("Content-Length") or 0)
                done = 0
                for block in answer.iter_content(_BLOCK):
                    file.write(block)
                    done += len(block)
                    progress(artifact.filename, done, total)
                if total and done != total:
                    raise requests.exceptions.ChunkedEncodingError("short")
                return
        except BROKEN as error:
            broke_off = isinstance(error, requests.exceptions.ChunkedEncodingError)
            if broke_off and attempt + 1 < attempts:
                continue
            raise UserError(
                f"cannot download {artifact.filename} ({reason_of(error)})",
                where=artifact.url,
                next=HELP,
            ) from error
