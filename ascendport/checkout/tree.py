"""A vllm-ascend source tree on disk: where it is, what kind it is, what it says of itself.

Standard library only, and only light modules of it: commands that answer at once start here.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path, PurePosixPath

from ascendport.errors import UserError

PACKAGE = "vllm_ascend"

MARKERS: tuple[tuple[str, bytes], ...] = (
    ("__init__.py", b""),
    ("ascend_config.py", b""),
    ("envs.py", b""),
    ("ops/__init__.py", b""),
    ("platform.py", b"class NPUPlatform"),
    ("utils.py", b""),
    ("worker/worker.py", b""),
)
"""Files of the package that every release holds, with a text that each must contain. A directory
is taken for a checkout when all are there, whatever it is called."""

STATE = ".ascendport"

_SOURCE_FILES = ("setup.py", "pyproject.toml", "PKG-INFO", "CMakeLists.txt", "Dockerfile")
_FETCH = "'ascendport fetch RELEASE DEST' makes a checkout"


class Layout(StrEnum):
    """How the tree came to be on this disk."""

    GIT = "git clone"
    SOURCE = "source tree"
    INSTALLED = "installed package"


@dataclass(frozen=True)
class Checkout:
    """A vllm-ascend tree.

    ``release`` and ``commit`` are what the tree says of itself. They are shown to people and
    are not trusted for choosing code: a tree is recognised by its contents.
    """

    root: Path
    """The directory that holds ``vllm_ascend/``, absolute, symbolic links resolved."""
    layout: Layout
    release: str | None = None
    commit: str | None = None
    """Hexadecimal, possibly abbreviated."""
    notes: tuple[str, ...] = ()
    """What whoever made the checkout wants people to know, one line each."""

    @property
    def state_dir(self) -> Path:
        """Where the tool keeps its records of changes to this tree. It need not exist.

        Inside the package for an installed tree: its root is a directory that it shares with
        every other installed package.
        """
        if self.layout is Layout.INSTALLED:
            return self.root / PACKAGE / STATE
        return self.root / STATE

    def path(self, rel: str) -> Path:
        """The absolute path of ``rel``, a relative path with '/' between its parts.

        Raises:
            ValueError: ``rel`` is absolute or leads outside the tree.
        """
        pure = PurePosixPath(rel)
        if pure.is_absolute() or not pure.parts or ".." in pure.parts or {"\\", "\0"} & set(rel):
            raise ValueError(f"not a path inside a checkout: {rel!r}")
        return self.root.joinpath(*pure.parts)

    def read(self, rel: str) -> bytes | None:
        """The contents of the file ``rel``, or None where there is no such file.

        Raises:
            UserError: it is there and cannot be read.
        """
        path = self.path(rel)
        try:
            return path.read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise UserError(
                f"cannot read a file of the checkout ({error.strerror})",
                where=path,
                next="check its permissions",
            ) from error


def recognise(path: Path) -> Checkout:
    """The checkout that ``path`` names: its root, its ``vllm_ascend`` directory, or a directory
    below its root.

    Raises:
        UserError: saying why ``path`` is not in a checkout.
    """
    given = path
    try:
        if not path.exists():
            raise UserError("no such directory", where=given, next=_FETCH)
        if not path.is_dir():
            raise UserError(
                "this is a file, not a checkout",
                where=given,
                next="give the directory that holds vllm_ascend/",
            )
        resolved = path.resolve()
        for root in (resolved, *resolved.parents):
            if missing_markers(root):
                continue
            checkout = checkout_at(root)
            package = (root / PACKAGE).resolve()
            within = resolved in (root, package) or package in resolved.parents
            if within or checkout.layout is not Layout.INSTALLED:
                return checkout
        raise _refusal(given, resolved)
    except OSError as error:
        raise UserError(
            f"cannot look into the directory ({error.strerror})",
            where=error.filename or given,
            next="check its permissions",
        ) from error


def missing_markers(root: Path) -> tuple[str, ...]:
    """The marker files that ``root`` lacks, as paths below it; none: it is a checkout's root."""
    package = root / PACKAGE
    if not package.is_dir():
        return (PACKAGE,)
    return tuple(
        f"{PACKAGE}/{name}" for name, text in MARKERS if not _contains(package / name, text)
    )


