"""The port's kernel against an independent reference, case by case, under Triton's interpreter."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import prod
from pathlib import Path

from ascendport.checks.outcome import CaseResult, CheckResult, Figure, Outcome
from ascendport.checks.subject import Subject
from ascendport.harness.case import Array, Case, Role, Workload
from ascendport.harness.executor import Rules
from ascendport.harness.inputs import draw, expected, same_inputs
from ascendport.harness.interpret import Code, Pool, Result, Run, missing_modules
from ascendport.harness.loading import Device
from ascendport.harness.portcode import PortCode, load_port
from ascendport.harness.workspace import Tree, workspace

NAME = "oracle"
SUMMARY = "every case equals an independent reference and touches nothing else"

LARGE = "large"
"""Tag of cases that run one round only."""

FIRST = Device()
SECOND = Device(vector_cores=48, ub_bytes=192 * 1024)
"""The second round's device: as many vector cores as Ascend 910B1, so that the work is cut up in
another way than in the first round (910B3, 40 cores)."""


@dataclass
class _Record:
    """What is known of a case while its launches run."""

    case: Case
    seed: int
    results: dict[str, Result] = field(default_factory=dict)
    broken: str = ""

    def expects(self) -> int:
        return 2 if LARGE in self.case.tags else 3


def run(subject: Subject) -> CheckResult:
    """Runs every case before and after; the verdict is about after, before is a figure.

    Each case runs with the user's seed, and all but those tagged ``large`` once more with the
    next seed, another number of cores, and the programs in reverse order.
    """
    missing = missing_modules()
    if missing:
        return CheckResult.not_run(
            NAME, f"needs {', '.join(missing)}; pip install 'ascendport[ascend]'"
        )
    code = load_port(subject.port)
    if code.interpreter:
        return CheckResult.not_run(NAME, code.interpreter)
    cases = code.of(subject.variant.name, subject.options.cases)
    skipped = {case.name: subject.options.left_out(case.name, case.tags) for case in cases}
    records = {
        case.name: _Record(case, subject.options.seed) for case in cases if not skipped[case.name]
    }
    finished: list[CaseResult] = []

    def tell(record: _Record) -> None:
        finished.append(_verdict(record))
        subject.progress(f"{NAME}: {record.case.name}", len(finished), len(records))

    with workspace(subject.checkout.root, subject.before, subject.after) as places:
        target = subject.variant.targets[0]
        sides = {"before": places.before, "after": places.after}
        with Pool(
            _cases_file(subject), places.scratch, timeout_s=subject.options.timeout_s
        ) as pool:
            for result in pool.run(_runs(subject, code, records, sides, target.file)):
                name, _, which = result.key.rpartition(" ")
                record = records[name]
                record.results[which] = result
                if len(record.results) == record.expects():
                    tell(record)
    for record in records.values():
        if record.broken:
            tell(record)
    finished += [
        CaseResult(name, Outcome.NOT_RUN, reason) for name, reason in skipped.items() if reason
    ]
    order = list(skipped)
    finished.sort(key=lambda result: order.index(result.case))
    blunt = _blunt(code, subject)
    if blunt:
        return CheckResult(NAME, Outcome.FAILED, blunt, tuple(finished))
    return CheckResult.of(NAME, tuple(finished))


def _cases_file(subject: Subject) -> Path:
    return subject.port.folder / subject.port.manifest.cases


def _runs(
    subject: Subject,
    code: PortCode,
    records: dict[str, _Record],
    trees: dict[str, Tree],
    file: str,
) -> Iterator[Run]:
    variant, seed = subject.variant.name, subject.options.seed
    for record in records.values():
        case = record.case
        try:
            first = _drawn(code, case, variant, seed)
            second = None if LARGE in case.tags else _drawn(code, case, variant, seed + 1)
        except Exception as error:
            record.broken = f"the port's own case: {type(error).__name__}: {error}"
            continue
        workload, answers = first
        sides = {side: Code(tree, file, subject.entry(case)) for side, tree in trees.items()}
        for side in ("before", "after"):
            yield Run(f"{case.name} {side}", sides[side], case, workload, answers, variant, FIRST)
        if second is not None:
            workload, answers = second
            yield Run(
                f"{case.name} second",
                sides["after"],
                case,
                workload,
                answers,
                variant,
                SECOND,
                Rules(reverse=True),
            )


def _drawn(
    code: PortCode, case: Case, variant: str, seed: int
) -> tuple[Workload, dict[str, Array]]:
    workload = draw(code, case, variant, seed)
    return workload, expected(code, workload, variant)


def _verdict(record: _Record) -> CaseResult:
    replay = f"--seed {record.seed} --case {record.case.name}"
    figures: dict[str, Figure] = {"seed": record.seed}
    if record.broken:
        return CaseResult(record.case.name, Outcome.FAILED, record.broken, figures)
    before, after = record.results["before"], record.results["after"]
    second = record.results.get("second")
    figures.update(after.figures)
    figures["before"] = _in_words(before)
    figures["programs"] = max((prod(grid) for _, grid in after.grids), default=0)
    if after.notes:
        figures["note"] = "; ".join(dict.fromkeys(after.notes))
    problem = after.problem
    if second is not None:
        figures["second_seed"] = record.seed + 1
        if second.problem and not problem:
            problem = (
                f"second round (seed {record.seed + 1}, {SECOND.vector_cores} cores, "
                f"programs in reverse): {second.problem}"
            )
    if problem:
        return CaseResult(
            record.case.name, Outcome.FAILED, f"{problem}; replay with {replay}", figures
        )
    return CaseResult(record.case.name, Outcome.PASSED, "", figures)


def _in_words(before: Result) -> str:
    if before.problem:
        return f"{'differs' if before.ran else 'fails'}: {before.problem}"
    return "same"


def _blunt(code: PortCode, subject: Subject) -> str:
    """Why the port's cases prove nothing; empty when they can fail and depend on their seed."""
    variant, seed = subject.variant.name, subject.options.seed
    cases = sorted(code.of(variant), key=lambda case: LARGE in case.tags)
    if not cases:
        return ""
    sharp = varied = False
    for case in cases:
        try:
            workload, answers = _drawn(code, case, variant, seed)
            if not same_inputs(workload, draw(code, case, variant, seed)):
                return f"cases cannot be replayed: {case.name} differs between draws of one seed"
            varied = varied or not same_inputs(workload, draw(code, case, variant, seed + 1))
        except Exception:
            continue  # a case that cannot be drawn has failed by itself
        sharp = sharp or _fails_if_nothing_is_done(workload, answers)
        if sharp and varied:
            return ""
    if not sharp:
        return "cases cannot fail: a kernel that does nothing would pass all of them"
    return "cases cannot be varied: their inputs are the same for every seed"


def _fails_if_nothing_is_done(workload: Workload, answers: dict[str, Array]) -> bool:
    """Whether the right answer differs from what the tensors hold before the launch."""
    for name, answer in answers.items():
        tensor = workload.tensors[name]
        untouched = tensor.role is Role.INOUT and tensor.values.tobytes() == answer.tobytes()
        if answer.size and not untouched:
            return True
    return False
