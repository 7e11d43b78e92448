"""The port's kernel against vllm-core's own kernel of the same release, under the interpreter."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from ascendport.checks.outcome import CaseResult, CheckResult, Figure, Outcome
from ascendport.checks.subject import Subject
from ascendport.errors import UserError
from ascendport.harness.case import Workload
from ascendport.harness.compare import compare_all
from ascendport.harness.executor import Rules
from ascendport.harness.extraction import CannotExtractError, Read, extract
from ascendport.harness.inputs import draw, expected
from ascendport.harness.interpret import Code, Pool, Result, Run, missing_modules
from ascendport.harness.portcode import PortCode, load_port
from ascendport.harness.workspace import Tree, workspace, write_tree

NAME = "baseline"
SUMMARY = "every case equals vllm-core's own kernel of the same release"


def run(subject: Subject) -> CheckResult:
    """Runs vllm-core's kernel and the ported one on the same inputs and compares their outputs."""
    baseline = subject.baseline
    if baseline is None:
        return CheckResult.nothing(NAME, "the port's manifest names no baseline")
    missing = missing_modules()
    if missing:
        return CheckResult.not_run(
            NAME, f"needs {', '.join(missing)}; pip install 'ascendport[ascend]'"
        )
    code = load_port(subject.port)
    if code.interpreter:
        return CheckResult.not_run(NAME, code.interpreter)
    try:
        files, origin = core_files(subject, code)
    except (UserError, CannotExtractError) as error:
        return CheckResult.not_run(NAME, f"no vllm to compare with: {error}")
    with workspace(subject.checkout.root, subject.before, subject.after) as places:
        root = places.scratch / "core"
        write_tree(root, files)
        sides = {
            "core": Code(Tree(root), baseline.file, baseline.symbol),
            "after": Code(places.after, subject.variant.targets[0].file, subject.variant.entry),
        }
        results = _compare(subject, code, places.scratch, sides, origin)
    return CheckResult.of(NAME, tuple(results))


def core_files(subject: Subject, code: PortCode) -> tuple[dict[str, bytes], str]:
    """The extracted baseline of the vllm that the checkout pins, and where that vllm came from.

    Raises:
        UserError: that vllm cannot be had.
        CannotExtractError: it lacks the baseline's file or symbol.
    """
    from ascendport.checkout.vllm import open_source, pinned_version

    baseline = subject.baseline
    assert baseline is not None
    cases = code.of(subject.variant.name, subject.options.cases)
    entries = dict.fromkeys(case.entry for case in cases if case.entry)
    version = pinned_version(subject.checkout)
    source = open_source(version, subject.progress)
    # A case may call a name that only vllm_ascend has: it is then not run, and says so.
    symbols = [entry for entry in entries if _has(source.read, baseline.file, entry)]
    files = extract(source.read, baseline.file, baseline.symbol, *symbols)
    return files, f"vllm {version} ({source.origin})"


def _has(read: Read, file: str, symbol: str) -> bool:
    try:
        extract(read, file, symbol)
    except CannotExtractError:
        return False
    return True


def _compare(
    subject: Subject, code: PortCode, scratch: Path, sides: Mapping[str, Code], origin: str
) -> list[CaseResult]:
    variant, seed = subject.variant.name, subject.options.seed
    cases = code.of(variant, subject.options.cases)
    drawn: dict[str, Workload] = {}
    pairs: dict[str, dict[str, Result]] = {}
    done: dict[str, CaseResult] = {}

    def finish(result: CaseResult) -> None:
        done[result.case] = result
        subject.progress(f"{NAME}: {result.case}", len(done), len(cases))

    def runs() -> Iterator[Run]:
        for case in cases:
            left_out = subject.options.left_out(case.name, case.tags)
            if not left_out and case.undefined:
                left_out = f"vllm-core has no defined answer: {case.undefined}"
            if left_out:
                finish(CaseResult(case.name, Outcome.NOT_RUN, left_out))
                continue
            try:
                workload = draw(code, case, variant, seed)
                answers = expected(code, workload, variant)
            except Exception as error:
                reason = f"the port's own case: {type(error).__name__}: {error}"
                finish(CaseResult(case.name, Outcome.FAILED, reason))
                continue
            drawn[case.name] = workload
            for side, source in sides.items():
                rules = Rules(npu=side == "after")
                key = f"{case.name} {side}"
                source = replace(source, entry=case.entry or source.entry)
                yield Run(key, source, case, workload, answers, variant, rules=rules)

    cases_file = subject.port.folder / subject.port.manifest.cases
    pool = Pool(cases_file, scratch, timeout_s=subject.options.timeout_s, keep_outputs=True)
    with pool:
        for result in pool.run(runs()):
            name, _, side = result.key.rpartition(" ")
            pair = pairs.setdefault(name, {})
            pair[side] = result
            if len(pair) == len(sides):
                del pairs[name]
                workload = drawn.pop(name)
                finish(_verdict(name, pair["core"], pair["after"], workload, seed, origin))
    return [done[case.name] for case in cases]


def _verdict(
    name: str, core: Result, after: Result, workload: Workload, seed: int, origin: str
) -> CaseResult:
    replay = f"--seed {seed} --case {name}"
    figures: dict[str, Figure] = {
        "seed": seed,
        "baseline": origin,
        "baseline_against_reference": core.problem or "same",
    }
    if not after.ran:
        return CaseResult(name, Outcome.FAILED, after.problem, figures)
    if not core.ran:
        reason = f"vllm-core's kernel did not run on it: {core.problem}"
        return CaseResult(name, Outcome.NOT_RUN, reason, figures)
    verdict = compare_all(after.outputs, core.outputs, workload.tensors)
    figures.update(verdict.figures)
    if not verdict.same:
        reason = f"{verdict.difference} by vllm-core; replay with {replay}"
        return CaseResult(name, Outcome.FAILED, reason, figures)
    return CaseResult(name, Outcome.PASSED, "", figures)
