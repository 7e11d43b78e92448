"""What the interpreter collects while it reads one file."""

from __future__ import annotations

from typing import Any

from ascendport.wiring.interpreter.frame import Context
from ascendport.wiring.model import Assignment, Kind
from ascendport.wiring.things import Thing

_Key = tuple[Any, ...]


class Findings:
    """Assignments, imports that certainly run, and names asked for with hasattr or getattr."""

    def __init__(self) -> None:
        self.imports: list[tuple[int, str]] = []
        self.probes: set[tuple[Thing, str]] = set()
        self._found: dict[_Key, Assignment] = {}

    def assignments(self) -> list[Assignment]:
        """By line."""
        return sorted(self._found.values(), key=lambda item: item.line)

    def add(self, assignment: Assignment) -> None:
        """Keeps it. A statement that is met twice stays as it runs most surely: active rather
        than inactive, at import rather than deferred."""
        key = (assignment.line, assignment.target, assignment.name, assignment.base)
        known = self._found.get(key)
        if known is None or (
            not assignment.inactive
            and (known.inactive or (known.deferred and not assignment.deferred))
        ):
            self._found[key] = assignment

    def note_import(self, line: int, module: str, context: Context) -> None:
        """Keeps an import, if it certainly runs."""
        if context.certain:
            self.imports.append((line, module))

    def mark(self) -> set[_Key]:
        """The keys of what is kept so far."""
        return set(self._found)

    def forget_imports(self, mark: set[_Key]) -> None:
        """Drops failing imports found since ``mark``: the code foresees them."""
        for key in [key for key in self._found if key not in mark]:
            if self._found[key].kind is Kind.IMPORT:
                del self._found[key]
