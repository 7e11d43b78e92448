"""Modelled latency, before and after: the compiled programs on the time model. No clock."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ascendport.ascend import soc as socs
from ascendport.ascend import toolchain
from ascendport.bench.rows import Row, Source, latency_not_run
from ascendport.checks.simulate import prepared_sides
from ascendport.checks.simulated import CannotRunError, Prepared, ready
from ascendport.checks.subject import Subject
from ascendport.harness.buffers import Arena
from ascendport.harness.children import Children, Failure
from ascendport.harness.inputs import draw
from ascendport.harness.portcode import load_port
from ascendport.timing import time_launch


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
    with Arena.anonymous(workload) as arena:
        try:
            modelled = [
                time_launch(launch.simulator, launch.arguments, launch.grid, socs.soc(prepared.soc))
                for launch in ready(prepared, arena.arrays())
            ]
        except CannotRunError as error:
            return Latency(problem=str(error))
    if not modelled:
        return Latency(problem="the case launches nothing")
    longest = max(modelled, key=lambda one: one.us)
    return Latency(sum(one.us for one in modelled), longest.bound, longest.error)
