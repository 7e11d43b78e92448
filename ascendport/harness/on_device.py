"""Runs launches on a device that is there: an Ascend NPU, or a CUDA GPU with triton's own backend.

A workload lies there in memory of its own, poison in front, between rows and behind. A launch is
made again and again on the same inputs; what it wrote has to be the same, bit for bit, each time,
and nothing else may have changed. Meant for a child process: torch and triton are imported, and
the code of a tree runs. Outputs of the first launch go to a file (`buffers.Arena`), for another
process to judge.
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ascendport.harness.buffers import (
    WINDOW,
    Arena,
    Layout,
    Placement,
    array_of,
    bits,
    place,
    uninitialised_is_poison,
)
from ascendport.harness.case import Array, Role, Tensor, numpy_dtype
from ascendport.harness.child import one_line
from ascendport.harness.compare import compare
from ascendport.harness.light import TORCH_NAME
from ascendport.harness.loading import Device, loaded
from ascendport.harness.portcode import load_cases
from ascendport.harness.workspace import Tree

WARPS = 16
"""Warps of a program on a GPU where the launch names no number: a kernel made for an NPU holds
tiles of thousands of elements, for which triton's own default of four has too few registers."""

_ASCEND_OPTIONS = ("multibuffer",)
"""Launch options that other backends of triton refuse."""

_LOOKED_UP = ("insert_slice", "extract_slice", "get_element")
"""Names of triton-ascend's language that a tree looks up when it is imported."""

_CHUNK = 1 << 26
"""Elements of memory that are compared at a time."""

_SIGNED = {1: "uint8", 2: "int16", 4: "int32", 8: "int64"}
"""torch's integers by their bytes; torch cannot do much with unsigned ones of more than one."""


class Accelerator:
    """The first NPU or GPU of this machine.

    ``kind``: cuda or npu. ``title``: the device's own name. ``device``: what launchers are told;
    on a GPU a multiprocessor stands for a vector core.
    """

    def __init__(self, kind: str) -> None:
        import torch

        if kind == "npu":
            import torch_npu  # noqa: F401  makes torch.npu
        self.kind = kind
        self.backend = getattr(torch, kind)
        self.title = str(self.backend.get_device_name(0))
        self.device = Device(vector_cores=self._cores())

    def _cores(self) -> int:
        if self.kind == "cuda":
            return int(self.backend.get_device_properties(0).multi_processor_count)
        import triton

        utils = triton.runtime.driver.active.utils
        return int(utils.get_device_properties(self.backend.current_device())["num_vectorcore"])

    def synchronize(self) -> None:
        """Waits for the end of all work. Raises what went wrong on the device."""
        self.backend.synchronize()

    def free_bytes(self) -> int | None:
        """Memory that can still be had, bytes; None: unknown."""
        self.backend.empty_cache()
        return int(self.backend.mem_get_info()[0])

    @contextmanager
    def launching(self) -> Iterator[None]:
        """What a tree's kernels need in order to load and launch here."""
        with _other_backend():
            yield

    @contextmanager
    def beside_other_work(self) -> Iterator[None]:
        """Other work on the device, begun before the block and still under way in it: programs of
        a launch then start at other times and in another order than on an idle device."""
        import torch

        stream = self.backend.Stream()
        with self.backend.stream(stream):
            square = torch.ones((1024, 1024), device=self.kind)
            for _ in range(20):
                square = square @ square
        yield
        stream.synchronize()


def stand_ins() -> tuple[str, ...]:
    """Names of functions that come from `ascend_language` on this machine's triton, not from
    triton-ascend: none where that is installed."""
    if importlib.util.find_spec("triton.backends.ascend") is not None:
        return ()
    from ascendport.harness.ascend_language import STAND_INS

    return tuple(STAND_INS)


def stand_ins_in(texts: Iterable[bytes]) -> tuple[str, ...]:
    """Those of `stand_ins` that one of the texts names."""
    every = tuple(texts)
    return tuple(name for name in stand_ins() if any(name.encode() in text for text in every))


def _absent(*_: object) -> None:
    raise NotImplementedError("only triton-ascend has this function")


