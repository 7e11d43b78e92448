"""Shared parts of the failure tests: what differs by release, recorders, and waits that end.

Releases are told apart by what they can do, never by their number. A wait that nothing ends is
found without a clock: `World` knows who of a test's threads runs, and when nobody does it lets time
pass at once and raises `Endless` in whoever waits in vain.
"""

from __future__ import annotations

import faulthandler
import functools
import importlib
import inspect
import queue
import tempfile
import threading
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
import torch

# isort: off
import tests.ut.distributed.ascend_store._mock_deps  # noqa: F401
# isort: on

STORE = "vllm_ascend.distributed.kv_transfer.kv_pool.ascend_store"
BOUND_S = 60.0
"""Bound of one test, in seconds; a test that keeps it never waits that long."""

FRUITLESS_WAITS = 3
"""So often a wait may end in vain while nobody runs who could end it."""


def _first(*names: str) -> ModuleType:
    """The first module of these names that the release has."""
    for name in names:
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name != name:
                raise
    raise ModuleNotFoundError(f"none of {', '.join(names)}")


metadata = _first(f"{STORE}.metadata", f"{STORE}.config_data")
fence = _first(f"{STORE}.attention_fence", "vllm_ascend.memcache_comm_fence")
kv_transfer = importlib.import_module(f"{STORE}.kv_transfer")
pool_worker = importlib.import_module(f"{STORE}.pool_worker")
pool_scheduler = importlib.import_module(f"{STORE}.pool_scheduler")

GATES = {
    name: getattr(fence, name)
    for name in (
        "AttentionComputeStartGate",
        "get_attention_compute_start_gate",
        "reset_attention_compute_start_gate",
        "record_attention_compute_start",
    )
}
"""The tree's own; the folder's fixtures may put mocks in their place."""


def defect(name: str, *, mended: bool) -> Any:
    """Marks a test that shows a defect: it is expected to fail until the defect is gone.

    ``mended`` is a capability of the tree, such as a symbol that the mend brings.
    """
    if mended:
        return lambda test: test
    return pytest.mark.xfail(strict=True, reason=reason(name))


def expected(name: str, mended: bool) -> list[Any]:
    """The same as marks of one case of a parametrised test."""
    return [] if mended else [pytest.mark.xfail(strict=True, reason=reason(name))]


def reason(name: str) -> str:
    """How an expected failure names its defect; ``name`` may be followed by «: » and words."""
    identifier, _, words = name.partition(": ")
    return f"defect {identifier} ({words})" if words else f"defect {identifier}"


class Endless(BaseException):
    """Raised in a wait that nothing would ever end."""


def within(seconds: float = BOUND_S) -> Any:
    """Bounds a test by itself: its body runs in a thread that may be left behind."""

    def bounded(test: Any) -> Any:
        @functools.wraps(test)
        def run(*args: Any, **kwargs: Any) -> None:
            outcome: list[BaseException] = []

            def body() -> None:
                try:
                    test(*args, **kwargs)
                except BaseException as error:
                    outcome.append(error)

            thread = threading.Thread(target=body, daemon=True, name=f"test {test.__name__}")
            thread.start()
            thread.join(seconds)
            if thread.is_alive():
                pytest.fail(f"no end after {seconds:g} s\n{stacks()}")
            if outcome and isinstance(outcome[0], Endless):
                pytest.fail(f"waits for ever: {outcome[0]}")
            if outcome:
                raise outcome[0]

        return run

    return bounded


def stacks() -> str:
    """Where every thread stands."""
    with tempfile.TemporaryFile("w+") as file:
        faulthandler.dump_traceback(file)
        file.seek(0)
        return file.read()


def made(cls: Any, **wanted: Any) -> Any:
    """An object of ``cls`` with those of the arguments that its release takes."""
    known = inspect.signature(cls.__init__).parameters
    return cls(**{name: value for name, value in wanted.items() if name in known})


def takes(function: Any, name: str) -> bool:
    """Whether ``function`` has a parameter of that name."""
    return name in inspect.signature(function).parameters


