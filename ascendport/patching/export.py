"""What apply would do, as a series of commits: a mail that ``git am`` takes, or a branch.

One commit a port, by name order, the order in which apply puts ports into a file. The texts come
from memory, so the series is the same on an applied and on an unapplied checkout.
"""

from __future__ import annotations

import difflib
import hashlib
import os
import re
import stat
import subprocess
import tempfile
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from email.header import Header
from email.utils import format_datetime
from pathlib import Path

from ascendport.checkout.tree import Checkout, Layout
from ascendport.errors import ExitCode, UserError
from ascendport.patching.install import Install, compose
from ascendport.patching.plan import Outcome, Plan
from ascendport.patching.state import State, read_object
from ascendport.ports.manifest import Port

_WIDTH = 72


@dataclass(frozen=True)
class FileChange:
    """One file of one commit. None: there is no such file."""

    file: str
    before: bytes | None
    after: bytes
    mode: int
    """Permission bits of the file in the checkout."""

    @property
    def git_mode(self) -> str:
        return "100755" if self.mode & stat.S_IXUSR else "100644"


@dataclass(frozen=True)
class Commit:
    """One port as a commit."""

    port: str
    subject: str
    body: str
    changes: tuple[FileChange, ...]

    @property
    def message(self) -> str:
        return f"{self.subject}\n\n{self.body}"


@dataclass(frozen=True)
class Author:
    """Who the commits are by."""

    name: str
    email: str


def series(plan: Plan, ports: Sequence[Port], figures: Mapping[str, str]) -> tuple[Commit, ...]:
    """The commits that make of the pristine tree the tree that ``plan`` makes.

    ``plan`` is an apply of ``ports``; ports that are in the checkout and are not among them are
    no part of the series. ``figures``: what the last verify found, by port.

    Raises:
        UserError: a port of the plan is refused, or none is left to export.
    """
    if plan.refused:
        first = plan.refused[0]
        raise UserError(
            f"port {first.port} does not fit this checkout", where=plan.checkout.root,
            next=first.reason, code=ExitCode.FAILED,
        )  # fmt: skip
    checkout, state = plan.checkout, plan.new_state

    def text(sha: str) -> bytes:
        return plan.objects[sha] if sha in plan.objects else read_object(checkout, sha)

    wanted = {port.name: port for port in ports if port.name in state.ports}
    left_out = {one.port for one in plan.ports if one.outcome is Outcome.SUPERSEDED}
    if not wanted:
        why = "upstream has them already" if left_out else "none fits"
        raise UserError(
            f"there is no port to export: {why}", where=checkout.root, code=ExitCode.FAILED
        )
    commits: list[Commit] = []
    installs: list[Install] = []
    for name in sorted(wanted):
        install = Install.of_record(name, state.ports[name], text)
        changes = []
        for file in sorted(install.files()):
            original = _original(state, file, text)
            before = compose(file, original, installs)
            after = compose(file, original, [*installs, install])
            if after is not None and after != before:
                changes.append(FileChange(file, before, after, _mode(checkout, file)))
        installs.append(install)
        subject, body = message(wanted[name], figures.get(name, ""))
        commits.append(Commit(name, subject, body, tuple(changes)))
    return tuple(commits)


def _original(state: State, file: str, text: Callable[[str], bytes]) -> bytes | None:
    before = state.files[file].before
    return None if before is None else text(before)


def _mode(checkout: Checkout, file: str) -> int:
    path = checkout.path(file)
    return stat.S_IMODE(path.stat().st_mode) if path.exists() else 0o644


# --- the message ---


def message(port: Port, figures: str) -> tuple[str, str]:
    """Subject and body: what it is, the task, the design in the port's own words, figures."""
    summary = port.manifest.summary
    parts = [_wrapped(summary), f"Task: {port.manifest.task}"]
    if design := _design(port):
        parts.append(f"Design\n\n{design}")
    if figures:
        parts.append(f"Verified with ascendport\n\n{figures}")
    # No tag in brackets: git am takes such a one for part of «[PATCH]».
    subject = summary if len(summary) <= _WIDTH else summary.partition(":")[0]
    return subject, "\n\n".join(parts) + "\n"


def _design(port: Port) -> str:
    """The section «Design» of the port's README, wrapped; empty: it has none."""
    path = port.folder / "README.md"
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        return ""
    found = re.search(r"(?ms)^## Design\s*\n(.*?)(?=^## |\Z)", text)
    if found is None:
        return ""
    blocks = re.split(r"\n(?=- )|\n\s*\n", found[1].strip())
    return "\n".join(_wrapped(block) if not block.startswith("|") else block for block in blocks)


