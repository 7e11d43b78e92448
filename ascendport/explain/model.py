"""What an explanation holds: data alone. Times are microseconds, modelled; sizes are bytes."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ascendport.timing.explain import Event


@dataclass(frozen=True)
class Place:
    """A source line. ``file``: relative to the checkout where it is of it. ``text``: the line."""

    file: str
    line: int
    text: str = ""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True)
class Latency:
    """Modelled time. ``low``, ``high``: what the model's typical ``error`` (a share) leaves."""

    us: float
    low: float
    high: float
    error: float
    bound: str
    """The largest of ``causes``."""
    causes: tuple[tuple[str, float], ...]
    """``us`` cut up by what it goes to, largest first."""


@dataclass(frozen=True)
class PipeUse:
    """One pipe of the core that ends last. ``waits``: what it stood still for, largest first."""

    pipe: str
    cycles: int
    us: float
    waits: tuple[tuple[str, float], ...]


@dataclass(frozen=True)
class HotLine:
    """A line and the time it stands for. ``place`` None: what belongs to no line.

    ``pipe``, ``cause``: where most of it goes; ``causes``: all of them, largest first.
    ``runs_as``: library functions that the line became, with the calls of one program, those with
    most elements first.
    """

    place: Place | None
    us: float
    share: float
    pipe: str
    cause: str
    causes: tuple[tuple[str, float], ...]
    runs_as: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True)
class ScalarLoop:
    """A loop that handles a tile an element at a time, in the longest program.

    ``trips``: iterations each time; ``times``: how often it is entered. ``operations``: its
    arithmetic, with types, such as ``shrsi i32``. ``outside``: it reads or writes GM.
    ``written``: the source has the loop; else the compiler made it of a line on whole tiles.
    """

    place: Place | None
    trips: int
    times: int
    operations: tuple[str, ...]
    outside: bool
    written: bool
    us: float


@dataclass(frozen=True)
class SlowCall:
    """A library function that works element by element inside. Counts are of one program."""

    place: Place | None
    function: str
    calls: int
    elements: int
    us: float
    """Scalar time of the line."""


@dataclass(frozen=True)
class Transfers:
    """DMA of one line in the longest program. ``burst``: mean bytes side by side in GM."""

    place: Place | None
    load: bool
    calls: int
    bytes: int
    bursts: int
    us: float

    @property
    def burst(self) -> float:
        return self.bytes / max(1, self.bursts)


@dataclass(frozen=True)
class LockUse:
    """A lock that programs take in turn. ``held``: us that the longest program has it; ``waited``:
    us that the core that ends last waits for it, in all."""

    place: Place | None
    held: float
    waited: float


@dataclass(frozen=True)
class UbUse:
    """The Unified Buffer in the longest program.

    ``peak``: most that holds what is still needed, at one time. ``planned``: end of the highest
    buffer that the compiler placed. ``curve``: (us from the program's start, most bytes in use in
    the stretch that begins there); stretches are equally long.
    """

    peak: int
    planned: int
    capacity: int
    curve: tuple[tuple[float, int], ...]


@dataclass(frozen=True)
class Found:
    """A memory error, hazard or conflict."""

    kind: str
    place: Place | None
    message: str
    operation: str
    program: int
    other_program: int | None
    times: int


@dataclass(frozen=True)
class Hint:
    """Something to change, with the time at stake and the line, where there is one."""

    text: str
    us: float
    place: Place | None = None


@dataclass(frozen=True)
class LaunchFacts:
    """One launch. ``sampled``: programs whose trace was kept; ``kinds``: that differ in timing.

    ``resident``: the ``tensor_bytes`` fit L2 and are taken to be there. ``assumed``: library
    functions whose cost is a guess. ``vector_us``: modelled time if scalar loops had a vector
    form; None where the compiler made none. ``stuck``: a lock is never free, so that the hardware
    would wait for ever; the time is that of a launch that gets past it. ``problem``: why there is
    no time.
    """

    kernel: str
    file: str
    grid: tuple[int, ...]
    programs: int
    cores_used: int
    waves: int
    sampled: int
    kinds: int
    bytes_read: int
    bytes_written: int
    tensor_bytes: int
    resident: bool
    findings: tuple[Found, ...]
    stuck: bool = False
    note: str = ""
    problem: str = ""
    latency: Latency | None = None
    pipes: tuple[PipeUse, ...] = ()
    hot_lines: tuple[HotLine, ...] = ()
    scalar_loops: tuple[ScalarLoop, ...] = ()
    slow_calls: tuple[SlowCall, ...] = ()
    transfers: tuple[Transfers, ...] = ()
    locks: tuple[LockUse, ...] = ()
    ub: UbUse | None = None
    assumed: tuple[str, ...] = ()
    vector_us: float | None = None
    hints: tuple[Hint, ...] = ()
    events: tuple[Event, ...] = ()
    """For a trace; empty where none was asked for."""


@dataclass(frozen=True)
class Explanation:
    """One side of one case on one SoC. ``difference``: how the values differ from the reference's;
    empty: they do not."""

    case: str
    soc: str
    side: str
    launches: tuple[LaunchFacts, ...]
    difference: str = ""

    @property
    def findings(self) -> int:
        return sum(len(launch.findings) for launch in self.launches)

    @property
    def clean(self) -> bool:
        """Right values, nothing found, and every launch ran to its end."""
        ended = not any(launch.problem for launch in self.launches)
        return not self.findings and not self.difference and ended

    @property
    def latency(self) -> Latency | None:
        """Of all launches; None where one has none. ``bound``: what bounds the longest."""
        each = [launch.latency for launch in self.launches if launch.latency]
        if not each or len(each) < len(self.launches):
            return None
        sums: dict[str, float] = {}
        for one in each:
            for cause, us in one.causes:
                sums[cause] = sums.get(cause, 0.0) + us
        return Latency(
            sum(one.us for one in each),
            sum(one.low for one in each),
            sum(one.high for one in each),
            max(one.error for one in each),
            max(each, key=lambda one: one.us).bound,
            tuple(sorted(sums.items(), key=lambda item: -item[1])),
        )


def without_events(explanation: Explanation) -> Explanation:
    """The same less what is only for a trace file."""
    launches = tuple(replace(launch, events=()) for launch in explanation.launches)
    return replace(explanation, launches=launches)
