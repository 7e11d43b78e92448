"""Latency on a device that is there: before and after, interleaved, in one child process.

Right values first: a port that gives wrong ones is not timed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from typing import Any

import numpy as np

from ascendport.bench.rows import Row, Source, latency_not_run
from ascendport.bench.statistics import ratio
from ascendport.checks.subject import Subject
from ascendport.harness.buffers import layout
from ascendport.harness.case import Array, Workload
from ascendport.harness.child import one_line
from ascendport.harness.children import Children, Failure
from ascendport.harness.compare import compare_all
from ascendport.harness.detect import detect
from ascendport.harness.inputs import draw, expected
from ascendport.harness.loading import loaded
from ascendport.harness.on_device import Accelerator, DeviceMemory, stand_ins_in
from ascendport.harness.portcode import PortCode, load_port
from ascendport.harness.workspace import workspace

PAIRS = 40
"""Pairs of timings, before next to after."""
LAUNCHES = 20
"""Launches in one timing, back to back."""


def rows(subject: Subject, asked: str) -> Iterator[Row]:
    """A latency row for each case tagged ``bench``; ``not_run`` where there is no device.

    ``asked``: one of `detect.CHOICES`.
    """
    found = detect(asked)
    code = load_port(subject.port)
    names = [
        case.name
        for case in code.of(subject.variant.name, subject.options.cases)
        if "bench" in case.tags
    ]
    port = subject.port.name
    if not found.kind:
        for name in names:
            yield latency_not_run(port, name, "device", Source.MEASURED, found.reason)
        return
    for number, name in enumerate(names):
        subject.progress(f"{port} on {found.kind}", number, len(names))
        # A process for each: an access outside of all memory takes the process's device with it.
        result = _measured(subject, found.kind, name, graphs=found.kind == "cuda")
        if result is None:
            result = _measured(subject, found.kind, name, graphs=False)
        if isinstance(result, Row):
            yield result
        else:
            reason = result.reason if result else "it cannot be timed"
            yield latency_not_run(port, name, found.kind, Source.MEASURED, reason)


def _measured(subject: Subject, kind: str, name: str, *, graphs: bool) -> Row | Failure | None:
    """`measure` in a process of its own, or why it gave nothing."""
    with Children(1) as children:
        future = children.submit(measure, subject.for_child(), kind, name, graphs=graphs)
        return children.result(future, subject.options.timeout_s)


def measure(subject: Subject, kind: str, name: str, *, graphs: bool) -> Row | None:
    """Times one case on the device, in this process. Microseconds a launch, medians.

    ``graphs``: replays both sides' launches as a graph, so that the host's part of a launch is
    not timed. None: one of them cannot be captured in a graph, and the device is in no state to
    go on; a process without graphs can time them.

    After has to give right values. Before is timed whatever it gives, and where it gives others
    the row says so; where it does not run, after is timed alone.
    """
    accelerator = Accelerator(kind)
    title = accelerator.title
    code = load_port(subject.port)
    case = next(case for case in code.cases if case.name == name)
    inputs = draw(code, case, subject.variant.name, subject.options.seed)
    answers = expected(code, inputs, subject.variant.name)
    remarks = []
    with ExitStack() as stack:
        trees = stack.enter_context(workspace(subject.checkout.root, subject.before, subject.after))
        stack.enter_context(accelerator.launching())
        timers: dict[str, Callable[[], float]] = {}
        for side, tree in (("before", trees.before), ("after", trees.after)):
            memory = DeviceMemory(layout(inputs, answers), _values(inputs), kind)
            memory.fill()
            try:
                with loaded(tree, subject.variant.targets[0].file, accelerator.device) as module:
                    entry = getattr(module, subject.entry(case))
                    launch = _launch(code, entry, memory.tensors, inputs, subject.variant.name)
                    launch()
                    accelerator.synchronize()
                    wrong = _wrong(memory, inputs, answers)
                    timers[side] = _timer(accelerator, launch, graphs=graphs)
            except _NoGraphError:
                return None
            except Exception as error:
                if side == "after":
                    raise
                remarks.append(f"before does not run: {one_line(error)}")
                continue
            if wrong and side == "after":
                reason = f"after gives wrong values: {wrong}"
                return latency_not_run(subject.port.name, name, title, Source.MEASURED, reason)
            if wrong:
                remarks.append(f"before gives other values: {wrong}")
        timings: dict[str, list[float]] = {side: [] for side in timers}
        for _ in range(PAIRS):
            for side, timer in timers.items():
                timings[side].append(timer())
    if kind == "cuda" and not graphs:
        remarks.append("launched one by one, as they cannot be captured in a graph")
    if named := stand_ins_in(subject.after.values()):
        remarks.append(f"with stand-ins for triton-ascend's {', '.join(named)}")
    spread = ratio(timings["before"], timings["after"]) if "before" in timings else None
    return Row(
        subject.port.name,
        name,
        title,
        "latency",
        "us",
        Source.MEASURED,
        before=float(np.median(timings["before"])) if spread else None,
        after=float(np.median(timings["after"])),
        ratio_low=spread.low if spread else None,
        ratio_high=spread.high if spread else None,
        measured_ratio=spread.median if spread else None,
        reason="; ".join(remarks),
    )


def _values(inputs: Workload) -> Callable[[str], Array]:
    def values(name: str) -> Array:
        return inputs.tensors[name].values

    return values


def _launch(
    code: PortCode, entry: Any, tensors: Mapping[str, Any], inputs: Workload, variant: str
) -> Callable[[], None]:
    def launch() -> None:
        code.launch(entry, tensors, inputs.scalars, variant)

    return launch


def _wrong(memory: DeviceMemory, inputs: Workload, answers: Mapping[str, Array]) -> str:
    """How the device's result differs from the reference; empty if it does not."""
    got = {name: memory.array(name, raw) for name, raw in memory.written().items()}
    poison = {item.name: item.poison for item in layout(inputs, answers).placements}
    return compare_all(got, answers, inputs.tensors, poison).difference


class _NoGraphError(RuntimeError):
    """A launch does what a CUDA graph cannot hold, such as a copy from the host."""


def _timer(
    accelerator: Accelerator, launch: Callable[[], None], *, graphs: bool
) -> Callable[[], float]:
    """Gives microseconds a launch by the device's own clock, over `LAUNCHES` of them.

    Without ``graphs`` they are enqueued one by one: for kernels shorter than the host's enqueueing
    (10 to 25 us on an NPU, triton-ascend issue 1675) the host is what bounds the figure.

    Raises:
        _NoGraphError: the launches cannot be captured.
    """
    backend = accelerator.backend

    def launches() -> None:
        for _ in range(LAUNCHES):
            launch()

    repeat: Callable[[], None] = launches
    if graphs:
        graph = backend.CUDAGraph()
        try:
            with backend.graph(graph):
                launches()
        except Exception as error:
            raise _NoGraphError(str(error)) from error
        # A graph knows addresses only: holding the launch keeps the tensors alive.
        repeat = partial(_replay, graph, launch)

    def timed() -> float:
        start, end = backend.Event(enable_timing=True), backend.Event(enable_timing=True)
        backend.synchronize()
        start.record()
        repeat()
        end.record()
        backend.synchronize()
        return float(start.elapsed_time(end)) * 1000 / LAUNCHES

    timed()  # warms up
    return timed


def _replay(graph: Any, held: object) -> None:
    graph.replay()
