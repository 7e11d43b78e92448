"""Digest of a symbol: a hash of its syntax tree that comments and formatting do not change.

A digest is how an original is recognised whatever a version string says. It covers all that
the interpreter acts on, decorators and annotations included, and leaves out what it does not:
comments, docstrings, positions, parentheses, quotes and string prefixes that mean nothing.

The walk is this module's own. ``ast.dump`` and ``repr`` change between Python releases; the
text hashed here is the same under Python 3.11 to 3.14: fields that are ``None`` or empty are
skipped (later releases add such fields), and constants are written out bit for bit.

A symbol is one of

- the name that a module-level ``def``, ``async def``, ``class`` or assignment binds;
- ``Class.name`` for what a class body binds in the same ways, to any depth;
- the text of a module-level assignment target: ``sampler.apply_penalties``,
  ``registry["sample"]``.

Statements inside a module-level ``if``, ``try`` or ``with`` (and one inside another) count as
module level, in class bodies too: upstream guards definitions that way. A name that is bound
more than once, for instance in both branches of an ``if`` or by a property and its setter, is
ambiguous and refused: replacing one of the two would be a guess. An assignment with several
targets (``a = b = 1``, ``a, b = 1, 2``) and an augmented one bind no symbol, since no single
name stands for the statement.
"""

from __future__ import annotations

import ast
import copy
import hashlib
import warnings
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from types import EllipsisType

from ascendport.errors import UserError

Function = ast.FunctionDef | ast.AsyncFunctionDef
Definition = Function | ast.ClassDef

DIGEST_LENGTH = 16
"""Hexadecimal digits: 64 bits of SHA-256."""

_SKIPPED = frozenset({"ctx", "type_comment", "kind"})
_STRINGS = ("JoinedStr", "TemplateStr")


def parse(source: bytes, where: object = "") -> ast.Module:
    """The syntax tree of a module's bytes (byte-order mark and coding cookie honoured).

    Raises:
        UserError: the text is not Python; names the line.
    """
    try:
        with warnings.catch_warnings():
            # Upstream's text may hold escapes that the compiler warns about.
            warnings.simplefilter("ignore")
            return ast.parse(source)
    except SyntaxError as error:
        line = f", line {error.lineno}" if error.lineno else ""
        raise UserError(
            f"not valid Python ({error.msg}{line})", where=where, next="mend the file"
        ) from error
    except (ValueError, RecursionError, MemoryError) as error:
        reason = str(error) or "nested too deeply"
        raise UserError(
            f"not valid Python ({reason})", where=where, next="mend the file"
        ) from error


def index(tree: ast.Module) -> dict[str, list[ast.stmt]]:
    """Symbol → the statements that bind it, in the order of the text."""
    found: dict[str, list[ast.stmt]] = {}
    for symbol, statement in _bound(tree.body, ""):
        found.setdefault(symbol, []).append(statement)
    return found


@lru_cache(maxsize=4096)
def normal(symbol: str) -> str:
    """A symbol in the one spelling that ``index`` uses (``a [ "b" ]`` → ``a['b']``).

    Raises:
        UserError: it is not an expression that can be assigned to.
    """
    if symbol.isidentifier():
        return symbol
    try:
        node = ast.parse(symbol.strip(), mode="eval").body
    except (SyntaxError, ValueError):
        node = None
    if not isinstance(node, ast.Name | ast.Attribute | ast.Subscript):
        raise UserError(
            "not a symbol", where=repr(symbol), next="give a name, Class.method or an object.name"
        )
    return ast.unparse(node)


def lookup(symbols: Mapping[str, list[ast.stmt]], symbol: str, where: object = "") -> ast.stmt:
    """The one statement that binds ``symbol``.

    Raises:
        UserError: no statement binds it, or more than one.
    """
    statements = symbols.get(normal(symbol), [])
    if len(statements) == 1:
        return statements[0]
    if statements:
        lines = ", ".join(str(statement.lineno) for statement in statements)
        raise UserError(
            f"{symbol} is bound more than once (lines {lines})",
            where=where,
            next="declare the class or another symbol that holds all of them",
        )
    raise UserError(f"no symbol {symbol}", where=where)


def digest(source: bytes, symbol: str, where: object = "") -> str:
    """Digest of one symbol of a module's bytes: 16 hexadecimal digits.

    Raises:
        UserError: not Python, or the symbol is missing or bound more than once.
    """
    return digest_of(lookup(index(parse(source, where)), symbol, where))