def _wrapped(text: str) -> str:
    indent = "  " if text.startswith("- ") else ""
    flat = " ".join(text.split())
    return textwrap.fill(
        flat, _WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def as_committed(checkout: Checkout, commits: Sequence[Commit]) -> tuple[Commit, ...]:
    """The series with the line ends that git keeps. Where a clone's settings give its files
    others (``core.autocrlf``), ``git am`` still works on those that are committed."""
    if checkout.layout is not Layout.GIT:
        return tuple(commits)
    shown: dict[str, bool] = {}
    made = []
    for commit in commits:
        changes = []
        for change in commit.changes:
            if change.before is not None and change.file not in shown:
                kept = _head_text(checkout, change.file)
                shown[change.file] = kept != change.before and kept == _lf(change.before)
            if shown.get(change.file):
                before = None if change.before is None else _lf(change.before)
                change = replace(change, before=before, after=_lf(change.after))
            changes.append(change)
        made.append(replace(commit, changes=tuple(changes)))
    return tuple(made)


def _lf(text: bytes) -> bytes:
    return text.replace(b"\r\n", b"\n")


def _head_text(checkout: Checkout, file: str) -> bytes | None:
    """A file as HEAD has it; None: it has no such file, or there is no git."""
    try:
        return _git_bytes(checkout, "cat-file", "blob", f"HEAD:./{file}")
    except UserError:
        return None


# --- as mail ---


def patch(commits: Sequence[Commit], author: Author, date: datetime | None = None) -> bytes:
    """The series as one mailbox that ``git am`` takes.

    A mail with carriage returns in it is in quoted-printable, as ``git am`` drops plain ones.
    """
    moment = date or _now()
    total = len(commits)
    out = []
    for number, commit in enumerate(commits, 1):
        mark = f"[PATCH {number}/{total}]" if total > 1 else "[PATCH]"
        subject = Header(f"{mark} {commit.subject}", "utf-8" if _wide(commit.subject) else None)
        name = author.name if not _wide(author.name) else Header(author.name, "utf-8").encode()
        head = (
            f"From {'0' * 40} Mon Sep 17 00:00:00 2001\n"
            f"From: {name} <{author.email}>\n"
            f"Date: {format_datetime(moment)}\n"
            f"Subject: {subject.encode(linesep=chr(10))}\n"
            "MIME-Version: 1.0\n"
            "Content-Type: text/plain; charset=UTF-8\n"
        )
        # A line «---» would end the message, and «From » at a line's start the mail.
        body = re.sub(r"(?m)^(---|From |diff -|Index: )", r" \1", commit.body)
        diffs = b"".join(git_diff(change) for change in commit.changes)
        content = body.encode() + b"---\n" + diffs + b"-- \nascendport\n\n"
        encoding = "8bit"
        if b"\r" in content:
            encoding, content = "quoted-printable", _quoted_printable(content)
        out.append(f"{head}Content-Transfer-Encoding: {encoding}\n\n".encode() + content)
    return b"".join(out)


def _quoted_printable(data: bytes) -> bytes:
    """RFC 2045 but for the length of lines, so that a diff can still be read."""
    return re.sub(rb"[^\n -<>-~]", lambda found: b"=%02X" % found[0][0], data)


def git_diff(change: FileChange) -> bytes:
    """A unified diff with git's header, byte for byte: no text is decoded."""
    old, new = _quoted(f"a/{change.file}"), _quoted(f"b/{change.file}")
    lines = [f"diff --git {old} {new}\n"]
    if change.before is None:
        lines.append(f"new file mode {change.git_mode}\n")
    blobs = f"{_blob(change.before)}..{_blob(change.after)}"
    lines.append(f"index {blobs}" + ("\n" if change.before is None else f" {change.git_mode}\n"))
    a, b = (_split(side or b"") for side in (change.before, change.after))
    hunks = list(difflib.unified_diff(a, b, old if change.before is not None else "/dev/null", new))
    out = "".join(lines).encode()
    for line in hunks:
        out += line.encode(
            "latin-1" if line[0] in " +-" and line[:3] not in ("---", "+++") else "utf-8"
        )
        if not line.endswith("\n"):
            out += b"\n\\ No newline at end of file\n"
    return out


def _split(data: bytes) -> list[str]:
    """Lines by LF alone. Latin-1 gives each byte a character of its own."""
    return re.findall(r"[^\n]*\n|[^\n]+", data.decode("latin-1"))


def _blob(data: bytes | None) -> str:
    """git's name of a file's contents."""
    if data is None:
        return "0" * 40
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


def _quoted(path: str) -> str:
    """A path as git writes it: in quotes and octal where it is not plain ASCII."""
    if re.fullmatch(r"[!#-\[\]-~ ]+", path):
        return path
    raw = path.encode()
    inner = "".join(
        f"\\{chr(byte)}"
        if chr(byte) in '"\\'
        else chr(byte)
        if 32 <= byte < 127
        else f"\\{byte:03o}"
        for byte in raw
    )
    return f'"{inner}"'


def _wide(text: str) -> bool:
    return not text.isascii()


def _now() -> datetime:
    """The moment; ``$SOURCE_DATE_EPOCH`` where it is set, so that a series can be made again."""
    epoch = os.environ.get("SOURCE_DATE_EPOCH", "")
    return datetime.fromtimestamp(int(epoch), UTC) if epoch.isdigit() else datetime.now(UTC)


# --- as a branch ---


def author_of(checkout: Checkout) -> Author:
    """Who git says the user is; a stand-in that ``git am --reset-author`` replaces where it does
    not."""
    said = [_try_git(checkout, "config", key) for key in ("user.name", "user.email")]
    return Author(said[0] or "ascendport", said[1] or "ascendport@localhost")


def branch(checkout: Checkout, commits: Sequence[Commit], name: str) -> str:
    """Makes a branch of the checkout's repository that holds the series on top of HEAD; returns
    the last commit. Working tree, index and HEAD stay as they are.

    Raises:
        UserError: no git repository, the branch is there already, or HEAD's text of a file is
            not the one that the series starts from.
    """
    if checkout.layout is not Layout.GIT:
        raise UserError(
            "a branch needs a git clone", where=checkout.root, next="use --format patch"
        )
    if _try_git(checkout, "check-ref-format", "--branch", name) is None:
        raise UserError("not a name for a branch", where=name)
    ref = f"refs/heads/{name}"
    if _try_git(checkout, "rev-parse", "--verify", "--quiet", ref) is not None:
        raise UserError("the branch is there already", where=name, next="name another one")
    prefix = _git(checkout, "rev-parse", "--show-prefix").strip()
    parent = _git(checkout, "rev-parse", "--verify", "HEAD^{commit}").strip()
    author = author_of(checkout)
    who = {
        "GIT_AUTHOR_NAME": author.name, "GIT_AUTHOR_EMAIL": author.email,
        "GIT_COMMITTER_NAME": author.name, "GIT_COMMITTER_EMAIL": author.email,
    }  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="ascendport-index-") as folder:
        env = {"GIT_INDEX_FILE": str(Path(folder, "index")), **who}
        _git(checkout, "read-tree", parent, env=env)
        seen: set[str] = set()
        for commit in commits:
            for change in commit.changes:
                path = f"{prefix}{change.file}"
                if change.file not in seen:
                    _check_head(checkout, parent, path, change)
                    seen.add(change.file)
                blob = _git(checkout, "hash-object", "-w", "--stdin", data=change.after).strip()
                entry = f"{change.git_mode},{blob},{path}"
                _git(checkout, "update-index", "--add", "--cacheinfo", entry, env=env)
            tree = _git(checkout, "write-tree", env=env).strip()
            made = _git(
                checkout, "commit-tree", tree, "-p", parent, env=env, data=commit.message.encode()
            )
            parent = made.strip()
    _git(checkout, "update-ref", ref, parent, "0" * len(parent))
    return parent


