"""Runs a scenario on a tree: prefill ranks and decode ranks in this process, one after another.

For child processes: the tree's code runs here. What comes back is facts; `ascendport.store.judge`
decides in the parent.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from ascendport.harness.workspace import Tree
from ascendport.store import mooncake
from ascendport.store.loading import Loaded, loaded
from ascendport.store.memory import MemoryStore
from ascendport.store.rank import Place, Prompt, Rank, Report
from ascendport.store.scenario import (
    Array,
    Evict,
    Fault,
    Load,
    Mend,
    Preempt,
    Request,
    Save,
    Scenario,
    content,
    noise,
)

_RANK = re.compile(r"@head_or_tp_rank:(\d+)")


@dataclass(frozen=True)
class Wired:
    """How a rank is put together: whether it takes the TP-mismatch way at all, and what each of
    its threads was handed: ``worker``, ``none`` or ``other``."""

    place: Place
    mismatch: bool
    threads: Mapping[str, str]


@dataclass(frozen=True)
class StepFacts:
    """A step and what it did. ``objects``: the store after it. ``caches``: after a load, the raw
    buffer of each decode rank; otherwise empty."""

    reports: tuple[Report, ...]
    objects: Mapping[str, bytes]
    caches: tuple[Array, ...] = ()


@dataclass(frozen=True)
class Facts:
    """Everything that a run of a scenario shows.

    ``tracks_finished``: the release tells the scheduler when a request's blocks are free.
    ``outside``: slices that lay in no registered buffer.
    """

    wired: tuple[Wired, ...]
    steps: tuple[StepFacts, ...]
    tracks_finished: bool
    outside: tuple[str, ...]
    vllm: str


def name_of(key: str) -> tuple[int, str]:
    """The rank of the larger group and the block hash (hexadecimal) that a key's name holds.

    Raises:
        ValueError: it is no key of a block.
    """
    found = _RANK.search(key)
    if found is None:
        raise ValueError(f"no rank in the key {key}")
    return int(found[1]), key.rpartition("@")[2]


_open: tuple[Tree, ExitStack, Loaded] | None = None
"""The tree that this process has loaded: a child runs many scenarios on one."""


def run(tree: Tree, pinned: str, scenario: Scenario, seed: int) -> Facts:
    """Runs the scenario with the store in memory. The tree stays loaded in this process.

    Raises:
        Exception: whatever the tree raises while its ranks are made.
    """
    return run_loaded(_loaded(tree, pinned), scenario, seed)


def _loaded(tree: Tree, pinned: str) -> Loaded:
    global _open
    if _open is not None and _open[0] == tree:
        return _open[2]
    if _open is not None:
        _open[1].close()
    stack = ExitStack()
    modules = stack.enter_context(loaded(tree, pinned))
    _open = (tree, stack, modules)
    return modules


def run_on_mooncake(
    tree: Tree, pinned: str, scenario: Scenario, seed: int, address: mooncake.Address
) -> Facts:
    """As `run`, on a real Mooncake whose master listens at ``address``; its client is this
    process's, and is closed afterwards.

    Raises:
        ValueError: the scenario orders failures, which a real store does not take.
    """
    if any(isinstance(step, Fault) for step in scenario.steps) or scenario.overwrites:
        raise ValueError(f"{scenario.name}: a real store fails on its own only")
    modules = _loaded(tree, pinned)
    mooncake.quiet()
    client = mooncake.client(address, segment_bytes=mooncake.SMALL_SEGMENT_BYTES)
    try:
        return run_loaded(modules, scenario, seed, mooncake.RealStore(client))
    finally:
        client.remove_all(True)
        client.close()


def run_loaded(
    modules: Loaded,
    scenario: Scenario,
    seed: int,
    store: MemoryStore | mooncake.RealStore | None = None,
) -> Facts:
    """As `run`, with modules that are loaded already, and on another store where one is given."""
    index = {
        found.hex(): at
        for request in scenario.requests
        for at, found in enumerate(scenario.hashes(request))
    }

    def block_of(key: str) -> tuple[int, int]:
        rank, found = name_of(key)
        return rank, index.get(found, -1)

    if store is None:
        store = MemoryStore(overwrites=scenario.overwrites, block_of=block_of)
    prefill = _ranks(modules, scenario, "prefill", store, seed)
    decode = _ranks(modules, scenario, "decode", store, seed)
    wired = tuple(_wired(rank) for rank in (*prefill, *decode))
    steps = tuple(_step(step, scenario, store, prefill, decode) for step in scenario.steps)
    tracks = "delayed_free_req_ids" in vars(prefill[0].metadata([]))
    return Facts(wired, steps, tracks, tuple(store.outside), modules.vllm)


def prompts(scenario: Scenario, side: str, names: Sequence[str], cached: int = 0) -> list[Prompt]:
    """The requests as ranks of ``side`` are handed them."""
    placed = scenario.placement(side)
    return [
        Prompt(
            name,
            scenario.request(name).tokens,
            scenario.hashes(scenario.request(name)),
            placed[name],
            cached,
        )
        for name in names
    ]


def own_heads(scenario: Scenario, size: int, rank: int) -> slice:
    """The model's heads that a rank of a group of ``size`` holds."""
    share = scenario.shape.heads // size
    return slice(rank * share, (rank + 1) * share)


