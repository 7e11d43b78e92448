"""Modelled latency, before and after: the compiled programs on the time model. No clock."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ascendport.ascend import soc as socs
from ascendport.ascend import toolchain
from ascendport.bench.rows import Row, Source, latency_not_run
from ascendport.checks.simulate import prepared_sides
from ascendport.checks.simulated import (
    CannotRunError,
    LaunchFailedError,
    Prepared,
    Ready,
    arena_for,
    each_launch,
)
from ascendport.checks.subject import Subject
from ascendport.harness.case import Array
from ascendport.harness.children import Children, Failure
from ascendport.harness.inputs import draw
from ascendport.harness.portcode import load_port
from ascendport.timing import Modelled, time_launch


@dataclass(frozen=True)
class Latency:
    """Modelled microseconds of all launches of a case, what bounds the longest of them, and the
    model's typical error; or a problem."""

    us: float = 0.0
    bound: str = ""
    error: float = 0.0
    problem: str = ""


def rows(subject: Subject) -> Iterator[Row]:
    """A latency row for each case tagged ``bench``, for the first A2 or A3 SoC asked for."""
    names = subject.options.socs or socs.DEFAULTS
    parts = [name for name in names if socs.soc(name).family is not socs.Family.A5]
    reason = toolchain.missing() or ("" if parts else "A5 programs are compiled, not simulated")
    code = load_port(subject.port)
    cases = [
        case.name
        for case in code.of(subject.variant.name, subject.options.cases)
        if "bench" in case.tags
    ]
    if reason:
        for case in cases:
            yield latency_not_run(
                subject.port.name, case, ", ".join(names), Source.MODELLED, reason
            )
        return
    part = parts[0]
    subject.progress("time model", 0, len(cases))
    sides = prepared_sides(subject, cases, (part,))
    latencies = {
        side: _latencies(subject, prepared) if not isinstance(prepared, str) else prepared
        for side, prepared in sides.items()
    }
    for number, case in enumerate(cases):
        subject.progress("time model", number + 1, len(cases))
        old, new = (_of(latencies[side], case) for side in ("before", "after"))
        if new.problem:
            yield latency_not_run(
                subject.port.name, case, part, Source.MODELLED, f"after: {new.problem}"
            )
            continue
        typical = f"±{100 * max(old.error, new.error):.0f} %"
        remark = f"{typical}, bound by {old.bound} → {new.bound}"
        yield Row(
            subject.port.name,
            case,
            part,
            "latency",
            "us",
            Source.MODELLED,
            before=None if old.problem else old.us,
            after=new.us,
            reason=f"before: {old.problem}" if old.problem else remark,
        )


def _of(latencies: dict[str, Latency] | str, case: str) -> Latency:
    return Latency(problem=latencies) if isinstance(latencies, str) else latencies[case]


def _latencies(subject: Subject, prepared: list[Prepared]) -> dict[str, Latency]:
    """Every case's latency; two processes share the work."""
    found: dict[str, Latency] = {}
    with Children(2) as children:
        started = [
            (one.case.name, children.submit(model, subject.for_child(), one)) for one in prepared
        ]
        for case, future in started:
            result = children.result(future, subject.options.timeout_s)
            found[case] = Latency(problem=result.reason) if isinstance(result, Failure) else result
    return found


def model(subject: Subject, prepared: Prepared) -> Latency:
    """Models one case in this process."""
    if prepared.problem:
        return Latency(problem=prepared.problem)
    code = load_port(subject.port)
    workload = draw(code, prepared.case, subject.variant.name, subject.options.seed)
    part = socs.soc(prepared.soc)
    with arena_for(prepared, workload) as arena:
        try:
            launches = each_launch(
                subject, prepared, workload, arena, lambda one: _latency(one, part)
            )
        except (CannotRunError, LaunchFailedError) as error:
            return Latency(problem=str(error))
    if not launches:
        return Latency(problem="the case launches nothing")
    longest = max(launches, key=lambda one: one.us)
    return Latency(sum(one.us for one in launches), longest.bound, longest.error)


def _latency(one: Ready, part: socs.Soc) -> Latency:
    """One launch's. The launches after it find what it wrote."""
    modelled = timed(one, part)
    return Latency(modelled.us, modelled.bound, modelled.error)


def timed(one: Ready, part: socs.Soc) -> Modelled:
    """The time of one launch, which is then run where others follow it.

    Timing runs only some of the programs: in tensors of its own where others follow.
    """
    if one.last:
        return time_launch(one.simulator, one.arguments, one.grid, part)
    copies = [_twin(a) if isinstance(a, np.ndarray) else a for a in one.arguments]
    modelled = time_launch(one.simulator, copies, one.grid, part)
    one.simulator.run(one.arguments, one.grid, past_locks=True)
    return modelled


def _twin(array: Array) -> Array:
    """A copy with the same strides: kernels are told them."""
    if array.size == 0 or array.flags.c_contiguous:
        return array.copy()
    steps = zip(array.shape, array.strides, strict=True)
    extent = sum((size - 1) * stride for size, stride in steps) // array.itemsize + 1
    memory = np.empty(extent, array.dtype)
    twin: Array = np.lib.stride_tricks.as_strided(memory, array.shape, array.strides)
    twin[...] = array
    return twin
