"""Which names a piece of a module needs, and where the module gets them from.

Inside functions and classes free names are told from local ones by ``symtable``, the compiler's
own analysis.
"""

from __future__ import annotations

import ast
import builtins
import symtable
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_NAMED = (
    ast.FunctionDef,
    ast.AsyncFunctionDef,
    ast.ClassDef,
    ast.MatchAs,
    ast.MatchStar,
    ast.ExceptHandler,
)


@dataclass(frozen=True)
class Import:
    """One name that an import statement binds."""

    module: str
    name: str | None
    """What is imported from the module; None for ``import module``."""
    alias: str | None
    level: int = 0

    @property
    def bound(self) -> str:
        """The name that the statement binds: ``a`` for ``import a.b``."""
        return self.alias or self.name or self.module.partition(".")[0]

    def text(self) -> str:
        """The name as the statement spells it."""
        spelled = self.name or self.module
        return f"{spelled} as {self.alias}" if self.alias else spelled


@dataclass(frozen=True)
class Bindings:
    """What a module binds at its top level."""

    statements: tuple[tuple[Import, ...], ...]
    """The imports that top-level statements make, a tuple for each statement."""
    guarded: frozenset[Import]
    """The imports inside ``if`` and ``try`` that run when the module does."""
    others: frozenset[str]
    """Names bound by anything but an import."""
    typing: frozenset[str]
    """Names imported under ``if TYPE_CHECKING``: annotations may use them, code may not."""
    star: bool
    """Whether ``from … import *`` binds names that cannot be known."""

    @property
    def imports(self) -> frozenset[Import]:
        return frozenset(item for items in self.statements for item in items) | self.guarded


def statement_text(items: Iterable[Import], width: int = 100) -> str:
    """Import statements for names of one statement; several where one would be too long."""
    items = list(items)
    first = items[0]
    head = f"from {'.' * first.level}{first.module} import " if first.name else "import "
    line = head + ", ".join(item.text() for item in items)
    if len(line) <= width:
        return line + "\n"
    return "".join(f"{head}{item.text()}\n" for item in items)


def bindings(tree: ast.Module) -> Bindings:
    """What the statements of a module bind."""
    statements = []
    for statement in tree.body:
        if isinstance(statement, ast.Import | ast.ImportFrom):
            statements.append(tuple(_imports(statement)))
    guarded: set[Import] = set()
    others: set[str] = set()
    typing: set[str] = set()
    star = False
    for node in _module_scope(tree.body):
        if isinstance(node, ast.If) and _never_runs(node.test):
            for part in (part for statement in node.body for part in ast.walk(statement)):
                if isinstance(part, ast.Import | ast.ImportFrom):
                    typing.update(item.bound for item in _imports(part))
        elif isinstance(node, ast.Import | ast.ImportFrom):
            guarded.update(_imports(node))
            star = star or any(alias.name == "*" for alias in node.names)
        else:
            others.update(_names(node))
    top = {item for items in statements for item in items}
    return Bindings(
        tuple(statements), frozenset(guarded - top), frozenset(others), frozenset(typing), star
    )


def needed(snippet: str) -> frozenset[str]:
    """Names that ``snippet`` uses and that it imports at its top level or does not bind at all.

    Builtins and names that it binds in any other way are not among them. ``snippet`` parses.
    """
    tree = ast.parse(snippet)
    top = symtable.symtable(snippet, "<snippet>", "exec")
    # From 3.12 on the module's own table holds the variables of its comprehensions too.
    used = set(_loaded(tree))
    tables = top.get_children()
    while tables:
        table = tables.pop()
        tables.extend(table.get_children())
        used.update(symbol.get_name() for symbol in table.get_symbols() if symbol.is_global())
    # The compiler's tables also hold names of its own making (``.0``, ``__classdict__``).
    written = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    written |= {n for node in ast.walk(tree) if isinstance(node, ast.Global) for n in node.names}
    used &= written
    imported = {symbol.get_name() for symbol in top.get_symbols() if symbol.is_imported()}
    bound = {name for node in _module_scope(tree.body) for name in _names(node)} - imported
    # What stands in quotes is looked up by tools alone: it needs its import, and no more.
    used |= set(_quoted(tree)) & imported
    return frozenset(used - bound - (set(dir(builtins)) - imported))


