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
from ascendport.harness.launches import Launch, record
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
        try:
            launched = _launched(subject, trees.before if side == "before" else trees.after, parts)
        except UnavailableError as error:
            return Side(unavailable=f"{side}: {error}")
        return Side(tuple(_compiled(launched)), _grid(launched))


@dataclass(frozen=True)
class _Launched:
    """What one case launches on one SoC; or why it launches nothing."""

    case: Case
    part: socs.Soc
    launches: tuple[Launch, ...]
    failure: str = ""


def _launched(subject: Subject, tree: Tree, parts: Sequence[socs.Soc]) -> list[_Launched]:
    """Records the cases tagged ``compile`` for every SoC, those tagged ``grid`` for the first."""
    code = load_port(subject.port)
    variant = subject.variant
    found = []
    for case in code.of(variant.name, subject.options.cases):
        if not case.tags & {"compile", "grid"}:
            continue
        inputs = draw(code, case, variant.name, subject.options.seed)
        for part in parts if "compile" in case.tags else parts[:1]:
            launches: list[Launch] = []
            failure = ""
            try:
                launches = record(
                    tree,
                    variant.targets[0].file,
                    variant.entry,
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
            found.append(_Launched(case, part, tuple(launches), failure))
    return found


def _grid(launched: Sequence[_Launched]) -> Grid:
    largest = Grid()
    keys: set[str] = set()
    for one in launched:
        if one.part != launched[0].part:
            continue
        keys.update(launch.program_key() for launch in one.launches)
        programs = max((launch.programs for launch in one.launches), default=0)
        if programs > largest.largest:
            largest = Grid(programs, one.case.name)
    return replace(largest, programs=len(keys))


def _compiled(launched: Sequence[_Launched]) -> Iterator[Compiled]:
    """Lowers one after another (the front end is not thread-safe), then compiles."""
    wanted = [one for one in launched if "compile" in one.case.tags or one.failure]
    fronts: dict[tuple[str, bool], Linalg | Refusal] = {}
    for one in wanted:
        for launch in one.launches:
            # A2 and A3 have one front end; see `lowering.lower_all`.
            key = (launch.program_key(), one.part.family is socs.Family.A5)
            if key not in fronts:
                fronts[key] = lower(_request(launch), one.part)
    requests = {
        (launch.program_key(), one.part.name): front
        for one in wanted
        for launch in one.launches
        if isinstance(
            front := fronts[launch.program_key(), one.part.family is socs.Family.A5], Linalg
        )
    }
    jobs = [
        CompileRequest(front.text, socs.soc(part), front.multibuffer, front.flags)
        for (_, part), front in requests.items()
    ]
    # One at a time: the other side compiles on the other core.
    backs = dict(zip(requests, compile_many(jobs, jobs=1), strict=True))
    for one in wanted:
        results = []
        for launch in one.launches:
            key = (launch.program_key(), one.part.family is socs.Family.A5)
            results.append(backs.get((key[0], one.part.name), fronts[key]))
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
