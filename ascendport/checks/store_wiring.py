"""wiring of a store port: proved on the objects that a checkout's own constructor makes."""

from __future__ import annotations

from ascendport.checks.outcome import CaseResult, CheckResult, Figure, Outcome
from ascendport.checks.subject import Subject
from ascendport.harness.children import Failure
from ascendport.store import pairs
from ascendport.store.drive import Facts
from ascendport.store.judge import wiring_problems
from ascendport.store.scenario import Load, Request, Save, Scenario

NAME = "wiring"

_STEPS = (Save(("a",)), Load(("a",)))
_REQUESTS = (Request("a", 32),)

SCENARIOS = tuple(
    Scenario(f"{prefill} to {decode}{how}", prefill, decode, _STEPS, _REQUESTS, load_async=thread)
    for prefill, decode in ((2, 4), (4, 2), (2, 2))
    for how, thread in (("", False), (", loads by a thread", True))
)


def run(subject: Subject) -> CheckResult:
    """One case for each pair of TP sizes and way to load: under TP mismatch every thread holds the
    worker, and saves and loads enter its TP-mismatch methods; with one size on both sides none of
    this happens."""
    reason = pairs.missing()
    if reason:
        return CheckResult.not_run(NAME, reason)
    cases = [_case(pair) for pair in pairs.pairs(subject, SCENARIOS, NAME)]
    return CheckResult.of(NAME, tuple(cases))


def _case(pair: pairs.Pair) -> CaseResult:
    before = _first(pair.scenario, pair.before)
    figures: dict[str, Figure] = {"before": before or "wired"}
    problem = _first(pair.scenario, pair.after)
    if isinstance(pair.after, Facts):
        figures["vllm"] = pair.after.vllm
        for wired in pair.after.wired[:1]:
            figures["threads"] = ", ".join(f"{k}: {v}" for k, v in wired.threads.items())
    outcome = Outcome.FAILED if problem else Outcome.PASSED
    return CaseResult(pair.scenario.name, outcome, problem, figures)


def _first(scenario: Scenario, facts: Facts | Failure) -> str:
    if isinstance(facts, Failure):
        return facts.reason
    return next(iter(wiring_problems(scenario, facts)), "")