def _loaded(tree: ast.Module) -> Iterator[str]:
    """Names that a module's own scope reads."""
    stack: list[tuple[ast.AST, frozenset[str]]] = [(tree, frozenset())]
    while stack:
        node, hidden = stack.pop()
        if isinstance(node, ast.Name):
            if not isinstance(node.ctx, ast.Store) and node.id not in hidden:
                yield node.id
        elif isinstance(node, _COMPREHENSIONS):
            first = node.generators[0].iter
            stack.append((first, hidden))
            own = {name for part in node.generators for name in _targets(part.target)}
            inside = (part for part in ast.iter_child_nodes(node) if isinstance(part, ast.expr))
            stack.extend((part, hidden | own) for part in inside)
            for generator in node.generators:
                parts = [*generator.ifs, generator.target]
                parts += [generator.iter] if generator.iter is not first else []
                stack.extend((part, hidden | own) for part in parts)
        else:
            # A body is a scope of its own; what stands at its head is read here.
            parameters = {part.name for part in getattr(node, "type_params", [])}
            body = node.body if isinstance(node, _SCOPES) else []
            skipped = {id(part) for part in (body if isinstance(body, list) else [body])}
            stack.extend(
                (part, hidden | parameters)
                for part in ast.iter_child_nodes(node)
                if id(part) not in skipped
            )


def _targets(target: ast.expr) -> Iterator[str]:
    for part in ast.walk(target):
        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
            yield part.id


def _quoted(tree: ast.Module) -> Iterator[str]:
    """Names in quoted annotations."""
    for node in ast.walk(tree):
        if isinstance(node, ast.arg | ast.AnnAssign):
            annotation = node.annotation
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            annotation = node.returns
        else:
            continue
        for part in ast.walk(annotation) if annotation is not None else ():
            if isinstance(part, ast.Constant) and isinstance(part.value, str):
                try:
                    inside = ast.parse(part.value.strip(), mode="eval")
                except (SyntaxError, ValueError):
                    continue  # Literal["any text"]
                yield from (name.id for name in ast.walk(inside) if isinstance(name, ast.Name))


def _imports(node: ast.Import | ast.ImportFrom) -> Iterator[Import]:
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield Import(alias.name, None, alias.asname)
    elif node.module != "__future__" or node.level:
        for alias in node.names:
            if alias.name != "*":
                yield Import(node.module or "", alias.name, alias.asname, node.level)


def _module_scope(body: Iterable[ast.stmt]) -> Iterator[ast.AST]:
    """Every node that runs in the module's own scope, and each ``if TYPE_CHECKING``."""
    stack: list[ast.AST] = list(body)
    while stack:
        node = stack.pop()
        yield node
        if isinstance(node, ast.If) and _never_runs(node.test):
            stack.extend(node.orelse)
            continue
        if isinstance(node, _COMPREHENSIONS):
            # Of all that a comprehension binds, := alone binds outside it.
            stack.extend(part.target for part in ast.walk(node) if isinstance(part, ast.NamedExpr))
        elif not isinstance(node, _SCOPES):
            stack.extend(ast.iter_child_nodes(node))


def _never_runs(test: ast.expr) -> bool:
    name = test.attr if isinstance(test, ast.Attribute) else getattr(test, "id", "")
    return name == "TYPE_CHECKING"


def _names(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id
    elif isinstance(node, _NAMED) and node.name:
        yield node.name
    elif isinstance(node, ast.MatchMapping) and node.rest:
        yield node.rest
