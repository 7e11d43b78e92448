"""Where a place of a compiled program stands in the source, and what the line says."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path

from ascendport.explain.model import Place
from ascendport.simulator import Location


class Sources:
    """The files of one side of a port.

    Programs name files where they lay while they were compiled: those that the port touches in a
    folder that is gone, the others in the checkout, Triton's own library where it is installed.
    """

    def __init__(self, root: Path, files: Mapping[str, bytes]) -> None:
        """
        Args:
            root: the checkout.
            files: contents by checkout-relative POSIX path of what differs from the checkout.
        """
        self._root = root
        self._files = files
        self._packages = {relative.partition("/")[0] for relative in files}
        self._known_lines: dict[str, _Lines] = {}
        self._known: dict[Location, Place] = {}

    def place(self, location: Location | None) -> Place | None:
        """The innermost line of the tree that ``location`` was inlined into.

        A line of a library (``tl.max``) is told as the line that calls it; one with no caller in
        the tree as itself.
        """
        if location is None:
            return None
        if location not in self._known:
            own: Location | None = location
            while own and self._relative(own.file) is None:
                own = own.within
            self._known[location] = self._made(own or location)
        return self._known[location]

    def _made(self, location: Location) -> Place:
        relative = self._relative(location.file)
        name = relative or location.file.rpartition("/site-packages/")[2]
        return Place(name, location.line, self._text(location.file, relative, location.line))

    def _text(self, file: str, relative: str | None, number: int) -> str:
        """The line; with the first one of its statement in front, where it continues one."""
        if file not in self._known_lines:
            self._known_lines[file] = _Lines(self._read(file, relative))
        return self._known_lines[file].text(number)

    def _relative(self, file: str) -> str | None:
        """The checkout-relative path; None for a file that is not of the tree.

        An installed checkout has other packages beside it, a clone may hold an environment.
        """
        for relative in self._files:
            if file == relative or file.endswith("/" + relative):
                return relative
        try:
            relative = Path(file).relative_to(self._root).as_posix()
        except ValueError:
            return None
        return relative if relative.partition("/")[0] in self._packages else None

    def _read(self, file: str, relative: str | None) -> str:
        own = self._files.get(relative) if relative else None
        try:
            data = own if own is not None else Path(file).read_bytes()
        except OSError:
            data = b""
        return data.decode("utf-8", "replace")


class _Lines:
    """A source file, line by line."""

    def __init__(self, text: str) -> None:
        self._lines = text.splitlines()
        self._starts: dict[int, int] = {}
        try:
            tree = ast.parse(text)
        except (SyntaxError, ValueError):
            return
        for node in ast.walk(tree):
            # Of statements with a body, such as loops, the header alone would have to be told.
            if isinstance(node, ast.stmt) and not hasattr(node, "body"):
                for number in range(node.lineno + 1, (node.end_lineno or node.lineno) + 1):
                    self._starts[number] = node.lineno

    def text(self, number: int) -> str:
        if not 0 < number <= len(self._lines):
            return ""
        line = " ".join(self._lines[number - 1].split())
        start = self._starts.get(number)
        if start is None:
            return line
        return f"{' '.join(self._lines[start - 1].split())} … {line}"
