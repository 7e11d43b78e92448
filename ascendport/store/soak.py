"""Random requests for minutes while store, threads and sockets fail at random.

For child processes: the tree's code runs here. Prefill ranks save and decode ranks load, some by a
thread and some in the step itself, over one store; clients ask the lookup server how much of a
prompt is there, while frames that are none reach it and it is closed and made anew. Everything
goes on at the same time, and every request is followed to its end:

- a save ends, and the books forget it;
- of a load every block holds the right bytes or is marked invalid, and the request is reported;
- a lookup answers within its time, and never more than was asked for.

A watchdog ends a run in which somebody makes no progress, with the stacks of all threads.
"""

from __future__ import annotations

import faulthandler
import gc
import hashlib
import os
import socket
import stat
import tempfile
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ascendport.harness.workspace import Tree
from ascendport.store import lookups, mooncake
from ascendport.store.chaos import Chaos
from ascendport.store.loading import Loaded, loaded
from ascendport.store.memory import MemoryStore
from ascendport.store.rank import Place, Prompt, Rank, Report
from ascendport.store.scenario import Array, Shape, content, noise

SHAPE = Shape(layers=2, heads=4, key_dim=4, value_dim=4, block_size=16, blocks=64)
SIZE = 2
"""Ranks of each side."""
KNOWN = 64
"""Prompts that are remembered, to be loaded and extended."""
LONGEST = 16
"""Blocks of the longest prompt."""
OBJECTS = 1500
"""Keys that the store in memory keeps; it loses others at random."""
LIMIT_S = 75.0
"""Longest time without progress: two waits of a rank (`rank.WAIT_S`) and a bit."""
WARM_S = 3.0
"""First everything runs this long, at most, before what is open is counted."""
SETTLE_S = 5.0
"""How long threads and sockets that are done with may take to go."""
POOL = 32
"""Connections that the client of a real store may keep. Mooncake's opens one, and has its other end
in this process, for each transfer that overlaps with all that it has connections for."""
THREAD_RATE = 0.02
"""Share of calls into the token database that fail, in transfer threads."""


Driver = Callable[[np.random.Generator], None]
"""One step of somebody who goes on until the end."""


@dataclass(frozen=True)
class Soaked:
    """What a run saw. ``problem``: the first thing that was not right; empty: all was.

    ``counts``: requests, blocks and lookups by how they ended; ``injected``: failures by kind;
    ``leaks``: what there was more of at the end than at the start, by name; ``stacks``: of all
    threads, where somebody made no progress. ``seconds``: how long it ran.
    """

    seconds: float
    problem: str
    counts: Mapping[str, int]
    injected: Mapping[str, int]
    leaks: Mapping[str, int]
    vllm: str
    stacks: str = ""


def run(
    tree: Tree, pinned: str, seconds: float, seed: int, address: mooncake.Address | None = None
) -> Soaked:
    """Soaks the tree for ``seconds``, on a real Mooncake where an ``address`` is given.

    Raises:
        Exception: whatever the tree raises while its ranks are made.
    """
    with loaded(tree, pinned) as modules:
        if address is None:
            return _Soak(modules, MemoryStore(), seconds, seed).run()
        mooncake.quiet()
        client = mooncake.client(address, segment_bytes=mooncake.SMALL_SEGMENT_BYTES)
        try:
            return _Soak(modules, mooncake.RealStore(client), seconds, seed).run()
        finally:
            client.remove_all(True)
            client.close()


class WrongError(Exception):
    """Something that must not be, in words."""


@dataclass(frozen=True)
class _Known:
    """A prompt of which something may be in the store."""

    hashes: tuple[bytes, ...]


