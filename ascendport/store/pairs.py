"""Scenarios on the tree before and the tree after: a child process for each side."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ascendport.checks.subject import Subject
from ascendport.harness.children import Children, Failure
from ascendport.harness.workspace import workspace
from ascendport.store import mooncake
from ascendport.store.drive import Facts, run, run_on_mooncake
from ascendport.store.scenario import Scenario


@dataclass(frozen=True)
class Pair:
    """One scenario on both trees; a `Failure` where a side gave no facts."""

    scenario: Scenario
    before: Facts | Failure
    after: Facts | Failure


def missing(*more: str) -> str:
    """What the harness, and whoever needs ``more`` modules, lacks here, with the remedy; empty:
    nothing."""
    absent = [name for name in ("torch", "numpy", *more) if importlib.util.find_spec(name) is None]
    if not absent:
        return ""
    return f"needs {', '.join(absent)}; pip install 'ascendport[store]'"


def pinned(subject: Subject) -> str:
    """The vllm that the tree is built for; empty where the tree does not say."""
    from ascendport.checkout.vllm import pinned_version
    from ascendport.errors import UserError

    try:
        return pinned_version(subject.checkout)
    except UserError:
        return ""


def pairs(subject: Subject, scenarios: Sequence[Scenario], check: str) -> Iterator[Pair]:
    """Runs each scenario on both trees, with the store in memory."""
    version, seed = pinned(subject), subject.options.seed
    timeout_s = subject.options.timeout_s
    with (
        workspace(subject.checkout.root, subject.before, subject.after) as places,
        Children(1) as old,
        Children(1) as new,
    ):
        # All are queued at once: each child loads its tree a single time.
        queued = [
            (
                one,
                old.submit(run, places.before, version, one, seed),
                new.submit(run, places.after, version, one, seed),
            )
            for one in scenarios
        ]
        for number, (one, before, after) in enumerate(queued, 1):
            was: Facts | Failure = old.result(before, timeout_s)
            now: Facts | Failure = new.result(after, timeout_s)
            pair = Pair(one, was, now)
            subject.progress(f"{check}: {one.name}", number, len(queued))
            yield pair


def pairs_on_mooncake(
    subject: Subject, scenarios: Sequence[Scenario], check: str
) -> Iterator[Pair]:
    """The same on a real Mooncake; both sides share a master, one after the other."""
    version, seed = pinned(subject), subject.options.seed
    timeout_s = subject.options.timeout_s
    with (
        workspace(subject.checkout.root, subject.before, subject.after) as places,
        mooncake.master(places.scratch / "master.log") as address,
        Children(1) as old,
        Children(1) as new,
    ):
        for number, one in enumerate(scenarios, 1):
            sides: list[Facts | Failure] = []
            for child, tree in ((old, places.before), (new, places.after)):
                future = child.submit(run_on_mooncake, tree, version, one, seed, address)
                found: Facts | Failure = child.result(future, timeout_s)
                sides.append(found)
            subject.progress(f"{check}: {one.name}, Mooncake", number, len(scenarios))
            yield Pair(one, sides[0], sides[1])
