"""Objects that dotted names stand for, and those who read them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class What(StrEnum):
    """What a dotted name turned out to be."""

    MODULE = "module"
    CLASS = "class"
    FUNCTION = "function"
    VALUE = "value"
    OUTSIDE = "outside"
    """It belongs to another distribution."""
    MISSING = "missing"
    UNSURE = "unsure"
    """Only running the code could tell (a module-level ``__getattr__``, a star import from
    another distribution, a base class from elsewhere)."""


@dataclass(frozen=True)
class Thing:
    """An object: where it is defined. ``path`` is empty for a module."""

    what: What
    module: str
    path: str = ""

    @property
    def dotted(self) -> str:
        return f"{self.module}.{self.path}" if self.path else self.module


@dataclass(frozen=True)
class Read:
    """Somebody reads a name. ``how`` is a phrase; ``copied`` holds the module that took a copy
    by ``from … import`` when it was imported, if the read goes through one."""

    file: str
    line: int
    how: str
    copied: str = ""

    def __str__(self) -> str:
        return f"{self.file}:{self.line} ({self.how})"
