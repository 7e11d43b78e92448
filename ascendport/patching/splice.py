"""Puts symbols of one module's text into another's, and leaves every other byte alone.

The edit is made on whole lines of the text, at the line numbers of the syntax tree: what is not
declared stays byte for byte because nothing touches it. The result is then parsed again and
compared, so that an edit that changed anything else is refused, not written.

What belongs to a symbol:

- its decorators, and comments between them;
- the comment block directly above it, at the same indentation. Of a replaced function or class
  it goes with the old text, which it describes. Above a replaced assignment it stays, since it
  often heads a group; the new one's comments follow it. A block that starts on the file's first
  line is the file's header and belongs to no symbol;
- comment lines after it that are indented deeper than it.

Of a decorated function no line is touched: the decorator's line goes in front of its own
decorators, or of its ``def``.

Where things go:

- an added symbol goes in front of the top-level statement that holds the first replaced or
  decorated symbol, in the order of the source; where there is none, at the end of the file. An
  added ``Class.method`` goes in front of the first such symbol of its class, or at its end;
- the imports that the inserted code uses and the file does not make in the same way go, as
  statements of their own, after the last top-level import in front of the first edit.
"""

from __future__ import annotations

import ast
import bisect
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from ascendport.errors import UserError
from ascendport.patching.names import Bindings, Import, bindings, needed, statement_text
from ascendport.patching.text import Text, decode, lines, with_newline
from ascendport.ports.digest import (
    Definition,
    canonical,
    digest_of,
    index,
    lookup,
    normal,
    parse,
    undecorated,
)

_FORMATTED = ("JoinedStr", "TemplateStr")
_MEND = "mend the port's manifest or text"
_MODULE_NAMES = {
    "__annotations__",
    "__builtins__",
    "__class__",
    "__doc__",
    "__file__",
    "__loader__",
    "__name__",
    "__package__",
    "__path__",
    "__spec__",
}


@dataclass(frozen=True)
class Span:
    """The lines of one symbol: ``lines[start:stop]``; the statement itself begins at ``code``."""

    start: int
    code: int
    stop: int
    indent: str


@dataclass(frozen=True)
class _Edit:
    """Lines ``start:stop`` of the target become ``text``; of two at one line the lower rank
    comes first."""

    start: int
    stop: int
    text: str
    rank: int


_IMPORTS, _ADDED, _REPLACED = 1, 2, 3
"""Ranks. Additions at the end of a class come before all, those of inner classes first."""


class _Module:
    """A module's text, tree and symbols."""

    def __init__(self, raw: bytes, where: str) -> None:
        self.where = where
        self.text: Text = decode(raw, where)
        self.tree = parse(raw, where)
        self.lines = self.text.lines
        self.symbols = index(self.tree)
        self.bindings: Bindings = bindings(self.tree)
        self.ends = sorted(
            end_line(node) for node in ast.walk(self.tree) if isinstance(node, ast.stmt)
        )

    def statement(self, symbol: str) -> ast.stmt:
        return lookup(self.symbols, symbol, self.where)

    def span(self, symbol: str) -> Span:
        """The lines of a symbol.

        Raises:
            UserError: another statement begins or ends on one of them.
        """
        node = self.statement(symbol)
        decorators = node.decorator_list if isinstance(node, Definition) else []
        code = min([node.lineno, *(d.lineno for d in decorators)]) - 1
        end = end_line(node)
        first = self.lines[code]
        head = first if decorators else _columns(first, 0, node.col_offset)
        tail = _columns(self.lines[end - 1], node.end_col_offset or 0, None).strip()
        alone = head.lstrip().startswith("@") if decorators else not head.strip()
        if not alone or not re.fullmatch(r";?\s*(#.*)?", tail):
            raise UserError(
                f"{symbol} shares a line with another statement",
                where=f"{self.where}, line {code + 1}",
                next="such a symbol cannot be replaced; declare what holds it",
            )
        indent = first[: len(first) - len(first.lstrip(" \t\f"))]
        start = self._comments_above(code, indent)
        stop = self._comments_below(end, indent) if isinstance(node, Definition) else end
        return Span(start, code, stop, indent)

    def top_level(self, symbol: str) -> ast.stmt:
        """The top-level statement that is or holds the symbol."""
        node = self.statement(symbol)
        return next(s for s in self.tree.body if s.lineno <= node.lineno <= end_line(s))

    def _comments_above(self, code: int, indent: str) -> int:
        # Text that looks like a comment may be the end of a string.
        before = bisect.bisect_right(self.ends, code)
        floor = self.ends[before - 1] if before else 0
        start = code
        while start > floor and re.match(rf"{re.escape(indent)}#", self.lines[start - 1]):
            start -= 1
        return code if start == 0 else start

    def _comments_below(self, end: int, indent: str) -> int:
        stop = at = end
        while at < len(self.lines):
            line = self.lines[at]
            if re.match(rf"{re.escape(indent)}[ \t]+#", line):
                stop = at + 1
            elif line.strip():
                break
            at += 1
        return stop