def checkout_at(root: Path) -> Checkout:
    """The checkout whose root is ``root``, which has all marker files."""
    layout = _layout(root)
    said = _version_file(root)
    commit = said.get("commit_id")
    release = said.get("version")
    if layout is Layout.GIT:
        # A clone's _version.py is left over from its last build.
        commit = git_commit(root)
        release = (git_tag(root, commit) if commit else None) or release
    elif layout is Layout.INSTALLED:
        release = _metadata_version(root) or release
    else:
        release = release or _header(root / "PKG-INFO", "Version")
    return Checkout(root=root, layout=layout, release=release, commit=commit)


def _contains(path: Path, text: bytes) -> bool:
    if not path.is_file():
        return False
    return not text or text in path.read_bytes()


def _layout(root: Path) -> Layout:
    if _metadata_dirs(root):
        return Layout.INSTALLED
    if (root / ".git").exists():
        return Layout.GIT
    if any((root / name).is_file() for name in _SOURCE_FILES):
        return Layout.SOURCE
    return Layout.INSTALLED


# --- what the tree says of itself ---

# Compiled at first use, as this module is imported by commands that do not need them.
_VERSION_LINE = (
    r"(?m)^(?:__version__\s*=\s*)?version\s*=\s*['\"]([^'\"]+)['\"]"
    r"|^__version__\s*=\s*['\"]([^'\"]+)"
)
_COMMIT_LINE = (
    r"(?m)^(?:__commit_id__\s*=\s*)?(?:commit_id|__commit_id__)"
    r"\s*=\s*['\"]g?([0-9a-f]{7,64})['\"]"
)


def _version_file(root: Path) -> dict[str, str]:
    """``version`` and ``commit_id`` as the generated ``_version.py`` gives them."""
    text = _text(root / PACKAGE / "_version.py")
    found = {}
    if match := re.search(_VERSION_LINE, text):
        found["version"] = match[1] or match[2]
    if match := re.search(_COMMIT_LINE, text):
        found["commit_id"] = match[1]
    return found


def _metadata_dirs(root: Path) -> list[Path]:
    return sorted(root.glob(f"{PACKAGE}-*.dist-info"))


def _metadata_version(root: Path) -> str | None:
    for folder in _metadata_dirs(root):
        if version := _header(folder / "METADATA", "Version"):
            return version
    return None


def _header(path: Path, name: str) -> str | None:
    head = re.split(r"\r?\n\r?\n", _text(path), maxsplit=1)[0]
    match = re.search(rf"^{name}:[ \t]*(\S+)", head, re.MULTILINE)
    return match[1] if match else None


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8", errors="replace")
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return ""


# --- git's files, read without git ---
# Formats: gitrepository-layout(5), git-pack-refs(1), git-worktree(1).

_HEX = r"[0-9a-f]{40}(?:[0-9a-f]{24})?"


def _git_dirs(root: Path) -> tuple[Path, Path] | None:
    """The git directory of a working tree and the one with the shared refs, if they are there."""
    git = root / ".git"
    if git.is_file():
        text = _text(git).strip()
        if not text.startswith("gitdir:"):
            return None
        git = root / text.removeprefix("gitdir:").strip()
    if not (git / "HEAD").is_file():
        return None
    common = _text(git / "commondir").strip()
    return git, (git / common if common else git)


def git_commit(root: Path) -> str | None:
    """The commit that HEAD names, or None (no git, no commit yet, refs kept as a reftable)."""
    if (dirs := _git_dirs(root)) is None:
        return None
    git, common = dirs
    value = _text(git / "HEAD").strip()
    for _ in range(5):  # git follows at most this many symbolic refs
        if not value.startswith("ref:"):
            break
        ref = value.removeprefix("ref:").strip()
        if ".." in ref or ref.startswith("/"):
            return None
        value = (
            _text(git / ref).strip()
            or _text(common / ref).strip()
            or _packed_refs(common).get(ref, ("",))[0]
        )
    return value if re.fullmatch(_HEX, value) else None