def digests(source: bytes, symbols: Iterable[str], where: object = "") -> dict[str, str | None]:
    """Digest of each of ``symbols``; None where the module does not bind it.

    Raises:
        UserError: not Python, or a symbol is bound more than once.
    """
    known = index(parse(source, where))
    return {
        symbol: digest_of(lookup(known, symbol, where)) if normal(symbol) in known else None
        for symbol in symbols
    }


def digest_of(node: ast.AST) -> str:
    """Digest of a syntax tree."""
    return hashlib.sha256(canonical(node).encode()).hexdigest()[:DIGEST_LENGTH]


def undecorated(node: ast.stmt, decorator: str) -> ast.stmt | None:
    """A function without its first decorator, if that is ``decorator``; else None."""
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or not node.decorator_list:
        return None
    first, *others = node.decorator_list
    if ast.unparse(first) != decorator:
        return None
    bare = copy.copy(node)
    bare.decorator_list = others
    return bare


def canonical(node: ast.AST) -> str:
    """The text that is hashed: ASCII, one spelling for each meaning.

    ``(Type field=value …)`` for nodes, ``[value …]`` for lists, and for constants a letter of
    the type followed by hexadecimal digits, so that no two values share a spelling.
    """
    # A stack instead of recursion: a sum of a thousand terms is a tree a thousand deep.
    out: list[str] = []
    stack: list[object] = [node]
    while stack:
        item = stack.pop()
        if isinstance(item, _Text):
            out.append(item)
        elif isinstance(item, ast.AST):
            stack.extend(reversed(list(_node(item))))
        elif isinstance(item, list):
            stack.append(_Text("]"))
            stack.extend(reversed(item))
            stack.append(_Text("["))
        else:
            out.append(_constant(item))
    return "".join(out)


def signature(node: ast.stmt) -> str:
    """How a symbol is called, as text: for people, and to tell whether callers still fit."""
    if isinstance(node, ast.ClassDef):
        bases = ", ".join(ast.unparse(base) for base in [*node.bases, *_values(node.keywords)])
        return f"class {node.name}({bases})" if bases else f"class {node.name}"
    if isinstance(node, Function):
        return f"{node.name}({ast.unparse(node.args)})"
    if isinstance(node, ast.Assign):
        return ast.unparse(node.targets[0])
    if isinstance(node, ast.AnnAssign):
        return ast.unparse(node.target)
    return ""


def fits(ours: ast.stmt, theirs: ast.stmt) -> bool:
    """Whether every call that ``theirs`` takes can also be made on ``ours``.

    Functions: the same parameters by name, kind and order, each optional where theirs is;
    ours may have more if they are optional. Classes: ours defines every method of theirs, and
    each fits. Assignments always fit. Annotations and the values of defaults are not compared.
    """
    if isinstance(theirs, ast.ClassDef) and isinstance(ours, ast.ClassDef):
        mine = index(ast.Module(body=ours.body, type_ignores=[]))
        other = index(ast.Module(body=theirs.body, type_ignores=[]))
        return all(
            name in mine and all(fits(a, b) for a, b in zip(mine[name], nodes, strict=False))
            for name, nodes in other.items()
            if isinstance(nodes[0], Definition)
        )
    if isinstance(theirs, Function) and isinstance(ours, Function):
        return type(ours) is type(theirs) and _parameters_fit(ours.args, theirs.args)
    return not isinstance(theirs, Definition) and not isinstance(ours, Definition)


class _Text(str):
    """Text that is already in its final form."""

    __slots__ = ()


def _bound(body: Iterable[ast.stmt], prefix: str) -> Iterator[tuple[str, ast.stmt]]:
    for statement in body:
        if isinstance(statement, Definition):
            yield prefix + statement.name, statement
            if isinstance(statement, ast.ClassDef):
                yield from _bound(statement.body, f"{prefix}{statement.name}.")
        elif isinstance(statement, ast.Assign | ast.AnnAssign):
            symbol = _target(statement)
            # In a class body only a plain name becomes Class.name.
            if symbol and (not prefix or symbol.isidentifier()):
                yield prefix + symbol, statement
        elif isinstance(statement, ast.If | ast.Try | ast.TryStar | ast.With):
            for block in blocks(statement):
                yield from _bound(block, prefix)