def end_line(node: ast.stmt) -> int:
    """The last line of a statement, counted from 1."""
    return node.end_lineno or node.lineno


def splice(
    original: bytes,
    source: bytes,
    replace: Sequence[str],
    add: Sequence[str],
    where: str,
    decorate: Sequence[tuple[str, str]] = (),
) -> bytes:
    """``original`` with the symbols ``replace`` taken from ``source`` and ``add`` added.

    ``decorate``: pairs of a function of ``original`` and the decorator that is put on it, a name
    that the file or the additions bind.

    Line ends, encoding, byte-order mark, indentation and a missing final newline stay as
    ``original`` has them. ``where`` names the file in errors.

    Raises:
        UserError: either text is not Python; a symbol is missing, bound twice, not alone on
            its lines, or decorated and no function; the file already binds an added or imported
            name otherwise; the inserted code uses a name that neither text accounts for; the
            file's encoding cannot hold it.
    """
    return _splice(original, source, tuple(replace), tuple(add), where, tuple(decorate))


@lru_cache(maxsize=256)
def _splice(
    original: bytes,
    source: bytes,
    replace: tuple[str, ...],
    add: tuple[str, ...],
    where: str,
    decorate: tuple[tuple[str, str], ...],
) -> bytes:
    target = _Module(original, where)
    ours = _Module(source, f"the port's text for {where}")
    decorated = tuple(symbol for symbol, _ in decorate)
    _check_declared(target, ours, replace, add, decorated)
    _check_decorators(target, add, decorate)
    imports = _imports(target, ours, replace, add)
    edits = [_replacement(target, ours, symbol) for symbol in replace]
    edits += [_decoration(target, symbol, decorator) for symbol, decorator in decorate]
    edits += _additions(target, ours, (*replace, *decorated), add)
    edits += _import_block(target, imports, edits)
    text = _apply(target, edits)
    result = target.text.encode(text, where)
    _verify(target, ours, result, replace, add, imports, decorate)
    return result


# --- what is asked for makes sense ---


def _check_declared(
    target: _Module,
    ours: _Module,
    replace: tuple[str, ...],
    add: tuple[str, ...],
    decorated: tuple[str, ...],
) -> None:
    declared = [normal(symbol) for symbol in (*replace, *add, *decorated)]
    for symbol in declared:
        if declared.count(symbol) > 1:
            raise UserError(f"{symbol} is declared twice", where=target.where, next=_MEND)
        holders = [other for other in declared if symbol.startswith(f"{other}.")]
        if holders and (
            holders[0] in decorated or isinstance(ours.statement(holders[0]), ast.ClassDef)
        ):
            raise UserError(
                f"{symbol} is part of {holders[0]}, which is declared too",
                where=target.where,
                next=_MEND,
            )
    for symbol in (*replace, *add):
        ours.statement(symbol)
    for symbol in (*replace, *decorated):
        target.statement(symbol)
    taken = {item.bound for item in target.bindings.imports} | target.bindings.others
    for symbol in map(normal, add):
        if symbol in target.symbols or symbol in taken:
            raise UserError(
                f"the file already binds {symbol}, which the port adds", where=target.where
            )


def _check_decorators(
    target: _Module, add: tuple[str, ...], decorate: tuple[tuple[str, str], ...]
) -> None:
    bound = {normal(symbol) for symbol in add} | target.bindings.others
    bound |= {item.bound for item in target.bindings.imports}
    for symbol, decorator in decorate:
        if not isinstance(target.statement(symbol), ast.FunctionDef | ast.AsyncFunctionDef):
            raise UserError(
                f"{symbol} is no function, so no decorator is put on it",
                where=target.where,
                next=_MEND,
            )
        if decorator.partition(".")[0] not in bound:
            raise UserError(
                f"{symbol} is to be decorated with {decorator}, which neither the file nor the "
                "port's additions bind",
                where=target.where,
                next=_MEND,
            )


