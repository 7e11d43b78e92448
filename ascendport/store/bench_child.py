"""The process that the store benchmark times: one side's tree, its ranks, one store client.

State lives in this process between calls: `prepare` once, then `round_of` as often as wanted.
"""

from __future__ import annotations

import hashlib
import tracemalloc
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from ascendport.harness.workspace import Tree
from ascendport.store import mooncake
from ascendport.store.loading import loaded
from ascendport.store.memory import MemoryStore
from ascendport.store.rank import Place, Prompt, Rank, Report
from ascendport.store.recorder import totals
from ascendport.store.scenario import Shape

FLOWS = ("first save", "save again", "partly present", "load")
AT_MASTER = {
    "exists": "master_batch_exist_key_items_total",
    "put": "master_batch_put_start_items_total",
    "get": "master_batch_get_replica_list_items_total",
}
"""The master's counter of looked-up keys behind each method."""


@dataclass(frozen=True)
class Setup:
    """What a process is: one decode rank (``index``), and the prefill ranks that it loads from.

    ``master``: a Mooncake master; None: a store in this process's memory, or, with ``dry``, one
    that remembers keys and moves no bytes. ``wait_s``: longest wait for a save or a load.
    """

    side: str
    index: int
    prefill: int
    decode: int
    shape: Shape
    blocks: int
    master: mooncake.Address | None
    segment_bytes: int
    dry: bool
    wait_s: float


@dataclass(frozen=True)
class Sample:
    """One save or load. Seconds of the worker's method, and of the store calls in it; calls, keys
    and slices by method; ``problem``: it did not do what it should.

    In a weighed round: ``held``: most bytes that it held before a call of the store; ``at_master``:
    keys that Mooncake's master looked up, by method, the look-up inside put included.
    """

    seconds: float
    store_seconds: float
    counts: dict[str, tuple[int, int, int]]
    problem: str = ""
    held: int = 0
    at_master: dict[str, int] = field(default_factory=dict)


class DryStore:
    """Remembers which keys were put, and says yes to everything else."""

    def __init__(self) -> None:
        self.keys: set[str] = set()

    def register_buffer(self, address: int, length: int) -> int:
        return 0

    def batch_is_exist(self, keys: Sequence[str]) -> list[int]:
        return [int(key in self.keys) for key in keys]

    def batch_put_from_multi_buffers(
        self, keys: Sequence[str], addresses: object, sizes: object, config: object = None
    ) -> list[int]:
        self.keys.update(keys)
        return [0] * len(keys)

    def batch_get_into_multi_buffers(
        self, keys: Sequence[str], addresses: object, sizes: object
    ) -> list[int]:
        return [1 if key in self.keys else -704 for key in keys]


class _State:
    def __init__(self, tree: Tree, pinned: str, setup: Setup) -> None:
        self.setup = setup
        self.stack = ExitStack()
        modules = self.stack.enter_context(loaded(tree, pinned))
        self.store: Any
        if setup.master is not None:
            mooncake.quiet()
            self.store = mooncake.client(setup.master, segment_bytes=setup.segment_bytes)
            hostname = self.store.get_hostname()
        else:
            self.store = DryStore() if setup.dry else MemoryStore()
            hostname = ""
        first = setup.index * setup.prefill // setup.decode
        count = max(1, setup.prefill // setup.decode)
        self.prefill = [
            Rank(
                modules,
                Place("prefill", rank, setup.prefill, setup.decode),
                setup.shape,
                self.store,
                by_hand=True,
                detail=False,
                wait_s=setup.wait_s,
            )
            for rank in range(first, first + count)
        ]
        self.decode = Rank(
            modules,
            Place("decode", setup.index, setup.decode, setup.prefill),
            setup.shape,
            self.store,
            by_hand=True,
            detail=False,
            wait_s=setup.wait_s,
        )
        if hostname:
            # Every rank keeps what it saves: both sides are timed on the same kind of copy.
            for rank in (*self.prefill, self.decode):
                rank.worker.m_store.config.preferred_segment = True
                rank.worker.m_store.local_seg = hostname
        if not setup.dry:
            import torch

            generator = torch.Generator().manual_seed(setup.index)
            for rank in self.prefill:
                rank.caches.buffer.random_(-1000, 1000, generator=generator)

    def prompt(self, label: str, blocks: Sequence[str]) -> Prompt:
        size = self.setup.shape.block_size
        hashes = [
            hashlib.sha256(f"{self.setup.side}:{self.setup.index}:{block}".encode()).digest()
            for block in blocks
        ]
        return Prompt(label, len(blocks) * size, hashes, range(1, len(blocks) + 1))


_state: _State | None = None


def prepare(tree: Tree, pinned: str, setup: Setup) -> str:
    """Makes this process's ranks. Which vllm stands behind them, in words."""
    global _state
    _state = _State(tree, pinned, setup)
    from ascendport.store.loading import which_vllm

    return which_vllm(pinned)


def round_of(repeat: int) -> dict[str, Sample]:
    """Each flow once, on keys that only this round and this rank use."""
    assert _state is not None
    state = _state
    count = state.setup.blocks
    fresh = [f"{repeat}:{at}" for at in range(count)]
    half = [f"{repeat}:{'new:' if at % 2 else ''}{at}" for at in range(count)]
    found = {}
    prompt = state.prompt(f"r{repeat}", fresh)
    others = [rank.save([prompt]) for rank in state.prefill[1:]]
    problem = next((report.problem for report in others if report.problem), "")
    saving = state.prefill[0]
    found["first save"] = _sample(lambda: saving.save([prompt]), problem)
    found["save again"] = _sample(lambda: saving.save([prompt]))
    found["partly present"] = _sample(lambda: saving.save([state.prompt(f"p{repeat}", half)]))
    found["load"] = _sample(lambda: state.decode.load([prompt]))
    return found


def weighed_round(repeat: int) -> dict[str, Sample]:
    """As `round_of`, with every allocation of Python and NumPy counted, and the master's counters
    read, both of which take time. No other rank may be at work."""
    tracemalloc.start()
    try:
        return round_of(repeat)
    finally:
        tracemalloc.stop()


def _sample(work: Callable[[], Report], problem: str = "") -> Sample:
    before = _at_master()
    report = work()
    at_master = {name: count - before[name] for name, count in _at_master().items()}
    by_method = totals(report.calls)
    counts = {name: (one.calls, one.keys, one.slices) for name, one in by_method.items()}
    problem = problem or report.problem
    if not problem and report.failed_blocks:
        problem = f"{len(report.failed_blocks)} blocks did not load"
    if not problem and len(report.seconds) != 1:
        problem = "the worker's TP-mismatch method was not entered"
    store_seconds = sum(one.seconds for one in by_method.values())
    held = max((call.held for call in report.calls), default=0)
    return Sample(sum(report.seconds), store_seconds, counts, problem, held, at_master)


def _at_master() -> dict[str, int]:
    """What Mooncake's master has counted, in a weighed round; otherwise nothing."""
    assert _state is not None
    address = _state.setup.master
    if address is None or not tracemalloc.is_tracing():
        return {}
    counted = mooncake.counters(address)
    return {name: int(counted.get(counter, 0)) for name, counter in AT_MASTER.items()}


def clear() -> None:
    """Empties the store: on Mooncake of other ranks' keys too, so no rank may be in a round."""
    assert _state is not None
    store = _state.store
    if isinstance(store, DryStore):
        store.keys.clear()
    elif isinstance(store, MemoryStore):
        store.objects.clear()
    else:
        store.remove_all(True)