def rank_seed(seed: int, side: str, rank: int) -> int:
    """Seed of the noise that a rank's caches hold at first."""
    return (seed * 64 + rank) * 2 + (side == "decode")


def _ranks(modules: Loaded, scenario: Scenario, side: str, store: Any, seed: int) -> list[Rank]:
    size = scenario.prefill if side == "prefill" else scenario.decode
    other = scenario.decode if side == "prefill" else scenario.prefill
    peer: int | str = str(other) if scenario.sizes_as_text else other
    pcp = scenario.pcp if side == "prefill" else 1
    found = []
    for pcp_rank in range(pcp):
        for rank in range(size):
            made = Rank(
                modules,
                Place(side, rank, size, peer, pcp_rank, pcp),
                scenario.shape,
                store,
                load_async=scenario.load_async and side == "decode",
                events=scenario.events,
            )
            heads = scenario.shape.heads // size
            values = noise(scenario.shape, heads, rank_seed(seed, side, rank))
            if side == "prefill":
                _write(scenario, values, size, rank, seed)
            made.caches.fill(values)
            found.append(made)
    return found


def _write(
    scenario: Scenario, values: list[tuple[Array, Array]], size: int, rank: int, seed: int
) -> None:
    """Puts every request's content where a prefill rank holds it."""
    placed = scenario.placement("prefill")
    heads = own_heads(scenario, size, rank)
    for request in scenario.requests:
        hashes = scenario.hashes(request)
        for at, (block, block_hash) in enumerate(zip(placed[request.name], hashes, strict=True)):
            tokens = scenario.chunk(request, at)
            whole = content(scenario.shape, block_hash, seed)
            for pair, wanted in zip(values, whole, strict=True):
                for array, source in zip(pair, wanted, strict=True):
                    array[block, :tokens] = source[:tokens, heads]


def _step(
    step: object,
    scenario: Scenario,
    store: Any,
    prefill: Sequence[Rank],
    decode: Sequence[Rank],
) -> StepFacts:
    reports: list[Report] = []
    caches: tuple[Array, ...] = ()
    match step:
        case Save(requests=names) | Preempt(requests=names):
            wanted = prompts(scenario, "prefill", names)
            taken_off = isinstance(step, Preempt)
            reports = [rank.save(wanted, preempted=taken_off) for rank in prefill]
        case Load(requests=names, cached=cached):
            wanted = prompts(scenario, "decode", names, cached)
            reports = [rank.load(wanted) for rank in decode]
            caches = tuple(rank.caches.raw() for rank in decode)
        case Evict():
            _evict(store, scenario, step)
        case Fault():
            store.order(step)
        case Mend():
            store.mend()
    return StepFacts(tuple(reports), dict(store.objects), caches)


def _evict(store: Any, scenario: Scenario, step: Evict) -> None:
    request: Request = scenario.request(step.request)
    hashes = {scenario.hashes(request)[at].hex() for at in step.blocks}
    for key in list(store.objects):
        rank, found = name_of(key)
        if found in hashes and (not step.ranks or rank in step.ranks):
            store.remove(key)


def _wired(rank: Rank) -> Wired:
    threads = {}
    for thread in rank.threads():
        handed = getattr(thread, "worker", None)
        found = "worker" if handed is rank.worker else "none" if handed is None else "other"
        threads[type(thread).__name__] = found
    return Wired(rank.place, bool(rank.worker.tp_mismatch), threads)
