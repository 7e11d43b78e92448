"""The assignments of one patch file."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from ascendport.wiring.index import SourceIndex
from ascendport.wiring.interpreter.statements import Statements
from ascendport.wiring.model import Assignment
from ascendport.wiring.things import Thing


@dataclass
class Patches:
    """What one file does."""

    assignments: list[Assignment] = field(default_factory=list)
    """By line."""
    imports: list[tuple[int, str]] = field(default_factory=list)
    """(line, module) of the imports that certainly run when the file is imported."""
    probes: frozenset[tuple[Thing, str]] = frozenset()
    """Objects and names that the file asks for with hasattr or getattr."""


def extract(source: bytes, path: str, index: SourceIndex, pinned: str) -> Patches:
    """The assignments in the patch file ``path``. ``pinned``: version of vllm, e.g. "0.28.0".

    Raises:
        SyntaxError: the file is not valid Python.
        ValueError: it holds null bytes.
    """
    found = Statements(path, index, pinned).run(ast.parse(source))
    return Patches(found.assignments(), found.imports, frozenset(found.probes))