@dataclass
class _Soak:
    modules: Loaded
    store: Any
    seconds: float
    seed: int
    counts: Counter[str] = field(default_factory=Counter)
    injected: Counter[str] = field(default_factory=Counter)
    known: deque[_Known] = field(default_factory=lambda: deque(maxlen=KNOWN))
    beats: dict[str, float] = field(default_factory=dict)
    problem: str = ""
    stacks: str = ""

    def __post_init__(self) -> None:
        self.stop = threading.Event()
        self.prefill = self._side("prefill", breaks=True, load_async=False)
        self.by_thread = self._side("decode", breaks=True, load_async=True)
        self.in_step = self._side("decode", breaks=False, load_async=False)
        for rank in (*self.prefill, *self.by_thread):
            _break_threads(rank)

    def run(self) -> Soaked:
        begin = time.monotonic()
        # A client of a real store opens connections when they are first used.
        self._phase(min(WARM_S, self.seconds / 4))
        before = _open_things()
        if not self.problem:
            self._phase(self.seconds)
        leaks = {} if self.problem else self._leaks(before)
        injected = self.injected.copy()
        for rank in (*self.prefill, *self.by_thread, *self.in_step):
            injected += rank.store.injected
        return Soaked(
            time.monotonic() - begin,
            self.problem,
            dict(sorted(self.counts.items())),
            dict(sorted(injected.items())),
            leaks,
            self.modules.vllm,
            self.stacks,
        )

    def _phase(self, seconds: float) -> None:
        """Everything at the same time for ``seconds``, or until something is wrong."""
        self.stop.clear()
        self.beats.clear()
        with tempfile.TemporaryDirectory(prefix="ascendport-") as directory:
            lookup = lookups.Lookups(
                self.modules, self.by_thread[0].worker, Path(directory), self.seed
            )
            threads = [
                threading.Thread(target=self._drive, args=(name, at, step), daemon=True, name=name)
                for at, (name, step) in enumerate(self._drivers(lookup).items())
            ]
            for thread in threads:
                thread.start()
            self._watch(time.monotonic() + seconds, threads)
            self.stop.set()
            for thread in threads:
                # Where something is wrong already, some may wait for ever.
                thread.join(0.1 if self.problem else LIMIT_S)
                if thread.is_alive() and not self.problem:
                    self._end(f"{thread.name}: does not come to an end", stacks=True)
            if not self.problem:
                # A socket that somebody waits on is not closed under them.
                lookup.close()
            self.counts += lookup.counts
            self.injected += lookup.injected

    def _drivers(self, lookup: lookups.Lookups) -> dict[str, Driver]:
        drivers: dict[str, Driver] = {
            "saves": self._save,
            "loads by a thread": partial(self._load, self.by_thread),
            "loads in the step": partial(self._load, self.in_step),
            "the lookup server": lookup.disturb,
        }
        for number in range(lookups.CLIENTS):
            drivers[f"lookup client {number}"] = partial(self._ask, lookup.client())
        return drivers

    # --- what goes on ---

    def _save(self, rng: np.random.Generator) -> None:
        prompts = self._prompts(rng, fresh=True)
        for rank in self.prefill:
            _write(rank, prompts, self.seed)
        preempted = bool(rng.random() < 0.1)
        for rank in self.prefill:
            self._checked(rank.save(prompts, preempted=preempted), "save")
        self.counts["saves preempted" if preempted else "saves"] += len(prompts)
        if isinstance(self.store, MemoryStore):
            self._forget(rng)

    def _load(self, ranks: Sequence[Rank], rng: np.random.Generator) -> None:
        if not self.known:
            time.sleep(0.001)
            return
        prompts = self._prompts(rng, fresh=False)
        for rank in ranks:
            rank.caches.fill(noise(SHAPE, SHAPE.heads // SIZE, int(rng.integers(1 << 30))))
            report = rank.load(prompts)
            self._checked(report, f"load {_way(rank)}")
            if rank.load_async and (left := {one.name for one in prompts} - report.finished):
                raise WrongError(
                    f"load {_way(rank)} on {rank.place.name}: {min(left)} is not reported"
                )
            self._loaded(rank, prompts, report)
        self.counts["loads"] += len(prompts)

    def _loaded(self, rank: Rank, prompts: Sequence[Prompt], report: Report) -> None:
        """Every block of a load is right, or marked."""
        values = rank.caches.values()
        for prompt in prompts:
            for block, block_hash in zip(prompt.blocks, prompt.hashes, strict=True):
                right = _holds(values, block, block_hash, rank.place.rank, self.seed)
                marked = block in report.failed_blocks
                if not right and not marked:
                    raise WrongError(
                        f"load {_way(rank)} on {rank.place.name}: a block of {prompt.name} did "
                        "not arrive, and is not marked"
                    )
                self.counts["blocks marked" if marked else "blocks loaded"] += 1

    def _ask(self, client: lookups.Client, rng: np.random.Generator) -> None:
        if not self.known:
            time.sleep(0.001)
            return
        hashes = self.known[int(rng.integers(len(self.known)))].hashes
        client.ask(len(hashes) * SHAPE.block_size, hashes)

    def _prompts(self, rng: np.random.Generator, *, fresh: bool) -> list[Prompt]:
        """One to three requests on blocks of their own: new ones, some with the beginning of an
        earlier prompt, or earlier ones."""
        free = [int(block) for block in rng.permutation(np.arange(1, SHAPE.blocks))]
        prompts = []
        for _ in range(int(rng.integers(1, 4))):
            if fresh:
                found = self._fresh(rng)
                self.known.append(found)
            else:
                found = self.known[int(rng.integers(len(self.known)))]
            blocks, free = free[: len(found.hashes)], free[len(found.hashes) :]
            name = f"request {rng.integers(1 << 62):x}"
            tokens = len(blocks) * SHAPE.block_size
            prompts.append(Prompt(name, tokens, found.hashes, blocks))
        return prompts

    def _fresh(self, rng: np.random.Generator) -> _Known:
        prefix: tuple[bytes, ...] = ()
        if self.known and rng.random() < 0.5:
            earlier = self.known[int(rng.integers(len(self.known)))].hashes
            prefix = earlier[: min(int(rng.integers(len(earlier) + 1)), LONGEST - 4)]
        more = int(rng.integers(0 if prefix else 1, 5))
        hashes = list(prefix)
        for _ in range(more):
            parent = hashes[-1] if hashes else b""
            hashes.append(hashlib.sha256(parent + rng.bytes(16)).digest())
        return _Known(tuple(hashes))

    def _forget(self, rng: np.random.Generator) -> None:
        keys = list(self.store.objects)
        for at in rng.permutation(len(keys))[: max(0, len(keys) - OBJECTS)]:
            self.store.objects.pop(keys[int(at)], None)

    def _checked(self, report: Report, what: str) -> None:
        if report.problem:
            raise WrongError(f"{what} on {report.place.name}: {report.problem}")
        if report.pending:
            raise WrongError(f"{what} on {report.place.name}: the books keep {min(report.pending)}")

    # --- how it is kept going, and watched ---

    def _side(self, side: str, *, breaks: bool, load_async: bool) -> list[Rank]:
        """Ranks of one side, each with failures of its own."""
        return [
            Rank(
                self.modules,
                Place(side, rank, SIZE, SIZE),
                SHAPE,
                Chaos(
                    self.store,
                    self.seed * 100 + rank + 10 * load_async + 20 * breaks,
                    breaks=breaks,
                ),
                load_async=load_async,
                events=side == "prefill",
                detail=False,
            )
            for rank in range(SIZE)
        ]

    def _drive(self, name: str, at: int, step: Driver) -> None:
        rng = np.random.default_rng([self.seed, at, len(self.known)])
        try:
            while not self.stop.is_set():
                self.beats[name] = time.monotonic()
                step(rng)
        except BaseException as error:
            said = str(error) if isinstance(error, WrongError) else f"{name}: {error!r}"
            self._end(said, stacks="no end after" in said or "is dead" in said)
        finally:
            self.beats.pop(name, None)

    def _watch(self, until: float, threads: Sequence[threading.Thread]) -> None:
        """Until the time is over, something is wrong, or somebody makes no progress."""
        while not self.stop.wait(0.05):
            now = time.monotonic()
            if now > until:
                return
            for name, beat in list(self.beats.items()):
                if now - beat > LIMIT_S:
                    self._end(f"{name}: no progress for {LIMIT_S:g} s", stacks=True)
            if not any(thread.is_alive() for thread in threads):
                self._end("nobody is left")

    def _end(self, problem: str, *, stacks: bool = False) -> None:
        if not self.problem:
            self.problem = problem
            self.stacks = _stacks() if stacks else ""
        self.stop.set()

    def _leaks(self, before: Mapping[str, int]) -> dict[str, int]:
        """What is left over once all is done."""
        pool = {} if isinstance(self.store, MemoryStore) else {"connections": POOL}
        found: dict[str, int] = {}
        until = time.monotonic() + SETTLE_S
        while True:
            gc.collect()
            after = _open_things()
            found = {
                name: after[name] - count - pool.get(name, 0) for name, count in before.items()
            }
            if time.monotonic() > until or not any(more > 0 for more in found.values()):
                break
            time.sleep(0.1)
        for rank in (*self.prefill, *self.by_thread, *self.in_step):
            for thread in rank.threads():
                found["queued"] = found.get("queued", 0) + thread.request_queue.unfinished_tasks
                found["stored requests"] = found.get("stored requests", 0) + len(
                    thread.stored_requests
                )
        return {name: more for name, more in found.items() if more > 0}


def _way(rank: Rank) -> str:
    return "by a thread" if rank.load_async else "in the step"


def _open_things() -> dict[str, int]:
    numbers = [int(path.name) for path in Path("/proc/self/fd").iterdir()]
    connections = sum(_is_connection(number) for number in numbers)
    return {
        "threads": threading.active_count(),
        "file descriptors": len(numbers) - connections,
        "connections": connections,
    }


def _is_connection(number: int) -> bool:
    """Whether a file descriptor is a socket of TCP."""
    try:
        if not stat.S_ISSOCK(os.fstat(number).st_mode):
            return False
        with socket.socket(fileno=os.dup(number)) as copy:
            return copy.family in (socket.AF_INET, socket.AF_INET6)
    except OSError:  # closed meanwhile
        return False


def _stacks() -> str:
    with tempfile.TemporaryFile("w+") as file:
        faulthandler.dump_traceback(file, all_threads=True)
        file.seek(0)
        return file.read()


def _break_threads(rank: Rank) -> None:
    """Calls of the rank's transfer threads into its token database fail at random."""
    database = rank.worker.token_database
    whole = database.prepare_value
    own = set(rank.threads())
    chaos = rank.store

    def prepare_value(*args: Any, **kwargs: Any) -> Any:
        if threading.current_thread() in own and chaos.draw(THREAD_RATE):
            chaos.injected["thread raises"] += 1
            raise RuntimeError("the token database fails")
        return whole(*args, **kwargs)

    database.prepare_value = prepare_value


def _write(rank: Rank, prompts: Sequence[Prompt], seed: int) -> None:
    """Puts the prompts' content where a prefill rank holds it."""
    import torch

    heads = _heads(rank.place.rank)
    for prompt in prompts:
        for block, block_hash in zip(prompt.blocks, prompt.hashes, strict=True):
            wanted = content(SHAPE, block_hash, seed)
            for views, arrays in zip(rank.caches.layers.values(), wanted, strict=True):
                for view, array in zip(views, arrays, strict=True):
                    view[block].copy_(torch.from_numpy(np.ascontiguousarray(array[:, heads])))


def _holds(
    values: Sequence[tuple[Array, Array]], block: int, block_hash: bytes, rank: int, seed: int
) -> bool:
    wanted = content(SHAPE, block_hash, seed)
    return all(
        bool((array[block] == right[:, _heads(rank)]).all())
        for pair, whole in zip(values, wanted, strict=True)
        for array, right in zip(pair, whole, strict=True)
    )


def _heads(rank: int) -> slice:
    share = SHAPE.heads // SIZE
    return slice(rank * share, (rank + 1) * share)
