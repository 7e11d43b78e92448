"""Small questions to Python syntax trees."""

from __future__ import annotations

import ast

_SHORT = 60


def dotted(node: ast.AST) -> str:
    """``a.b`` as text. What is no name at the root is written "?": ``f().b`` gives "?.b"."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    parts.append(node.id if isinstance(node, ast.Name) else "?")
    return ".".join(reversed(parts))


def last_part(node: ast.AST) -> str:
    """``b`` of ``a.b`` or ``f().b``; "?" for what is neither name nor attribute."""
    return dotted(node).rpartition(".")[2]


def is_name(node: ast.AST, name: str) -> bool:
    """The expression is the plain ``name``."""
    return isinstance(node, ast.Name) and node.id == name


def short(node: ast.AST) -> str:
    """The expression in one line of at most 60 characters."""
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= _SHORT else text[: _SHORT - 3] + "..."


def outermost_names(node: ast.AST) -> list[ast.expr]:
    """Names and dotted names in a tree, each at its longest, breadth first."""
    found: list[ast.expr] = []
    queue: list[ast.AST] = [node]
    while queue:
        current = queue.pop(0)
        if isinstance(current, ast.Name) or (
            isinstance(current, ast.Attribute) and not dotted(current).startswith("?")
        ):
            found.append(current)
        else:
            queue.extend(ast.iter_child_nodes(current))
    return found


def exception_names(handler: ast.ExceptHandler) -> set[str]:
    """The last parts of the names of the exceptions that the clause catches."""
    if handler.type is None:
        return {"BaseException"}
    kind = handler.type
    parts = kind.elts if isinstance(kind, ast.Tuple) else [kind]
    return {ast.unparse(part).rpartition(".")[2] for part in parts}
