"""soak: failures injected at random for minutes; nothing hangs or leaks, every request ends."""

from __future__ import annotations

from collections.abc import Iterator

from ascendport.checks.outcome import CaseResult, CheckResult, Figure, Outcome
from ascendport.checks.subject import Subject
from ascendport.harness.children import Children, Failure
from ascendport.harness.workspace import Tree, Workspace, workspace
from ascendport.store import mooncake, pairs, soak
from ascendport.store.soak import Soaked

NAME = "soak"
SUMMARY = "failures injected at random for minutes: nothing hangs or leaks, every request ends"

BEFORE_S = 20.0
"""The tree as it was is soaked for this long, or until something is wrong."""
GRACE_S = 240.0
"""What a run may take beyond its time: to load the tree, to notice a hang, to come to an end."""


def run(subject: Subject) -> CheckResult:
    """One case a store: in memory, and a real Mooncake where it is installed. The time asked for
    is shared by them."""
    reason = pairs.missing("zmq")
    if reason:
        return CheckResult.not_run(NAME, reason)
    with workspace(subject.checkout.root, subject.before, subject.after) as places:
        return CheckResult.of(NAME, tuple(_cases(subject, places)))


def _cases(subject: Subject, places: Workspace) -> Iterator[CaseResult]:
    without = mooncake.missing()
    seconds = subject.options.minutes * 60 / (1 if without else 2)
    subject.progress(f"{NAME}: the tree as it was", 0, 3)
    before = _soaked(subject, places.before, min(seconds, BEFORE_S), None)
    subject.progress(f"{NAME}: in memory", 1, 3)
    after = _soaked(subject, places.after, seconds, None)
    yield case("store in memory", subject.options.seed, before, after)
    if without:
        yield CaseResult("Mooncake", Outcome.NOT_RUN, without)
        return
    subject.progress(f"{NAME}: Mooncake", 2, 3)
    with mooncake.master(places.scratch / "master.log") as address:
        after = _soaked(subject, places.after, seconds, address)
    yield case(f"Mooncake {mooncake.version()}", subject.options.seed, None, after)
    subject.progress(NAME, 3, 3)


def _soaked(
    subject: Subject, tree: Tree, seconds: float, address: mooncake.Address | None
) -> Soaked | Failure:
    with Children(1) as children:
        version, seed = pairs.pinned(subject), subject.options.seed
        future = children.submit(soak.run, tree, version, seconds, seed, address)
        return children.result(future, seconds + GRACE_S)


def case(
    name: str, seed: int, before: Soaked | Failure | None, after: Soaked | Failure
) -> CaseResult:
    """The verdict on one store. What was wrong before is a figure."""
    figures: dict[str, Figure] = {"seed": seed}
    if before is not None:
        figures["before"] = problem(before) or "nothing wrong"
    if isinstance(after, Failure):
        return CaseResult(name, Outcome.FAILED, after.reason, figures)
    figures |= {"seconds": round(after.seconds, 1), "vllm": after.vllm}
    figures |= after.counts
    figures["failures injected"] = sum(after.injected.values())
    if after.stacks:
        figures["stacks"] = after.stacks
    wrong = problem(after)
    return CaseResult(name, Outcome.FAILED if wrong else Outcome.PASSED, wrong, figures)


def problem(found: Soaked | Failure) -> str:
    """What was not right, in words; empty: all was.

    A run in which no request, no lookup or no failure came about proves nothing.
    """
    if isinstance(found, Failure):
        return found.reason
    if found.problem:
        return f"after {found.seconds:.1f} s: {found.problem}"
    if found.leaks:
        more = ", ".join(f"{count} {name}" for name, count in found.leaks.items())
        return f"left over at the end: {more}"
    for wanted in ("saves", "blocks loaded", "blocks marked", "lookups with a hit"):
        if not found.counts.get(wanted):
            return f"no {wanted} in {found.seconds:.1f} s"
    return "" if found.injected else "no failure was injected"