def _imports(
    target: _Module, ours: _Module, replace: tuple[str, ...], add: tuple[str, ...]
) -> list[tuple[Import, ...]]:
    """The imports to insert, a tuple for each statement of the source."""
    declared = (*replace, *add)
    roots = {normal(symbol) for symbol in declared}
    holders = {symbol.rpartition(".")[0] for symbol in roots if "." in symbol}
    class_names = {
        name.rpartition(".")[2]
        for name in target.symbols
        if name.rpartition(".")[0] in holders and name.rpartition(".")[0]
    }
    available = {item.bound: item for items in ours.bindings.statements for item in items}
    has = target.bindings.imports
    bound = {item.bound for item in has} | target.bindings.others
    known = bound | target.bindings.typing | class_names | _MODULE_NAMES
    used = needed(_snippet(ours, declared)) - roots
    chosen: set[str] = set()
    for name in sorted(used):
        if name in available:
            wanted = [
                item for items in ours.bindings.statements for item in items if item.bound == name
            ]
            if all(item in has for item in wanted):
                continue
            same_package = all(not (item.alias or item.name) for item in wanted) and all(
                not (item.alias or item.name) for item in has if item.bound == name
            )
            if name in target.bindings.others or (name in bound and not same_package):
                raise UserError(
                    f"the port imports {name} as '{statement_text(wanted[:1]).strip()}', "
                    "and the file already binds that name to something else",
                    where=target.where,
                    next=_MEND,
                )
            chosen.add(name)
        elif name in {item.bound for item in ours.bindings.guarded} or (
            name in ours.bindings.others and not _same(target, ours, name)
        ):
            if name in bound and name not in ours.bindings.others:
                continue
            raise UserError(
                f"the port's code uses {name}, which its text defines "
                "but its manifest neither replaces nor adds",
                where=target.where,
                next=_MEND,
            )
        elif name not in known and not target.bindings.star:
            raise UserError(
                f"the port's code uses {name}, which neither its text nor the file binds",
                where=target.where,
                next=_MEND,
            )
    kept = []
    seen = set(has)
    for items in ours.bindings.statements:
        fresh = tuple(item for item in items if item.bound in chosen and item not in seen)
        seen.update(fresh)
        if fresh:
            kept.append(fresh)
    return kept


def _same(target: _Module, ours: _Module, name: str) -> bool:
    """Whether both modules bind ``name`` once and alike, so that the file's own will do."""
    mine, theirs = ours.symbols.get(name, []), target.symbols.get(name, [])
    return len(mine) == len(theirs) == 1 and digest_of(mine[0]) == digest_of(theirs[0])


def _snippet(ours: _Module, declared: Iterable[str]) -> str:
    """The source's top-level imports and the declared symbols, each in a scope like its own."""
    parts = [statement_text(items) for items in ours.bindings.statements if items]
    for symbol in declared:
        span = ours.span(symbol)
        holder = normal(symbol).rpartition(".")[0]
        if span.indent:
            in_class = isinstance(ours.symbols.get(holder, [None])[0], ast.ClassDef)
            parts.append(f"class {holder.rpartition('.')[2]}:\n" if in_class else "if True:\n")
        parts.append(_terminated("".join(ours.lines[span.code : span.stop]), "\n"))
    return with_newline("".join(parts), "\n").replace("\f", " ")


# --- the edits ---


def _replacement(target: _Module, ours: _Module, symbol: str) -> _Edit:
    span = target.span(symbol)
    keeps_comments = not isinstance(target.statement(symbol), Definition)
    start = span.code if keeps_comments else span.start
    return _Edit(start, span.stop, _text_for(target, ours, symbol, span.indent), _REPLACED)


def _decoration(target: _Module, symbol: str, decorator: str) -> _Edit:
    span = target.span(symbol)
    line = f"{span.indent}@{decorator}{target.text.newline}"
    return _Edit(span.code, span.code, line, _REPLACED)


def _text_for(target: _Module, ours: _Module, symbol: str, indent: str) -> str:
    """The source's text of a symbol, indented and with line ends as the target has them."""
    span = ours.span(symbol)
    chosen = ours.lines[span.start : span.stop]
    inside = _string_lines(ours.statement(symbol))
    moved = [
        line if span.start + at + 1 in inside else _moved(line, span.indent, indent)
        for at, line in enumerate(chosen)
    ]
    newline = target.text.newline
    return _terminated(with_newline("".join(moved), newline), newline)


def _moved(line: str, old: str, new: str) -> str:
    if old == new or not line.strip() or not line.startswith(old):
        return line
    return new + line[len(old) :]


