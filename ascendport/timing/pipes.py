"""When each operation of one program runs: a schedule of its trace on the four pipes of a core.

S issues in program order; each pipe works in order; `set_flag`/`wait_flag` and barriers order
pipes. A vector instruction holds V for its repeats and is done its start-up later; what follows a
barrier waits for that. A transfer holds its pipe for its bytes, and MTE2 and MTE3 never move data
at the same time. S pays for each line of code that the instruction cache does not hold, the more
the more cores ask for the same line.

The time axis is cut up without rest: every cycle up to the end belongs to the operation that moved
the latest completion forward, and so to one cause and one source line.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ascendport.simulator.ir import Location
from ascendport.simulator.layout import BLOCK, Pipe
from ascendport.simulator.trace import Call, Event, Operation, Work
from ascendport.timing.constants import Constants, along
from ascendport.timing.instructions import (
    REPEAT,
    Barrier,
    Expansion,
    RoundTrip,
    Transfer,
    Vector,
    expand,
)

VECTOR = "vector"
LOAD = "load"
STORE = "store"
SCALAR = "scalar"
FETCH = "instruction fetch"
LOCK = "lock"
LAUNCH = "launch"
CAUSES = (VECTOR, LOAD, STORE, SCALAR, FETCH, LOCK, LAUNCH)
"""What a cycle can be spent on."""

_WIDEST = 8
"""Bytes of the widest element: what a scalar loop in vector form is counted with."""

_WORD = 4
"""Bytes of a scalar load from GM, as nearly all are: how many share a cache line."""


@dataclass(frozen=True)
class Rates:
    """Bytes a cycle that one core moves, at the load that the launch puts on the memory."""

    hbm_load: float
    hbm_store: float
    l2_load: float
    l2_store: float


@dataclass(frozen=True)
class Machine:
    """One vector core in one launch.

    ``resident``: the launch's tensors stay in L2. ``vector_loops``: scalar loops over UB elements
    cost what a vector instruction for each of their operations would: what a compiler that has a
    vector form would make of them. ``cores``: how many are busy, and so fetch the same code.
    ``in_service``: other kernels ran since the last launch, so the code is no longer in L2.
    """

    constants: Constants
    mhz: float
    rates: Rates
    resident: bool = True
    vector_loops: bool = False
    cores: int = 1
    in_service: bool = False

    def cycles(self, ns: float) -> float:
        """Nanoseconds as cycles."""
        return ns * self.mhz / 1000


@dataclass(frozen=True)
class Span:
    """One operation on one pipe, cycles from the program's start.

    ``ub``: what its call touches of UB: (writes it, first byte, end).
    """

    pipe: Pipe
    name: str
    start: float
    end: float
    location: Location | None
    ub: tuple[tuple[bool, int, int], ...] = ()


@dataclass(frozen=True)
class Held:
    """When a program takes a lock and gives it back, were it always free. ``location``: where."""

    taken: float
    given: float
    location: Location | None


def _sums() -> defaultdict[Any, float]:
    return defaultdict(float)


@dataclass
class Schedule:
    """A program's timing, cycles.

    ``busy``: by pipe. ``causes``: the end, cut up by cause; ``lines``: by source line and cause.
    ``stalls``: (pipe that waits, what for) → cycles that it stood still although it had work.
    ``locks``: in order.
    ``moving``: cycles in which bytes moved.
    """

    end: float = 0.0
    busy: defaultdict[Pipe, float] = field(default_factory=_sums)
    causes: defaultdict[str, float] = field(default_factory=_sums)
    lines: defaultdict[tuple[Location | None, str], float] = field(default_factory=_sums)
    stalls: defaultdict[tuple[Pipe, str], float] = field(default_factory=_sums)
    scalar_elements: Counter[Location | None] = field(default_factory=Counter)
    locks: list[Held] = field(default_factory=list)
    moving: float = 0.0
    unknown: set[str] = field(default_factory=set)
    spans: list[Span] = field(default_factory=list)
    code: _Code | None = field(default=None, repr=False)


def schedule(
    operations: Iterable[Operation],
    machine: Machine,
    *,
    spans: bool = False,
    after: Schedule | None = None,
) -> Schedule:
    """Places a program's operations in time.

    Args:
        operations: in program order, as `Trace.operations` gives them.
        machine: the core, and what the launch does to its memory.
        spans: keep each operation's place too.
        after: what the core ran before, so that its code is in the cache; None: another kernel.
    """
    run = _Run(machine, spans, after)
    run.spend(Pipe.S, machine.constants["program_head_cycles"], LAUNCH, None, "head")
    for operation in operations:
        if isinstance(operation, Call):
            run.call(operation)
        elif isinstance(operation, Event):
            run.event(operation)
        else:
            run.work(operation)
    return run.finish()


class _Code:
    """The instruction cache: lines of code by operation, least recently used first out."""

    def __init__(self, constants: Constants, before: _Code | None) -> None:
        self.lines: OrderedDict[tuple[int, int], int] = OrderedDict()
        self.line = constants["cache_line_bytes"]
        self.room = constants["instruction_cache_bytes"] / self.line
        self.held = 0
        self.seen: set[tuple[int, int]] = set()
        self.bytes = constants.by_name("code_bytes")
        if before is not None:
            self.lines.update(before.lines)
            self.held = before.held
            self.seen |= before.seen

    def miss(self, key: tuple[int, int], size: float) -> tuple[int, bool]:
        """Lines to fetch to run the code ``key`` of ``size`` bytes; whether it never ran before."""
        if key in self.lines:
            self.lines.move_to_end(key)
            return 0, False
        new = key not in self.seen
        self.seen.add(key)
        lines = max(1, round(size / self.line))
        self.lines[key] = lines
        self.held += lines
        while self.held > self.room and len(self.lines) > 1:
            self.held -= self.lines.popitem(last=False)[1]
        return lines, new


@dataclass(frozen=True, slots=True)
class _Planned:
    """``code``: bytes; ``issue``: cycles of S. ``call`` is held so that its id stays its own."""

    call: Call
    expansion: Expansion
    code: float
    issue: float


@dataclass(slots=True)
class _Gain:
    location: Location | None
    cycles: float = 0.0


class _Run:
    """The state while a program is placed."""

    def __init__(self, machine: Machine, spans: bool, after: Schedule | None) -> None:
        constants = machine.constants
        self.machine = machine
        self.keep = spans
        self.result = Schedule()
        self.now = dict.fromkeys(Pipe, 0.0)
        """When each pipe takes its next operation."""
        self.done = dict.fromkeys(Pipe, 0.0)
        """When all that each pipe was given is complete."""
        self.flags: dict[tuple[Pipe, Pipe, int], float] = {}
        self.touched: set[int] = set()
        self.code = _Code(constants, after.code if after else None)
        self.fetch = constants["fetch_cycles_per_core"]
        self.block = constants["aligned_bytes"]
        self.issue = constants["issue_cycles"]
        self.flag = constants["flag_cycles"]
        self.barrier_cycles = constants["barrier_cycles"]
        self.vector: Mapping[str, tuple[float, float]] = constants.by_name("vector")
        self.scalar = _Scalar(constants)
        load, store = _Dma(machine, "load"), _Dma(machine, "store")
        load.others, store.others = store.moves, load.moves
        self.dma = {Pipe.MTE2: load, Pipe.MTE3: store}
        self.fresh = set(self.dma) if machine.in_service and after is None else set()
        """Pipes that have moved nothing yet since another kernel ran."""
        self.expansions: dict[object, Expansion] = {}
        self.plans: dict[int, _Planned] = {}
        self.loaded: Counter[int] = Counter()
        """Scalar loads from GM by the stretch of code that they stand in."""
        self.gained: dict[tuple[int, str], _Gain] = {}
        """Cycles by place and cause; a place by its id, as long as it lives."""
        self.taken: tuple[float, Location | None] | None = None
        self.ub: tuple[tuple[bool, int, int], ...] = ()
        self.place = (0, 0)
        """Which operation of the program this is: the scalar work before it, how many since."""

    # --- bookkeeping

    def spend(
        self,
        pipe: Pipe,
        cycles: float,
        cause: str,
        location: Location | None,
        name: str,
        after: float = 0.0,
        latency: float = 0.0,
    ) -> None:
        """Runs something on ``pipe`` for ``cycles``; it is complete ``latency`` later."""
        start = max(self.now[pipe], after)
        end = start + cycles
        complete = end + latency
        self.now[pipe] = end
        if complete > self.done[pipe]:
            self.done[pipe] = complete
        result = self.result
        result.busy[pipe] += cycles
        gained = complete - result.end
        if gained > 0:
            key = (id(location), cause)
            known = self.gained.get(key)
            if known is None:
                known = self.gained[key] = _Gain(location)
            known.cycles += gained
            result.end = complete
        if self.keep and cycles:
            result.spans.append(Span(pipe, name, start, complete, location, self.ub))

    def stall(self, pipe: Pipe, until: float, why: str) -> None:
        """``pipe`` takes nothing before ``until``."""
        waited = until - self.now[pipe]
        if waited > 0:
            self.result.stalls[pipe, why] += waited
            self.now[pipe] = until

    def fetched(self, key: tuple[int, int], size: float, location: Location | None) -> None:
        """Runs code of ``size`` bytes: S waits for the lines that are not in the cache.

        All cores ask L2 for the same line, which serves them one after another.
        """
        lines, new = self.code.miss(key, size)
        if lines:
            cycles = lines * self.fetch * self.machine.cores
            if new and self.machine.in_service:
                cycles += lines * self.code.line / self.block * self.scalar.cold
            self.spend(Pipe.S, cycles, FETCH, location, "fetch")

    def finish(self) -> Schedule:
        """The schedule, its end cut up by cause and line."""
        result = self.result
        for (_, cause), gain in self.gained.items():
            result.causes[cause] += gain.cycles
            result.lines[gain.location, cause] += gain.cycles
        result.code = self.code
        return result

    # --- operations

    def work(self, work: Work) -> None:
        """Scalar operations between two others."""
        self.place = (id(work.counts), 0)
        self.fetched(self.place, self.code.bytes["operation"] * len(work.counts), None)
        if self.machine.vector_loops and self.loop_as_vector(work):
            return
        cost = self.scalar.of(work)
        for location, elements in cost.elements:
            self.result.scalar_elements[location] += elements * work.runs
        for location, cycles in cost.cycles:
            self.spend(Pipe.S, cycles * work.runs, SCALAR, location, "scalar")
        if cost.gm_loads:
            # A loop goes on along the lines that it loaded from in the iterations before.
            before = self.loaded[id(work.counts)]
            after = before + cost.gm_loads * work.runs
            self.loaded[id(work.counts)] = after
            cycles = self.scalar.gm_loads(after) - self.scalar.gm_loads(before)
            self.spend(Pipe.S, cycles, SCALAR, cost.gm_location, "load.gm")

    def loop_as_vector(self, work: Work) -> bool:
        """Places a scalar loop over UB elements on V, if this is one."""
        names = {name for name, _ in work.counts}
        if "store.ub" not in names or work.runs < self.machine.constants["vector_loop_trips"]:
            return False
        repeats = -(-work.runs * _WIDEST // REPEAT)
        for (name, location), times in work.counts.items():
            if not name.startswith(("load", "store", "scf", "memref")):
                self.spend(Pipe.S, self.issue, SCALAR, location, "issue")
                self.instruction(Vector("add", repeats * times, times), location, f"loop: {name}")
        return True

    def event(self, event: Event) -> None:
        """A flag or a barrier."""
        self.place = (self.place[0], self.place[1] + 1)
        source, target = event.source, event.target
        if event.kind == "pipe_barrier":
            if source is None:
                latest = max(self.done.values())
                for pipe in Pipe:
                    self.stall(pipe, latest, "barrier of all pipes")
            else:
                self.barrier(source)
            return
        assert source is not None and target is not None
        key = (source, target, event.number)
        if event.kind == "set_flag":
            set_at = max(self.done[source], self.now[source], self.now[Pipe.S])
            self.flags[key] = set_at + self.flag
        else:
            self.stall(target, self.flags.get(key, 0.0) + self.flag, f"wait for {source.name}")

    def barrier(self, pipe: Pipe) -> None:
        """``pipe`` starts nothing before all that it was given is complete."""
        outstanding = self.done[pipe] >= self.now[Pipe.S] and self.done[pipe] > 0
        self.stall(pipe, self.done[pipe], "barrier")
        if pipe == Pipe.V and outstanding:
            self.spend(pipe, self.barrier_cycles, VECTOR, None, "barrier")

    def call(self, call: Call) -> None:
        """A library call, step by step."""
        self.place = (self.place[0], self.place[1] + 1)
        if call.pipe == Pipe.S:
            self.lock(call)
            return
        plan = self.plans.get(id(call))
        if plan is None:
            plan = self.plans[id(call)] = self.planned(call)
        expansion = plan.expansion
        if not expansion.known:
            self.result.unknown.add(call.callee)
        self.fetched(self.place, plan.code, call.location)
        if plan.issue:
            self.spend(Pipe.S, plan.issue, SCALAR, call.location, "issue")
        if expansion.scalar_elements:
            self.result.scalar_elements[call.location] += expansion.scalar_elements
        self.ub = _touched(call) if self.keep else ()
        for step in expansion.steps:
            if isinstance(step, Vector):
                self.instruction(step, call.location, call.callee)
            elif isinstance(step, Barrier):
                self.barrier(Pipe.V)
            elif isinstance(step, Transfer):
                self.transfer(call, step)
            else:
                self.round_trip(call, step)
        self.ub = ()

    def planned(self, call: Call) -> _Planned:
        """What the call issues, and what that costs S; calls of equal shapes share it."""
        shapes = tuple(
            (buffer.sizes, buffer.strides, buffer.address % BLOCK if buffer.space == "ub" else 0)
            for buffer in call.buffers
        )
        key = (call.callee, shapes)
        expansion = self.expansions.get(key)
        if expansion is None:
            expansion = self.expansions[key] = expand(call)
        axes = max(len(buffer.sizes) for buffer in call.buffers)
        return _Planned(
            call,
            expansion,
            self.code.bytes["call_1d" if axes < 2 else "call_nd"],
            self.issue * expansion.instructions,
        )

    def instruction(self, step: Vector, location: Location | None, name: str) -> None:
        """Vector instructions, once S has issued them."""
        start_up, each = self.vector[step.cost]
        self.spend(
            Pipe.V,
            step.repeats * each + (step.count - 1),
            VECTOR,
            location,
            name,
            after=self.now[Pipe.S],
            latency=start_up,
        )

    def round_trip(self, call: Call, step: RoundTrip) -> None:
        """S works on what the call's pipe wrote; the pipe waits for it."""
        pipe = call.pipe
        self.stall(Pipe.S, self.done[pipe], f"wait for {pipe.name}")
        cycles = self.scalar.round_trip + self.scalar.library(step.work)
        self.spend(Pipe.S, cycles, SCALAR, call.location, call.callee)
        self.stall(pipe, self.now[Pipe.S], "wait for S")

    def transfer(self, call: Call, step: Transfer) -> None:
        """Moves data; not while the other of MTE2 and MTE3 does."""
        pipe = call.pipe
        dma = self.dma[pipe]
        outside = next(buffer for buffer in call.buffers if buffer.space == "gm")
        near = self.machine.resident or (pipe == Pipe.MTE2 and outside.address in self.touched)
        self.touched.add(outside.address)
        moving = dma.moving(step, near, outside.address)
        self.result.moving += moving
        cycles = moving + dma.call_cycles
        self.stall(pipe, self.now[Pipe.S], "wait for S")
        self.stall(pipe, self.gap(self.now[pipe], cycles, dma.others), f"{dma.other} moves data")
        dma.moves.append((self.now[pipe], self.now[pipe] + cycles))
        latency = dma.first if pipe in self.fresh else dma.latency
        self.fresh.discard(pipe)
        self.spend(pipe, cycles, dma.cause, call.location, call.callee, latency=latency)

    @staticmethod
    def gap(ready: float, cycles: float, busy: deque[tuple[float, float]]) -> float:
        """When, from ``ready`` on, ``cycles`` fit between what the other pipe moves."""
        while busy and busy[0][1] <= ready:
            busy.popleft()
        for start, end in busy:
            if ready + cycles <= start:
                break
            ready = max(ready, end)
        return ready

    def lock(self, call: Call) -> None:
        """Taking or giving back the lock that orders programs; `launch` adds the waiting."""
        cold = self.scalar.cold
        if call.callee == "sync_block_lock":
            self.spend(Pipe.S, cold, LOCK, call.location, "lock")
            self.taken = (self.now[Pipe.S], call.location)
        elif call.callee == "sync_block_unlock" and self.taken is not None:
            latest = max(self.done.values())
            for pipe in Pipe:
                self.stall(pipe, latest, "unlock")
            self.spend(Pipe.S, cold, LOCK, call.location, "unlock")
            taken, location = self.taken
            self.result.locks.append(Held(taken, self.now[Pipe.S], location))
            self.taken = None


