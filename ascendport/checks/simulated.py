"""A port's cases on the simulator, in two kinds of child process.

The first runs the tree's own code, to see what it launches, and compiles that. The second runs
the compiled programs and judges. It never loads anything of the tree: where the launch code works
with tensors itself (it makes some, or hands back results), that code runs again in a fork, with
each launch done by the simulator on the memory of the tensors that it is handed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

from ascendport.ascend import soc as socs
from ascendport.ascend.diagnostics import Refusal
from ascendport.checks.compiled import launched, programs_of
from ascendport.checks.subject import Subject
from ascendport.harness.buffers import Arena
from ascendport.harness.case import Array, Case, Workload
from ascendport.harness.children import Failure
from ascendport.harness.compare import compare_all
from ascendport.harness.forked import in_fork
from ascendport.harness.inputs import draw, expected
from ascendport.harness.launches import Launch, step
from ascendport.harness.loading import Device, UnavailableError
from ascendport.harness.portcode import load_port
from ascendport.harness.workspace import workspace
from ascendport.simulator import Simulator, UnsupportedError
from ascendport.simulator.launch import Argument

T = TypeVar("T")


@dataclass(frozen=True)
class Prepared:
    """One case on one SoC: its launches, without their functions, and their programs' texts.

    ``problem``: why it cannot run; ``verdict``: that is the port's fault, not the toolchain's.
    ``torch``: the launches are not all that the launch code does (`launches.Recording`).
    """

    side: str
    case: Case
    soc: str
    launches: tuple[Launch, ...] = ()
    programs: tuple[str, ...] = ()
    problem: str = ""
    verdict: bool = True
    torch: bool = False


@dataclass(frozen=True)
class Simulated:
    """How one case ended. ``ran`` False: ``problem`` says why, ``verdict`` as in `Prepared`."""

    case: str
    soc: str
    ran: bool
    problem: str = ""
    verdict: bool = True
    findings: int = 0
    kinds: tuple[str, ...] = ()
    """Kinds of the findings, each once."""
    wrong: bool = False
    """The values differ from the reference's."""
    bytes_read: int = 0
    bytes_written: int = 0
    seconds: float = 0.0


def prepare(
    subject: Subject, side: str, wanted: Sequence[tuple[str, tuple[str, ...]]]
) -> list[Prepared] | str:
    """Records and compiles the named cases, each for its SoCs; or says why nothing could be."""
    cases = {case.name: case for case in load_port(subject.port).cases}
    pairs = [(cases[name], [socs.soc(part) for part in parts]) for name, parts in wanted]
    with workspace(subject.checkout.root, subject.before, subject.after) as trees:
        tree = trees.before if side == "before" else trees.after
        try:
            found = launched(subject, tree, pairs)
        except UnavailableError as error:
            return f"{side}: {error}"
        prepared = []
        for one, results in zip(found, programs_of(found), strict=True):
            refused = [result for result in results if isinstance(result, Refusal)]
            problem = one.failure or (refused[0].reason if refused else "")
            prepared.append(
                Prepared(
                    side,
                    one.case,
                    one.part.name,
                    tuple(replace(launch, function=None) for launch in one.launches),
                    tuple(r.text for r in results if not isinstance(r, Refusal)),
                    problem,
                    bool(one.failure) or any(refusal.is_verdict for refusal in refused),
                    one.torch,
                )
            )
    return prepared


@lru_cache(maxsize=16)
def _simulator(text: str) -> Simulator:
    return Simulator(text)


@dataclass(frozen=True)
class Ready:
    """One launch that can be run: its program, arguments in order, their names, and the grid.

    ``last``: no launch of the case follows.
    """

    simulator: Simulator
    arguments: list[Argument]
    names: list[str]
    grid: tuple[int, ...]
    last: bool


class CannotRunError(Exception):
    """Why a launch cannot be simulated here; not the kernel's fault."""


class LaunchFailedError(Exception):
    """The tree's launch code failed, or did something else than when it was recorded."""


def each_launch(
    subject: Subject,
    prepared: Prepared,
    workload: Workload,
    arena: Arena,
    work: Callable[[Ready], T],
) -> list[T]:
    """What ``work`` makes of each launch of a case, in order, on the tensors of ``arena``.

    ``arena`` is `arena_for` this case. What ``work`` gives travels by pickle.

    Raises:
        CannotRunError: the simulator lacks something.
        LaunchFailedError: as it says.
    """
    try:
        simulators = [_simulator(text) for text in prepared.programs]
        if not prepared.torch:
            arrays = arena.arrays()
            return [
                work(_ready(prepared, number, simulator, _views(arrays, prepared.launches[number])))
                for number, simulator in enumerate(simulators)
            ]
    except UnsupportedError as error:
        raise CannotRunError(str(error)) from error
    # Done once here, not in every fork.
    _torch_for_forks()
    for simulator in simulators:
        _ = simulator.native
    results = in_fork(lambda: _stepped(subject, prepared, workload, arena, work))
    if isinstance(results, Failure):
        raise LaunchFailedError(f"the launch failed: {results.reason}")
    if isinstance(results, str):
        raise CannotRunError(results)
    return results


def _torch_for_forks() -> None:
    import torch
    import triton.language  # noqa: F401

    torch.set_num_threads(1)  # a fork would wait for threads that it does not have


def arena_for(prepared: Prepared, workload: Workload) -> Arena:
    """Memory for the tensors of a case."""
    return Arena.anonymous(workload, shared=prepared.torch)


