"""How a symbol of vllm_ascend comes to be used: the ways from vllm to it."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass

from ascendport.wiring.analysis import PATCH_FOLDER, Analysis
from ascendport.wiring.index import SourceIndex
from ascendport.wiring.model import Judged
from ascendport.wiring.summary import module_name
from ascendport.wiring.things import Read, Thing, What


@dataclass(frozen=True)
class Route:
    """One way to a symbol. Either a patch assignment, or code that reads it, or another symbol
    of the same file that uses it and is reached itself."""

    assignment: Judged | None = None
    read: Read | None = None
    through: str = ""

    def __str__(self) -> str:
        if self.assignment is not None:
            return f"{self.assignment.assignment.target} ({self.assignment.assignment.place})"
        return f"used by {self.through}" if self.through else str(self.read)


@dataclass(frozen=True)
class Reach:
    """Whether a symbol is reached: ``route`` is None where it is not; ``dead`` are assignments of
    it that land nowhere, ``alive`` those that land."""

    symbol: str
    route: Route | None
    alive: tuple[Judged, ...] = ()
    dead: tuple[Judged, ...] = ()


def reach(analysis: Analysis, path: str, source: bytes, symbols: tuple[str, ...]) -> list[Reach]:
    """For each of ``symbols`` of the file ``path`` (below the checkout): how it is reached.

    ``source``: the file's contents.

    Raises:
        SyntaxError: it is not valid Python.
    """
    uses = _uses(ast.parse(source))
    finder = _Finder(analysis, path, uses)
    return [finder.reach(symbol) for symbol in symbols]


class _Finder:
    def __init__(self, analysis: Analysis, path: str, uses: Mapping[str, frozenset[str]]) -> None:
        self.index: SourceIndex = analysis.index
        self.judged = analysis.wiring.judged
        self.path = path
        self.module = module_name(path)[0]
        self.uses = uses

    def reach(self, symbol: str) -> Reach:
        assignments = self.assignments(symbol)
        alive = tuple(item for item in assignments if item.verdict.alive)
        dead = tuple(item for item in assignments if item.verdict.dead)
        route = Route(assignment=alive[0]) if alive else self.other(symbol, frozenset())
        return Reach(symbol, route, alive, dead)

    def assignments(self, symbol: str) -> list[Judged]:
        """Assignments that put the symbol, its class or a wrapper of it in place; for the target
        of an assignment in this very file, that one."""
        found = [
            item
            for item in self.judged
            if item.assignment.file == self.path and item.assignment.target == symbol
        ]
        owner = symbol.rpartition(".")[0]
        wanted = {symbol, owner} - {""}
        for item in self.judged:
            for value in item.assignment.values:
                if value.module == self.module and value.path in wanted and item not in found:
                    found.append(item)
        # What lands comes first; of those, what runs whenever the file is imported.
        return sorted(found, key=lambda item: bool(item.assignment.conditions))

    def other(self, symbol: str, seen: frozenset[str]) -> Route | None:
        """A way that is no patch assignment of the symbol itself."""
        owner, _, method = symbol.rpartition(".")
        read = self.method_read(owner, method) if owner else self.name_read(symbol)
        if read is not None:
            return Route(read=read)
        if owner:
            return None
        seen |= {symbol}
        for user, names in self.uses.items():
            if symbol in names and user not in seen:
                if not user:
                    return Route(through="import-time code of the file")
                if any(item.verdict.alive for item in self.assignments(user)) or self.other(
                    user, seen
                ):
                    return Route(through=user)
        return None

    def name_read(self, name: str) -> Read | None:
        """Code elsewhere that reads the module-level name, a copy taken at import included."""
        index = self.index
        for read in index.name_reads(self.module, name):
            if read.file != self.path and not read.file.startswith(PATCH_FOLDER):
                return read
        return self.copied_read(self.module, name, frozenset())

    def copied_read(self, module: str, name: str, seen: frozenset[str]) -> Read | None:
        index = self.index
        for holder, own_name, line in index.holders(module, name):
            file = index.path(holder)
            if holder in seen or holder == self.module or file.startswith(PATCH_FOLDER):
                continue
            for read in index.name_reads(holder, own_name):
                if read.file != self.path and not read.file.startswith(PATCH_FOLDER):
                    return Read(read.file, read.line, f"imported in {file}:{line}", holder)
            early = index.early_read(holder, own_name)
            if early is not None:
                return Read(file, early, f"imported in line {line}, used at import", holder)
            deeper = self.copied_read(holder, own_name, seen | {module, holder})
            if deeper is not None:
                return deeper
        return None

    def method_read(self, owner: str, method: str) -> Read | None:
        """A load of ``.method``, where the class is in use at all; any load of the name counts."""
        index = self.index
        summary = index.modules.get(self.module)
        name = owner.partition(".")[0]
        holder = self.name_read(name) or next(index.name_reads(self.module, name), None)
        if holder is None and any(item.verdict.alive for item in self.assignments(owner)):
            holder = Read(self.path, 1, "patched in")
        if holder is None:
            for read in index.string_reads(name):
                holder = read
                break
        if holder is None:
            thing = Thing(What.CLASS, self.module, owner)
            for child in index.subclasses(thing):
                holder = Read(index.path(child.module), 1, f"base of {child.path}")
                break
        if summary is None or holder is None:
            return None
        if method.startswith("__") and method.endswith("__"):
            return Read(holder.file, holder.line, "uses the class; the language calls the method")
        family = [child.module for child in index.subclasses(Thing(What.CLASS, self.module, owner))]
        for read in index.attribute_reads(method, [self.module, *family]):
            return read
        return next(index.string_reads(method), None)


def _uses(tree: ast.Module) -> dict[str, frozenset[str]]:
    """Top-level definition → names that it reads; "" for other import-time code."""
    found: dict[str, set[str]] = {}
    for statement in tree.body:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            name = statement.name
        elif isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            name = statement.targets[0].id
        else:
            name = ""
        names = {
            node.id
            for node in ast.walk(statement)
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
        }
        found.setdefault(name, set()).update(names - {name})
    return {name: frozenset(names) for name, names in found.items()}