def blocks(statement: ast.If | ast.Try | ast.TryStar | ast.With) -> list[list[ast.stmt]]:
    """The blocks of a module-level ``if``, ``try`` or ``with``, in the order of the text."""
    handlers = [handler.body for handler in getattr(statement, "handlers", [])]
    rest = [getattr(statement, "orelse", []), getattr(statement, "finalbody", [])]
    return [statement.body, *handlers, *rest]


def _target(statement: ast.Assign | ast.AnnAssign) -> str | None:
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
    if len(targets) == 1 and isinstance(targets[0], ast.Name | ast.Attribute | ast.Subscript):
        return ast.unparse(targets[0])
    return None


def _node(node: ast.AST) -> Iterator[object]:
    """The parts of a node's spelling, in order."""
    name = type(node).__name__
    yield _Text(f"({name}")
    for field, value in ast.iter_fields(node):
        if field in _SKIPPED:
            continue
        if name in _STRINGS and field == "values":
            value = _pieces(value)
        elif field == "body" and isinstance(node, ast.Module | Definition):
            value = _without_docstring(value)
        elif field == "format_spec" and isinstance(value, ast.JoinedStr) and not value.values:
            continue
        if isinstance(node, ast.Constant):
            yield _Text(" ")
            yield value
        elif value is not None and value != []:
            yield _Text(f" {field}=")
            yield value
    yield _Text(")")


def _constant(value: object) -> str:
    match value:
        case None | bool() | EllipsisType():
            return str(value)
        case int():
            return f"i{value:x}"
        case float():
            return f"f{value.hex()}"
        case complex():
            return f"c{value.real.hex()}{value.imag.hex()}"
        case str():
            return f"s{value.encode('utf-8', 'surrogatepass').hex()}"
        case bytes():
            return f"b{value.hex()}"
    raise TypeError(f"no constant of Python's grammar: {type(value).__name__}")


def _pieces(values: list[ast.expr]) -> list[ast.expr]:
    """An f-string's parts with neighbouring texts joined: releases cut them differently."""
    joined: list[ast.expr] = []
    for value in values:
        for piece in _pieces(value.values) if isinstance(value, ast.JoinedStr) else [value]:
            last = joined[-1] if joined else None
            if not isinstance(piece, ast.Constant):
                joined.append(piece)
            elif isinstance(last, ast.Constant):
                joined[-1] = ast.Constant(f"{last.value!s}{piece.value!s}")
            elif piece.value != "":
                joined.append(piece)
    return joined


def _without_docstring(body: list[ast.stmt]) -> list[ast.stmt]:
    match body:
        case [ast.Expr(value=ast.Constant(value=str())), *rest]:
            return rest
    return body


def _values(keywords: list[ast.keyword]) -> list[ast.expr]:
    return [keyword.value for keyword in keywords]


def _parameters_fit(ours: ast.arguments, theirs: ast.arguments) -> bool:
    if bool(ours.vararg) < bool(theirs.vararg) or bool(ours.kwarg) < bool(theirs.kwarg):
        return False
    mine, other = _parameters(ours), _parameters(theirs)
    positional = [(name, kind) for name, kind, _ in mine if kind != "keyword"]
    wanted = [(name, kind) for name, kind, _ in other if kind != "keyword"]
    if positional[: len(wanted)] != wanted:
        return False
    optional = {(name, kind): has_default for name, kind, has_default in mine}
    named = {(name, kind): has_default for name, kind, has_default in other}
    return all(
        key in optional and bool(optional[key]) >= bool(has_default)
        for key, has_default in named.items()
    ) and all(has_default for key, has_default in optional.items() if key not in named)


def _parameters(args: ast.arguments) -> list[tuple[str, str, bool]]:
    """(name, kind, optional) of each parameter but ``*args`` and ``**kwargs``."""
    positional = [(arg.arg, "positional") for arg in args.posonlyargs]
    positional += [(arg.arg, "either") for arg in args.args]
    required = len(positional) - len(args.defaults)
    parameters = [(name, kind, at >= required) for at, (name, kind) in enumerate(positional)]
    keywords = zip(args.kwonlyargs, args.kw_defaults, strict=True)
    return parameters + [(arg.arg, "keyword", default is not None) for arg, default in keywords]
