"""The time of a whole launch: programs on cores in waves, memory shared, locks in order.

Programs are dealt in order, each to the core that is free first. Programs with equal signatures
do the same work and are placed in time once: as a core's first, which fetches the code, and as a
later one. How many cores move data at the same time, and so how
fast each does, follows from the schedule itself and is found by repeating.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from ascendport.ascend.soc import Soc
from ascendport.errors import UserError
from ascendport.simulator import Simulator, Trace
from ascendport.simulator.ir import Location
from ascendport.simulator.launch import Argument
from ascendport.simulator.layout import Pipe
from ascendport.simulator.trace import Operation
from ascendport.timing.constants import Constants, along, constants
from ascendport.timing.pipes import LAUNCH, LOCK, Machine, Rates, Schedule, schedule
from ascendport.timing.records import Signatures, operations

K = TypeVar("K")

GIB = 1 << 30
SAMPLES = 64
"""Programs of a launch that are traced at most, unless they all fit."""

_ROUNDS = 3
"""Repetitions until the load on the memory agrees with the schedule."""

_WORDS = 200_000
"""Words of trace that are placed in time at most, unless two programs have more."""

_SAME = 0.01
"""Share by which a rate may differ from the one of the round before to count as found."""

_HOTTEST = 10

AGAIN = b" again"
"""Ends the kind of a program whose core ran one of its kind before: its code is in the cache."""


@dataclass(frozen=True)
class HotLine:
    """A source line and the time of the launch that it stands for. ``cause``: its largest."""

    location: Location | None
    us: float
    share: float
    cause: str


@dataclass(frozen=True)
class Run:
    """One program of a launch: on which core, from when to when (us), and of which kind.

    ``kind``: of `Modelled.schedules`; ends in `AGAIN` where it is not its core's first. ``waits``:
    us that it waits for each lock that it takes, in order.
    """

    program: int
    core: int
    start: float
    end: float
    kind: bytes
    waits: tuple[float, ...] = ()


@dataclass(frozen=True)
class ScalarLines:
    """A line whose elements S reads or writes one by one, by the busiest program."""

    location: Location | None
    elements: int


@dataclass(frozen=True)
class Modelled:
    """The modelled time of one launch. Never a measurement.

    ``us``: device time. ``by_pipe``: busy time of the core that ends last, us. ``causes``: ``us``
    cut up by cause; ``lines``: the same by place and cause. ``bound``: the largest cause.
    ``waves``: programs that the busiest core runs.
    ``stalls``: (pipe, what for) → us on the longest program. ``error``: share by which the model
    is typically off on kernels that it was not fitted on. ``sampled``: programs traced.
    ``classes``: kinds of program that were placed in time. ``assumed``: library calls without a
    rule. ``runs``, ``schedules``: each program's place, and each kind's timing.
    """

    us: float
    by_pipe: Mapping[str, float]
    causes: Mapping[str, float]
    bound: str
    waves: int
    hot_lines: tuple[HotLine, ...]
    error: float
    stalls: Mapping[tuple[str, str], float] = field(default_factory=dict)
    scalar_lines: tuple[ScalarLines, ...] = ()
    programs: int = 0
    sampled: int = 0
    classes: int = 0
    assumed: tuple[str, ...] = ()
    lines: Mapping[tuple[Location | None, str], float] = field(default_factory=dict, repr=False)
    runs: tuple[Run, ...] = field(default=(), repr=False)
    schedules: Mapping[bytes, Schedule] = field(default_factory=dict, repr=False)
    mhz: float = 1.0

    @property
    def low(self) -> float:
        """``us`` less the error."""
        return self.us / (1 + self.error)

    @property
    def high(self) -> float:
        """``us`` and the error."""
        return self.us * (1 + self.error)


def sample(programs: int, limit: int = SAMPLES) -> tuple[int, ...]:
    """Which programs to trace: all, or ``limit`` spread evenly, the first and last among them."""
    if programs <= limit:
        return tuple(range(programs))
    return tuple(sorted({round(i * (programs - 1) / (limit - 1)) for i in range(limit)}))


def time_launch(
    simulator: Simulator,
    arguments: Sequence[Argument],
    grid: Sequence[int],
    soc: Soc,
    *,
    resident: bool | None = None,
    limit: int = SAMPLES,
    vector_loops: bool = False,
    in_service: bool = False,
    spans: bool = False,
    table: Constants | None = None,
) -> Modelled:
    """Runs a sample of the programs for their traces, and models the launch.

    Args:
        simulator: the program.
        arguments: as `Simulator.run`; arrays are worked on in place.
        grid: programs in x, y, z.
        soc: the part that the program was compiled for.
        resident: whether the tensors are in L2 when the launch starts; default: if they fit.
        limit: programs to trace at most.
        vector_loops: as in `launch_time`.
        in_service: as in `launch_time`.
        spans: as in `launch_time`.
        table: other constants than those that ship.

    Raises:
        UserError: no clock is published for ``soc``.
    """
    total = math.prod(grid)
    traces = collect(simulator, arguments, grid, limit)
    if resident is None:
        resident = fits_l2(arguments, soc)
    return launch_time(
        traces,
        total,
        soc,
        resident=resident,
        vector_loops=vector_loops,
        in_service=in_service,
        spans=spans,
        table=table,
    )


def collect(
    simulator: Simulator,
    arguments: Sequence[Argument],
    grid: Sequence[int],
    limit: int = SAMPLES,
) -> dict[int, Trace]:
    """Runs a sample of the programs and returns their traces.

    Args:
        simulator: the program.
        arguments: as `Simulator.run`; arrays are worked on in place.
        grid: programs in x, y, z.
        limit: programs to run at most.
    """
    wanted = sample(math.prod(grid), limit)
    if not wanted:
        return {}
    result = simulator.run(arguments, grid, programs=wanted, trace=wanted, past_locks=True)
    return dict(result.traces)


def fits_l2(arguments: Sequence[Argument], soc: Soc) -> bool:
    """Whether the tensors among ``arguments`` stay in the L2 of ``soc`` together."""
    size = sum(item.nbytes for item in arguments if isinstance(item, np.ndarray))
    return soc.l2_mib is not None and size <= soc.l2_mib << 20


def launch_time(
    traces: Mapping[int, Trace],
    programs: int,
    soc: Soc,
    *,
    resident: bool = True,
    grouped: bool = True,
    vector_loops: bool = False,
    in_service: bool = False,
    spans: bool = False,
    table: Constants | None = None,
) -> Modelled:
    """The modelled time of a launch of ``programs``, some of which were traced.

    A program without a trace does what the nearest one before it with a trace does.

    Args:
        traces: by flat program id; the first program among them.
        programs: in the whole grid.
        soc: the part that the program was compiled for.
        resident: whether the tensors are in L2 when the launch starts.
        grouped: place programs of equal signature in time once, not each.
        vector_loops: as in `pipes.Machine`: what the launch would take without scalar loops.
        in_service: as in `pipes.Machine`: the launch is not one of a row of repeated ones.
        spans: keep each operation's place in time, which `explain` draws.
        table: other constants than those that ship.

    Raises:
        UserError: no clock is published for ``soc``.
    """
    return place(
        read(traces, programs, grouped=grouped),
        soc,
        resident=resident,
        vector_loops=vector_loops,
        in_service=in_service,
        spans=spans,
        table=table,
    )


@dataclass(frozen=True)
class Programs:
    """What a launch's programs do. ``kinds``: of each; ``work``: of each kind; ``traced``: how
    many had a trace.
    """

    kinds: Sequence[bytes]
    work: Mapping[bytes, Sequence[Operation]]
    traced: int


def read(traces: Mapping[int, Trace], programs: int, *, grouped: bool = True) -> Programs:
    """What programs do, from traces. Arguments: as those of `launch_time`."""
    signatures = Signatures()
    names = {
        number: signatures.of(trace) if grouped else str(number).encode()
        for number, trace in traces.items()
    }
    names = _fewer(names, traces)
    first: dict[bytes, int] = {}
    for number, name in names.items():
        first.setdefault(name, number)
    work = {name: operations(traces[number]) for name, number in first.items()}
    return Programs(_dealt(names, programs), work, len(traces))


def place(
    launched: Programs,
    soc: Soc,
    *,
    resident: bool = True,
    vector_loops: bool = False,
    in_service: bool = False,
    spans: bool = False,
    table: Constants | None = None,
) -> Modelled:
    """The modelled time of a launch that was `read`. Arguments: as those of `launch_time`.

    Raises:
        UserError: no clock is published for ``soc``.
    """
    table = table or constants()
    if soc.mhz is None:
        raise UserError(
            "no clock is published for it", where=soc.name, next="choose a part of A2 or A3"
        )
    kinds, work_of = launched.kinds, launched.work
    programs = len(kinds)
    busy = min(programs, soc.vector_cores)
    placed: dict[bytes, Schedule] = {}
    plan = _Plan(0.0, 0, b"", Counter(), {}, ())
    moving, machine = 1.0, None
    for _ in range(_ROUNDS if programs else 0):
        before, machine = (
            machine,
            Machine(
                table,
                soc.mhz,
                rates(table, soc, moving),
                resident,
                vector_loops,
                busy,
                in_service,
            ),
        )
        if before is not None and _as_fast(before, machine):
            break
        placed = {name: schedule(work, machine, spans=spans) for name, work in work_of.items()}
        if programs > busy:
            placed |= {
                name + AGAIN: schedule(work, machine, spans=spans, after=placed[name])
                for name, work in work_of.items()
            }
        plan = _deal(kinds, placed, soc.vector_cores, table)
        share = sum(placed[run[4]].moving for run in plan.runs) / max(1.0, plan.end * busy)
        moving = 1 + (busy - 1) * min(1.0, share)
    return _result(plan, placed, programs, launched.traced, soc.mhz, table)


def rates(table: Constants, soc: Soc, moving: float) -> Rates:
    """Bytes a cycle of one core while ``moving`` cores (on average) move data."""
    assert soc.mhz is not None
    hertz = soc.mhz * 1e6
    by_part = table.by_name("hbm_gb_per_s")
    all_hbm = float(by_part.get(soc.name, by_part["default"])) * 1e9 / hertz
    all_l2 = table["l2_gb_per_s"] * 1e9 / hertz

    def gib(value: float) -> float:
        return value * GIB / hertz

    return Rates(
        hbm_load=min(gib(along(table.by_size("hbm_load_gib_per_s"), moving)), all_hbm / moving),
        hbm_store=min(gib(along(table.by_size("hbm_store_gib_per_s"), moving)), all_hbm / moving),
        l2_load=min(gib(table["l2_load_gib_per_s"]), all_l2 / moving),
        l2_store=min(gib(table["l2_store_gib_per_s"]), all_l2 / moving),
    )


def _as_fast(before: Machine, after: Machine) -> bool:
    """Whether data moves as fast as in the round before."""
    if after.resident:
        pairs = [
            (before.rates.l2_load, after.rates.l2_load),
            (before.rates.l2_store, after.rates.l2_store),
        ]
    else:
        pairs = [
            (before.rates.hbm_load, after.rates.hbm_load),
            (before.rates.hbm_store, after.rates.hbm_store),
        ]
    return all(abs(old - new) <= _SAME * old for old, new in pairs)


@dataclass(frozen=True)
class _Plan:
    """``last``: the kind of the program that ends last; ``core``: kinds that its core ran;
    ``locked``: cycles that this core waited for locks, by place.
    """

    end: float
    waves: int
    last: bytes
    core: Counter[bytes]
    locked: Mapping[Location | None, float]
    runs: tuple[tuple[int, int, float, float, bytes, tuple[float, ...]], ...]


def _fewer(names: Mapping[int, bytes], traces: Mapping[int, Trace]) -> dict[int, bytes]:
    """As many programs, spread evenly, as stay within `_WORDS`: the others follow them.

    Where programs all differ a little, each one would be placed in time.
    """
    kinds = dict.fromkeys(names.values())
    first = {name: number for number, name in reversed(list(names.items()))}
    words = sum(len(traces[first[kind]].words) for kind in kinds)
    if words <= _WORDS:
        return dict(names)
    keep = max(2, int(len(kinds) * _WORDS / words))
    numbers = list(names)
    return {numbers[at]: names[numbers[at]] for at in sample(len(numbers), keep)}


def _dealt(names: Mapping[int, bytes], programs: int) -> list[bytes]:
    """The kind of each program."""
    kinds: list[bytes] = []
    kind = b""
    for number in range(programs):
        kind = names.get(number, kind)
        kinds.append(kind)
    return kinds


def _deal(
    kinds: Sequence[bytes], placed: Mapping[bytes, Schedule], cores: int, table: Constants
) -> _Plan:
    """Gives programs to cores, in order; cycles."""
    free = [(0.0, core) for core in range(min(cores, len(kinds)))]
    ran: dict[int, Counter[bytes]] = {core: Counter() for _, core in free}
    waited: dict[int, defaultdict[Location | None, float]] = {
        core: defaultdict(float) for core in ran
    }
    released: dict[int, float] = {}
    hand_over = table["gm_scalar_cold_cycles"]
    end, last, last_core = 0.0, b"", 0
    runs: list[tuple[int, int, float, float, bytes, tuple[float, ...]]] = []
    for program, kind in enumerate(kinds):
        start, core = heapq.heappop(free)
        if ran[core]:
            kind += AGAIN
        timing = placed[kind]
        late = 0.0
        waits = []
        for turn, held in enumerate(timing.locks):
            # A program gets a lock once the one before it has given it back.
            wanted = start + held.taken + late
            granted = max(wanted, released.get(turn, 0.0) + hand_over if turn in released else 0.0)
            late += granted - wanted
            waits.append(granted - wanted)
            waited[core][held.location] += granted - wanted
            released[turn] = start + held.given + late
        done = start + timing.end + late
        ran[core][kind] += 1
        runs.append((program, core, start, done, kind, tuple(waits)))
        heapq.heappush(free, (done, core))
        if done > end:
            end, last, last_core = done, kind, core
    waves = max((sum(counter.values()) for counter in ran.values()), default=0)
    core_ran = ran.get(last_core, Counter())
    return _Plan(end, waves, last, core_ran, waited.get(last_core, {}), tuple(runs))


def _result(
    plan: _Plan,
    placed: Mapping[bytes, Schedule],
    programs: int,
    sampled: int,
    mhz: float,
    table: Constants,
) -> Modelled:
    launch = table["launch_us"]
    causes: defaultdict[str, float] = defaultdict(float, {LAUNCH: launch})
    pipes: defaultdict[Pipe, float] = defaultdict(float)
    lines: defaultdict[tuple[Location | None, str], float] = defaultdict(float)
    for kind, times in plan.core.items():
        timing = placed[kind]
        for cause, cycles in timing.causes.items():
            causes[cause] += cycles * times / mhz
        for pipe, cycles in timing.busy.items():
            pipes[pipe] += cycles * times / mhz
        for key, cycles in timing.lines.items():
            lines[key] += cycles * times / mhz
    for location, cycles in plan.locked.items():
        causes[LOCK] += cycles / mhz
        lines[location, LOCK] += cycles / mhz
    us = launch + plan.end / mhz
    longest = placed[plan.last] if plan.last in placed else Schedule()
    return Modelled(
        us=us,
        by_pipe={pipe.name: pipes[pipe] for pipe in Pipe},
        causes=dict(_largest(causes)),
        bound=_largest(causes)[0][0],
        waves=plan.waves,
        hot_lines=_hot(lines, us),
        error=table["model_error"],
        stalls={(pipe.name, why): cycles / mhz for (pipe, why), cycles in _largest(longest.stalls)},
        scalar_lines=tuple(
            ScalarLines(place, count) for place, count in longest.scalar_elements.most_common()
        ),
        programs=programs,
        sampled=sampled,
        classes=sum(not name.endswith(AGAIN) for name in placed),
        assumed=tuple(sorted(set().union(*(timing.unknown for timing in placed.values())))),
        lines=dict(lines),
        runs=tuple(
            Run(
                program,
                core,
                launch + start / mhz,
                launch + end / mhz,
                kind,
                tuple(wait / mhz for wait in waits),
            )
            for program, core, start, end, kind, waits in plan.runs
        ),
        schedules=placed,
        mhz=mhz,
    )


def _largest(sums: Mapping[K, float]) -> list[tuple[K, float]]:
    return sorted(sums.items(), key=lambda item: -item[1])


def _hot(lines: Mapping[tuple[Location | None, str], float], us: float) -> tuple[HotLine, ...]:
    """The lines that most time goes to; library lines keep their own file."""
    total: defaultdict[Location | None, float] = defaultdict(float)
    largest: dict[Location | None, tuple[float, str]] = {}
    for (location, cause), spent in lines.items():
        place = None if location is None else Location(location.file, location.line)
        total[place] += spent
        largest[place] = max(largest.get(place, (0.0, "")), (spent, cause))
    return tuple(
        HotLine(place, spent, spent / us, largest[place][1])
        for place, spent in _largest(total)[:_HOTTEST]
    )
