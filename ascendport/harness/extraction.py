"""Cuts one symbol, and what it needs, out of vllm's source: a tree that imports without vllm.

Only module-level statements that bind a needed name are kept, in their order and in their own
text. Annotations of plain functions are not followed: the module gets ``from __future__ import
annotations``, so they are never evaluated.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from ascendport.harness.loading import STAND_INS

Read = Callable[[str], bytes | None]
"""Reads a file by its path in the wheel, e.g. ``vllm/v1/outputs.py``."""


class CannotExtractError(ValueError):
    """A file or a name is not there; the message says which."""


@dataclass
class _Module:
    path: str
    source: str
    body: list[ast.stmt]
    binds: dict[str, list[int]] = field(default_factory=dict)
    keep: set[int] = field(default_factory=set)


def extract(read: Read, path: str, *symbols: str) -> dict[str, bytes]:
    """The files of a tree that holds ``symbols`` of ``path`` and everything of vllm they need.

    Modules with a stand-in are left to the loader.

    Raises:
        CannotExtractError: the wheel lacks a file, or a file does not define a name.
    """
    modules: dict[str, _Module] = {}
    cached = functools.cache(read)
    for symbol in symbols:
        _need(cached, path, symbol, modules)
    return {module.path: _text(module) for module in modules.values()}


def _need(read: Read, path: str, name: str, modules: dict[str, _Module]) -> None:
    module = modules.get(path)
    if module is None:
        module = modules[path] = _parse(read, path)
    if name not in module.binds:
        raise CannotExtractError(f"{path} does not define {name}")
    todo = [name]
    while todo:
        for index in module.binds.get(todo.pop(), []):
            if index in module.keep:
                continue
            module.keep.add(index)
            statement = module.body[index]
            _follow_imports(read, path, statement, modules)
            todo.extend(_used(statement))


def _parse(read: Read, path: str) -> _Module:
    data = read(path)
    if data is None:
        raise CannotExtractError(f"this vllm has no {path}")
    source = data.decode("utf-8")
    module = _Module(path, source, ast.parse(source).body)
    for index, statement in enumerate(module.body):
        for name in _bound(statement):
            module.binds.setdefault(name, []).append(index)
    return module


def _bound(statement: ast.stmt) -> Iterator[str]:
    """Names that a module-level statement binds, those inside ``if`` and ``try`` included."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield statement.name
    elif isinstance(statement, ast.Import | ast.ImportFrom):
        for alias in statement.names:
            yield alias.asname or alias.name.partition(".")[0]
    else:
        for node in ast.walk(statement):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                yield node.id
            elif isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Import | ast.ImportFrom):
                yield from _bound(node)


def _used(statement: ast.stmt) -> Iterator[str]:
    """Names that running the statement, or what it defines, can load."""
    todo: list[ast.AST] = [statement]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            yield node.id
        todo.extend(_evaluated(node))


def _evaluated(node: ast.AST) -> Iterable[ast.AST]:
    """The children of a node, annotations of plain functions and variables left out."""
    if isinstance(node, ast.FunctionDef) and node.decorator_list:
        return ast.iter_child_nodes(node)  # a kernel: its constexpr annotations count
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        defaults = [default for default in node.args.kw_defaults if default is not None]
        return [*node.args.defaults, *defaults, *node.body]
    if isinstance(node, ast.AnnAssign):
        return [node.target, *([node.value] if node.value is not None else [])]
    return ast.iter_child_nodes(node)


def _follow_imports(
    read: Read, path: str, statement: ast.stmt, modules: dict[str, _Module]
) -> None:
    for node in ast.walk(statement):
        if not isinstance(node, ast.ImportFrom):
            continue
        source = _absolute(node, path)
        if source.partition(".")[0] != "vllm" or source in STAND_INS:
            continue
        for alias in node.names:
            base = source.replace(".", "/")
            for candidate in (f"{base}.py", f"{base}/__init__.py"):
                if read(candidate) is not None:
                    _need(read, candidate, alias.name, modules)
                    break
            else:
                raise CannotExtractError(f"{path} imports {source}, which is not in this vllm")


def _absolute(node: ast.ImportFrom, path: str) -> str:
    if not node.level:
        return node.module or ""
    parts = path.split("/")[: -node.level]
    return ".".join([*parts, *([node.module] if node.module else [])])


def _text(module: _Module) -> bytes:
    """The kept statements in their own words, decorators included."""
    lines = module.source.splitlines(keepends=True)
    parts = ["from __future__ import annotations\n\n"]
    for index in sorted(module.keep):
        statement = module.body[index]
        if isinstance(statement, ast.ImportFrom) and statement.module == "__future__":
            continue
        first = statement.lineno
        for decorator in getattr(statement, "decorator_list", ()):
            first = min(first, decorator.lineno)
        parts.append("".join(lines[first - 1 : statement.end_lineno]).rstrip() + "\n\n")
    return "".join(parts).encode("utf-8")
