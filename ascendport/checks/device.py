"""The port's kernel on a device that is there: every case again and again, programs at once.

Where there is no NPU and no GPU it is not run. Values are judged here, in the parent: the device's
processes never see the right answers.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from queue import SimpleQueue

from ascendport.checks.baseline import core_files
from ascendport.checks.outcome import CaseResult, CheckResult, Figure, Outcome
from ascendport.checks.subject import Subject
from ascendport.errors import UserError
from ascendport.harness import on_device
from ascendport.harness.buffers import Arena, layout
from ascendport.harness.case import Array, Case, Workload
from ascendport.harness.children import Children, Failure
from ascendport.harness.compare import compare_all
from ascendport.harness.detect import detect
from ascendport.harness.extraction import CannotExtractError
from ascendport.harness.inputs import draw, expected
from ascendport.harness.interpret import Code
from ascendport.harness.on_device import Accelerator, Job, Ran
from ascendport.harness.portcode import PortCode, load_port
from ascendport.harness.workspace import Tree, workspace, write_tree

NAME = "device"
SUMMARY = "every case is right on a device, and the same from run to run"

LANES = 8
"""Cases at work at one time, at most: each has a process, which compiles on a core."""


@dataclass(frozen=True)
class Side:
    """What one piece of code did with a case: why it did not come to its end, or its outputs."""

    problem: str = ""
    lacking: str = ""
    title: str = ""
    outputs: Mapping[str, Array] = field(default_factory=dict)
    figures: Mapping[str, int | float] = field(default_factory=dict)


def run(subject: Subject) -> CheckResult:
    """Runs every case on the NPU or GPU that is there."""
    found = detect("auto")
    if not found.kind:
        return CheckResult.not_run(NAME, found.reason)
    return examine(subject, partial(Accelerator, found.kind))


def examine(subject: Subject, accelerator: Callable[[], Accelerator]) -> CheckResult:
    """Runs every case on the device that ``accelerator`` opens in a child process."""
    code = load_port(subject.port)
    cases = code.of(subject.variant.name, subject.options.cases)
    named = on_device.stand_ins_in(subject.after.values())
    with workspace(subject.checkout.root, subject.before, subject.after) as places:
        target = subject.variant.targets[0].file
        after = Code(places.after, target, subject.variant.entry)
        core, origin = _core(subject, code, places.scratch / "core")
        work = _Work(subject, code, accelerator, places.scratch, after, core, origin)
        results = {case.name: case_result for case, case_result in _each(work, cases, LANES)}
        # What had no room beside the others gets the device to itself.
        crowded = [case for case in cases if results[case.name].outcome is Outcome.NOT_RUN]
        results.update({case.name: result for case, result in _each(work, crowded, 1)})
    ordered = tuple(results[case.name] for case in cases)
    result = CheckResult.of(NAME, ordered)
    if result.outcome is not Outcome.PASSED:
        return result
    return CheckResult(NAME, result.outcome, _summary(result, work.titles, named), ordered)


def _summary(result: CheckResult, titles: Sequence[str], stand_ins: Sequence[str]) -> str:
    """Which device, what the results were compared with, and what stood in for what."""
    ran = [case for case in result.cases if case.outcome is Outcome.PASSED]
    same = Counter(str(case.figures["vllm_core"]) for case in ran)["same"]
    repeats = max(int(case.figures["repeats"] or 0) for case in ran)
    said = [
        f"{', '.join(dict.fromkeys(titles))}: {repeats} runs of each case, bit for bit the same"
    ]
    said.append(f"the same as vllm-core's kernel there in {same} of {len(ran)}")
    rounded = sum(case.figures["reference"] != "same" for case in ran)
    if rounded:
        said.append(f"{rounded} of them not what the reference has, for both alike")
    if stand_ins:
        said.append(f"with stand-ins for triton-ascend's {', '.join(stand_ins)}")
    if result.reason:
        said.append(result.reason)
    return "; ".join(said)


@dataclass
class _Work:
    """What every case needs. ``core``: vllm-core's code, or None and ``origin`` says why."""

    subject: Subject
    code: PortCode
    accelerator: Callable[[], Accelerator]
    scratch: Path
    after: Code
    core: Code | None
    origin: str
    titles: list[str] = field(default_factory=list)
    numbers: Iterator[int] = field(default_factory=count)


def _core(subject: Subject, code: PortCode, root: Path) -> tuple[Code | None, str]:
    """vllm-core's code in a tree of its own, and where it came from; or None, and why."""
    baseline = subject.baseline
    if baseline is None:
        return None, "the port's manifest names no baseline"
    try:
        files, origin = core_files(subject, code)
    except (UserError, CannotExtractError) as error:
        return None, f"no vllm to compare with: {error}"
    write_tree(root, files)
    return Code(Tree(root), baseline.file, baseline.symbol), origin


