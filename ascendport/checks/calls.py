"""calls: what a store port asks of the store, and every byte, event and mark that comes of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from ascendport.checks.outcome import CaseResult, CheckResult, Figure, Outcome
from ascendport.checks.subject import Subject
from ascendport.harness.children import Failure
from ascendport.store import mooncake, pairs
from ascendport.store.drive import Facts, name_of
from ascendport.store.judge import judge
from ascendport.store.portcode import scenarios
from ascendport.store.rank import Report
from ascendport.store.recorder import Call, totals
from ascendport.store.scenario import Scenario

NAME = "calls"
SUMMARY = "a key is asked for once in a save or a load; bytes, marks and events are right"


def run(subject: Subject) -> CheckResult:
    """One case a scenario: prefill ranks save, decode ranks of another TP size load."""
    reason = pairs.missing()
    if reason:
        return CheckResult.not_run(NAME, reason)
    chosen = scenarios(subject.port, subject.variant.name, subject.options.cases)
    seed = subject.options.seed
    cases = [case(pair, seed) for pair in pairs.pairs(subject, chosen, NAME)]
    return CheckResult.of(NAME, (*cases, *_on_mooncake(subject, chosen)))


def _on_mooncake(subject: Subject, chosen: Sequence[Scenario]) -> Iterator[CaseResult]:
    """The scenarios tagged ``real`` on a real Mooncake, where it is installed."""
    real = [scenario for scenario in chosen if "real" in scenario.tags]
    reason = mooncake.missing()
    if not real:
        return
    if reason:
        for scenario in real:
            yield CaseResult(f"{scenario.name}, Mooncake", Outcome.NOT_RUN, reason)
        return
    for pair in pairs.pairs_on_mooncake(subject, real, NAME):
        found = case(pair, subject.options.seed)
        figures = {**found.figures, "mooncake": mooncake.version()}
        yield CaseResult(f"{found.case}, Mooncake", found.outcome, found.reason, figures)


def case(pair: pairs.Pair, seed: int) -> CaseResult:
    """The verdict on one scenario. What is wrong before is a figure."""
    scenario = pair.scenario
    figures: dict[str, Figure] = {"seed": seed, "before": _problems(pair, pair.before, seed)}
    for side, facts in (("before", pair.before), ("after", pair.after)):
        if isinstance(facts, Facts):
            figures["vllm"] = facts.vllm
            figures.update({f"{name}_{side}": value for name, value in counts(facts).items()})
    if isinstance(pair.after, Failure):
        return CaseResult(scenario.name, Outcome.FAILED, pair.after.reason, figures)
    problems = judge(scenario, pair.after, seed)
    if not scenario.mismatch and isinstance(pair.before, Facts):
        problems += same_calls(pair.before, pair.after)
    if not problems:
        return CaseResult(scenario.name, Outcome.PASSED, "", figures)
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    reason = f"{problems[0]}{more}; replay with --seed {seed} --case '{scenario.name}'"
    return CaseResult(scenario.name, Outcome.FAILED, reason, figures)


def counts(facts: Facts) -> dict[str, int]:
    """Calls, keys and slices by method, over all ranks and steps; and how often the most asked key
    was asked in one save or load of one rank and request."""
    calls = [call for step in facts.steps for report in step.reports for call in report.calls]
    found: dict[str, int] = {}
    for method, total in sorted(totals(calls).items()):
        found[f"{method}_calls"] = total.calls
        found[f"{method}_keys"] = total.keys
        if method != "exists":
            found[f"{method}_slices"] = total.slices
    reports = [report for step in facts.steps for report in step.reports]
    found["asked_at_most"] = max((_asked_at_most(report) for report in reports), default=0)
    return found


def same_calls(before: Facts, after: Facts) -> list[str]:
    """Where both sides have one TP size, the store is asked exactly what it was asked."""
    for number, (old, new) in enumerate(zip(before.steps, after.steps, strict=True), 1):
        for was, now in zip(old.reports, new.reports, strict=True):
            if [_plain(call) for call in was.calls] != [_plain(call) for call in now.calls]:
                return [f"step {number}, {now.place.name}: other calls than before"]
    return []


def _plain(call: Call) -> tuple[str, tuple[str, ...], int, int]:
    return call.method, call.keys, call.slices, call.bytes


def _asked_at_most(report: Report) -> int:
    # Each call of exists beyond one for a request asks again for what it holds.
    asked = Counter(
        name_of(key) for call in report.calls if call.method == "exists" for key in call.keys
    )
    return max(asked.values(), default=0)


def _problems(pair: pairs.Pair, facts: Facts | Failure, seed: int) -> str:
    if isinstance(facts, Failure):
        return f"fails: {facts.reason}"
    problems = list(_telling(judge(pair.scenario, facts, seed)))
    if not problems:
        return "right"
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return f"{problems[0]}{more}"


def _telling(problems: list[str]) -> Iterator[str]:
    """Without those that only say that slices could be fewer: the figures say it."""
    return (problem for problem in problems if " slices where " not in problem)
