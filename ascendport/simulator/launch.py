"""Running a program: arguments in, findings out, outputs in place."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ascendport.simulator.conflicts import Conflict
from ascendport.simulator.core import VectorCore
from ascendport.simulator.engine import Native
from ascendport.simulator.errors import ArgumentError
from ascendport.simulator.findings import line_of
from ascendport.simulator.ir import MemRef, Parameter, Program, Scalar
from ascendport.simulator.layout import Slot
from ascendport.simulator.library.base import DTYPES
from ascendport.simulator.memory import GmTensor, extent_of
from ascendport.simulator.parse import parse
from ascendport.simulator.result import Counters, Kind, Result
from ascendport.simulator.sites import CallSite, Site
from ascendport.simulator.state import StopProgramError
from ascendport.simulator.trace import Trace
from ascendport.simulator.translate import Translation, translate

Argument = NDArray[Any] | int | float | bool
Grid = tuple[int, int, int]

MAX_ITERATIONS = 1 << 32
"""Iterations of loops of one program, after which it is called endless."""

_WORKSPACE_BYTES = 1 << 20
"""A core's share of the runtime's workspace; programs for vector cores alone do not use it."""


class Simulator:
    """A program, translated once and run any number of times."""

    def __init__(self, program: Program | str) -> None:
        """
        Args:
            program: the text that bishengir-compile emits, or what `parse` made of it.

        Raises:
            MalformedError, UnsupportedError: as `parse` and `translate`.
        """
        self.program = parse(program) if isinstance(program, str) else program
        self.translation: Translation = translate(self.program)

    @cached_property
    def native(self) -> Native:
        """The machine code."""
        return Native(self.translation.text)

    @property
    def sites(self) -> tuple[Site, ...]:
        """Places in the program that records point to."""
        return self.translation.sites

    def launch(
        self,
        arguments: Sequence[Argument],
        grid: Sequence[int],
        names: Sequence[str] = (),
        reachable: Mapping[str, NDArray[Any]] | None = None,
    ) -> Launch:
        """The tensors and words that a launch hands to each program; arguments as for `run`.

        Raises:
            ArgumentError: as `run`.
        """
        return Launch(self.program, arguments, _grid(grid), names, reachable or {})

    def run(
        self,
        arguments: Sequence[Argument],
        grid: Sequence[int] = (1,),
        *,
        names: Sequence[str] = (),
        programs: Iterable[int] | None = None,
        trace: Iterable[int] = (),
        past_locks: bool = False,
        max_iterations: int = MAX_ITERATIONS,
        reachable: Mapping[str, NDArray[Any]] | None = None,
    ) -> Result:
        """Runs the launch, program after program.

        Args:
            arguments: of the kernel's run-time parameters, in order. Arrays are worked on in
                place; any view is fine as long as no stride is negative, and only its own
                elements may be touched. bf16 as ml_dtypes.bfloat16.
            grid: programs in x, y, z.
            names: of the arguments, for findings.
            programs: flat ids to run; default: all. For locks the others count as done.
            trace: flat ids whose stream of operations is kept.
            past_locks: a program that would wait for a lock for ever is reported and goes on as
                if it had the lock; default: the run ends there.
            max_iterations: of all loops of a program together whose bounds only the run tells.
            reachable: arrays that the kernel gets to only through addresses which lie in other
                arrays (``array.ctypes.data``), by the name that findings call them.

        Raises:
            ArgumentError: the arguments do not fit the program.
            UnsupportedError: the machine code needs what is not there.
        """
        started = time.perf_counter()
        shape = _grid(grid)
        launch = self.launch(arguments, shape, names, reachable)
        core = VectorCore(self.sites, self.program.ub_bytes, launch.tensors)
        core.strings = tuple(self.program.strings.values())
        core.past_locks = past_locks
        chosen = None if programs is None else list(programs)
        core.chosen = None if chosen is None else frozenset(chosen)
        kept = set(trace)
        traces: dict[int, Trace] = {}
        stopped = ""
        total = shape[0] * shape[1] * shape[2]
        ran = 0
        core.arrays.state[Slot.PROGRAMS] = total
        with np.errstate(all="ignore"):
            for program in range(total) if chosen is None else chosen:
                if not 0 <= program < total:
                    raise ArgumentError("no such program", where=program)
                core.start(program, trace=program in kept, fuel=max_iterations)
                state, block = core.arrays.state, launch.words
                code = self.native.run(state.ctypes.data, core.callback, block.ctypes.data)
                ran += 1
                if code:
                    if core.error is not None and not isinstance(core.error, StopProgramError):
                        raise core.error
                    stopped = str(core.error or "the program was stopped")
                words = core.end() if not code else np.zeros(0, np.int64)
                if program in kept:
                    traces[program] = Trace(words, self.sites)
                if code:
                    break
        _report_conflicts(core, launch)
        calls: Counter[str] = Counter()
        for number, count in core.calls.items():
            site = self.sites[number]
            assert isinstance(site, CallSite)
            calls[site.callee] += count
        counters = Counters(ran, dict(calls), core.bytes_read, core.bytes_written)
        seconds = time.perf_counter() - started
        return Result(core.findings.all(), counters, seconds, stopped, traces, tuple(core.printed))


def run(
    program: Program | str | Simulator,
    arguments: Sequence[Argument],
    grid: Sequence[int] = (1,),
    **options: Any,
) -> Result:
    """`Simulator.run` for a program that is run once; same arguments."""
    simulator = program if isinstance(program, Simulator) else Simulator(program)
    return simulator.run(arguments, grid, **options)


def _grid(grid: Sequence[int]) -> Grid:
    sizes = [*grid, 1, 1, 1][:3]
    if len(grid) > 3 or any(size < 0 for size in sizes):
        raise ArgumentError("a grid has up to three sizes", where=tuple(grid))
    return (sizes[0], sizes[1], sizes[2])


class Launch:
    """Arguments as the generated code takes them."""

    def __init__(
        self,
        program: Program,
        arguments: Sequence[Argument],
        grid: Grid,
        names: Sequence[str],
        reachable: Mapping[str, NDArray[Any]],
    ) -> None:
        users = program.user_parameters
        if len(arguments) != len(users):
            raise ArgumentError(
                f"the program takes {len(users)} arguments, {len(arguments)} were given",
                where=program.name,
                next="leave out those that were compiled as constants",
            )
        given = dict(zip((parameter.name for parameter in users), arguments, strict=True))
        titles = dict(zip((parameter.name for parameter in users), names, strict=False))
        sizes = dict(
            zip((parameter.name for parameter in program.grid_parameters), grid, strict=True)
        )
        self.tensors: list[GmTensor] = []
        words: list[int] = []
        for parameter in program.parameters:
            if parameter.kind:
                words.append(self._hidden(parameter))
            elif parameter.name in sizes:
                words.append(sizes[parameter.name])
            else:
                title = titles.get(parameter.name, parameter.name)
                words.append(self._visible(parameter, given[parameter.name], title))
        self.words = np.array(words, np.int64)
        for title, array in reachable.items():
            self._tensor(title, array)

    def _hidden(self, parameter: Parameter) -> int:
        if not isinstance(parameter.type, MemRef):
            return 0
        memory = np.zeros(_WORKSPACE_BYTES, np.uint8)
        return self._tensor(parameter.kind, memory, locked=True)

    def _tensor(self, name: str, array: NDArray[Any], *, locked: bool = False) -> int:
        number = len(self.tensors) + 1
        tensor = GmTensor(name, number, array, extent_of(array), locked)
        self.tensors.append(tensor)
        return tensor.address

    def _visible(self, parameter: Parameter, value: Argument, title: str) -> int:
        kind = parameter.type
        if isinstance(kind, Scalar):
            return _bits(value, kind.name, title)
        if not isinstance(value, np.ndarray):
            raise ArgumentError("a tensor is needed", where=title)
        wanted = kind.bits if kind.element != "i1" else 8
        if value.dtype.itemsize * 8 != wanted:
            raise ArgumentError(
                f"elements of {value.dtype} where the kernel has {kind.element}", where=title
            )
        return self._tensor(title, value)


def _bits(value: Argument, kind: str, title: str) -> int:
    """A number as its bits, sign-extended for integers."""
    if isinstance(value, np.ndarray) and value.ndim:
        raise ArgumentError("a number is needed", where=title)
    try:
        if kind in ("f16", "bf16", "f32"):
            raw = np.asarray(value, np.float32).astype(DTYPES[kind]).tobytes()
            return int.from_bytes(raw, "little")
        number = int(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise ArgumentError(f"{value!r} is no {kind}", where=title) from error
    width = 64 if kind == "index" else int(kind[1:])
    if not -(1 << (width - 1)) <= number < (1 << width):
        raise ArgumentError(f"{number} does not fit {kind}", where=title)
    number &= (1 << width) - 1
    return number - (1 << width) if width > 1 and number >> (width - 1) else number


def _report_conflicts(core: VectorCore, launch: Launch) -> None:
    by_number = {tensor.number: tensor for tensor in launch.tensors}

    def runtime_owned(number: int) -> bool:
        return number not in by_number or by_number[number].locked

    for conflict in core.accesses.conflicts(runtime_owned):
        tensor = by_number[conflict.tensor]
        core.findings.add(
            Kind.CONFLICT,
            _conflict(core, conflict, tensor),
            core.sites[conflict.second[1]],
            conflict.first[0],
            tensor=tensor.name,
            offset=conflict.start,
            other=conflict.second[0],
            detail=(conflict.first[1],),
            times=conflict.times,
        )


def _conflict(core: VectorCore, conflict: Conflict, tensor: GmTensor) -> str:
    size = tensor.array.itemsize

    def side(program: int, number: int, writes: bool) -> str:
        line = line_of(core.sites[number])
        return f"program {program} {'writes' if writes else 'reads'}{line}"

    first, last = conflict.start // size, -(-conflict.end // size)
    return (
        f"{tensor.name} elements {first}..{last}: {side(*conflict.first)},"
        f" {side(*conflict.second)}, no lock or atomic"
    )
