"""One rank: a checkout's own KVPoolWorker with its transfer threads, on CPU tensors."""

from __future__ import annotations

import logging
import mmap
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from ascendport.store import standin
from ascendport.store.loading import Loaded
from ascendport.store.recorder import Call, Recorder
from ascendport.store.scenario import ELEMENT_BYTES, Array, Shape

BACKEND = "ascendport"
"""Name under which the harness's backend stands in the checkout's table of backends."""

WAIT_S = 30.0
"""Longest wait for a step, unless a rank is told another. A step that takes longer is reported as
one without an end."""


@dataclass(frozen=True)
class Place:
    """Which rank of which side. ``peer``: the other side's TP size, as the configuration has it."""

    side: str
    rank: int
    size: int
    peer: int | str
    pcp_rank: int = 0
    pcp_size: int = 1

    @property
    def name(self) -> str:
        part = f".{self.pcp_rank}" if self.pcp_size > 1 else ""
        return f"{self.side} {self.rank}{part}"


@dataclass(frozen=True)
class Prompt:
    """A request as the scheduler hands it to a rank.

    ``hashes``: one a block; ``blocks``: physical block ids; ``cached``: leading tokens that are
    there already (loads).
    """

    name: str
    tokens: int
    hashes: Sequence[bytes]
    blocks: Sequence[int]
    cached: int = 0


@dataclass(frozen=True)
class Announced:
    """A KV event: the block's hash and its parent's, and the number of tokens."""

    block: bytes
    parent: bytes | None
    tokens: int


@dataclass(frozen=True)
class Report:
    """What a step did on one rank.

    ``seconds``: the worker's own method, store included, recording not, one entry a request.
    ``problem``: no end in time, a dead thread, or what the worker raised; empty: none.
    ``finished``: requests that the thread reported finished; ``pending``: requests that its books
    still hold. ``reported``: number of errors logged.
    """

    place: Place
    calls: tuple[Call, ...] = ()
    seconds: tuple[float, ...] = ()
    problem: str = ""
    finished: frozenset[str] = frozenset()
    pending: frozenset[str] = frozenset()
    failed_blocks: frozenset[int] = frozenset()
    events: tuple[Announced, ...] = ()
    reported: int = 0


class _Errors(logging.Handler):
    """Counts error records."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.count = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.count += 1


def backend_class(loaded: Loaded, store: Any, recorder: Recorder) -> type:
    """The checkout's own Mooncake backend on ``store``: its put, get and exists run as they are,
    its set-up, which needs an Ascend device, does not."""
    base: Any = loaded.mooncake.MooncakeBackend
    # Only the store in memory can be told to break at this place.
    enter: Callable[[str], object] = getattr(store, "enter", standin.nothing)

    class HarnessBackend(base):  # type: ignore[misc]
        def __init__(self, parallel_config: Any = None, *args: Any, **kwargs: Any) -> None:
            self.parallel_config = parallel_config
            self.store = store
            self.local_seg = ""
            self.device_id = 0
            self.config = SimpleNamespace(preferred_segment=False, prefer_alloc_in_same_node=False)
            self._use_fabric_mem = False
            self._use_store_independent_te = False
            self._lazy_init = False
            self._contribute_memory = True
            self._store_initialized = True

        def set_device(self) -> None:
            return None

        def register_buffer(self, ptrs: Sequence[int], lengths: Sequence[int]) -> None:
            for pointer, length in zip(ptrs, lengths, strict=True):
                code = self.store.register_buffer(pointer, length)
                if code:
                    raise RuntimeError(f"register_buffer answered {code}")

        def exists(self, keys: Any) -> Any:
            with recorder.call("exists", keys) as answer:
                enter("exists")
                answer.append(super().exists(keys))
            return answer[0]

        def put(self, keys: Any, addrs: Any, sizes: Any) -> Any:
            with recorder.call("put", keys, sizes) as answer:
                enter("put")
                answer.append(super().put(keys, addrs, sizes))
            return answer[0]

        def get(self, keys: Any, addrs: Any, sizes: Any) -> Any:
            with recorder.call("get", keys, sizes) as answer:
                enter("get")
                answer.append(super().get(keys, addrs, sizes))
            return answer[0]

    return HarnessBackend


def _configuration(place: Place, shape: Shape, *, load_async: bool, events: bool) -> Any:
    """vllm's configuration: what the worker reads of it, on one pipeline stage."""
    peer = "prefill_tp_size" if place.side == "decode" else "decode_tp_size"
    text = SimpleNamespace(num_hidden_layers=shape.layers)
    model = SimpleNamespace(
        model="somebody/model",
        max_model_len=1 << 20,
        use_mla=False,
        hf_text_config=text,
        hf_config=text,
        get_num_layers=lambda config: shape.layers,
        get_total_num_hidden_layers=lambda: shape.layers,
        get_layers_start_end_indices=lambda config: (0, shape.layers),
        get_total_num_kv_heads=lambda: shape.heads,
    )
    return SimpleNamespace(
        model_config=model,
        parallel_config=SimpleNamespace(
            data_parallel_rank=0,
            pipeline_parallel_size=1,
            rank=place.rank,
            prefill_context_parallel_size=place.pcp_size,
            decode_context_parallel_size=1,
        ),
        cache_config=SimpleNamespace(
            block_size=shape.block_size, hash_block_size=None, prefix_match_unit=None
        ),
        scheduler_config=SimpleNamespace(disable_hybrid_kv_cache_manager=False),
        kv_transfer_config=SimpleNamespace(
            kv_role="kv_consumer" if place.side == "decode" else "kv_producer",
            kv_connector="AscendStoreConnector",
            kv_connector_extra_config={
                "backend": BACKEND,
                peer: place.peer,
                "load_async": load_async,
            },
        ),
        kv_events_config=SimpleNamespace(enable_kv_cache_events=True) if events else None,
        speculative_config=None,
    )