def _each(work: _Work, cases: Sequence[Case], lanes: int) -> Iterator[tuple[Case, CaseResult]]:
    """Every case, in the order in which they end."""
    free: SimpleQueue[_Lane] = SimpleQueue()
    width = max(1, min(lanes, (os.cpu_count() or 2) // 2, len(cases)))
    made = [_Lane(work) for _ in range(width)]
    for lane in made:
        free.put(lane)

    def one(case: Case) -> CaseResult:
        lane = free.get()
        try:
            return _case(work, lane, case)
        finally:
            free.put(lane)

    with ThreadPoolExecutor(width) as threads:
        try:
            started = {threads.submit(one, case): case for case in cases}
            for number, future in enumerate(as_completed(started), 1):
                case = started[future]
                yield case, future.result()
                work.subject.progress(f"{NAME}: {case.name}", number, len(cases))
        finally:
            threads.shutdown(cancel_futures=True)
            for lane in made:
                lane.close()


class _Lane:
    """A child process that does one job after another; a new one after each that failed."""

    def __init__(self, work: _Work) -> None:
        self._work = work
        self._children: Children | None = None

    def close(self) -> None:
        children, self._children = self._children, None
        if children is not None:
            children.__exit__()

    def run(self, job: Job) -> Ran | Failure:
        if self._children is None:
            self._children = Children(1)
        future = self._children.submit(on_device.run, job)
        ran = self._children.result(future, self._work.subject.options.timeout_s)
        if isinstance(ran, Failure):
            # An access outside of all memory takes the process's device with it.
            self.close()
        return ran


def _case(work: _Work, lane: _Lane, case: Case) -> CaseResult:
    subject = work.subject
    variant, seed = subject.variant.name, subject.options.seed
    try:
        workload = draw(work.code, case, variant, seed)
        answers = expected(work.code, workload, variant)
    except Exception as error:
        reason = f"the port's own case: {type(error).__name__}: {error}"
        return CaseResult(case.name, Outcome.FAILED, reason)
    after = _side(work, lane, case, work.after, workload, answers, subject.options.repeats)
    core: Side | str = work.origin
    if work.core is not None and not after.problem and not after.lacking:
        if case.undefined:
            core = f"no defined answer: {case.undefined}"
        else:
            core = _side(work, lane, case, work.core, workload, answers, 1)
    return judge(case, workload, answers, after, core, seed)


def _side(
    work: _Work,
    lane: _Lane,
    case: Case,
    code: Code,
    workload: Workload,
    answers: Mapping[str, Array],
    repeats: int,
) -> Side:
    with _arena(work, workload, answers) as (arena, path):
        ran = lane.run(
            Job(
                work.accelerator,
                path,
                arena.layout,
                code.tree,
                code.file,
                case.entry or code.entry,
                work.code.cases_file,
                workload.scalars,
                work.subject.variant.name,
                repeats,
            )
        )
        if isinstance(ran, Failure):
            return Side(problem=ran.reason)
        work.titles.append(ran.title)
        outputs = {name: arena.read(name) for name in answers}
        return Side(ran.problem, ran.lacking, ran.title, outputs, ran.figures)


@contextmanager
def _arena(
    work: _Work, workload: Workload, answers: Mapping[str, Array]
) -> Iterator[tuple[Arena, Path]]:
    path = work.scratch / f"arena{next(work.numbers)}"
    try:
        with Arena.in_file(path, workload, answers) as arena:
            yield arena, path
    finally:
        path.unlink(missing_ok=True)


def judge(
    case: Case,
    workload: Workload,
    answers: Mapping[str, Array],
    after: Side,
    core: Side | str,
    seed: int,
) -> CaseResult:
    """The verdict on a case. ``core``: what vllm-core's code gave on the same device, or why it is
    not asked.

    A result has to be what vllm-core's kernel gives, and the reference's. Where the two do not
    agree on this device, whose arithmetic may round otherwise than IEEE 754 asks (a GPU's
    division), vllm-core's counts.
    """
    replay = f"replay with --check {NAME} --seed {seed} --case {case.name}"
    figures: dict[str, Figure] = {"seed": seed, **after.figures}
    if after.lacking:
        return CaseResult(case.name, Outcome.NOT_RUN, after.lacking, figures)
    if after.problem:
        return CaseResult(case.name, Outcome.FAILED, f"{after.problem}; {replay}", figures)
    poison = {item.name: item.poison for item in layout(workload, answers).placements}
    verdict = compare_all(after.outputs, answers, workload.tensors, poison)
    figures.update(verdict.figures)
    figures["reference"] = verdict.difference or "same"
    if isinstance(core, str):
        figures["vllm_core"] = core
    elif core.lacking or core.problem:
        figures["vllm_core"] = f"did not run: {core.lacking or core.problem}"
    else:
        against = compare_all(after.outputs, core.outputs, workload.tensors, poison)
        figures["vllm_core"] = against.difference or "same"
        if not against.same:
            reason = f"{against.difference} by vllm-core on the device; {replay}"
            return CaseResult(case.name, Outcome.FAILED, reason, figures)
        return CaseResult(case.name, Outcome.PASSED, "", figures)
    if not verdict.same:
        return CaseResult(case.name, Outcome.FAILED, f"{verdict.difference}; {replay}", figures)
    return CaseResult(case.name, Outcome.PASSED, "", figures)
