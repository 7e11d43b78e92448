"""Search in the packed names of all modules at once."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator


class Corpus:
    """Packed strings of all modules as one text, so that a search is one ``str.find``."""

    def __init__(self, packed: Iterable[tuple[str, str]]) -> None:
        self.modules: list[str] = []
        self.starts: list[int] = []
        texts: list[str] = []
        size = 0
        for module, text in packed:
            if len(text) > 1:
                self.modules.append(module)
                self.starts.append(size)
                texts.append(text)
                size += len(text)
        self.text = "".join(texts)

    def find(self, pattern: str) -> Iterator[tuple[str, str, int]]:
        """(module, whole name, line) of every packed name that contains ``pattern``."""
        at = self.text.find(pattern)
        while at >= 0:
            end = self.text.find(" ", at + 1)
            start = self.text.rfind(" ", 0, at + 1) + 1
            name, _, line = self.text[start:end].rpartition(":")
            yield self.modules[bisect_right(self.starts, at) - 1], name, int(line)
            at = self.text.find(pattern, end)

    def lines(self, name: str) -> Iterator[tuple[str, int]]:
        """(module, line) wherever exactly ``name`` is packed."""
        for module, _, line in self.find(f" {name}:"):
            yield module, line
