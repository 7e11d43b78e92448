"""Copies of a module's name that ``from module import name`` takes.

An assignment to the name reaches a copy only if the copy is taken afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from ascendport.wiring.things import Read
from ascendport.wiring.verdicts.facts import Facts, listed

_Seen = frozenset[tuple[str, str]]


@dataclass
class Copies:
    """The copies that are used, by what becomes of them."""

    later: list[Read] = field(default_factory=list)
    """Reads through copies that a later import may take."""
    stale: list[str] = field(default_factory=list)
    """Modules loaded before the patch."""
    patched: list[str] = field(default_factory=list)
    """Modules whose copy is patched itself."""

    def __bool__(self) -> bool:
        return bool(self.later or self.stale or self.patched)

    @property
    def notes(self) -> list[str]:
        """For people, of those patched themselves."""
        return [f"copies patched themselves: {listed(self.patched)}"] if self.patched else []


def copies(facts: Facts, module: str, name: str, patch: str, seen: _Seen = frozenset()) -> Copies:
    """The used copies of ``module.name`` for an assignment in the file ``patch``."""
    index = facts.index
    loaded = facts.loaded.get(patch, frozenset())
    found = Copies()
    for holder, own_name, line in index.holders(module, name):
        if holder == module or (holder, own_name) in seen:
            continue
        reads = list(index.name_reads(holder, own_name))
        early = index.early_read(holder, own_name)
        inner = seen | {(module, name), (holder, own_name)}
        deeper = copies(facts, holder, own_name, patch, inner)
        if not (reads or early is not None or deeper):
            continue
        path = index.path(holder)
        swept = own_name in facts.swept and holder in loaded
        if (holder, own_name) in facts.patched or swept:
            found.patched.append(holder)
        elif holder in loaded:
            found.stale.append(holder)
        elif path != patch:
            if reads:
                how = f"takes a copy in line {line}, {reads[0].how}"
                found.later.append(Read(path, reads[0].line, how, holder))
            elif early is not None:
                found.later.append(Read(path, early, f"copy of line {line}, at import", holder))
            elif deeper.later:
                found.later.append(replace(deeper.later[0], copied=holder))
    return found
