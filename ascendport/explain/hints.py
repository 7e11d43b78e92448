"""What to change in a kernel: said only where the model shows time at stake.

What has a vector form on A2 and A3 was found by compiling each operation for each type with
ascendnpu-ir 1.2.0; a test compiles both sides of every piece of advice.
"""

from __future__ import annotations

from collections.abc import Iterator

from ascendport.ascend.soc import Soc
from ascendport.explain.model import Hint, LaunchFacts, ScalarLoop
from ascendport.timing.constants import constants
from ascendport.timing.pipes import FETCH, LAUNCH, LOAD, STORE, VECTOR

WORTH = 0.05
"""Share of a launch's time, scalar loops and waits for locks apart, from which a hint is given."""

MOST = 5

_SMALL_CALL = 1024
"""Bytes: a vector instruction's start-up takes longer than its work on fewer."""

_SHORT = 64
"""Iterations in all of a program: a scalar loop that is as good as free."""

_FEW_WAVES = 4
"""With more, what the last one leaves idle is little."""


def hints(launch: LaunchFacts, soc: Soc, small_calls: tuple[int, int] = (0, 0)) -> tuple[Hint, ...]:
    """The best of them, those with most time at stake first.

    Args:
        launch: what is known of the launch.
        soc: the part.
        small_calls: vector calls of the longest program, and the bytes that they work on.
    """
    if launch.latency is None:
        return ()
    alone = launch.latency.us - sum(lock.waited for lock in launch.locks)
    worth = WORTH * min(alone, launch.vector_us or alone)
    found = [
        hint
        for hint in (
            *_scalar(launch),
            *_slow(launch),
            *_lock(launch),
            *_waiting(launch),
            *_transfers(launch),
            *_vector(launch, small_calls),
            *_fetch(launch),
            *_grid(launch, soc),
        )
        if hint.us >= worth
    ]
    return tuple(sorted(found, key=lambda hint: -hint.us)[:MOST])


def advice(loop: ScalarLoop) -> str:
    """Why a loop has no vector form, and what has one."""
    named = [tuple(operation.split()) for operation in loop.operations]
    names = {name for name, *_ in named}
    wide = {name for name, *types in named if "i64" in types}
    narrow = {name for name, *types in named if "i64" not in types}
    if names & {"shli", "shrsi", "shrui"} and not wide:
        return (
            "a shift by a tensor has no vector form; a shift by one number has, and so has a test "
            "of bits: make 1 << lane once, outside of the loop, then x & it"
        )
    if wide:
        return (
            "64-bit integers have vector forms of and, or, not alone: compute in int32, "
            "and widen only what addresses GM"
        )
    if names & {"remsi", "remui"}:
        return (
            "a remainder of int32 has no vector form: & where n is a power of two; x - x // n * n, "
            "whose division goes through float32, is exact where |x| < 2^24"
        )
    if "cmpi" in names and any("i16" in types for name, *types in named if name == "cmpi"):
        return "a comparison of int16 has no vector form: compare in int32"
    if narrow & {"maxsi", "minsi", "maxui", "minui"}:
        return (
            "an index of a maximum has no vector form for integers: take it in float32, which is "
            "exact up to 2^24"
        )
    if narrow & {"addi", "addf", "muli", "mulf"}:
        return (
            "a running sum or product goes element by element: sum whole tiles, or make it where "
            "the data are few"
        )
    return "the compiler found no vector form for this line"


def _scalar(launch: LaunchFacts) -> Iterator[Hint]:
    gain = (launch.latency.us - launch.vector_us) if launch.latency and launch.vector_us else 0.0
    long = [loop for loop in launch.scalar_loops if loop.trips * loop.times > _SHORT]
    yield from _written([loop for loop in long if loop.written])
    for number, loop in enumerate(loop for loop in long if not loop.written):
        what = f"{loop.times} × {loop.trips}" if loop.times > 1 else str(loop.trips)
        said = f"runs as a scalar loop ({what} iterations a program): {advice(loop)}"
        if number == 0 and launch.latency and gain >= WORTH * launch.latency.us:
            left = launch.latency.us - gain
            said += (
                f". With a vector form of all such loops the launch would take "
                f"{left:.{0 if left >= 100 else 1}f} us (modelled)"
            )
        yield Hint(said, max(loop.us, gain if number == 0 else 0.0), loop.place)


def _written(loops: list[ScalarLoop]) -> Iterator[Hint]:
    """Loops over elements that the source has: one hint for all."""
    if not loops:
        return
    lines = ", ".join(str(loop.place.line) for loop in loops if loop.place)
    outside = any(loop.outside for loop in loops)
    where = "GM" if outside else "UB"
    way = "load a tile and pick from it in UB" if outside else "spread them over more programs"
    yield Hint(
        f"elements of {where} are handled one by one, as written (lines {lines}): work on whole "
        f"tiles, or {way}",
        sum(loop.us for loop in loops),
        loops[0].place,
    )


