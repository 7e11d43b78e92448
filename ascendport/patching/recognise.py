"""Which variant of a port fits a tree's texts, told by digests alone."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache

from ascendport.errors import UserError
from ascendport.ports.digest import (
    digest_of,
    fits,
    index,
    lookup,
    normal,
    parse,
    signature,
    undecorated,
)
from ascendport.ports.manifest import Port, Target, Variant

Read = Callable[[str], bytes | None]
"""A file's contents by its path in the checkout; None: no such file."""


class Status(StrEnum):
    """Where a port stands in a checkout."""

    APPLIED = "applied"
    APPLICABLE = "applicable"
    SUPERSEDED = "superseded"
    """Upstream's own text is already the port's."""
    DRIFTED = "drifted"
    """The target is there, and its text is none that the port knows."""
    MISSING = "missing"
    """No such target."""
    MODIFIED = "modified"
    """Edited since the port was applied."""


@dataclass(frozen=True)
class Problem:
    """Why one symbol of a target does not match."""

    file: str
    symbol: str
    reason: str
    fits: bool
    """Whether the port's symbol could still take this one's place: callers would not notice."""
    present: bool
    """Whether the file has the symbol at all."""


@dataclass(frozen=True)
class Match:
    """How a port's best variant fits."""

    port: Port
    status: Status
    variant: Variant | None
    reason: str = ""
    problems: tuple[Problem, ...] = ()

    @property
    def forcible(self) -> bool:
        """Drifted, but every signature still fits."""
        return self.status is Status.DRIFTED and all(problem.fits for problem in self.problems)


@dataclass
class _Found:
    """What comparing one variant found."""

    variant: Variant
    known: int = 0
    ours: int = 0
    declared: int = 0
    changed: int = 0
    same: int = 0
    """Changed symbols that already are the port's."""
    taken: list[str] = field(default_factory=list)
    """Changed symbols of which upstream has a text that makes the port needless."""
    present: bool = False
    """Whether the tree has anything of what the variant changes."""
    problems: list[Problem] = field(default_factory=list)


def match(port: Port, read: Read) -> Match:
    """The variant of ``port`` that fits the texts that ``read`` gives.

    Raises:
        UserError: the port's own text is not Python or lacks a declared symbol.
    """
    found = [_compare(port, variant, read) for variant in port.manifest.variants]
    for one in found:
        if not one.problems:
            return Match(port, Status.APPLICABLE, one.variant)
    for one in found:
        if one.declared and one.ours == one.declared:
            reason = (
                "the checkout has the port's text of its own, as after a commit of it "
                "(the same digest for every symbol)"
            )
            return Match(port, Status.SUPERSEDED, one.variant, reason)
    for one in found:
        if one.taken and len(one.taken) + one.same == one.changed:
            reason = f"upstream has taken the change: {'; '.join(one.taken)}"
            return Match(port, Status.SUPERSEDED, one.variant, reason)
    best = max(found, key=lambda one: (one.present, one.known + one.ours, -len(one.problems)))
    first = best.problems[0]
    if not best.present:
        return Match(port, Status.MISSING, best.variant, first.reason, tuple(best.problems))
    return Match(port, Status.DRIFTED, best.variant, first.reason, tuple(best.problems))


@lru_cache(maxsize=8192)
def _digest(node: ast.stmt) -> str:
    """The digest of one of the statements that `_symbols` keeps: variants ask for it again."""
    return digest_of(node)


@lru_cache(maxsize=64)
def _symbols(raw: bytes, where: str) -> dict[str, list[ast.stmt]]:
    """The symbols of a text. Variants share files and texts, so most are asked for again."""
    return index(parse(raw, where))


def _compare(port: Port, variant: Variant, read: Read) -> _Found:
    found = _Found(variant)
    for file, symbols in variant.needs.items():
        found.problems += _lacking(file, symbols, read(file))
    for target in variant.targets:
        _compare_target(found, port, target, read(target.file))
    return found


def _lacking(file: str, symbols: tuple[str, ...], raw: bytes | None) -> list[Problem]:
    """A problem for each of ``symbols`` that the file does not have."""
    try:
        theirs = {} if raw is None else _symbols(raw, file)
    except UserError as error:
        return [Problem(file, symbols[0], str(error), False, False)]
    reason = f"{file} has no {{}}, which this variant needs"
    return [
        Problem(file, symbol, reason.format(symbol), False, False)
        for symbol in symbols
        if normal(symbol) not in theirs
    ]


