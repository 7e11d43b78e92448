"""A port's cases on the simulator, in two kinds of child process.

The first runs the tree's own code, to see what it launches, and compiles that. The second runs
the compiled programs and judges: it never loads anything of the tree.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from ascendport.ascend import soc as socs
from ascendport.ascend.diagnostics import Refusal
from ascendport.checks.compiled import launched, programs_of
from ascendport.checks.subject import Subject
from ascendport.harness.buffers import Arena
from ascendport.harness.case import Array, Case, Workload
from ascendport.harness.compare import compare_all
from ascendport.harness.inputs import draw, expected
from ascendport.harness.launches import Launch
from ascendport.harness.loading import UnavailableError
from ascendport.harness.portcode import load_port
from ascendport.harness.workspace import workspace
from ascendport.simulator import Simulator, UnsupportedError
from ascendport.simulator.launch import Argument


@dataclass(frozen=True)
class Prepared:
    """One case on one SoC: its launches, without their functions, and their programs' texts.

    ``problem``: why it cannot run; ``verdict``: that is the port's fault, not the toolchain's.
    """

    case: Case
    soc: str
    launches: tuple[Launch, ...] = ()
    programs: tuple[str, ...] = ()
    problem: str = ""
    verdict: bool = True


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
                    one.case,
                    one.part.name,
                    tuple(replace(launch, function=None) for launch in one.launches),
                    tuple(r.text for r in results if not isinstance(r, Refusal)),
                    problem,
                    bool(one.failure) or any(refusal.is_verdict for refusal in refused),
                )
            )
    return prepared


@lru_cache(maxsize=16)
def _simulator(text: str) -> Simulator:
    return Simulator(text)


@dataclass(frozen=True)
class Ready:
    """One launch that can be run: its program, arguments in order, their names, and the grid."""

    simulator: Simulator
    arguments: list[Argument]
    names: list[str]
    grid: tuple[int, ...]


class CannotRunError(Exception):
    """Why a launch cannot be simulated here; not the kernel's fault."""


def ready(prepared: Prepared, arrays: Mapping[str, Array]) -> Iterator[Ready]:
    """The launches of a case on these tensors, in order.

    Raises:
        CannotRunError: the simulator lacks something, or a tensor's contents are not known.
    """
    for launch, text in zip(prepared.launches, prepared.programs, strict=True):
        names = [key for key in launch.signature if key not in launch.constants]
        for key in names:
            if key in launch.tensors and not launch.tensors[key].tensor:
                reason = f"the launcher made {key} itself: its contents are not known here"
                raise CannotRunError(reason)
        try:
            simulator = _simulator(text)
        except UnsupportedError as error:
            raise CannotRunError(str(error)) from error
        yield Ready(
            simulator,
            [_argument(arrays, launch, key) for key in names],
            [launch.tensors[key].tensor if key in launch.tensors else key for key in names],
            launch.grid,
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
    problems: list[str] = []
    results = []
    with Arena.anonymous(workload) as arena:
        try:
            for launch in ready(prepared, arena.arrays()):
                result = launch.simulator.run(launch.arguments, launch.grid, names=launch.names)
                results.append(result)
                problems += [_short(str(finding)) for finding in result.findings[:1]]
                problems += [result.stopped] if result.stopped else []
        except CannotRunError as error:
            return Simulated(name, soc, False, str(error), verdict=False)
        differences = _differences(arena, workload, answers)
    problems += differences
    return Simulated(
        name,
        soc,
        True,
        "; ".join(problems),
        findings=sum(len(result.findings) for result in results),
        kinds=tuple(sorted({str(f.kind) for result in results for f in result.findings})),
        wrong=bool(differences),
        bytes_read=sum(result.counters.bytes_read for result in results),
        bytes_written=sum(result.counters.bytes_written for result in results),
        seconds=round(sum(result.seconds for result in results), 3),
    )


def _argument(arrays: Mapping[str, Array], launch: Launch, key: str) -> Argument:
    if key in launch.tensors:
        return _view(arrays, launch, key)
    value = launch.scalars[key]
    if not isinstance(value, bool | int | float):
        raise TypeError(f"{key} is {value!r}: not a number")
    return value


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


def _differences(arena: Arena, workload: Workload, answers: Mapping[str, Array]) -> list[str]:
    got = {name: arena.read(name) for name in answers}
    poison = {item.name: item.poison for item in arena.layout.placements}
    verdict = compare_all(got, answers, workload.tensors, poison)
    found = [verdict.difference] if not verdict.same else []
    return found + [said for said in (arena.changed_outside(),) if said]


def _short(finding: str) -> str:
    """Without the folder that the tree was copied to."""
    path, colon, rest = finding.partition(": ")
    return f"{Path(path).name}{colon}{rest}" if "/" in path else finding