def _string_lines(node: ast.AST) -> set[int]:
    """Lines, counted from 1, that begin inside a string: indenting them would change it."""
    inside: set[int] = set()
    stack: list[ast.AST] = [node]
    while stack:
        part = stack.pop()
        text = isinstance(part, ast.Constant) and isinstance(part.value, str | bytes)
        if isinstance(part, ast.expr) and (text or type(part).__name__ in _FORMATTED):
            inside.update(range(part.lineno + 1, (part.end_lineno or part.lineno) + 1))
        else:
            # Positions of what stands inside an f-string are not to be relied on before 3.12.
            stack.extend(ast.iter_child_nodes(part))
    return inside


def _additions(
    target: _Module, ours: _Module, changed: tuple[str, ...], add: tuple[str, ...]
) -> Iterator[_Edit]:
    groups: dict[str, list[str]] = {}
    for symbol in sorted(add, key=lambda symbol: ours.statement(symbol).lineno):
        groups.setdefault(_class_of(ours, symbol), []).append(symbol)
    for holder, symbols in groups.items():
        if holder:
            yield _class_additions(target, ours, holder, symbols, changed)
        else:
            yield _module_additions(target, ours, symbols, changed)


def _class_of(module: _Module, symbol: str) -> str:
    holder = normal(symbol).rpartition(".")[0]
    found = module.symbols.get(holder, [])
    return holder if found and isinstance(found[0], ast.ClassDef) else ""


def _module_additions(
    target: _Module, ours: _Module, symbols: list[str], changed: tuple[str, ...]
) -> _Edit:
    newline = target.text.newline
    first = min(changed, key=lambda symbol: target.statement(symbol).lineno, default=None)
    kinds = [isinstance(ours.statement(symbol), Definition) for symbol in symbols]
    texts = [_text_for(target, ours, symbol, "") for symbol in symbols]
    if first is None:
        before = bool(target.tree.body) and isinstance(target.tree.body[-1], Definition)
        text = _joined(texts, kinds, newline * 2)
        lead = newline * 2 if before or kinds[0] else newline
        if not "".join(target.lines).strip():
            lead = ""
        return _Edit(len(target.lines), len(target.lines), lead + text, _ADDED)
    holder = target.top_level(first)
    at = _start_of(target, holder, first)
    text = _joined([*texts, ""], [*kinds, isinstance(holder, Definition)], newline * 2)
    return _Edit(at, at, text, _ADDED)


def _start_of(target: _Module, holder: ast.stmt, symbol: str) -> int:
    """The line in front of which to insert: above the comments of the statement."""
    if target.statement(symbol) is holder:
        return target.span(symbol).start
    decorators = holder.decorator_list if isinstance(holder, Definition) else []
    code = min([holder.lineno, *(d.lineno for d in decorators)]) - 1
    return target._comments_above(code, "")


def _class_additions(
    target: _Module, ours: _Module, holder: str, symbols: list[str], changed: tuple[str, ...]
) -> _Edit:
    node = target.statement(holder)
    if not isinstance(node, ast.ClassDef) or node.body[0].lineno == node.lineno:
        raise UserError(f"{holder} is no class with a body of its own lines", where=target.where)
    newline = target.text.newline
    first = target.lines[node.body[0].lineno - 1]
    indent = first[: len(first) - len(first.lstrip(" \t\f"))]
    kinds = [isinstance(ours.statement(symbol), Definition) for symbol in symbols]
    texts = [_text_for(target, ours, symbol, indent) for symbol in symbols]
    siblings = [symbol for symbol in changed if normal(symbol).rpartition(".")[0] == holder]
    if siblings:
        sibling = min(siblings, key=lambda symbol: target.statement(symbol).lineno)
        at = target.span(sibling).start
        kinds.append(isinstance(target.statement(sibling), Definition))
        return _Edit(at, at, _joined([*texts, ""], kinds, newline), _ADDED)
    at = target._comments_below(end_line(node), target.span(holder).indent)
    return _Edit(at, at, newline + _joined(texts, kinds, newline), -len(indent))


def _joined(texts: list[str], definitions: list[bool], gap: str) -> str:
    """Texts one after the other, with a gap wherever one of two neighbours is a definition."""
    out = texts[0]
    for at in range(1, len(texts)):
        out += (gap if definitions[at - 1] or definitions[at] else "") + texts[at]
    return out


def _import_block(
    target: _Module, imports: list[tuple[Import, ...]], edits: list[_Edit]
) -> Iterator[_Edit]:
    if not imports:
        return
    newline = target.text.newline
    block = with_newline("".join(statement_text(items) for items in imports), newline)
    first = min(edit.start for edit in edits)
    at, fresh = _import_line(target, first)
    if fresh:
        lead = newline if at and target.lines[at - 1].strip() else ""
        follows = at == len(target.lines) or target.lines[at].strip()
        block = lead + block + (newline * 2 if follows else "")
    yield _Edit(at, at, block, _IMPORTS)


