"""One case of a port explained: compiled, run and timed in child processes."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace

from ascendport.ascend import soc as socs
from ascendport.ascend.program import read
from ascendport.checks.simulate import prepared_sides
from ascendport.checks.simulated import (
    CannotRunError,
    LaunchFailedError,
    Prepared,
    Ready,
    arena_for,
    differences,
    each_launch,
)
from ascendport.checks.subject import Subject
from ascendport.errors import ExitCode, UserError
from ascendport.explain.launch import explain_launch
from ascendport.explain.model import Explanation, LaunchFacts
from ascendport.explain.sources import Sources
from ascendport.harness.children import Children, Failure
from ascendport.harness.inputs import draw, expected
from ascendport.harness.portcode import load_port
from ascendport.timing.explain import document

SIDES = ("before", "after")


@dataclass(frozen=True)
class Problem:
    """Why a side cannot be explained. ``verdict``: that is the kernel's fault."""

    side: str
    reason: str
    verdict: bool


@dataclass(frozen=True)
class Explained:
    """The side that was asked for; the other one without detail, or why there is none."""

    shown: Explanation
    other: Explanation | Problem


def explain(subject: Subject, case: str, part: str, side: str, *, trace: bool) -> Explained:
    """Compiles, runs and times one case on both sides.

    Args:
        subject: the port on the checkout.
        case: name of the case.
        part: name of an SoC of A2 or A3.
        side: ``before`` or ``after``: the one to tell of in detail.
        trace: keep events for a Perfetto trace.

    Raises:
        UserError: the side cannot be run; status 1 where that is the kernel's fault, else 3.
    """
    subject.progress("simulate", 0, 3)
    prepared = prepared_sides(subject, [case], (part,))
    subject.progress("simulate", 1, 3)
    found: dict[str, Explanation | Problem] = {}
    order = sorted(SIDES, key=lambda one: one != side)
    with Children(2) as children:
        started = {}
        for one in order:
            made = prepared[one]
            if isinstance(made, str):
                found[one] = Problem(one, made, verdict=False)
                continue
            started[one] = children.submit(
                explain_side, subject.for_child(), made[0], detail=one == side, trace=trace
            )
        for one, future in started.items():
            result = children.result(future, subject.options.timeout_s)
            if isinstance(result, Failure):
                result = Problem(one, result.reason, verdict=True)
            found[one] = result
            subject.progress("simulate", 1 + len(found), 3)
    shown = found[order[0]]
    if isinstance(shown, Problem):
        raise UserError(
            shown.reason,
            where=f"{subject.port.name}, case {case}, {side}, {part}",
            code=ExitCode.FAILED if shown.verdict else ExitCode.NOT_RUN,
        )
    return Explained(shown, found[order[1]])


def explain_side(
    subject: Subject, prepared: Prepared, *, detail: bool, trace: bool
) -> Explanation | Problem:
    """Explains one side of a case in this process.

    Args:
        subject: the port on the checkout.
        prepared: the case's launches and programs.
        detail: as in `explain_launch`.
        trace: keep events; only with ``detail``.
    """
    if prepared.problem:
        return Problem(prepared.side, prepared.problem, prepared.verdict)
    code = load_port(subject.port)
    variant = subject.variant.name
    workload = draw(code, prepared.case, variant, subject.options.seed)
    answers = expected(code, workload, variant)
    work = _work(subject, prepared, detail=detail, trace=trace and detail)
    with arena_for(prepared, workload) as arena:
        try:
            launches = each_launch(subject, prepared, workload, arena, work)
        except CannotRunError as error:
            return Problem(prepared.side, str(error), verdict=False)
        except LaunchFailedError as error:
            return Problem(prepared.side, str(error), verdict=True)
        wrong = differences(arena, workload, answers)
    return Explanation(
        prepared.case.name, prepared.soc, prepared.side, tuple(launches), "; ".join(wrong)
    )


def _work(
    subject: Subject, prepared: Prepared, *, detail: bool, trace: bool
) -> Callable[[Ready], LaunchFacts]:
    """What to do at each launch, in order."""
    files = subject.before if prepared.side == "before" else subject.after
    sources = Sources(subject.checkout.root, files)
    order = iter(zip(prepared.launches, prepared.programs, strict=True))
    soc = socs.soc(prepared.soc)

    def work(ready: Ready) -> LaunchFacts:
        launch, text = next(order)
        return explain_launch(
            replace(launch, grid=ready.grid),
            read(text),
            ready.simulator,
            ready.arguments,
            ready.names,
            soc,
            sources,
            detail=detail,
            trace=trace,
        )

    return work


def trace_file(explanation: Explanation) -> bytes:
    """The launches in the Chrome trace format, as JSON text."""
    launches = [
        (launch.latency.us if launch.latency else 0.0, launch.events)
        for launch in explanation.launches
    ]
    return json.dumps(document(launches), separators=(",", ":")).encode()