def _compare_target(found: _Found, port: Port, target: Target, raw: bytes | None) -> None:
    file = target.file
    ours = _symbols(port.text(target), str(port.folder / target.source))
    found.declared += len(target.changes) + len(target.add)
    found.changed += len(target.changes)
    if raw is None:
        first = target.symbols[0]
        found.problems.append(Problem(file, first, f"no file {file}", False, False))
        return
    try:
        theirs = _symbols(raw, file)
    except UserError as error:
        found.present = True
        first = target.symbols[0]
        found.problems.append(Problem(file, first, str(error), False, False))
        return
    if not target.changes:
        found.present = True
    for symbol, decorator in target.decorate.items():
        _compare_decorated(found, target, symbol, decorator, theirs.get(normal(symbol), []))
    for symbol in target.replace:
        mine = lookup(ours, symbol, port.folder / target.source)
        nodes = theirs.get(normal(symbol), [])
        found.present = found.present or bool(nodes)
        same = len(nodes) == 1 and _digest(nodes[0]) == _digest(mine)
        if same:
            found.ours += 1
            found.same += 1
        # A port may replace a symbol by a text like the original's: that one is both.
        if len(nodes) == 1 and _digest(nodes[0]) in target.digests[symbol]:
            found.known += 1
            continue
        if not same and len(nodes) == 1 and (since := _taken(target, symbol, nodes[0])):
            found.taken.append(since)
        found.problems.append(_problem(file, symbol, mine, nodes))
    for symbol in target.add:
        mine = lookup(ours, symbol, port.folder / target.source)
        nodes = theirs.get(normal(symbol), [])
        if nodes:
            found.ours += _digest(nodes[0]) == _digest(mine)
            reason = f"{file} already has {symbol}, which the port adds"
            found.problems.append(Problem(file, symbol, reason, False, True))


def _compare_decorated(
    found: _Found, target: Target, symbol: str, decorator: str, nodes: list[ast.stmt]
) -> None:
    found.present = found.present or bool(nodes)
    known = target.digests[symbol]
    if len(nodes) == 1 and _digest(nodes[0]) in known:
        found.known += 1
        return
    bare = undecorated(nodes[0], decorator) if len(nodes) == 1 else None
    if bare is not None and digest_of(bare) in known:
        found.ours += 1
        found.same += 1
    elif len(nodes) == 1 and (since := _taken(target, symbol, nodes[0])):
        found.taken.append(since)
    found.problems.append(_decoration_problem(target.file, symbol, nodes, bare is not None))


def _taken(target: Target, symbol: str, theirs: ast.stmt) -> str:
    """How upstream's text is known to make the port needless; empty: it is not."""
    digest = _digest(theirs)
    releases = target.superseded.get(symbol, {}).get(digest)
    if releases is None:
        return ""
    seen = f", in {releases[0]} and later" if releases else ""
    return f"{symbol} in {target.file} has the text that does so (digest {digest}{seen})"


def _decoration_problem(file: str, symbol: str, nodes: list[ast.stmt], decorated: bool) -> Problem:
    if len(nodes) != 1:
        reason = f"{file} {f'binds {symbol} more than once' if nodes else f'has no {symbol}'}"
        return Problem(file, symbol, reason, False, bool(nodes))
    if decorated:
        reason = f"{symbol} in {file} already has the port's decorator"
        return Problem(file, symbol, reason, False, True)
    function = isinstance(nodes[0], ast.FunctionDef | ast.AsyncFunctionDef)
    reason = f"{symbol} in {file} is no function: the port puts a decorator on it"
    if function:
        reason = (
            f"{symbol} in {file} has a text that the port does not know "
            f"(digest {_digest(nodes[0])})"
        )
    # What is decorated is called as before, whatever its text.
    return Problem(file, symbol, reason, function, True)


def _problem(file: str, symbol: str, mine: ast.stmt, nodes: list[ast.stmt]) -> Problem:
    if not nodes:
        return Problem(file, symbol, f"{file} has no {symbol}", False, False)
    if len(nodes) > 1:
        return Problem(file, symbol, f"{file} binds {symbol} more than once", False, True)
    theirs = nodes[0]
    found = _digest(theirs)
    if found == _digest(mine):
        return Problem(file, symbol, f"{symbol} in {file} already is the port's", True, True)
    if not fits(mine, theirs):
        reason = (
            f"{symbol} in {file} has a text that the port does not know (digest {found}) and is "
            f"called differently: there {_called(theirs)}, in the port {_called(mine)}"
        )
        return Problem(file, symbol, reason, False, True)
    reason = f"{symbol} in {file} has a text that the port does not know (digest {found})"
    return Problem(file, symbol, reason, True, True)


def _called(node: ast.stmt) -> str:
    """The signature, for a class with its methods'."""
    if not isinstance(node, ast.ClassDef):
        return signature(node)
    methods = [
        signature(part)
        for part in node.body
        if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    return f"{signature(node)} with {', '.join(methods) or 'no methods'}"