@contextmanager
def _other_backend() -> Iterator[None]:
    """Lets a tree's kernels load and launch on a triton without the Ascend backend.

    Launch options that only Ascend knows are dropped. Multiplications and additions stay apart,
    as the Ascend compiler leaves them: fused, they round once less, and a result that has to be
    exact is not. Functions that only triton-ascend's language has come from `ascend_language`, or
    exist by name and cannot be called.
    """
    if importlib.util.find_spec("triton.backends.ascend") is not None:
        yield
        return
    import triton.language as tl
    from triton.runtime.jit import JITFunction

    from ascendport.harness.ascend_language import STAND_INS

    run = JITFunction.run
    made = [name for name in _LOOKED_UP if not hasattr(tl, name)]

    def without(function: Any, *args: Any, **kwargs: Any) -> Any:
        for name in _ASCEND_OPTIONS:
            kwargs.pop(name, None)
        kwargs.setdefault("num_warps", WARPS)
        kwargs.setdefault("enable_fp_fusion", False)
        return run(function, *args, **kwargs)

    JITFunction.run = without
    for name in made:
        setattr(tl, name, STAND_INS.get(name, _absent))
    try:
        yield
    finally:
        JITFunction.run = run
        for name in made:
            delattr(tl, name)


class _Tensor:
    """One tensor on the device, poison around it, and what it holds before a launch."""

    def __init__(self, placement: Placement, values: Array, kind: str) -> None:
        import torch

        self.placement = placement
        signed = np.dtype(_SIGNED[placement.itemsize])
        pattern = np.array(placement.poison, f"u{placement.itemsize}")
        self.poison = int(pattern.view(signed))
        self.flat = torch.empty(
            placement.extent + 2 * WINDOW, dtype=getattr(torch, signed.name), device=kind
        )
        self.flat.fill_(self.poison)
        self.owned = self.flat.as_strided(placement.shape, placement.strides, WINDOW)
        typed = self.flat.view(getattr(torch, TORCH_NAME[placement.dtype]))
        self.tensor = typed.as_strided(placement.shape, placement.strides, WINDOW)
        raw = np.ascontiguousarray(values).view(signed)
        self.before = None if placement.role is Role.OUT else torch.from_numpy(raw).to(kind)

    def fill(self) -> None:
        """What the launch is to find: the values, or poison in a tensor that it only writes."""
        if self.before is None:
            self.owned.fill_(self.poison)
        else:
            self.owned.copy_(self.before)

    def spoilt(self) -> str:
        """The first element that changed and is not the tensor's own; poisons its own ones."""
        self.owned.fill_(self.poison)
        for begin in range(0, self.flat.numel(), _CHUNK):
            wrong = self.flat[begin : begin + _CHUNK] != self.poison
            if bool(wrong.any()):
                where = begin + int(wrong.int().argmax()) - WINDOW
                return f"{self.placement.describe(where)} changed"
        return ""


class DeviceMemory:
    """The tensors of a layout on a device, each in an allocation of its own."""

    def __init__(self, plan: Layout, values: Callable[[str], Array], kind: str) -> None:
        """``values``: the contents of a tensor by its name, in its shape and type."""
        self._all = {item.name: _Tensor(item, values(item.name), kind) for item in plan.placements}

    @staticmethod
    def size(plan: Layout) -> int:
        """Bytes on the device: each tensor with its margins, and a copy of what it holds."""
        return sum(
            (item.extent + 2 * WINDOW + item.rows * item.columns) * item.itemsize
            for item in plan.placements
        )

    @property
    def tensors(self) -> dict[str, Any]:
        """torch tensors by name, with the workload's shapes, types and strides."""
        return {name: one.tensor for name, one in self._all.items()}

    def fill(self) -> None:
        """All tensors as before a launch."""
        for one in self._all.values():
            one.fill()

    def written(self) -> dict[str, Any]:
        """A copy of each tensor that may be written, as integers, on the device."""
        return {
            name: one.owned.clone()
            for name, one in self._all.items()
            if one.placement.role is not Role.IN
        }

    def array(self, name: str, raw: Any) -> Array:
        """What `written` gave for a tensor, here and in the tensor's own type."""
        values = array_of(raw.cpu())
        return values.view(numpy_dtype(self._all[name].placement.dtype))

    def changed_inputs(self) -> str:
        """The first tensor that may only be read and that changed."""
        for name, one in self._all.items():
            if one.placement.role is not Role.IN or one.before is None:
                continue
            wrong = one.owned != one.before
            if bool(wrong.any()):
                index = np.unravel_index(int(wrong.int().argmax()), one.placement.shape)
                return f"{name}: {place(index)}, an input, changed"
        return ""

    def spoilt(self) -> str:
        """The first write outside of every tensor. The tensors hold poison afterwards."""
        return next((found for one in self._all.values() if (found := one.spoilt())), "")