@contextmanager
def _parallel(worker: ModuleType, place: Place) -> Iterator[None]:
    """The worker module's questions about its place, answered while a worker is made."""
    pcp = SimpleNamespace(world_size=place.pcp_size, rank_in_group=place.pcp_rank)
    group = SimpleNamespace(world_size=1, rank_in_group=0)
    answers: dict[str, Callable[..., Any]] = {
        "get_tensor_model_parallel_rank": lambda: place.rank,
        "get_tensor_model_parallel_world_size": lambda: place.size,
        "get_pcp_group": lambda: pcp,
        "get_pp_group": lambda: group,
        "get_decode_context_model_parallel_rank": standin.zero,
        "get_decode_context_model_parallel_world_size": standin.one,
    }
    before = {name: getattr(worker, name) for name in answers if hasattr(worker, name)}
    for name in before:
        setattr(worker, name, answers[name])
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(worker, name, value)


class Caches:
    """A rank's K and V caches: views of one buffer, filled from ``values``. It holds zeros at
    first, and takes memory only where it is touched."""

    def __init__(self, shape: Shape, heads: int) -> None:
        import torch

        self.shape = shape
        self.heads = heads
        self.padding = shape.padding // ELEMENT_BYTES
        sizes = [shape.block_size * heads * dim + self.padding for dim in shape.dims()]
        elements = shape.layers * shape.blocks * sum(sizes)
        pages = mmap.mmap(-1, elements * ELEMENT_BYTES, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self.buffer = torch.frombuffer(pages, dtype=torch.int16)
        self.layers: dict[str, tuple[Any, Any]] = {}
        at = 0
        for layer in range(shape.layers):
            pair = []
            for dim, size in zip(shape.dims(), sizes, strict=True):
                view = torch.as_strided(
                    self.buffer,
                    (shape.blocks, shape.block_size, heads, dim),
                    (size, heads * dim, dim, 1),
                    at,
                )
                pair.append(view)
                at += shape.blocks * size
            self.layers[f"model.layers.{layer}.self_attn.attn"] = (pair[0], pair[1])

    def fill(self, values: Sequence[tuple[Array, Array]]) -> None:
        """K and V of each layer, ``(blocks, block_size, heads, dim)``."""
        import torch

        for views, arrays in zip(self.layers.values(), values, strict=True):
            for view, array in zip(views, arrays, strict=True):
                view.copy_(torch.from_numpy(np.ascontiguousarray(array)))

    def values(self) -> list[tuple[Array, Array]]:
        """Copies of all of it, as `fill` takes it."""
        return [
            (key.contiguous().numpy().copy(), value.contiguous().numpy().copy())
            for key, value in self.layers.values()
        ]

    def raw(self) -> Array:
        """The whole buffer, padding included: a copy."""
        copied: Array = self.buffer.numpy().copy()
        return copied


@dataclass
class Rank:
    """A worker and its caches. ``by_hand``: where the release hands no worker to its threads, the
    harness does, so that its TP-mismatch methods can be timed at all. ``wait_s``: longest wait for
    a step."""

    loaded: Loaded
    place: Place
    shape: Shape
    store: Any
    load_async: bool = False
    events: bool = False
    by_hand: bool = False
    detail: bool = True
    wait_s: float = WAIT_S
    recorder: Recorder = field(init=False)
    caches: Caches = field(init=False)
    worker: Any = field(init=False)
    seconds: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.recorder = Recorder(self.detail)
        self.caches = Caches(self.shape, self.shape.heads // self.place.size)
        module = f"_ascendport_backend_{id(self)}"
        holder = ModuleType(module)
        holder.Backend = backend_class(  # type: ignore[attr-defined]
            self.loaded, self.store, self.recorder
        )
        sys.modules[module] = holder
        self.loaded.backends.backend_map[BACKEND] = {"name": "Backend", "path": module}
        configuration = _configuration(
            self.place, self.shape, load_async=self.load_async, events=self.events
        )
        try:
            with _parallel(self.loaded.worker, self.place):
                self.worker = self.loaded.worker.KVPoolWorker(configuration, False)
            self.worker.register_kv_caches(self.caches.layers)
        finally:
            del sys.modules[module]
        if self.by_hand and self.worker.tp_mismatch:
            for thread in self.threads():
                thread.worker = self.worker
        for name in ("_store_kv_tp_mismatch", "_load_kv_tp_mismatch"):
            setattr(self.worker, name, self._timed(getattr(self.worker, name)))

    def threads(self) -> list[Any]:
        """The transfer threads that this rank runs."""
        both = (self.worker.kv_send_thread, self.worker.kv_recv_thread)
        return [thread for thread in both if thread is not None]

    def save(self, prompts: Sequence[Prompt], *, preempted: bool = False) -> Report:
        """Saves the prompts in one step. ``preempted``: the scheduler takes the requests off
        right after their saves were queued."""
        metadata = self.metadata(prompts, preempted=preempted)
        for prompt in prompts:
            metadata.requests.append(self._request(prompt, save=True))
        with self._watched() as seen:
            seen.problem = self._bounded(lambda: self.worker.wait_for_save(metadata))
            if preempted:
                names = {prompt.name for prompt in prompts}
                if hasattr(self.worker, "handle_released_saves"):
                    seen.problem = seen.problem or self._bounded(
                        lambda: self.worker.handle_released_saves(names)
                    )
            seen.problem = seen.problem or self._drained(self.worker.kv_send_thread)
            seen.finished, other = self._finished(prompts, metadata)
            seen.problem = seen.problem or other
        return self._report(seen)

    def load(self, prompts: Sequence[Prompt]) -> Report:
        """Loads the prompts in one step."""
        metadata = self.metadata(prompts)
        for prompt in prompts:
            metadata.requests.append(self._request(prompt, save=False))
        with self._watched() as seen:
            if self.by_hand and self.worker.tp_mismatch and not self.load_async:
                seen.problem = self._bounded(lambda: self._load_by_hand(prompts))
            else:
                seen.problem = self._bounded(lambda: self.worker.start_load_kv(metadata))
            if self.load_async:
                seen.problem = seen.problem or self._drained(self.worker.kv_recv_thread)
                seen.finished, other = self._finished(prompts, metadata)
                seen.problem = seen.problem or other
        return self._report(seen)

    def lookup(self, prompt: Prompt) -> int:
        """Leading tokens of the prompt that every rank's part of is in the store."""
        found: int = self.worker.lookup_scheduler(prompt.tokens, list(prompt.hashes), [0])
        self.recorder.take()
        return found

    # --- inside ---

    def _timed(self, method: Callable[..., None]) -> Callable[..., None]:
        def timed(*args: Any, **kwargs: Any) -> None:
            self.recorder.begin()
            begin = time.perf_counter()
            try:
                method(*args, **kwargs)
            finally:
                self.seconds.append(time.perf_counter() - begin - self.recorder.own_seconds)

        return timed

    def _request(self, prompt: Prompt, *, save: bool) -> Any:
        metadata = self.loaded.metadata
        spec = None
        if not save:
            spec = metadata.LoadSpec(prompt.cached, prompt.tokens, True)
        return metadata.ReqMeta(
            req_id=prompt.name,
            token_len_chunk=prompt.tokens,
            block_ids_by_group=[list(prompt.blocks)],
            block_hashes=list(prompt.hashes),
            can_save=save,
            load_spec=spec,
            is_last_chunk=True,
            token_ids=list(range(prompt.tokens)),
            original_block_size=[self.shape.block_size],
        )

    def metadata(self, prompts: Sequence[Prompt], *, preempted: bool = False) -> Any:
        """The connector metadata of a step, with no request in it yet."""
        import inspect

        names = {prompt.name for prompt in prompts}
        given: Mapping[str, set[str]] = {
            "unfinished_request_ids": names,
            "preempted_req_ids": names if preempted else set(),
            "loading_req_ids": names,
            "delayed_free_req_ids": set() if preempted else names,
        }
        cls = self.loaded.metadata.AscendConnectorMetadata
        known = inspect.signature(cls).parameters
        return cls(**{name: value for name, value in given.items() if name in known})

    @contextmanager
    def _watched(self) -> Iterator[_Seen]:
        logger = getattr(self.loaded.worker, "logger", standin.LOGGER)
        errors = _Errors()
        logger.addHandler(errors)
        self.seconds.clear()
        self.recorder.take()
        seen = _Seen()
        try:
            yield seen
        finally:
            logger.removeHandler(errors)
            seen.reported = errors.count

    def _report(self, seen: _Seen) -> Report:
        pending: frozenset[str] = frozenset()
        if self.worker.kv_send_thread is not None:
            pending = frozenset(self.worker.kv_send_thread.stored_requests)
        return Report(
            self.place,
            tuple(self.recorder.take()),
            tuple(self.seconds),
            seen.problem,
            frozenset(seen.finished),
            pending,
            frozenset(self.worker.get_block_ids_with_load_errors()),
            tuple(
                Announced(event.block_hashes[0], event.parent_block_hash, len(event.token_ids))
                for event in self.worker.get_kv_events()
            ),
            seen.reported,
        )

    def _load_by_hand(self, prompts: Sequence[Prompt]) -> None:
        for prompt in prompts:
            size = self.shape.block_size
            self.worker._load_kv_tp_mismatch(
                list(prompt.hashes),
                list(prompt.blocks),
                prompt.tokens,
                prompt.cached // size * size,
            )

    def _bounded(self, work: Callable[[], object]) -> str:
        """Runs ``work`` for ``wait_s`` at most; what went wrong, or nothing."""
        raised: list[str] = []

        def run() -> None:
            try:
                work()
            except Exception as error:
                raised.append(f"{type(error).__name__}: {error}")

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        thread.join(self.wait_s)
        if thread.is_alive():
            return f"no end after {self.wait_s:g} s"
        return raised[0] if raised else ""

    def _drained(self, thread: Any) -> str:
        """Waits until the thread's queue is worked off."""
        deadline = time.monotonic() + self.wait_s
        while thread.request_queue.unfinished_tasks:
            if not thread.is_alive():
                return f"{thread.name} is dead, {thread.request_queue.unfinished_tasks} left"
            if time.monotonic() > deadline:
                return f"{thread.name}: no end after {self.wait_s:g} s"
            time.sleep(0.0005)
        return "" if thread.is_alive() else f"{thread.name} is dead"

    def _finished(self, prompts: Sequence[Prompt], metadata: Any) -> tuple[set[str], str]:
        found: set[str] = set()

        def ask() -> None:
            names = {prompt.name for prompt in prompts}
            sent, received = self.worker.get_finished(names, metadata)
            found.update(sent, received)

        return found, self._bounded(ask)


@dataclass
class _Seen:
    problem: str = ""
    finished: set[str] = field(default_factory=set)
    reported: int = 0
