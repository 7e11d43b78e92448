"""Operations of made-up programs, as a trace would give them."""

from __future__ import annotations

from collections.abc import Iterable

from ascendport.simulator.ir import Location
from ascendport.simulator.layout import Pipe
from ascendport.simulator.trace import Buffer, Call, Event, Operation, Work
from ascendport.timing.constants import constants
from ascendport.timing.pipes import Machine, Rates, Schedule, schedule

BITS = {"f32": 32, "f16": 16, "bf16": 16, "i64": 64, "i32": 32, "i8": 8, "i1": 1}
RATES = Rates(hbm_load=32.0, hbm_store=32.0, l2_load=64.0, l2_store=64.0)


def machine(**values: object) -> Machine:
    """A core at 1 GHz, so that a ns is a cycle."""
    return Machine(constants().having(**values), 1000.0, RATES)


def line(number: int) -> Location:
    return Location("kernel.py", number)


def dense(sizes: tuple[int, ...]) -> tuple[int, ...]:
    strides: list[int] = []
    step = 1
    for size in reversed(sizes):
        strides.insert(0, step)
        step *= size
    return tuple(strides)


def buffer(
    role: str,
    sizes: tuple[int, ...],
    element: str = "f32",
    *,
    space: str = "ub",
    address: int = 0,
    strides: tuple[int, ...] | None = None,
) -> Buffer:
    return Buffer(role, space, element, BITS[element], address, sizes, strides or dense(sizes))


def vector(
    callee: str,
    *sources: tuple[int, ...],
    to: tuple[int, ...],
    element: str = "f32",
    result: str | None = None,
    at: int = 1,
    address: int = 0,
) -> Call:
    """A vector call: shapes of its sources and of its result."""
    reads = [buffer("read", sizes, element, address=address) for sizes in sources]
    write = buffer("write", to, result or element, address=address)
    return Call(Pipe.V, callee, (*reads, write), (), line(at))


def load(elements: int, at: int = 1, address: int = 0, element: str = "f32") -> Call:
    outside = buffer("gm-read", (elements,), element, space="gm", address=address)
    kinds = {"f32": "float", "bf16": "bfloat16_t"}
    return Call(
        Pipe.MTE2,
        f"load_gm_to_ubuf_1d_{kinds[element]}",
        (outside, buffer("write", (elements,), element)),
        (0, 0, 0),
        line(at),
    )


def store(elements: int, at: int = 1, address: int = 0) -> Call:
    outside = buffer("gm-write", (elements,), space="gm", address=address)
    return Call(
        Pipe.MTE3,
        "store_ubuf_to_gm_1d_float",
        (buffer("read", (elements,)), outside),
        (0,),
        line(at),
    )


def flags(source: Pipe, target: Pipe, number: int = 0) -> tuple[Event, Event]:
    """A set and its wait."""
    return (
        Event("set_flag", source, target, number, line(1)),
        Event("wait_flag", source, target, number, line(1)),
    )


def barrier(pipe: Pipe | None) -> Event:
    return Event("pipe_barrier", pipe, None, 0, line(1))


def work(runs: int = 1, at: int = 1, **counts: int) -> Work:
    """Scalar operations; ``load_ub`` stands for ``load.ub``."""
    return Work({(name.replace("_", "."), line(at)): times for name, times in counts.items()}, runs)


def timed(operations: Iterable[Operation], **values: object) -> Schedule:
    """The schedule at 1 GHz with no cost of code, unless ``values`` say otherwise."""
    return schedule(operations, machine(**{"fetch_cycles_per_core": 0.0, **values}))