def _stepped(
    subject: Subject,
    prepared: Prepared,
    workload: Workload,
    arena: Arena,
    work: Callable[[Ready], T],
) -> list[T] | str:
    """The fork's part of `each_launch`; text is the reason of a CannotRunError."""
    results: list[T] = []
    recorded = prepared.launches
    said = ""

    def on_launch(launch: Launch, arrays: Mapping[str, Array]) -> None:
        nonlocal said
        number = len(results)
        if said:
            return
        if number >= len(recorded) or launch.program_key() != recorded[number].program_key():
            raise LaunchFailedError("another kernel is launched when results are there")
        simulator = _simulator(prepared.programs[number])
        now = replace(prepared, launches=(*recorded[:number], launch, *recorded[number + 1 :]))
        try:
            results.append(work(_ready(now, number, simulator, arrays)))
        except UnsupportedError as error:
            said = str(error)

    part = socs.soc(prepared.soc)
    variant = subject.variant
    with workspace(subject.checkout.root, subject.before, subject.after) as trees:
        step(
            trees.before if prepared.side == "before" else trees.after,
            variant.targets[0].file,
            subject.entry(prepared.case),
            load_port(subject.port),
            variant.name,
            Device(part.vector_cores, part.ub_bytes),
            workload,
            arena,
            on_launch,
        )
    if not said and len(results) < len(recorded):
        raise LaunchFailedError("fewer kernels are launched when results are there")
    return said or results


def _ready(
    prepared: Prepared, number: int, simulator: Simulator, arrays: Mapping[str, Array]
) -> Ready:
    """A launch on ``arrays``, which are by parameter."""
    launch = prepared.launches[number]
    keys = [key for key in launch.signature if key not in launch.constants]
    return Ready(
        simulator,
        [arrays[key] if key in launch.tensors else _number(launch, key) for key in keys],
        [launch.tensors[key].tensor if _named(launch, key) else key for key in keys],
        launch.grid,
        number == len(prepared.launches) - 1,
    )


def _named(launch: Launch, key: str) -> bool:
    return key in launch.tensors and bool(launch.tensors[key].tensor)


@dataclass(frozen=True)
class _Ran:
    """What one launch showed."""

    findings: tuple[str, ...]
    kinds: tuple[str, ...]
    stopped: str
    bytes_read: int
    bytes_written: int
    seconds: float


def _run(one: Ready) -> _Ran:
    result = one.simulator.run(one.arguments, one.grid, names=one.names)
    return _Ran(
        tuple(_short(str(finding)) for finding in result.findings),
        tuple(str(finding.kind) for finding in result.findings),
        result.stopped,
        result.counters.bytes_read,
        result.counters.bytes_written,
        result.seconds,
    )


def simulate(subject: Subject, prepared: Prepared) -> Simulated:
    """Runs one case and compares it with the reference."""
    name, soc = prepared.case.name, prepared.soc
    if prepared.problem:
        return Simulated(name, soc, False, prepared.problem, prepared.verdict)
    code = load_port(subject.port)
    variant = subject.variant.name
    workload = draw(code, prepared.case, variant, subject.options.seed)
    answers = expected(code, workload, variant)
    with arena_for(prepared, workload) as arena:
        try:
            results = each_launch(subject, prepared, workload, arena, _run)
        except CannotRunError as error:
            return Simulated(name, soc, False, str(error), verdict=False)
        except LaunchFailedError as error:
            return Simulated(name, soc, False, str(error))
        wrong = differences(arena, workload, answers)
    problems = [
        said for one in results for said in (*one.findings[:1], one.stopped) if said
    ] + wrong
    return Simulated(
        name,
        soc,
        True,
        "; ".join(problems),
        findings=sum(len(one.findings) for one in results),
        kinds=tuple(sorted({kind for one in results for kind in one.kinds})),
        wrong=bool(wrong),
        bytes_read=sum(one.bytes_read for one in results),
        bytes_written=sum(one.bytes_written for one in results),
        seconds=round(sum(one.seconds for one in results), 3),
    )


def _number(launch: Launch, key: str) -> int | float | bool:
    value = launch.scalars[key]
    if not isinstance(value, bool | int | float):
        raise TypeError(f"{key} is {value!r}: not a number")
    return value


def _views(arrays: Mapping[str, Array], launch: Launch) -> dict[str, Array]:
    return {key: _view(arrays, launch, key) for key in launch.tensors}


def _view(arrays: Mapping[str, Array], launch: Launch, key: str) -> Array:
    """The part of a tensor that a launch was handed."""
    argument = launch.tensors[key]
    whole = arrays[argument.tensor]
    if argument.offset == 0 and argument.shape == whole.shape:
        return whole
    from numpy.lib.stride_tricks import as_strided

    size = whole.itemsize
    row, column = divmod(argument.offset, max(1, whole.strides[0] // size))
    start = whole[row:, column:] if whole.ndim == 2 else whole[argument.offset :]
    view: Array = as_strided(start, argument.shape, [s * size for s in argument.strides])
    return view


def differences(arena: Arena, workload: Workload, answers: Mapping[str, Array]) -> list[str]:
    """How a case's tensors differ from the reference's ``answers``; empty: they do not."""
    got = {name: arena.read(name) for name in answers}
    poison = {item.name: item.poison for item in arena.layout.placements}
    verdict = compare_all(got, answers, workload.tensors, poison)
    found = [verdict.difference] if not verdict.same else []
    return found + [said for said in (arena.changed_outside(),) if said]


def _short(finding: str) -> str:
    """Without the folder that the tree was copied to."""
    path, colon, rest = finding.partition(": ")
    return f"{Path(path).name}{colon}{rest}" if "/" in path else finding