def _check_head(checkout: Checkout, head: str, path: str, change: FileChange) -> None:
    there = _try_git(checkout, "rev-parse", "--verify", "--quiet", f"{head}:{path}")
    wanted = (
        ""
        if change.before is None
        else _git(checkout, "hash-object", "--stdin", data=change.before).strip()
    )
    if (there or "").strip() != wanted:
        raise UserError(
            "HEAD has another text of the file than the checkout",
            where=checkout.path(change.file),
            next="commit or drop that change first, or use --format patch",
            code=ExitCode.FAILED,
        )


def _git(
    checkout: Checkout, *words: str, env: Mapping[str, str] | None = None, data: bytes = b""
) -> str:
    return _git_bytes(checkout, *words, env=env, data=data).decode(errors="replace")


def _git_bytes(
    checkout: Checkout, *words: str, env: Mapping[str, str] | None = None, data: bytes = b""
) -> bytes:
    try:
        done = subprocess.run(
            ["git", *words],
            cwd=checkout.root,
            env={**os.environ, **(env or {})},
            input=data,
            capture_output=True,
            check=False,
        )
    except FileNotFoundError as error:
        raise UserError("git is not installed", next="use --format patch") from error
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        raise UserError(
            f"git {words[0]} failed ({said[-1] if said else done.returncode})", where=checkout.root
        )
    return done.stdout


def _try_git(checkout: Checkout, *words: str) -> str | None:
    try:
        return _git(checkout, *words).strip()
    except UserError:
        return None