def git_tag(root: Path, commit: str) -> str | None:
    """The release that a tag on exactly ``commit`` names (``v0.30.0`` → ``0.30.0``), or None."""
    if (dirs := _git_dirs(root)) is None:
        return None
    _, common = dirs
    tags = sorted(name for name, target in _tags(common) if target == commit)
    versions = [tag.removeprefix("v") for tag in tags if re.match(r"v?\d+\.\d", tag)]
    return versions[-1] if versions else None


def _tags(common: Path) -> Iterator[tuple[str, str]]:
    prefix = "refs/tags/"
    for ref, targets in _packed_refs(common).items():
        if ref.startswith(prefix):
            yield ref.removeprefix(prefix), targets[-1]
    folder = common / "refs" / "tags"
    for path in sorted(folder.rglob("*")) if folder.is_dir() else ():
        if path.is_file():
            target = _text(path).strip()
            yield path.relative_to(folder).as_posix(), _peeled(common, target)


def _packed_refs(common: Path) -> dict[str, tuple[str, ...]]:
    """Ref → (object,) or, for an annotated tag, (tag object, commit)."""
    refs: dict[str, tuple[str, ...]] = {}
    last = ""
    for line in _text(common / "packed-refs").splitlines():
        if line.startswith("^") and last:
            refs[last] = (*refs[last], line[1:].strip())
        elif line and line[0] not in "#^":
            target, _, last = line.strip().partition(" ")
            refs[last] = (target,)
    return refs


def _peeled(common: Path, target: str) -> str:
    """What an annotated tag kept as a loose object points at; any other object is its own."""
    path = common / "objects" / target[:2] / target[2:]
    try:
        data = zlib.decompress(path.read_bytes()) if re.fullmatch(_HEX, target) else b""
    except (OSError, zlib.error):
        return target
    match = re.match(rb"tag \d+\0object ([0-9a-f]+)\n", data)
    return match[1].decode() if match else target


# --- why not ---


def _refusal(given: Path, resolved: Path) -> UserError:
    entries = sorted(entry.name for entry in resolved.iterdir())
    if not entries:
        return UserError("the directory is empty, no checkout", where=given, next=_FETCH)
    if (resolved / PACKAGE).is_dir():
        missing = missing_markers(resolved)
        return UserError(
            f"not a whole vllm-ascend tree: {_listed(missing)} not there or not as expected",
            where=given,
            next="check that the tree is complete",
        )
    below = _candidates(resolved, entries)
    if len(below) == 1:
        return UserError(
            "no checkout here, but one below", where=given, next=f"did you mean '{below[0]}'?"
        )
    if below:
        return UserError(
            f"no checkout here, but {len(below)} below",
            where=given,
            next="name one of them: " + _listed(tuple(f"'{path}'" for path in below)),
        )
    if _is_vllm(resolved) or _is_vllm(resolved.parent):
        return UserError(
            "this looks like vLLM itself, not vllm-ascend",
            where=given,
            next=f"give the vllm-ascend tree, or {_FETCH}",
        )
    return UserError(
        f"not a vllm-ascend checkout: no {PACKAGE}/ in it or above it",
        where=given,
        next=f"give the directory that holds {PACKAGE}/, or {_FETCH}",
    )


def _is_vllm(root: Path) -> bool:
    package = root / "vllm"
    return all((package / name).is_file() for name in ("__init__.py", "envs.py", "version.py"))


def _candidates(root: Path, entries: list[str]) -> list[Path]:
    """Checkouts one or two levels down. Looks at a bounded number of directories."""
    budget = 2000
    found = []
    for name in entries:
        child = root / name
        try:
            if not child.is_dir():
                continue
            if not missing_markers(child):
                found.append(child)
                continue
            for grandchild in sorted(child.iterdir()):
                budget -= 1
                if budget < 0:
                    return found
                if grandchild.is_dir() and not missing_markers(grandchild):
                    found.append(grandchild)
        except OSError:
            continue  # a directory that may not be read holds no candidate for this user
    return found


def _listed(names: tuple[str, ...]) -> str:
    shown = ", ".join(names[:3])
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3} more"
