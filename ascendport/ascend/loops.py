"""Loops of a program's entry function, and what their bodies do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import prod

from ascendport.ascend.facts import ScalarLoop
from ascendport.ascend.program_text import CALL, LOCK_CALLS, VALUE, is_transfer

_NOT_ARITHMETIC = {
    "constant",
    "index_cast",
    "index_castui",
    "extsi",
    "extui",
    "trunci",
    "extf",
    "truncf",
    "select",
    "cmpi",
    "cmpf",
    "icmp",
    "fcmp",
    "sext",
    "zext",
    "trunc",
    "mlir.constant",
}


@dataclass(eq=False)
class Loop:
    """A loop of the entry function."""

    parent: Loop | None
    counters: set[str]
    """Values that change each iteration: counter and carried values."""
    trips: int | None
    own: list[Op] = field(default_factory=list)
    """Operations of the body that no inner loop holds."""

    def around(self) -> Iterator[Loop]:
        """This loop and those around it, innermost first."""
        loop: Loop | None = self
        while loop is not None:
            yield loop
            loop = loop.parent


@dataclass(eq=False)
class Op:
    name: str
    text: str
    """Without results and location."""
    results: tuple[str, ...]
    line: int | None
    loop: Loop | None
    kind: str = ""
    """What it does with an element: ``load``/``store`` at ``index`` of UB, else empty."""
    index: tuple[str, ...] = ()


def times_of(loop: Loop | None) -> int:
    around = loop.around() if loop else ()
    return prod(1 if item.trips is None else item.trips for item in around)


def exact_of(loop: Loop | None) -> bool:
    return all(item.trips is not None for item in loop.around()) if loop else True


def scalar_loop(loop: Loop) -> ScalarLoop | None:
    moved = _moved_by(loop)
    elements = [op for op in loop.own if op.kind and not moved.isdisjoint(op.index)]
    if not elements:
        return None
    trips = loop.trips
    outer = loop
    while outer.parent and not _does_something(outer.parent):
        outer = outer.parent
        trips = None if trips is None or outer.trips is None else trips * outer.trips
    calls = [match[1] for op in loop.own if (match := CALL.match(op.text))]
    transfers = sum(is_transfer(call) for call in calls)
    arithmetic = [
        op.name.partition(".")[2]
        for op in loop.own
        if op.name.startswith(("arith.", "llvm.", "math."))
        and not op.text.endswith(": index")
        and loop.counters.isdisjoint(VALUE.findall(op.text))
    ]
    operations = [name for name in arithmetic if name not in _NOT_ARITHMETIC]
    return ScalarLoop(
        line=elements[0].line,
        trips=trips,
        loads=sum(op.kind == "load" for op in elements),
        stores=sum(op.kind == "store" for op in elements),
        operations=tuple(dict.fromkeys(operations)),
        transfers=transfers,
        vector_calls=sum(not call.startswith(LOCK_CALLS) for call in calls) - transfers,
        times=times_of(outer.parent),
    )


def _moved_by(loop: Loop) -> set[str]:
    """Values of the body that depend on the loop's counter or carried values."""
    moved = set(loop.counters)
    for op in loop.own:
        if not moved.isdisjoint(VALUE.findall(op.text)):
            moved.update(op.results)
    return moved


def _does_something(loop: Loop) -> bool:
    """Whether the body does more than count and hold an inner loop."""
    return any(
        op.kind or op.name == "call" or op.name.startswith(("hivm.hir.set_flag", "memref.load"))
        for op in loop.own
    )