def _import_line(target: _Module, first: int) -> tuple[int, bool]:
    """The line in front of which imports go, and whether no import stands there yet."""
    body = target.tree.body
    imports = [
        statement
        for statement in body
        if isinstance(statement, ast.Import | ast.ImportFrom) and end_line(statement) <= first
    ]
    if imports:
        last, fresh = end_line(imports[-1]), False
    elif body and isinstance(body[0], ast.Expr) and _is_text(body[0].value):
        last, fresh = end_line(body[0]), True
    else:
        last, fresh = 0, True
        while last < len(target.lines) and target.lines[last].startswith("#"):
            last += 1
    for statement in body:
        if statement.lineno <= last < end_line(statement):
            last = end_line(statement)
    return last, fresh


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _apply(target: _Module, edits: list[_Edit]) -> str:
    newline = target.text.newline
    ordered = sorted(edits, key=lambda edit: (edit.start, edit.rank))
    out: list[str] = []
    at = 0
    for edit in ordered:
        if edit.start < at:
            raise UserError("two declared symbols overlap", where=target.where, next=_MEND)
        out.extend(target.lines[at : edit.start])
        if out and not out[-1].endswith(("\n", "\r")):
            out.append(newline)
        out.append(edit.text)
        at = edit.stop
    out.extend(target.lines[at:])
    text = "".join(out)
    ended = not target.lines or target.lines[-1].endswith(("\n", "\r"))
    touched_end = bool(ordered) and ordered[-1].stop == len(target.lines)
    return text.removesuffix(newline) if touched_end and not ended else text


def _terminated(text: str, newline: str) -> str:
    return text if text.endswith(("\n", "\r")) else text + newline


def _columns(line: str, start: int, stop: int | None) -> str:
    """Part of a line by the syntax tree's columns, which count UTF-8 bytes."""
    return line.encode("utf-8", "surrogatepass")[start:stop].decode("utf-8", "surrogatepass")


# --- the result is what it should be ---


def _verify(
    target: _Module,
    ours: _Module,
    result: bytes,
    replace: tuple[str, ...],
    add: tuple[str, ...],
    imports: list[tuple[Import, ...]],
    decorate: tuple[tuple[str, str], ...],
) -> None:
    try:
        tree = parse(result, target.where)
        symbols = index(tree)
        wrong = [
            symbol
            for symbol in (*replace, *add)
            if digest_of(lookup(symbols, symbol)) != digest_of(ours.statement(symbol))
        ]
        for symbol, decorator in decorate:
            bare = undecorated(lookup(symbols, symbol), decorator)
            if bare is None or digest_of(bare) != digest_of(target.statement(symbol)):
                wrong.append(symbol)
        changed = (*replace, *(symbol for symbol, _ in decorate))
        before = _rest(target.tree, target.symbols, changed, [])
        after = _rest(tree, symbols, (*changed, *add), imports)
    except UserError as error:
        raise _broken(target.where, str(error)) from error
    if wrong:
        raise _broken(target.where, f"{wrong[0]} is not as the port has it")
    if before != after:
        raise _broken(target.where, "more than the declared symbols changed")


def _rest(
    tree: ast.Module,
    symbols: Mapping[str, list[ast.stmt]],
    declared: Iterable[str],
    imports: list[tuple[Import, ...]],
) -> str:
    """The canonical text of a module without the declared symbols and the inserted imports.

    Takes the statements out of ``tree`` itself.
    """
    gone = {id(lookup(symbols, symbol)) for symbol in declared}
    for items in imports:
        for line in lines(statement_text(items)):
            wanted = canonical(ast.parse(line).body[0])
            match = next((s for s in tree.body if canonical(s) == wanted), None)
            if match is None:
                raise UserError(f"'{line.strip()}' is not in the result")
            gone.add(id(match))
    _Without(gone).generic_visit(tree)
    return canonical(tree)


class _Without(ast.NodeTransformer):
    """Leaves statements out, wherever they stand."""

    def __init__(self, gone: set[int]) -> None:
        self.gone = gone

    def visit(self, node: ast.AST) -> ast.AST | None:
        if id(node) in self.gone:
            return None
        if isinstance(node, ast.expr):
            return node
        visited: ast.AST | None = self.generic_visit(node)
        return visited


def _broken(where: str, what: str) -> UserError:
    return UserError(
        f"the edited file did not pass its own check ({what})",
        where=where,
        next="nothing was written; report this with the file",
    )
