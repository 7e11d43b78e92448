"""Affine maps: text to a tree. `#map = affine_map<()[s0, s1] -> (s1 + 256, s0)>`."""

from __future__ import annotations

import re
from dataclasses import dataclass

Expression = int | str | tuple[str, "Expression", "Expression"]
"""A constant, an input (``d0``, ``s1``), or (operator, left, right) with + - * floordiv ceildiv
mod."""

_MAP = re.compile(r"^affine_map<\(([^)]*)\)(?:\[([^\]]*)\])? -> \((.*)\)>$")
_TOKEN = re.compile(r"\s*(\d+|floordiv|ceildiv|mod|[ds]\d+|[-+*()])")


@dataclass(frozen=True)
class AffineMap:
    """``inputs`` in the order in which operands are given: dimensions, then symbols."""

    inputs: tuple[str, ...]
    results: tuple[Expression, ...]


def parse_map(text: str) -> AffineMap:
    """Reads the part after ``#map = ``.

    Raises:
        ValueError: it is no affine map of this form.
    """
    match = _MAP.match(text.strip())
    if not match:
        raise ValueError(f"not an affine map: {text}")
    names = [*_names(match[1]), *_names(match[2] or "")]
    return AffineMap(tuple(names), tuple(map(_Reader.read, split(match[3]))))


def split(text: str) -> list[str]:
    """Parts between commas that stand outside brackets of any kind."""
    parts: list[str] = []
    depth = start = 0
    for at, character in enumerate(text):
        if character in "([{<":
            depth += 1
        elif character in ")]}" or (character == ">" and text[at - 1] != "-"):
            depth -= 1
        elif character == "," and depth == 0:
            parts.append(text[start:at].strip())
            start = at + 1
    last = text[start:].strip()
    return [*parts, last] if last else parts


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


class _Reader:
    """Recursive descent; products bind tighter than sums, all operators are left-associative."""

    def __init__(self, text: str) -> None:
        self.tokens: list[str] = _TOKEN.findall(text)
        if "".join(self.tokens) != text.replace(" ", ""):
            raise ValueError(f"not an affine expression: {text}")
        self.at = 0

    @classmethod
    def read(cls, text: str) -> Expression:
        reader = cls(text)
        result = reader.sum()
        if reader.at != len(reader.tokens):
            raise ValueError(f"not an affine expression: {text}")
        return result

    def peek(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def next(self) -> str:
        self.at += 1
        return self.tokens[self.at - 1]

    def sum(self) -> Expression:
        left = self.product()
        while self.peek() in ("+", "-"):
            left = (self.next(), left, self.product())
        return left

    def product(self) -> Expression:
        left = self.unit()
        while self.peek() in ("*", "floordiv", "ceildiv", "mod"):
            left = (self.next(), left, self.unit())
        return left

    def unit(self) -> Expression:
        if not self.peek():
            raise ValueError("an affine expression ends too early")
        token = self.next()
        if token == "-":
            return ("*", -1, self.unit())
        if token == "(":
            inner = self.sum()
            if self.next() != ")":
                raise ValueError("an affine expression lacks a bracket")
            return inner
        return int(token) if token.isdigit() else token