@dataclass(frozen=True)
class Job:
    """One case to run: on the memory of ``arena``, laid out as ``layout``, whose outputs it fills.

    ``accelerator``: opens the device in the process where the job runs. ``tree``, ``file``,
    ``entry``: what is launched. ``cases``: the port's cases.py. ``repeats``: launches, at least 1;
    every second one beside other work on the device.
    """

    accelerator: Callable[[], Accelerator]
    arena: Path
    layout: Layout
    tree: Tree
    file: str
    entry: str
    cases: Path
    scalars: Mapping[str, int | float | bool]
    variant: str
    repeats: int


@dataclass(frozen=True)
class Ran:
    """What became of a job.

    ``problem``: what one of the launches did that none may, one line; empty if nothing.
    ``lacking``: why it was not run; empty if it was.
    """

    title: str
    problem: str = ""
    lacking: str = ""
    figures: Mapping[str, int | float] = field(default_factory=dict)


def run(job: Job) -> Ran:
    """Runs a job here and now. Raises what the tree's code, triton or the device raise."""
    import torch

    equal = torch.equal  # the tree's code must not get at what compares
    accelerator = job.accelerator()
    with ExitStack() as stack:
        arena = stack.enter_context(Arena.attach(job.arena, job.layout))
        needed, free = DeviceMemory.size(job.layout), accelerator.free_bytes()
        if free is not None and needed > free:
            lacking = f"it takes {needed / 2**30:.1f} GiB, {free / 2**30:.1f} GiB are free"
            return Ran(accelerator.title, lacking=lacking)
        try:
            memory = DeviceMemory(job.layout, arena.read, accelerator.kind)
        except torch.OutOfMemoryError as error:
            return Ran(accelerator.title, lacking=str(error).partition("\n")[0])
        stack.enter_context(accelerator.launching())
        stack.enter_context(uninitialised_is_poison())
        _, code = load_cases(job.cases)
        module = stack.enter_context(loaded(job.tree, job.file, accelerator.device))
        if not hasattr(module, job.entry):
            return Ran(accelerator.title, problem=f"{job.file} has no {job.entry}")
        entry = getattr(module, job.entry)
        begin = time.perf_counter()
        first: dict[str, Any] = {}
        for number in range(1, job.repeats + 1):
            memory.fill()
            with ExitStack() as beside:
                if number % 2 == 0:
                    beside.enter_context(accelerator.beside_other_work())
                try:
                    code.launch(entry, memory.tensors, dict(job.scalars), job.variant)
                except Exception as error:
                    accelerator.synchronize()  # raises where the device itself is broken
                    return Ran(accelerator.title, f"run {number}: {one_line(error)}")
                accelerator.synchronize()
            written = memory.written()
            if number == 1:
                first = written
                for name, raw in first.items():
                    arena.arrays()[name][...] = memory.array(name, raw)
            problem = memory.changed_inputs() or memory.spoilt()
            for name in first if not problem and number > 1 else ():
                if not equal(first[name], written[name]):
                    kept, now = memory.array(name, first[name]), memory.array(name, written[name])
                    problem = f"not what the first run gave: {_difference(name, now, kept)}"
                    break
            if problem:
                return Ran(accelerator.title, f"run {number} of {job.repeats}: {problem}")
        seconds = round(time.perf_counter() - begin, 3)
    return Ran(accelerator.title, figures={"repeats": job.repeats, "seconds": seconds})


def _difference(name: str, now: Array, first: Array) -> str:
    """Where two runs differ, in words; the first one's value is called the expected one."""
    found = compare(name, now, first, Tensor(first, Role.INOUT))
    if found.same:  # NaN equals NaN there, whatever its bits
        index = np.unravel_index(int(np.argmax(bits(now) != bits(first))), first.shape)
        return f"{name}: {place(index)}: another NaN"
    return found.difference
