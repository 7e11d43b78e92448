"""Latency on a device that is there: before and after, interleaved, in one child process.

Right values first: a kernel that gives wrong ones is not timed.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import numpy as np

from ascendport.bench.detect import detect
from ascendport.bench.rows import Row, Source, latency_not_run
from ascendport.bench.statistics import ratio
from ascendport.checks.subject import Subject
from ascendport.harness.buffers import array_of
from ascendport.harness.case import Array, Role, Tensor, Workload, numpy_dtype
from ascendport.harness.children import Children, Failure
from ascendport.harness.compare import compare
from ascendport.harness.inputs import draw, expected
from ascendport.harness.loading import Device, loaded
from ascendport.harness.portcode import PortCode, load_port
from ascendport.harness.workspace import workspace

PAIRS = 40
"""Pairs of timings, before next to after."""
LAUNCHES = 20
"""Launches in one timing, back to back."""

_ASCEND_OPTIONS = ("multibuffer",)
"""Launch options that other backends of triton refuse."""
_ASCEND_FUNCTIONS = ("insert_slice", "extract_slice", "get_element")
"""Functions of triton-ascend's language that vllm_ascend.ops.triton.triton_utils resolves."""


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
    with Children(1) as children:
        for number, name in enumerate(names):
            subject.progress(f"{port} on {found.kind}", number, len(names))
            future = children.submit(measure, subject.for_child(), found.kind, name)
            result = children.result(future, subject.options.timeout_s)
            if isinstance(result, Failure):
                yield latency_not_run(port, name, found.kind, Source.MEASURED, result.reason)
            else:
                yield result


def measure(subject: Subject, kind: str, name: str) -> Row:
    """Times one case on the device, in this process. Microseconds a launch, medians."""
    import torch

    if kind == "npu":
        import torch_npu  # noqa: F401  makes torch.npu

    backend = getattr(torch, kind)
    title = backend.get_device_name(0)
    code = load_port(subject.port)
    case = next(case for case in code.cases if case.name == name)
    inputs = draw(code, case, subject.variant.name, subject.options.seed)
    answers = expected(code, inputs, subject.variant.name)
    device = Device(vector_cores=_cores(kind, backend))
    with ExitStack() as stack:
        trees = stack.enter_context(workspace(subject.checkout.root, subject.before, subject.after))
        stack.enter_context(_other_backend())
        timers: dict[str, Callable[[], float]] = {}
        for side, tree in (("before", trees.before), ("after", trees.after)):
            with loaded(tree, subject.variant.targets[0].file, device) as module:
                entry = getattr(module, subject.entry(case))
                tensors = {key: _to_device(tensor, kind) for key, tensor in inputs.tensors.items()}
                launch = _launch(code, entry, tensors, inputs, subject.variant.name)
                launch()
                wrong = _wrong(tensors, inputs, answers)
                if wrong:
                    reason = f"{side} gives wrong values: {wrong}"
                    return latency_not_run(subject.port.name, name, title, Source.MEASURED, reason)
                timers[side] = _timer(torch, kind, launch)
        timings: dict[str, list[float]] = {side: [] for side in timers}
        for _ in range(PAIRS):
            for side, timer in timers.items():
                timings[side].append(timer())
    spread = ratio(timings["before"], timings["after"])
    return Row(
        subject.port.name,
        name,
        title,
        "latency",
        "us",
        Source.MEASURED,
        before=float(np.median(timings["before"])),
        after=float(np.median(timings["after"])),
        ratio_low=spread.low,
        ratio_high=spread.high,
        measured_ratio=spread.median,
    )


def _cores(kind: str, backend: Any) -> int:
    """What a launcher is told for vector cores; on a GPU a multiprocessor stands for one."""
    if kind == "cuda":
        return int(backend.get_device_properties(0).multi_processor_count)
    import triton

    properties = triton.runtime.driver.active.utils.get_device_properties(backend.current_device())
    return int(properties["num_vectorcore"])


def _launch(
    code: PortCode, entry: Any, tensors: Mapping[str, Any], inputs: Workload, variant: str
) -> Callable[[], None]:
    def launch() -> None:
        code.launch(entry, tensors, inputs.scalars, variant)

    return launch


def _to_device(tensor: Tensor, kind: str) -> Any:
    """The tensor on the device, with the workload's row stride; OUT tensors hold noise."""
    import torch

    values = np.ascontiguousarray(tensor.values)
    if values.dtype == numpy_dtype("bf16"):
        plain = torch.from_numpy(values.view(np.int16)).view(torch.bfloat16)
    else:
        plain = torch.from_numpy(values)
    if tensor.role is Role.OUT:
        plain = torch.full_like(plain, 77)
    if values.ndim == 1 or tensor.stride == values.shape[1]:
        # A copy also on a CPU: the workload's own values stay as they are.
        return plain.clone().to(kind)
    wide = torch.zeros((values.shape[0], tensor.stride), dtype=plain.dtype, device=kind)
    wide[:, : values.shape[1]] = plain.to(kind)
    return wide[:, : values.shape[1]]


def _wrong(tensors: Mapping[str, Any], inputs: Workload, answers: Mapping[str, Array]) -> str:
    """How the device's result differs from the reference; empty if it does not."""
    for name, answer in answers.items():
        got = array_of(tensors[name].cpu())
        difference = compare(name, got, answer, inputs.tensors[name])
        if not difference.same:
            return difference.difference
    return ""


def _timer(torch: Any, kind: str, launch: Callable[[], None]) -> Callable[[], float]:
    """Gives microseconds a launch by the device's own clock, over `LAUNCHES` of them.

    On CUDA they are replayed as a graph, so that the host's part of a launch is not timed. On an
    NPU they are enqueued one by one: for kernels shorter than the host's enqueueing (10 to 25 us,
    triton-ascend issue 1675) the host is what bounds the figure.
    """
    backend = getattr(torch, kind)

    def launches() -> None:
        for _ in range(LAUNCHES):
            launch()

    repeat: Callable[[], None] = launches
    if kind == "cuda":
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            launches()
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


def _absent(*_: object) -> None:
    raise NotImplementedError("only triton-ascend has this function")


def _replay(graph: Any, held: object) -> None:
    graph.replay()


@contextmanager
def _other_backend() -> Iterator[None]:
    """Lets a tree's kernels load and launch on a triton without the Ascend backend.

    Launch options that only Ascend knows are dropped. The functions that only triton-ascend's
    language has exist by name, since the tree looks them up when it is imported; a kernel that
    calls one does not compile.
    """
    if importlib.util.find_spec("triton.backends.ascend") is not None:
        yield
        return
    import triton.language as tl
    from triton.runtime.jit import JITFunction

    run = JITFunction.run
    made = [name for name in _ASCEND_FUNCTIONS if not hasattr(tl, name)]

    def without(function: Any, *args: Any, **kwargs: Any) -> Any:
        for name in _ASCEND_OPTIONS:
            kwargs.pop(name, None)
        return run(function, *args, **kwargs)

    JITFunction.run = without
    for name in made:
        setattr(tl, name, _absent)
    try:
        yield
    finally:
        JITFunction.run = run
        for name in made:
            delattr(tl, name)