def _slow(launch: LaunchFacts) -> Iterator[Hint]:
    for call in launch.slow_calls:
        each = call.elements // max(1, call.calls)
        if call.function.startswith("arange_"):
            flat = call.function.startswith("arange_1d")
            way = "make it in int32" if flat else "make it in one axis and broadcast it"
            way += ", once, outside of the loop" if call.calls > 1 else ""
        elif call.function.startswith(("histogram", "cum", "sort", "gather")):
            way = "there is no vector form of it: do it where the data are few"
        else:
            way = "operands of stride 1 that start alike within 32 bytes stay on V"
        yield Hint(
            f"{call.function} works through S, {each} elements a call: {way}", call.us, call.place
        )


def _lock(launch: LaunchFacts) -> Iterator[Hint]:
    for lock in launch.locks:
        yield Hint(
            f"programs wait for each other in a lock, which one has for {lock.held:.3g} us: give "
            "each its own part of the result, and join the parts in a second pass",
            lock.waited,
            lock.place,
        )


def _waiting(launch: LaunchFacts) -> Iterator[Hint]:
    """V that waits for data which could have been on its way."""
    waits = {(use.pipe, why): us for use in launch.pipes for why, us in use.waits}
    spent = waits.get(("V", "wait for MTE2"), 0.0)
    loads = [one for one in launch.transfers if one.load and one.calls > 1]
    if not launch.ub or not loads:
        return
    free = launch.ub.capacity - launch.ub.planned
    tile = max(one.bytes // one.calls for one in loads)
    room = (
        f"UB has {free / 1024:.0f} KiB left for a second buffer"
        if free >= tile
        else "a smaller tile would leave UB room for a second buffer"
    )
    behind = ""
    if waits.get(("MTE2", "wait for MTE3"), 0.0) >= spent:
        behind = ", and a load waits until the tile before it is stored"
    yield Hint(
        f"V waits for loads{behind}: load the next tile before this one is worked on; {room}",
        spent,
        loads[0].place,
    )


def _transfers(launch: LaunchFacts) -> Iterator[Hint]:
    causes = _causes(launch)
    short = constants()["short_burst_bytes"]
    for one in launch.transfers:
        if one.burst < short and one.bursts > 1:
            verb = "loads" if one.load else "stores"
            yield Hint(
                f"{verb} {one.bursts} pieces of {one.burst:.0f} bytes a program: pieces under "
                f"{short:.0f} bytes cost as much as long ones",
                one.us,
                one.place,
            )
    moving = causes.get(LOAD, 0.0) + causes.get(STORE, 0.0)
    if launch.latency and moving > launch.latency.us / 2:
        rate = (launch.bytes_read + launch.bytes_written) / launch.latency.us / 1e3
        yield Hint(
            f"moving data bounds it ({rate:.0f} GB/s in all, modelled): read each tensor once, "
            "in the smallest type, and write only what changes",
            moving,
        )


def _vector(launch: LaunchFacts, small_calls: tuple[int, int]) -> Iterator[Hint]:
    calls, moved = small_calls
    if not calls or not launch.ub or moved / calls >= _SMALL_CALL:
        return
    if launch.ub.planned <= launch.ub.capacity / 2:
        yield Hint(
            f"vector calls work on {moved / calls:.0f} bytes each, less than their start-up "
            f"costs: larger tiles (UB is used up to {launch.ub.planned / 1024:.0f} of "
            f"{launch.ub.capacity / 1024:.0f} KiB)",
            _causes(launch).get(VECTOR, 0.0),
        )


def _fetch(launch: LaunchFacts) -> Iterator[Hint]:
    yield Hint(
        "instructions are fetched for the first time, or do not fit their cache of 16 KB: fewer "
        "different operations in the kernel, shorter loop bodies",
        _causes(launch).get(FETCH, 0.0),
    )


def _grid(launch: LaunchFacts, soc: Soc) -> Iterator[Hint]:
    assert launch.latency is not None
    us = launch.latency.us
    spent = _causes(launch).get(LAUNCH, 0.0)
    if launch.waves > _FEW_WAVES:
        yield Hint(
            f"{launch.programs} programs on {soc.vector_cores} cores: start {soc.vector_cores} "
            "and let each loop over its tiles, so that what they have in common is done once",
            spent,
        )
    elif spent >= us / 4:
        share = 100 * spent / us
        yield Hint(f"the launch itself is {share:.0f} % of it: only fewer launches help", spent)
    rest = us - spent
    if launch.cores_used < soc.vector_cores and launch.cores_used:
        idle = soc.vector_cores - launch.cores_used
        yield Hint(
            f"{idle} of {soc.vector_cores} cores have nothing to do: split the work further",
            rest * idle / soc.vector_cores,
        )
    elif 1 < launch.waves <= _FEW_WAVES:
        left = launch.waves * soc.vector_cores - launch.programs
        yield Hint(
            f"the last of {launch.waves} waves leaves {left} of {soc.vector_cores} cores idle: "
            "a grid that is a multiple of the cores, or fewer, longer programs",
            rest / launch.waves * left / soc.vector_cores,
        )


def _causes(launch: LaunchFacts) -> dict[str, float]:
    return dict(launch.latency.causes) if launch.latency else {}
