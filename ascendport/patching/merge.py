"""Three-way merge of texts, by ``git merge-file`` or, where git is not installed, like it."""

from __future__ import annotations

import difflib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

_SIZE = 15
"""Length of conflict markers: longer than git's, so that markers in a text are no conflict."""
_CONTEXT = 3


@dataclass(frozen=True)
class Merged:
    """``text`` holds both sides' changes; where they touch the same lines it holds markers."""

    text: bytes
    conflicts: str = ""
    """The places where both sides touched the same lines, as a diff3 view; empty: none."""


def merge(
    base: bytes,
    mine: bytes,
    theirs: bytes,
    names: tuple[str, str, str] = ("yours", "as applied", "without the port"),
) -> Merged:
    """``mine`` with the changes from ``base`` to ``theirs``. Lines keep their ends.

    ``names``: what conflict markers call ``mine``, ``base`` and ``theirs``. Deterministic, and
    deaf to the user's git settings.
    """
    if mine in (base, theirs):
        return Merged(theirs)
    if theirs == base:
        return Merged(mine)
    text = _by_git(base, mine, theirs, names)
    if text is None:
        text = _by_hand(base, mine, theirs, names)
    return Merged(text, _conflicts(text))


def _by_git(base: bytes, mine: bytes, theirs: bytes, names: tuple[str, str, str]) -> bytes | None:
    """None: there is no git, or it cannot do it (it takes some texts for binary)."""
    git = shutil.which("git")
    if git is None:
        return None
    quiet = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull}
    with tempfile.TemporaryDirectory(prefix="ascendport-merge-") as folder:
        files = [Path(folder, name) for name in ("mine", "base", "theirs")]
        for file, text in zip(files, (mine, base, theirs), strict=True):
            file.write_bytes(text)
        labels = [word for name in names for word in ("-L", name)]
        command = [git, "merge-file", "--stdout", "--diff3", f"--marker-size={_SIZE}", *labels]
        done = subprocess.run(
            [*command, *map(str, files)],
            cwd=folder,
            env={**os.environ, **quiet, "GIT_DIR": folder},
            capture_output=True,
            check=False,
        )
    # The status is the number of conflicts, at most 127; larger ones are errors.
    return done.stdout if done.returncode <= 127 else None


def _by_hand(base: bytes, mine: bytes, theirs: bytes, names: tuple[str, str, str]) -> bytes:
    out: list[bytes] = []
    for old, ours, new in _regions(_lines(base), _lines(mine), _lines(theirs)):
        if ours in (old, new):
            out += new
        elif new == old:
            out += ours
        else:
            parts = ((b"<", names[0], ours), (b"|", names[1], old), (b"=", "", new))
            for mark, name, lines in parts:
                out.append(_marker(mark, name))
                out += [line if line.endswith((b"\n", b"\r")) else line + b"\n" for line in lines]
            out.append(_marker(b">", names[2]))
    return b"".join(out)


Region = tuple[Sequence[bytes], Sequence[bytes], Sequence[bytes]]


def _regions(base: list[bytes], mine: list[bytes], theirs: list[bytes]) -> Iterator[Region]:
    """Stretches of the three texts that belong together, in order: those that are the same in
    all, and what lies between."""
    here = _matching(base, mine)
    there = _matching(base, theirs)
    at = (0, 0, 0)
    line = 0
    while line < len(base):
        if line not in here or line not in there:
            line += 1
            continue
        stop = line
        while (
            stop < len(base)
            and here.get(stop) == here[line] + stop - line
            and there.get(stop) == there[line] + stop - line
        ):
            stop += 1
        yield base[at[0] : line], mine[at[1] : here[line]], theirs[at[2] : there[line]]
        same = base[line:stop]
        yield same, same, same
        at = (stop, here[line] + stop - line, there[line] + stop - line)
        line = stop
    yield base[at[0] :], mine[at[1] :], theirs[at[2] :]


def _matching(base: list[bytes], other: list[bytes]) -> dict[int, int]:
    """Line of ``base`` → the same line of ``other``."""
    matcher = difflib.SequenceMatcher(None, base, other, autojunk=False)
    return {
        block.a + step: block.b + step
        for block in matcher.get_matching_blocks()
        for step in range(block.size)
    }


def _lines(text: bytes) -> list[bytes]:
    return re.findall(rb"[^\n]*\n|[^\n]+", text)


def _marker(mark: bytes, name: str) -> bytes:
    return mark * _SIZE + (f" {name}" if name else "").encode() + b"\n"


def _conflicts(text: bytes) -> str:
    """The marked places with a few lines around each."""
    lines = _lines(text)
    opened, closed = b"<" * _SIZE + b" ", b">" * _SIZE + b" "
    starts = [at for at, line in enumerate(lines) if line.startswith(opened)]
    stops = [at for at, line in enumerate(lines) if line.startswith(closed)]
    shown: list[str] = []
    last = 0
    for start, stop in zip(starts, stops, strict=False):
        begin, end = max(last, start - _CONTEXT), min(len(lines), stop + 1 + _CONTEXT)
        if shown and begin > last:
            shown.append("...\n")
        shown += [line.decode("utf-8", "replace") for line in lines[begin:end]]
        last = end
    return "".join(shown)
