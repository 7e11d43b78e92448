"""A text that a port does not know, beside the nearest that it knows and the port's own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ascendport.checkout.tree import Checkout
from ascendport.errors import UserError
from ascendport.patching.recognise import Match, Problem
from ascendport.patching.state import State, pristine
from ascendport.patching.text import lines, readable, unified
from ascendport.ports.digest import Definition, index, normal, parse

Original = Callable[[str, str], bytes | None]
"""(release, file) → that release's text of the file if it can be had, else None."""


@dataclass(frozen=True)
class Drift:
    """One symbol of a target, three times: as the port knows it, as it is, as the port has it."""

    file: str
    symbol: str
    reason: str
    release: str = ""
    """The release that ``base`` is of; empty: none could be had."""
    base: str = ""
    theirs: str = ""
    """Empty: the checkout has no such symbol."""
    ours: str = ""

    @property
    def upstream(self) -> str:
        """What upstream changed, as a unified diff."""
        return self._diff(self.theirs, "this checkout")

    @property
    def port(self) -> str:
        """What the port changes, as a unified diff."""
        return self._diff(self.ours, "the port")

    def _diff(self, text: str, name: str) -> str:
        if not self.base or not text:
            return ""
        old, new = f"{self.file} ({self.release})", f"{self.file} ({name})"
        return unified(self.base.encode(), text.encode(), old, new)


def drifts(
    checkout: Checkout, state: State, found: Match, original: Original | None
) -> list[Drift]:
    """Every symbol that keeps a port from fitting."""
    return [drift(checkout, state, found, problem, original) for problem in found.problems]


def releases(found: Match, problem: Problem) -> list[str]:
    """For each text of the symbol that the port knows, the last release that has it."""
    return [
        known[-1]
        for target in (found.variant.targets if found.variant else ())
        if target.file == problem.file
        for known in target.digests.get(problem.symbol, {}).values()
        if known
    ]


def drift(
    checkout: Checkout, state: State, found: Match, problem: Problem, original: Original | None
) -> Drift:
    """One such symbol. The base is the known text that differs least, of those that ``original``
    gives."""
    theirs = symbol_text(pristine(checkout, state, problem.file), problem.symbol)
    ours = ""
    for target in found.variant.targets if found.variant else ():
        if target.file == problem.file and problem.symbol in (*target.replace, *target.add):
            ours = symbol_text(found.port.text(target), problem.symbol)
    best = Drift(problem.file, problem.symbol, problem.reason, theirs=theirs, ours=ours)
    for release in reversed(releases(found, problem)) if original and theirs else ():
        base = symbol_text(original(release, problem.file), problem.symbol) if original else ""
        known = Drift(problem.file, problem.symbol, problem.reason, release, base, theirs, ours)
        if base and (not best.base or len(known.upstream) < len(best.upstream)):
            best = known
    return best


def symbol_text(raw: bytes | None, symbol: str) -> str:
    """The lines of one symbol, decorators included; empty where there is no such symbol."""
    if raw is None:
        return ""
    try:
        nodes = index(parse(raw)).get(normal(symbol), [])
    except UserError:
        return ""
    if len(nodes) != 1:
        return ""
    node = nodes[0]
    decorators = node.decorator_list if isinstance(node, Definition) else []
    first = min([node.lineno, *(decorator.lineno for decorator in decorators)])
    text = "".join(lines(readable(raw))[first - 1 : node.end_lineno])
    return text if text.endswith("\n") else text + "\n"
