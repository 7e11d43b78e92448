"""Upstream really calls the replaced code: every symbol of the port has a live way to it.

vllm-ascend puts most of its code in place by assigning to names of vllm. Such an assignment is
dead, silently, when the vllm that the release pins has renamed what it reads. Purely static.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ascendport.checks.outcome import CaseResult, CheckResult, Figure, Outcome
from ascendport.checks.subject import Subject
from ascendport.errors import UserError
from ascendport.ports.manifest import Target

if TYPE_CHECKING:
    from ascendport.wiring.analysis import Analysis
    from ascendport.wiring.model import Judged
    from ascendport.wiring.routes import Reach

NAME = "wiring"
SUMMARY = "the pinned vllm reaches every symbol that the port replaces"

_FOLDER = "vllm_ascend"


def run(subject: Subject) -> CheckResult:
    """One case a symbol: passed with the route, failed with the dead assignment or with the
    finding that nothing refers to it. Not run where that vllm cannot be had."""
    from ascendport.checkout.vllm import pinned_version
    from ascendport.wiring.analysis import analyse_tree
    from ascendport.wiring.sources import python_files

    root = subject.checkout.root
    files = python_files(root, _FOLDER)
    for path in subject.before:
        if path not in subject.after:
            files.pop(path, None)
    for path, data in subject.after.items():
        if path.startswith(f"{_FOLDER}/") and path.endswith(".py"):
            files[path] = data
    try:
        version = pinned_version(subject.checkout)
        analysis = analyse_tree(files, version, subject.progress, name=f"tree {root}")
    except UserError as error:
        return CheckResult.not_run(NAME, str(error))
    cases: list[CaseResult] = []
    for target in subject.variant.targets:
        if not target.file.endswith(".py") or not target.file.startswith(f"{_FOLDER}/"):
            continue
        cases += _target(analysis, target, files.get(target.file), version)
    return CheckResult.of(NAME, tuple(cases), "" if cases else "no symbol of a Python file")


def _target(
    analysis: Analysis, target: Target, source: bytes | None, version: str
) -> list[CaseResult]:
    from ascendport.wiring.routes import reach

    symbols = target.symbols
    if source is None:
        reason = f"{target.file} is not in the tree"
        return [CaseResult(symbol, Outcome.FAILED, reason) for symbol in symbols]
    try:
        found = reach(analysis, target.file, source, symbols)
    except SyntaxError as error:
        reason = f"{target.file}:{error.lineno} is not valid Python"
        return [CaseResult(symbol, Outcome.FAILED, reason) for symbol in symbols]
    return [_case(item, target.file, version) for item in found]


def _case(item: Reach, file: str, version: str) -> CaseResult:
    if item.route is None:
        figures = _figures(item.dead[0]) if item.dead else {}
        reason = _why_dead(item.symbol, file, item.dead, version)
        return CaseResult(item.symbol, Outcome.FAILED, reason, figures)
    if item.route.assignment is None:
        figures = {"read by": str(item.route)}
    else:
        figures = _figures(item.route.assignment)
    # One live assignment is the one shown; a helper that others use has none.
    if len(item.alive) > 1:
        figures["live assignments"] = len(item.alive)
    if item.dead:
        figures["dead assignments"] = len(item.dead)
        figures["dead"] = ", ".join(dead.assignment.target for dead in item.dead)
    if held := sorted({module for alive in item.alive for module in alive.also_held}):
        figures["also held by"] = ", ".join(held)
    return CaseResult(item.symbol, Outcome.PASSED, "", figures)


def _figures(item: Judged) -> dict[str, Figure]:
    one = item.assignment
    figures: dict[str, Figure] = {
        "assignment": one.target,
        "file": one.place,
        "verdict": item.verdict.value,
    }
    if item.reads:
        figures["read by"] = str(item.reads[0])
    if one.conditions:
        figures["under"] = "; ".join(one.conditions)
    if item.instead:
        figures["vllm reads"] = item.instead
    return figures


def _why_dead(symbol: str, file: str, dead: tuple[Judged, ...], version: str) -> str:
    if not dead:
        return f"nothing refers to {symbol} of {file}"
    targets = ", ".join(item.assignment.target for item in dead)
    first = dead[0]
    reason = f"{targets} land nowhere with vllm {version} ({first.assignment.place}): "
    reason += first.reason
    return f"{reason}; it has {first.instead}" if first.instead else reason