def token_database(block_size: int = 16, groups: int = 1, layers: int = 1, tp_rank: int = 0) -> Any:
    """A real token database; each group has ``layers`` layers of one cache at made-up addresses."""
    keys = [
        made(
            metadata.KeyMetadata,
            model_name="m",
            head_or_tp_rank=tp_rank,
            pcp_rank=0,
            dcp_rank=0,
            pp_rank=0,
            kv_cache_group_id=group,
        )
        for group in range(groups)
    ]
    database = metadata.ChunkedTokenDatabase(keys, [block_size] * groups, None)
    every = range(groups)
    database.set_group_buffers(
        {group: [1000 * (group + 1) + 100 * layer for layer in range(layers)] for group in every},
        {group: [block_size] * layers for group in every},
        {group: [block_size] * layers for group in every},
        group_num_layers=dict.fromkeys(every, layers),
    )
    return database


def hashes(count: int, first: int = 0) -> list[bytes]:
    """Hashes of ``count`` blocks."""
    return [bytes([0xA0, (first + index) // 256, (first + index) % 256]) for index in range(count)]


def load_request(name: str, blocks: list[int], cached: int = 0, size: int = 16, **more: Any) -> Any:
    """A request that loads ``blocks``; the first ``cached`` of them are there already."""
    tokens = len(blocks) * size
    spec = metadata.LoadSpec(cached * size, tokens, True, token_len=tokens)
    return metadata.ReqMeta(
        name,
        token_len_chunk=tokens,
        block_ids_by_group=more.pop("block_ids_by_group", [blocks]),
        block_hashes=hashes(len(blocks)),
        load_spec=spec,
        is_last_chunk=True,
        **more,
    )


def save_request(name: str, blocks: list[int], size: int = 16, **more: Any) -> Any:
    """A request that saves ``blocks``."""
    return metadata.ReqMeta(
        name,
        token_len_chunk=len(blocks) * size,
        block_ids_by_group=more.pop("block_ids_by_group", [blocks]),
        block_hashes=hashes(len(blocks)),
        can_save=True,
        is_last_chunk=True,
        **more,
    )


class RecordingStore:
    """A backend that remembers what it was asked, and answers what the test wants.

    ``script[name]`` lists answers of the calls of that name, used up in order; each is a value, an
    exception to raise, or a function of the call's arguments. After them the plain answer comes:
    everything succeeds and nothing was there. ``allocated`` and ``leased`` count what was handed
    out and not given back, by key.
    """

    requires_exists_before_put = True

    def __init__(self, **script: list[Any]) -> None:
        self.script = {name: list(answers) for name, answers in script.items()}
        self.calls: list[tuple[str, tuple[Any, ...]]] = []
        self.allocated: dict[str, int] = {}
        self.leased: dict[str, int] = {}
        self.store = self
        self._lock = threading.Lock()
        self._next_address = 0x1000

    def __getattr__(self, name: str) -> Any:
        # batch_copy, batch_remove_lease, …: every call of a backend is recorded.
        if name.startswith("_"):
            raise AttributeError(name)
        return functools.partial(self._call, name)

    def asked(self, name: str) -> list[tuple[Any, ...]]:
        """The arguments of every call of that name."""
        with self._lock:
            return [arguments for called, arguments in self.calls if called == name]

    def _call(self, name: str, *arguments: Any, **named: Any) -> Any:
        with self._lock:
            self.calls.append((name, arguments))
            answers = self.script.get(name, [])
            answer = answers.pop(0) if answers else getattr(self, f"_plain_{name}", _nothing)
        if isinstance(answer, BaseException):
            raise answer
        if isinstance(answer, type) and issubclass(answer, BaseException):
            raise answer(f"{name} fails")
        result = answer(*arguments, **named) if callable(answer) else answer
        with self._lock:
            self._book(name, arguments, result)
        return result

    def _book(self, name: str, arguments: tuple[Any, ...], result: Any) -> None:
        keys = arguments[0] if arguments and isinstance(arguments[0], list) else []
        if name == "batch_alloc":
            for key, address in zip(keys, result or [], strict=False):
                if address > 0:
                    self.allocated[key] = self.allocated.get(key, 0) + 1
        elif name == "batch_add_lease":
            for key, code in zip(keys, result or [], strict=False):
                if code == 0:
                    self.leased[key] = self.leased.get(key, 0) + 1
        elif name in ("batch_write_finish", "batch_remove", "remove"):
            for key in keys:
                self.allocated.pop(key, None)
        elif name == "batch_remove_lease":
            for key in keys:
                self.leased.pop(key, None)

    def _plain_exists(self, keys: list[str]) -> list[int]:
        return [0] * len(keys)

    _plain_batch_is_exist = _plain_exists

    def _plain_codes(self, keys: list[str], *rest: Any) -> list[int]:
        return [0] * len(keys)

    _plain_put = _plain_get = _plain_batch_add_lease = _plain_batch_write_finish = _plain_codes
    _plain_batch_put_start = _plain_batch_copy_put = _plain_batch_commit = _plain_codes
    _plain_batch_revoke = _plain_batch_get_start = _plain_batch_copy_get = _plain_codes

    def _plain_batch_copy(self, *arguments: Any) -> int:
        return 0

    _plain_batch_remove_lease = _plain_batch_get_end = _plain_batch_copy

    def _plain_batch_alloc(self, keys: list[str], *rest: Any, **named: Any) -> list[int]:
        first = self._next_address
        self._next_address += 0x1000 * len(keys)
        return [first + 0x1000 * index for index in range(len(keys))]


def _nothing(*arguments: Any, **named: Any) -> None:
    return None


class World:
    """Who of the threads of a test runs, and who waits.

    Time passes only when nobody runs: then a wait with a timeout ends in vain, in turn with the
    others, and one that has ended in vain `FRUITLESS_WAITS` times raises `Endless`. A wait without
    a timeout raises it at once, when no other wait can still end. Made by the thread that runs the
    test's body, which counts as running while it does not wait here.
    """

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.threads: list[Watched] = []
        self.busy: set[object] = {threading.get_ident()}
        self.waiting: dict[object, Any] = {}
        self.timed: set[object] = set()
        self.fruitless: dict[object, int] = {}
        self.endless: list[Endless] = []
        """Every wait without an end: a tree's thread may catch what it raises."""

    def me(self) -> object:
        """The caller, among those who run or wait."""
        current = threading.current_thread()
        return next((one for one in self.threads if one.thread is current), current.ident)

    def wait(self, ready: Any, timeout: float | None = None, what: str = "an event") -> bool:
        """Waits until ``ready()``; `False`: the time is over.

        Raises:
            Endless: nobody will ever make it ready.
        """
        me = self.me()
        with self.changed:
            self.busy.discard(me)
            self.waiting[me] = ready
            if timeout is not None:
                self.timed.add(me)
            self.changed.notify_all()
            try:
                while not ready():
                    # Somebody whose wait has ended runs, even if he does not know yet.
                    idle = not self.busy and not any(one() for one in self.waiting.values())
                    if idle and timeout is not None:
                        self.fruitless[me] = self.fruitless.get(me, 0) + 1
                        if self.fruitless[me] >= FRUITLESS_WAITS:
                            raise self._endless(f"nobody ends the wait for {what}")
                        return False
                    if idle and not self.timed:
                        raise self._endless(f"nobody ends the wait for {what}")
                    if not self.changed.wait(BOUND_S):
                        raise self._endless(f"{what}\n{stacks()}")
                self.fruitless.pop(me, None)
                return True
            finally:
                del self.waiting[me]
                self.timed.discard(me)
                self.busy.add(me)

    def _endless(self, why: str) -> Endless:
        error = Endless(f"{threading.current_thread().name}: {why}\n{stacks()}")
        self.endless.append(error)
        return error

    def settle(self, *threads: Watched) -> None:
        """Waits until these threads rest, or all."""
        for one in threads or tuple(self.threads):
            self.wait(one.rests, what=f"{one.thread.name} to come to rest")

    def event(self) -> WorldEvent:
        """A new event of this world."""
        return WorldEvent(self)

    def threading(self) -> SimpleNamespace:
        """What a module of the tree may see as ``threading``, so that its waits are ours."""
        names = {name: getattr(threading, name) for name in threading.__all__}
        return SimpleNamespace(
            **names | {"Event": self.event, "Condition": lambda: WorldCondition(self)}
        )


class WorldEvent(threading.Event):
    """An event whose waits know when nobody can set it any more."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world

    def set(self) -> None:
        super().set()
        with self.world.changed:
            self.world.changed.notify_all()

    def wait(self, timeout: float | None = None) -> bool:
        return self.world.wait(self.is_set, timeout)


class WorldCondition:
    """A condition whose waits know when nobody can notify it any more."""

    def __init__(self, world: World, lock: Any = None) -> None:
        self.world = world
        self.lock = threading.RLock() if lock is None else lock
        self.notified = 0

    def __enter__(self) -> WorldCondition:
        self.lock.acquire()
        return self

    def __exit__(self, *error: object) -> None:
        self.lock.release()

    def wait(self, timeout: float | None = None) -> bool:
        """Gives up the lock, once, until notified."""
        seen = self.notified
        self.lock.release()
        try:
            return self.world.wait(lambda: self.notified != seen, timeout, "a condition")
        finally:
            self.lock.acquire()

    def notify_all(self) -> None:
        """Ends the waits."""
        self.notified += 1
        with self.world.changed:
            self.world.changed.notify_all()

    notify = notify_all


class Watched:
    """A transfer thread whose rest can be seen.

    It rests when it asks its queue and finds nothing, and when it has ended. ``ended_by`` is what
    escaped from its `run`.
    """

    def __init__(self, thread: Any, world: World | None = None) -> None:
        self.thread = thread
        self.world = world or World()
        self.world.threads.append(self)
        self.ended_by: BaseException | None = None
        self.ended = False
        self.idle = False
        thread.request_queue = _WatchedQueue(self)
        self._run, thread.run = thread.run, self._watched_run
        self._start, thread.start = thread.start, self._watched_start

    def _watched_run(self) -> None:
        try:
            self._run()
        except BaseException as error:
            self.ended_by = error
        finally:
            with self.world.changed:
                self.ended = True
                self.world.busy.discard(self)
                self.world.changed.notify_all()

    def _watched_start(self) -> None:
        with self.world.changed:
            self.world.busy.add(self)
        self._start()

    def rests(self) -> bool:
        """Whether the thread waits for a request, or has ended."""
        return self.idle or self.ended

    def start(self) -> Watched:
        """Starts the thread; what starting raises, the caller gets."""
        self.thread.start()
        self.settle()
        return self

    def add(self, *requests: Any) -> Watched:
        """Queues requests and waits until the thread rests."""
        for request in requests:
            self.thread.add_request(request)
        self.settle()
        return self

    def settle(self) -> None:
        """Waits until the thread rests."""
        self.world.settle(self)

    @property
    def alive(self) -> bool:
        """Whether the thread will serve another request."""
        return not self.ended

    @property
    def unfinished(self) -> int:
        """Requests whose task_done is missing."""
        return int(self.thread.request_queue.unfinished_tasks)


class _WatchedQueue(queue.Queue):  # type: ignore[type-arg]
    def __init__(self, owner: Watched) -> None:
        super().__init__()
        self.owner = owner
        self.coming = 0
        # The tree waits for it too, with timeouts.
        self.all_tasks_done = WorldCondition(owner.world, self.mutex)  # type: ignore[assignment]

    def put(self, item: Any, *more: Any, **named: Any) -> None:
        world = self.owner.world
        with world.changed:
            self.coming += 1
            if self.owner.idle:
                self.owner.idle = False
                world.busy.add(self.owner)
        super().put(item, *more, **named)

    def get(self, *more: Any, **named: Any) -> Any:
        world = self.owner.world
        with world.changed:
            if not self.coming:
                self.owner.idle = True
                world.busy.discard(self.owner)
                world.changed.notify_all()
        item = super().get(*more, **named)
        with world.changed:
            self.coming -= 1
        return item

    def join(self) -> None:
        self.owner.world.wait(lambda: not self.unfinished_tasks, what="the queue to be worked off")


class OpenGate:
    """An attention gate that is open, or whose wait fails."""

    def __init__(self, fails: BaseException | None = None) -> None:
        self.fails = fails

    def wait(self, timeout: float | None = None) -> bool:
        if self.fails is not None:
            raise self.fails
        return True


class Gone(BaseException):
    """An error that is not an `Exception`, as from a library that ends its caller."""


def told(logger: MagicMock, word: str) -> bool:
    """Whether a warning or an error that holds ``word`` was logged."""
    calls = [*logger.warning.mock_calls, *logger.error.mock_calls, *logger.exception.mock_calls]
    return any(word in str(call) for call in calls)


class _Backends:
    """What the worker imports its backend from: every class is our store."""

    def __init__(self, store: Any) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda *arguments, **named: self._store


TRANSFER_THREADS = (
    "KVCacheStoreSendingThread",
    "KVCacheStoreRecvingThread",
    "KVCacheStoreKeyLayerSendingThread",
    "KVCacheStoreKeyLayerRecvingThread",
    "KVCacheStoreLayerSendingThread",
    "KVCacheStoreLayerRecvingThread",
)


def bare_worker(**attributes: Any) -> Any:
    """A KVPoolWorker without its constructor, which needs a whole engine."""
    worker = object.__new__(pool_worker.KVPoolWorker)
    for name, value in attributes.items():
        setattr(worker, name, value)
    return worker


class Engine:
    """A KVPoolWorker from its own constructor, on ``store``, with threads that are watched.

    The caches are CPU tensors of ``layers`` layers and 8 blocks of 16 tokens. ``fences`` is the
    tree's module of attention gates, in this world.
    """

    def __init__(
        self,
        patch: pytest.MonkeyPatch,
        store: Any,
        *,
        layers: int = 2,
        role: str = "kv_both",
        layerwise: bool = False,
        tp_rank: int = 0,
        tp_size: int = 1,
        **extra: Any,
    ) -> None:
        self.world = World()
        self.store = store
        self.layers = layers
        seen = self.world.threading()
        patch.setattr(pool_worker, "threading", seen)
        patch.setattr(fence, "threading", seen)
        patch.setattr(fence, "_attention_compute_start_gate", None)
        for name, real in GATES.items():
            for module in (fence, pool_worker):
                if hasattr(module, name):
                    patch.setattr(module, name, real)
        for name in TRANSFER_THREADS:
            patch.setattr(pool_worker, name, _watchable(getattr(kv_transfer, name), self.world))
        groups = SimpleNamespace(world_size=1, rank_in_group=0, rank=0, local_rank=0)
        for name, value in {
            "get_tensor_model_parallel_rank": tp_rank,
            "get_tensor_model_parallel_world_size": tp_size,
            "get_pp_group": groups,
            "get_pcp_group": groups,
            "get_decode_context_model_parallel_world_size": 1,
            "get_decode_context_model_parallel_rank": 0,
        }.items():
            if hasattr(pool_worker, name):
                patch.setattr(pool_worker, name, MagicMock(return_value=value))
        patch.setattr(
            pool_worker, "importlib", SimpleNamespace(import_module=lambda name: _Backends(store))
        )
        config = MagicMock()
        config.model_config.model = "org/m"
        config.model_config.max_model_len = 1024
        config.model_config.use_mla = False
        config.model_config.hf_text_config = MagicMock(spec=[])
        config.model_config.get_num_layers.return_value = layers
        config.model_config.get_total_num_kv_heads.return_value = 1
        config.parallel_config.data_parallel_rank = 0
        config.parallel_config.rank = tp_rank
        config.parallel_config.pipeline_parallel_size = 1
        config.parallel_config.tensor_parallel_size = tp_size
        config.parallel_config.prefill_context_parallel_size = 1
        config.parallel_config.decode_context_parallel_size = 1
        config.additional_config = {}
        config.speculative_config = None
        config.kv_transfer_config.kv_role = role
        config.kv_transfer_config.kv_connector_extra_config = {"backend": "mooncake", **extra}
        config.cache_config.block_size = 16
        config.cache_config.prefix_match_unit = None
        config.kv_events_config = None
        self.worker = made(
            pool_worker.KVPoolWorker,
            vllm_config=config,
            use_layerwise=layerwise,
            use_layerwize=layerwise,
        )

    def begin(self) -> Engine:
        """Registers the caches, which starts the threads."""
        self.worker.register_kv_caches(
            {
                f"model.layers.{layer}.attn": (
                    torch.zeros(8, 16, 1, 4),
                    torch.zeros(8, 16, 1, 4),
                )
                for layer in range(self.layers)
            }
        )
        self.world.settle()
        return self

    def watched(self, thread: Any) -> Watched:
        """The watched form of one of the worker's threads."""
        return next(one for one in self.world.threads if one.thread is thread)


def _watchable(cls: Any, world: World) -> Any:
    def begin(self: Any, *arguments: Any, **named: Any) -> None:
        cls.__init__(self, *arguments, **named)
        Watched(self, world)

    return type(cls.__name__, (cls,), {"__init__": begin})
