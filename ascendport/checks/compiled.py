"""One side of a port through the Ascend compiler: the work of a child process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ascendport.ascend import canary
from ascendport.ascend import soc as socs
from ascendport.ascend.bishengir import CompileRequest, Program, compile_many
from ascendport.ascend.diagnostics import Refusal
from ascendport.ascend.facts import ProgramFacts
from ascendport.ascend.lowering import Linalg, LoweringRequest, lower
from ascendport.ascend.program import read
from ascendport.checks.subject import Subject
from ascendport.harness.case import Case
from ascendport.harness.inputs import draw
from ascendport.harness.launches import Launch, Recording, record
from ascendport.harness.loading import Device, UnavailableError
from ascendport.harness.portcode import load_port
from ascendport.harness.workspace import Tree, workspace


@dataclass(frozen=True)
class Compiled:
    """All programs of one case on one SoC: facts, or why there are none.

    ``verdict``: a refusal is the compiler's word on the kernel; False where this toolchain just
    cannot tell.
    """

    case: str
    soc: str
    programs: tuple[ProgramFacts, ...] = ()
    refusals: tuple[str, ...] = ()
    verdict: bool = True
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Grid:
    """Over the cases tagged ``compile`` or ``grid``, on the first SoC: the largest grid, in
    programs, the case that launches it, and how many different programs have to be compiled."""

    largest: int = 0
    case: str = "none"
    programs: int = 0


@dataclass(frozen=True)
class Side:
    """What a child found out about before or after."""

    compiled: tuple[Compiled, ...] = ()
    grids: Grid = Grid()
    canary: str = ""
    """Why the canary kernels show that the compiler cannot be trusted; empty: it can."""
    unavailable: str = ""
    """Why nothing could be compiled at all."""


def compile_side(subject: Subject, side: str, names: Sequence[str]) -> Side:
    """Compiles every case tagged ``compile`` of one side for every SoC, canaries first.

    The canaries are the after side's business: one proof a run is enough.
    """
    parts = [socs.soc(name) for name in names]
    if side == "after":
        proof = canary.prove(parts)
        if not proof.alive:
            return Side(canary=proof.reason)
    with workspace(subject.checkout.root, subject.before, subject.after) as trees:
        tree = trees.before if side == "before" else trees.after
        try:
            found = launched(subject, tree, _wanted(subject, parts))
        except UnavailableError as error:
            return Side(unavailable=f"{side}: {error}")
        return Side(tuple(_compiled(found)), _grid(found))


@dataclass(frozen=True)
class Launched:
    """What one case launches on one SoC; or why it launches nothing."""

    case: Case
    part: socs.Soc
    launches: tuple[Launch, ...]
    failure: str = ""
    torch: bool = False
    """As `launches.Recording` has it."""


def launched(
    subject: Subject, tree: Tree, wanted: Sequence[tuple[Case, Sequence[socs.Soc]]]
) -> list[Launched]:
    """Records each case's launches for its SoCs.

    Raises:
        UnavailableError: the tree needs a part of vllm that has no stand-in.
    """
    code = load_port(subject.port)
    variant = subject.variant
    found = []
    for case, parts in wanted:
        inputs = draw(code, case, variant.name, subject.options.seed)
        for part in parts:
            recorded = Recording((), torch=False)
            failure = ""
            try:
                recorded = record(
                    tree,
                    variant.targets[0].file,
                    subject.entry(case),
                    code,
                    case,
                    variant.name,
                    device=Device(part.vector_cores, part.ub_bytes),
                    workload=inputs,
                )
            except UnavailableError:
                raise
            except (Exception, SystemExit) as error:  # whatever the tree's launcher raises
                failure = f"the launch failed: {type(error).__name__}: {error}"
            found.append(Launched(case, part, recorded.launches, failure, recorded.torch))
    return found


def programs_of(found: Sequence[Launched]) -> list[list[Program | Refusal]]:
    """The program of each launch of each case, or why there is none; equal ones compiled once.

    Lowers one after another, since the front end is not thread-safe, then compiles one at a
    time: another side of the port is compiled on the other core.
    """
    fronts: dict[tuple[str, bool], Linalg | Refusal] = {}
    for one in found:
        for launch in one.launches:
            # A2 and A3 have one front end; see `lowering.lower_all`.
            key = (launch.program_key(), one.part.family is socs.Family.A5)
            if key not in fronts:
                fronts[key] = lower(_request(launch), one.part)
    requests = {
        (launch.program_key(), one.part.name): CompileRequest(
            front.text, one.part, front.multibuffer, front.flags
        )
        for one in found
        for launch in one.launches
        if isinstance(
            front := fronts[launch.program_key(), one.part.family is socs.Family.A5], Linalg
        )
    }
    backs = dict(zip(requests, compile_many(list(requests.values()), jobs=1), strict=True))

    def result(one: Launched, launch: Launch) -> Program | Refusal:
        key = launch.program_key()
        front = fronts[key, one.part.family is socs.Family.A5]
        return front if isinstance(front, Refusal) else backs[key, one.part.name]

    return [[result(one, launch) for launch in one.launches] for one in found]


def _wanted(subject: Subject, parts: Sequence[socs.Soc]) -> list[tuple[Case, Sequence[socs.Soc]]]:
    """The cases tagged ``compile`` for every SoC, those tagged ``grid`` for the first."""
    cases = load_port(subject.port).of(subject.variant.name, subject.options.cases)
    return [
        (case, parts if "compile" in case.tags else parts[:1])
        for case in cases
        if case.tags & {"compile", "grid"}
    ]


def _grid(found: Sequence[Launched]) -> Grid:
    largest = Grid()
    keys: set[str] = set()
    for one in found:
        if one.part != found[0].part:
            continue
        keys.update(launch.program_key() for launch in one.launches)
        programs = max((launch.programs for launch in one.launches), default=0)
        if programs > largest.largest:
            largest = Grid(programs, one.case.name)
    return replace(largest, programs=len(keys))


def _compiled(found: Sequence[Launched]) -> Iterator[Compiled]:
    wanted = [one for one in found if "compile" in one.case.tags or one.failure]
    for one, results in zip(wanted, programs_of(wanted), strict=True):
        programs = [result for result in results if isinstance(result, Program)]
        refused = [result for result in results if isinstance(result, Refusal)]
        yield Compiled(
            one.case.name,
            one.part.name,
            tuple(read(program.text) for program in programs),
            (*([one.failure] if one.failure else []), *(refusal.reason for refusal in refused)),
            bool(one.failure) or any(refusal.is_verdict for refusal in refused),
            tuple(note for program in programs for note in program.notes),
        )


def _request(launch: Launch) -> LoweringRequest:
    return LoweringRequest(
        launch.function,
        launch.signature,
        launch.constants,
        frozenset(launch.divisible_by_16),
        launch.options,
    )