def _touched(call: Call) -> tuple[tuple[bool, int, int], ...]:
    """UB that the call reads and writes: from the first to the last element of each operand."""
    found = []
    for buffer in call.buffers:
        if buffer.space == "ub" and buffer.elements:
            last = sum(
                (size - 1) * stride
                for size, stride in zip(buffer.sizes, buffer.strides, strict=True)
            )
            end = buffer.address + -(-(last + 1) * buffer.bits // 8)
            found.append((buffer.role != "read", buffer.address, end))
    return tuple(found)


class _Dma:
    """One direction of moving data."""

    def __init__(self, machine: Machine, direction: str) -> None:
        constants, rates = machine.constants, machine.rates
        load = direction == "load"
        self.cause = LOAD if load else STORE
        self.other = Pipe.MTE3.name if load else Pipe.MTE2.name
        self.near = rates.l2_load if load else rates.l2_store
        self.far = rates.hbm_load if load else rates.hbm_store
        self.call_cycles = constants[f"{direction}_call_cycles"]
        self.moves: deque[tuple[float, float]] = deque()
        """When this pipe moves, as long as the other may still want that time."""
        self.others: deque[tuple[float, float]] = deque()
        fixed, a_core = constants.by_name("first_transfer_cycles")[direction]
        self.first = fixed + a_core * machine.cores
        self.latency = machine.cycles(constants[f"{direction}_latency_ns"])
        self.aligned = constants["aligned_bytes"]
        self.extra = constants["unaligned_extra_bytes"]
        self.short = constants["short_burst_bytes"]
        self.short_cycles = constants.by_size("short_burst_cycles")

    def moving(self, step: Transfer, near: bool, address: int) -> float:
        """Cycles in which bytes move. ``near``: from or to L2."""
        if step.burst_bytes < self.short:
            return step.bursts * along(self.short_cycles, step.burst_bytes)
        extra = self.extra if address % self.aligned else 0.0
        return step.bursts * (step.burst_bytes + extra) / (self.near if near else self.far)


@dataclass(frozen=True)
class _WorkCost:
    """Of one run. ``gm_loads`` are costed apart, as neighbours share cache lines."""

    cycles: tuple[tuple[Location | None, float], ...]
    elements: tuple[tuple[Location | None, int], ...]
    gm_loads: int
    gm_location: Location | None


class _Scalar:
    """Costs of the scalar unit."""

    def __init__(self, constants: Constants) -> None:
        self.costs = constants.by_name("scalar")
        self.default = float(self.costs["default"])
        self.cold = constants["gm_scalar_cold_cycles"]
        self.warm = constants["gm_scalar_warm_cycles"]
        self.on_a_line = constants["cache_line_bytes"] / _WORD
        self.round_trip = constants["round_trip_cycles"]
        self.known: dict[int, _WorkCost] = {}

    def of(self, work: Work) -> _WorkCost:
        """The cost of one run of ``work``."""
        found = self.known.get(id(work.counts))
        if found is None:
            found = self.known[id(work.counts)] = self._cost(work)
        return found

    def _cost(self, work: Work) -> _WorkCost:
        cycles: defaultdict[Location | None, float] = defaultdict(float)
        elements: Counter[Location | None] = Counter()
        loads, place = 0, None
        for (name, location), times in work.counts.items():
            if name == "load.gm":
                loads += times
                place = location
                continue
            cycles[location] += float(self.costs.get(name, self.default)) * times
            if name in ("load.ub", "store.ub"):
                elements[location] += times
        spent = tuple((where, float(cost)) for where, cost in cycles.items() if cost)
        return _WorkCost(spent, tuple(elements.items()), loads, place)

    def gm_loads(self, count: int) -> float:
        """Scalar loads from GM side by side: the first of each cache line is the dear one."""
        if not count:
            return 0.0
        misses = 1 + (count - 1) / self.on_a_line
        return misses * self.cold + (count - misses) * self.warm

    def library(self, work: tuple[tuple[str, int], ...]) -> float:
        """Scalar work inside a library call."""
        cycles = 0.0
        for name, times in work:
            if name == "load.gm":
                cycles += self.gm_loads(times)
            else:
                cycles += float(self.costs.get(name, self.default)) * times
        return cycles
