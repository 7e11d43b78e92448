"""A launch's time and work by source line, from its model of time and one program's trace."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field

from ascendport.explain.model import HotLine, Place, ScalarLoop, SlowCall, Transfers
from ascendport.explain.sources import Sources
from ascendport.simulator import Location, Program
from ascendport.simulator.ir import Block, Scalar
from ascendport.simulator.layout import Pipe
from ascendport.simulator.trace import Call, Operation, Work
from ascendport.timing.constants import constants
from ascendport.timing.instructions import Transfer, expand
from ascendport.timing.launch import Modelled
from ascendport.timing.pipes import FETCH, LAUNCH, LOAD, LOCK, SCALAR, STORE, VECTOR

HOTTEST = 10
SHOWN = 0.01
"""Share of the launch, waits for locks apart, from which scalar work on a line is told of."""

PIPE_OF = {
    VECTOR: Pipe.V.name,
    LOAD: Pipe.MTE2.name,
    STORE: Pipe.MTE3.name,
    SCALAR: Pipe.S.name,
    FETCH: Pipe.S.name,
    LOCK: Pipe.S.name,
    LAUNCH: "",
}
"""Cause → the pipe that is busy with it."""

_ELEMENTS = ("load.ub", "store.ub", "load.gm", "store.gm")
_NO_ARITHMETIC = {
    *("constant", "index_cast", "index_castui", "extsi", "extui", "trunci", "extf", "truncf"),
    *("select", "bitcast"),
}
Lines = Mapping[Place | None, Mapping[str, float]]
"""Line → cause → us."""

Types = Mapping[tuple[str, Location | None], tuple[str, ...]]


def by_line(modelled: Modelled, sources: Sources) -> dict[Place | None, dict[str, float]]:
    """Line → cause → us, of the core that ends last; what has no line under None.

    All of it, the launch itself included, adds up to the launch's time.
    """
    found: defaultdict[Place | None, dict[str, float]] = defaultdict(dict)
    for (location, cause), us in modelled.lines.items():
        causes = found[sources.place(location)]
        causes[cause] = causes.get(cause, 0.0) + us
    rest = modelled.us - sum(modelled.lines.values())
    found[None][LAUNCH] = found[None].get(LAUNCH, 0.0) + rest
    return dict(found)


def hot_lines(lines: Lines, work: LineWork, us: float) -> tuple[HotLine, ...]:
    """The lines that most time goes to; last, where it is any, what belongs to no line."""
    total = {place: sum(causes.values()) for place, causes in lines.items()}
    own = sorted((place for place in total if place), key=lambda place: -total[place])
    shown: list[Place | None] = [place for place in own[:HOTTEST] if total[place] > 0]
    if total.get(None, 0.0) > 0:
        shown.append(None)
    found = []
    for place in shown:
        causes = tuple(sorted(lines[place].items(), key=lambda item: -item[1]))
        cause = causes[0][0]
        calls: Counter[str] = work.functions.get(place, Counter())
        order = sorted(calls, key=lambda name: -work.elements[place, name])
        runs_as = tuple((name, calls[name]) for name in order) if place else ()
        share = total[place] / us if us else 0.0
        found.append(HotLine(place, total[place], share, PIPE_OF[cause], cause, causes, runs_as))
    return tuple(found)


@dataclass
class LineWork:
    """What one program does, by line."""

    functions: dict[Place | None, Counter[str]] = field(default_factory=dict)
    """Library functions and their calls."""
    elements: Counter[tuple[Place | None, str]] = field(default_factory=Counter)
    """Line and library function → elements, of all calls."""
    slow: dict[tuple[Place | None, str], tuple[int, int]] = field(default_factory=dict)
    """Line and library function → calls, elements handled one by one."""
    moved: dict[tuple[Place | None, bool], tuple[int, int, int]] = field(default_factory=dict)
    """Line and whether it loads → calls, bytes, bursts."""
    loops: dict[int, _Loop] = field(default_factory=dict)
    looping: set[Place | None] = field(default_factory=set)
    """Lines that a loop stands for as a whole, not only its body."""
    vector_calls: int = 0
    vector_bytes: int = 0


@dataclass
class _Loop:
    """A stretch of scalar code that touches elements."""

    place: Place | None
    operations: tuple[str, ...]
    outside: bool
    whole: bool
    """Of one line."""
    walks: bool
    """Known to go from element to element."""
    runs: int = 0
    records: int = 0


def work_of(
    operations: Iterable[Operation], program: Program, walks: Set[int], sources: Sources
) -> LineWork:
    """Gathers a program's trace by line.

    Args:
        operations: the trace.
        program: of which it is.
        walks: lines of loops that go from element to element, as `ascend.facts` has them: their
            element accesses count as a loop even where calls stand between them.
        sources: of the program.
    """
    found = LineWork()
    types = types_of(program)
    for operation in operations:
        if isinstance(operation, Call) and operation.pipe != Pipe.S:
            _call(found, operation, sources.place(operation.location))
        elif isinstance(operation, Work):
            _scalar(found, operation, types, walks, sources)
    return found


def _call(found: LineWork, call: Call, place: Place | None) -> None:
    found.functions.setdefault(place, Counter())[call.callee] += 1
    found.elements[place, call.callee] += call.elements
    expansion = expand(call)
    if expansion.scalar_elements:
        calls, elements = found.slow.get((place, call.callee), (0, 0))
        found.slow[place, call.callee] = (calls + 1, elements + expansion.scalar_elements)
    if call.pipe == Pipe.V:
        found.vector_calls += 1
        found.vector_bytes += call.bytes
        return
    steps = [step for step in expansion.steps if isinstance(step, Transfer)]
    key = (place, call.pipe == Pipe.MTE2)
    calls, moved, bursts = found.moved.get(key, (0, 0, 0))
    moved += sum(step.bytes for step in steps)
    bursts += sum(step.bursts for step in steps)
    found.moved[key] = (calls + 1, moved, bursts)


def _scalar(found: LineWork, work: Work, types: Types, walks: Set[int], sources: Sources) -> None:
    key = id(work.counts)
    loop = found.loops.get(key)
    found.looping.update(sources.place(at) for name, at in work.counts if name == "scf.for")
    if loop is None:
        touched = [(name, at) for name, at in work.counts if name in _ELEMENTS]
        if not touched:
            return
        operations = [
            " ".join((name.partition(".")[2], *types[name, at]))
            for name, at in work.counts
            if name.startswith(("arith.", "math."))
            and name.partition(".")[2] not in _NO_ARITHMETIC
            and types.get((name, at))
        ]
        loop = found.loops[key] = _Loop(
            sources.place(touched[0][1]),
            tuple(dict.fromkeys(operations)),
            any(name.endswith(".gm") for name, _ in touched),
            len({sources.place(at) for _, at in work.counts}) == 1,
            any(at is not None and at.line in walks for _, at in touched),
        )
    loop.runs += work.runs
    loop.records += 1


def types_of(program: Program) -> Types:
    """Types of each operation's operands, by name and place: all that a place mixes, but for
    ``index``, which counts and addresses."""
    found: defaultdict[tuple[str, Location | None], dict[str, None]] = defaultdict(dict)

    def walk(block: Block) -> None:
        for op in block.operations:
            if op.types and isinstance(op.types[0], Scalar) and op.types[0].name != "index":
                found[op.name, op.location][op.types[0].name] = None
            for region in op.regions:
                walk(region)

    for block in (program.body, *(block for _, block in program.blocks)):
        walk(block)
    return {key: tuple(names) for key, names in found.items()}


def scalar_loops(work: LineWork, lines: Lines) -> tuple[ScalarLoop, ...]:
    """Scalar loops as long as a tile, those that most time goes to first.

    A loop that also moves data or calls the library is one record of the trace an iteration.
    """
    worth = SHOWN * _own_time(lines)
    shortest = constants()["vector_loop_trips"]
    found: dict[tuple[Place | None, int, int], ScalarLoop] = {}
    for loop in work.loops.values():
        inside = loop.runs > loop.records
        trips, times = (loop.runs // loop.records, loop.records) if inside else (loop.records, 1)
        spent = lines.get(loop.place, {}).get(SCALAR, 0.0)
        if not (inside or loop.walks) or trips < shortest or spent < worth:
            continue
        known = found.get((loop.place, trips, times))
        operations = (*(known.operations if known else ()), *loop.operations)
        found[loop.place, trips, times] = ScalarLoop(
            loop.place,
            trips,
            times,
            tuple(dict.fromkeys(operations)),
            loop.outside or (known is not None and known.outside),
            # What a source loops over has lines of its own.
            not (loop.whole and loop.place in work.looping),
            spent,
        )
    return tuple(sorted(found.values(), key=lambda loop: -loop.us))


def _own_time(lines: Lines) -> float:
    """us of the launch, less what a program waits for others."""
    return sum(us for causes in lines.values() for cause, us in causes.items() if cause != LOCK)


def slow_calls(work: LineWork, lines: Lines) -> tuple[SlowCall, ...]:
    """Library functions that handle a tile an element at a time, dearest line first."""
    worth = SHOWN * _own_time(lines)
    shortest = constants()["vector_loop_trips"]
    found = []
    for (place, function), (calls, elements) in work.slow.items():
        spent = lines.get(place, {}).get(SCALAR, 0.0)
        if elements >= shortest * calls and spent >= worth:
            found.append(SlowCall(place, function, calls, elements, spent))
    return tuple(sorted(found, key=lambda call: -call.us))


def transfers(work: LineWork, lines: Lines) -> tuple[Transfers, ...]:
    """What moves between GM and UB, by line, dearest first."""
    found = []
    for (place, load), (calls, moved, bursts) in work.moved.items():
        us = lines.get(place, {}).get(LOAD if load else STORE, 0.0)
        found.append(Transfers(place, load, calls, moved, bursts, us))
    return tuple(sorted(found, key=lambda one: -one.us))
