"""What is known of a whole tree when one of its assignments is judged."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ascendport.wiring.index import SourceIndex
from ascendport.wiring.model import Assignment
from ascendport.wiring.things import Read, Thing

_SHOWN = 3
"""Reads kept as evidence, and names listed."""

MARKER = "vllm has no such name; only the patch file itself asks for it, with hasattr or getattr"


@dataclass(frozen=True)
class Facts:
    """The names of both packages, and what all patch files do together."""

    index: SourceIndex
    patched: frozenset[tuple[str, str]] = frozenset()
    """(module, name) of every active assignment to a module's name."""
    swept: frozenset[str] = frozenset()
    """Names that a loop over ``sys.modules`` rebinds wherever they are held."""
    loaded: dict[str, frozenset[str]] = field(default_factory=dict)
    """Patch file → modules certainly imported before it runs to its end."""
    probed: dict[str, frozenset[tuple[Thing, str]]] = field(default_factory=dict)
    """Patch file → objects and names that it asks for with hasattr or getattr."""

    def is_marker(self, assignment: Assignment) -> bool:
        """The patch file asks for the very name: a mark that it was here, or a back-port."""
        probes = self.probed.get(assignment.file, frozenset())
        return (assignment.base, assignment.name) in probes


def evidence(reads: Iterable[Read]) -> tuple[Read, ...]:
    """The first three of different places."""
    found: dict[tuple[str, int], Read] = {}
    for read in reads:
        found.setdefault((read.file, read.line), read)
        if len(found) >= _SHOWN:
            break
    return tuple(found.values())


def listed(names: Sequence[str]) -> str:
    """``a, b, c and 2 more``."""
    unique = list(dict.fromkeys(names))
    text = ", ".join(unique[:_SHOWN])
    return text if len(unique) <= _SHOWN else f"{text} and {len(unique) - _SHOWN} more"


def by_ascend(read: Read) -> bool:
    return read.file.startswith("vllm_ascend/")
