"""What layerwise saves and loads hold of the store when their preparation fails.

The worker's own `_alloc_gvas_for_save` and `_prepare_load_gvas` run on the tree's own memcache
backend, below which a recording client stands. The client knows what was allocated and not yet
written, and what is leased: after a failure both have to be nothing.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from tests.ut.distributed.ascend_store.failure_support import (
    STORE,
    RecordingStore,
    bare_worker,
    defect,
    hashes,
    made,
    metadata,
    pool_worker,
    takes,
    within,
)

memcache = importlib.import_module(f"{STORE}.backend.memcache_backend")
Worker = pool_worker.KVPoolWorker
Backend = memcache.MemcacheBackend

SAVES_MENDED = hasattr(pool_worker, "_AllocationRecord")
LOADS_MENDED = hasattr(pool_worker, "_LeaseRecord")
STEPS_MENDED = hasattr(Worker, "_abandon_layerwise_step")
CHECKS_ANSWERS = takes(Backend.batch_get_key_info, "for_load")
"""The release refuses a short answer and knows a key without information."""
ANSWERS_MENDED = CHECKS_ANSWERS or hasattr(memcache, "_AbsentKey")
STRICT_LEASES = hasattr(pool_worker, "MEMCACHE_UNMATCHED_STATE")
"""The release refuses a short answer to a lease, leaves out what was refused one, and stops where
one group of several did not load."""
LEASES_MENDED = STRICT_LEASES or LOADS_MENDED
HAS_PARTIAL = hasattr(Worker, "_make_layerwise_partial_key")
LEASED_WRITES = takes(Backend.batch_alloc, "lease_ttl_ms")
ASKS_UNDER_LEASE = CHECKS_ANSWERS

BLOCK = 16
NOT_READABLE = -3101
NOT_THERE = -3102


class KeyInfo:
    """What the client says of one key; size 0: there is no such object to read."""

    def __init__(self, address: int, size: int = 64) -> None:
        self.address = address
        self.bytes = size

    def size(self) -> int:
        return self.bytes

    def gva_list(self) -> list[int]:
        return [self.address] if self.bytes else []

    def type_list(self) -> list[int]:
        return [1]


class Client(RecordingStore):
    """A memcache client: allocated objects become readable when their write is finished.

    As the real one does, it gives a present key's address again, drops an object whose write is
    reported as failed, and leases only what can be read.
    """

    def __init__(self, *readable: str, **script: list[Any]) -> None:
        super().__init__(**script)
        self.objects: dict[str, int] = {}
        self.readable: set[str] = set()
        for key in readable:
            self.objects[key] = self._address()
            self.readable.add(key)
        self.at_first = set(readable)

    def pending(self) -> list[str]:
        """Objects that were allocated and neither written nor dropped."""
        return sorted(self.objects.keys() - self.readable)

    def write(self, keys: Sequence[str]) -> list[int]:
        """What the saving thread does after the last layer."""
        return list(self.batch_write_finish(list(keys), [0] * len(keys)))

    def _address(self) -> int:
        self._next_address += 0x1000
        return self._next_address

    def _book(self, name: str, arguments: tuple[Any, ...], result: Any) -> None:
        if name == "batch_alloc":
            for key, address in zip(arguments[0], result or [], strict=False):
                if isinstance(address, int) and address > 0:
                    self.objects.setdefault(key, address)
                    if LEASED_WRITES:
                        self.leased[key] = 1
        elif name == "batch_add_lease":
            for key, code in zip(arguments[0], result or [], strict=False):
                if code == 0:
                    self.leased[key] = 1
        elif name == "batch_remove_lease":
            for key in arguments[0]:
                self.leased.pop(key, None)

    def _plain_batch_is_exist(self, keys: list[str]) -> list[int]:
        return [int(key in self.objects) for key in keys]

    def _plain_batch_alloc(self, keys: list[str], *rest: Any, **named: Any) -> list[int]:
        return [self.objects.get(key) or self._address() for key in keys]

    def _plain_batch_get_key_info(self, keys: list[str]) -> list[KeyInfo]:
        return [
            KeyInfo(self.objects[key]) if key in self.readable else KeyInfo(0, 0) for key in keys
        ]

    def _plain_batch_add_lease(self, keys: list[str], *rest: Any) -> list[int]:
        return [0 if key in self.readable else NOT_READABLE for key in keys]

    def _plain_batch_write_finish(self, keys: list[str], results: list[int]) -> list[int]:
        codes = []
        for key, result in zip(keys, results, strict=True):
            codes.append(0 if key in self.objects else NOT_THERE)
            if key in self.readable:
                continue
            if result == 0 and key in self.objects:
                self.readable.add(key)
            else:
                self.objects.pop(key, None)
        return codes


class OldClient(Client):
    """A client of a time before writes were finished by a call of their own."""

    def __getattr__(self, name: str) -> Any:
        if name == "batch_write_finish":
            raise AttributeError(name)
        return super().__getattr__(name)


def key(group: int, block: int, first: int = 0) -> str:
    """The name of one block of one group."""
    return f"{group}/{hashes(1, first + block)[0].hex()}"


def keys(*groups: int, blocks: int = 2, first: int = 0) -> list[str]:
    return [key(group, block, first) for group in groups for block in range(blocks)]


def backend_of(client: Client) -> Any:
    """The tree's backend on top of ``client``, without its constructor, which needs a device."""
    backend = object.__new__(Backend)
    backend.store = client
    backend._lazy_init = False
    backend._store_initialized = True
    return backend


def worker_of(client: Client, groups: int = 1, offload: bool = False) -> Any:
    """A layerwise worker of one rank."""
    every = range(groups)
    made_worker = bare_worker(
        m_store=backend_of(client),
        use_layerwise_transfer=True,
        use_gva_layerwise=True,
        use_block_key_layerwise=False,
        layerwise_offload=offload,
        kv_role="kv_producer",
        consumer_is_to_put=False,
        use_eagle=False,
        tp_rank=0,
        put_step=1,
        pp_size=1,
        pcp_size=1,
        dcp_size=1,
        layerwise_key_layer_offset=0,
        kv_send_thread=None,
        kv_recv_thread=None,
        backend_name="memcache",
        num_layers=1,
        num_kv_cache_groups=groups,
        cacheable_group_ids=list(every),
        grouped_block_size=[BLOCK] * groups,
        hash_block_size=BLOCK,
        kv_cache_group_families=["default"] * groups,
        group_uses_align_state=[False] * groups,
        group_num_layers=dict.fromkeys(every, 1),
        group_block_len={group: [64] for group in every},
        page_size_bytes=64,
        physical_layer_to_group_layers={},
        _allocated_gvas={},
        _invalid_block_ids=set(),
        _invalid_block_ids_lock=threading.Lock(),
    )
    named = {
        "_make_layerwise_full_key": lambda group, name: f"{group}/{name}",
        "_make_layerwise_gva_key": lambda group, name: f"{group}/{name}",
        "_make_layerwise_partial_key": lambda request, group, block, end: (
            f"{group}/{request.req_id}/{block}/{end}"
        ),
        "_global_group_alloc_size": lambda group: 64,
        "_is_layerwise_save_owner": lambda group=0: True,
        "_compute_reachable_load_masks": lambda request, tokens: None,
        "_compute_reachable_store_masks": lambda request: None,
        "_process_save_for_layer_batch": lambda *arguments: None,
        "_process_load_for_layer_batch": lambda *arguments: None,
        "_build_shared_save_data": lambda: None,
        "_build_shared_load_data": lambda: None,
    }
    for name, value in named.items():
        if hasattr(Worker, name):
            setattr(made_worker, name, value)
    return made_worker


def request_of(
    name: str = "r",
    blocks: int = 2,
    groups: int = 1,
    first: int = 0,
    saves: bool = False,
    loads: bool = False,
    tail: int = 0,
) -> Any:
    """A request of ``blocks`` full blocks and ``tail`` tokens; block ``b`` of group ``g`` has the
    id ``100 g + 10 + first + b``."""
    tokens = blocks * BLOCK + tail
    held = blocks + bool(tail)
    ids = [[100 * group + 10 + first + block for block in range(held)] for group in range(groups)]
    arrays = [np.asarray(group, dtype=np.int64) for group in ids]
    return made(
        metadata.ReqMeta,
        req_id=name,
        token_len_chunk=tokens,
        save_start_token=0,
        save_end_token=blocks * BLOCK,
        target_token_len=tokens,
        num_prompt_tokens=tokens,
        block_ids=ids[0],
        block_ids_by_group=ids,
        block_hashes=hashes(blocks, first),
        can_save=saves,
        load_spec=metadata.LoadSpec(0, tokens, True) if loads else None,
        block_ids_np=arrays[0],
        block_ids_by_group_np=arrays,
    )


def after(calls: int, answer: Any) -> list[Any]:
    """A script: ``calls`` plain answers, then ``answer``."""
    return [Plain] * calls + [answer]


class _Plain:
    """Stands for the client's plain answer in a script."""


Plain = _Plain()


def scripted(client: Client, **script: list[Any]) -> Client:
    """``client`` with answers for its next calls; `Plain` is what it would say by itself, and a
    function is given that."""
    for name, answers in script.items():
        usual = getattr(client, f"_plain_{name}")
        client.script[name] = [_answer(answer, usual) for answer in answers]
    return client


def _answer(answer: Any, usual: Callable[..., Any]) -> Any:
    if answer is Plain:
        return usual
    if callable(answer) and not isinstance(answer, type):
        return lambda *arguments, **named: answer(usual(*arguments, **named))
    return answer


def short(answers: list[Any]) -> list[Any]:
    return answers[:-1]


def long(answers: list[Any]) -> list[Any]:
    return [*answers, answers[-1]]


def addresses(request: Any, saves: bool) -> list[list[int]]:
    """The address of every block, group by group; 0: it is not copied."""
    found = request.block_gvas_by_group_np if saves else request.load_block_gvas_by_group_np
    return [list(map(int, group)) for group in found]


def held(client: Client) -> dict[str, list[str]]:
    """What the store gave and did not get back; empty: it is as it was before."""
    found = {
        "allocated": client.pending(),
        "leased": sorted(client.leased),
        "lost": sorted(client.at_first - client.objects.keys()),
    }
    return {what: names for what, names in found.items() if names}


class BrokenError(RuntimeError):
    """What a broken store raises."""


class Stopped(BaseException):
    """What ends a program."""


class TestSaves:
    """What `_alloc_gvas_for_save` takes, and what is written of it."""

    @pytest.mark.parametrize("groups", [1, 2, 3])
    @pytest.mark.parametrize("blocks", [0, 1, 5])
    @within()
    def test_every_block_of_every_group(self, blocks: int, groups: int) -> None:
        client = Client()
        worker = worker_of(client, groups)
        request = request_of(blocks=blocks, groups=groups, saves=True)
        worker._alloc_gvas_for_save([request])
        wanted = sorted(keys(*range(groups), blocks=blocks))
        assert client.pending() == wanted
        assert sorted(request.save_keys or []) == wanted
        assert client.write(request.save_keys or []) == [0] * len(wanted)
        assert client.pending() == []

    @pytest.mark.parametrize("address", [0, -1, -3016], ids=["zero", "minus-one", "no-memory"])
    @within()
    def test_block_without_address_is_not_saved(self, address: int) -> None:
        client = scripted(Client(), batch_alloc=[lambda given: [given[0], address, given[2]]])
        worker = worker_of(client)
        request = request_of(blocks=3, saves=True)
        worker._alloc_gvas_for_save([request])
        first, second, third = keys(0, blocks=3)
        assert request.save_keys == [first, third]
        assert addresses(request, True)[0][1] == 0
        client.write(request.save_keys)
        again = request_of("again", blocks=3, saves=True)
        worker._alloc_gvas_for_save([again])
        assert again.save_keys == [second]

    @within()
    def test_nothing_is_allocated(self) -> None:
        client = scripted(Client(), batch_alloc=[lambda given: [0] * len(given)])
        request = request_of(saves=True)
        worker_of(client)._alloc_gvas_for_save([request])
        assert request.save_keys == []
        assert held(client) == {}

    @within()
    def test_short_answer(self) -> None:
        client = scripted(Client(), batch_alloc=[short])
        request = request_of(blocks=3, saves=True)
        worker_of(client)._alloc_gvas_for_save([request])
        assert request.save_keys == keys(0)
        assert addresses(request, True)[0][2] == 0
        assert client.pending() == keys(0)

    @within()
    def test_long_answer(self) -> None:
        client = scripted(Client(), batch_alloc=[long])
        request = request_of(saves=True)
        worker_of(client)._alloc_gvas_for_save([request])
        assert request.save_keys == client.pending() == keys(0)

    @within()
    def test_saved_blocks_are_not_saved_again(self) -> None:
        client = Client()
        worker = worker_of(client)
        first = request_of(saves=True)
        worker._alloc_gvas_for_save([first])
        client.write(first.save_keys)
        second = request_of("second", blocks=3, saves=True)
        worker._alloc_gvas_for_save([second])
        assert second.save_keys == [key(0, 2)]


class TestSavesFail:
    """After a failure nothing is allocated, and nothing passes for saved."""

    @pytest.mark.parametrize("error", [BrokenError, Stopped])
    @within()
    def test_first_group(self, error: type[BaseException]) -> None:
        client = scripted(Client(), batch_alloc=[error])
        worker = worker_of(client, 2)
        with pytest.raises(error):
            worker._alloc_gvas_for_save([request_of(groups=2, saves=True)])
        assert held(client) == {}
        assert worker._allocated_gvas == {}

    @pytest.mark.parametrize("error", [BrokenError, Stopped])
    @pytest.mark.parametrize("group", [1, 2])
    @defect("b2", mended=SAVES_MENDED)
    @within()
    def test_later_group(self, group: int, error: type[BaseException]) -> None:
        client = scripted(Client(), batch_alloc=after(group, error))
        worker = worker_of(client, 3)
        with pytest.raises(error):
            worker._alloc_gvas_for_save([request_of(groups=3, saves=True)])
        assert held(client) == {}
        assert worker._allocated_gvas == {}

    @defect("b2", mended=SAVES_MENDED)
    @within()
    def test_later_request(self) -> None:
        client = scripted(Client(), batch_alloc=after(2, BrokenError))
        worker = worker_of(client)
        requests = [request_of(f"r{n}", first=10 * n, saves=True) for n in range(3)]
        with pytest.raises(BrokenError):
            worker._alloc_gvas_for_save(requests)
        assert held(client) == {}
        assert not any(request.save_keys for request in requests)

    @pytest.mark.skipif(not HAS_PARTIAL, reason="the release saves no partial blocks")
    @defect("b2", mended=SAVES_MENDED)
    @within()
    def test_partial_block(self) -> None:
        client = scripted(Client(), batch_alloc=after(1, BrokenError))
        worker = worker_of(client, offload=True)
        with pytest.raises(BrokenError):
            worker._alloc_gvas_for_save([request_of(saves=True, tail=4)])
        assert held(client) == {}

    @pytest.mark.skipif(not HAS_PARTIAL, reason="the release saves no partial blocks")
    @defect("b2", mended=SAVES_MENDED)
    @within()
    def test_group_after_a_partial_block(self) -> None:
        client = scripted(Client(), batch_alloc=after(2, BrokenError))
        worker = worker_of(client, 2, offload=True)
        with pytest.raises(BrokenError):
            worker._alloc_gvas_for_save([request_of(groups=2, saves=True, tail=4)])
        assert held(client) == {}

    @defect("b2", mended=SAVES_MENDED)
    @within()
    def test_retry_saves_every_block(self) -> None:
        client = scripted(Client(), batch_alloc=after(1, BrokenError))
        worker = worker_of(client, 2)
        with pytest.raises(BrokenError):
            worker._alloc_gvas_for_save([request_of(groups=2, saves=True)])
        again = request_of("again", groups=2, saves=True)
        worker._alloc_gvas_for_save([again])
        client.write(again.save_keys)
        assert sorted(client.readable) == keys(0, 1)
        assert client.pending() == []

    @defect("b2", mended=SAVES_MENDED)
    @within()
    def test_another_request_saves_the_shared_prefix(self) -> None:
        client = scripted(Client(), batch_alloc=after(1, BrokenError))
        worker = worker_of(client)
        requests = [request_of("a", saves=True), request_of("b", first=10, saves=True)]
        with pytest.raises(BrokenError):
            worker._alloc_gvas_for_save(requests)
        longer = request_of("longer", blocks=4, saves=True)
        worker._alloc_gvas_for_save([longer])
        client.write(longer.save_keys)
        assert sorted(client.readable) == keys(0, blocks=4)

    @pytest.mark.skipif(
        not hasattr(Worker, "_refresh_allocated_gvas"), reason="the release asks for no existence"
    )
    @pytest.mark.parametrize(
        "answer", [BrokenError, short, lambda given: [7] * len(given)], ids=["raises", "short", "7"]
    )
    @defect("b2", mended=SAVES_MENDED)
    @within()
    def test_existence_in_a_later_group(self, answer: Any) -> None:
        client = Client()
        worker = worker_of(client, 2)
        before = request_of(groups=2, saves=True)
        worker._alloc_gvas_for_save([before])
        client.write(before.save_keys)
        client.leased.clear()
        scripted(client, batch_is_exist=after(1, answer))
        with pytest.raises(RuntimeError):
            worker._alloc_gvas_for_save([request_of("more", blocks=3, groups=2, saves=True)])
        assert held(client) == {}
        assert worker._allocated_gvas.keys() == set(keys(0, 1))

    @within()
    def test_what_was_saved_before_stays(self) -> None:
        client = Client()
        worker = worker_of(client, 2)
        before = request_of(groups=2, saves=True)
        worker._alloc_gvas_for_save([before])
        client.write(before.save_keys)
        scripted(client, batch_alloc=after(1, BrokenError))
        with pytest.raises(BrokenError):
            worker._alloc_gvas_for_save([request_of("more", blocks=4, groups=2, saves=True)])
        assert sorted(client.readable) == keys(0, 1)
        assert worker._allocated_gvas.keys() >= set(keys(0, 1))

    @pytest.mark.parametrize("nonsense", [None, "much", 1.5j], ids=["none", "word", "complex"])
    @defect("b2", mended=SAVES_MENDED)
    @within()
    def test_answer_that_is_no_address(self, nonsense: Any) -> None:
        client = scripted(Client(), batch_alloc=[lambda given: [given[0], nonsense, given[2]]])
        worker = worker_of(client)
        with pytest.raises(TypeError):
            worker._alloc_gvas_for_save([request_of(blocks=3, saves=True)])
        assert held(client) == {}
        assert worker._allocated_gvas == {}

    @within()
    def test_no_answer(self) -> None:
        client = scripted(Client(), batch_alloc=[None])
        worker = worker_of(client)
        with pytest.raises(TypeError):
            worker._alloc_gvas_for_save([request_of(saves=True)])
        assert held(client) == {}

    @defect("b2", mended=SAVES_MENDED)
    @within()
    def test_giving_back_fails_too(self) -> None:
        client = scripted(
            Client(),
            batch_alloc=after(1, BrokenError("the first error")),
            batch_write_finish=[BrokenError("the second error")],
        )
        worker = worker_of(client, 2)
        with pytest.raises(BrokenError, match="the first error"):
            worker._alloc_gvas_for_save([request_of(groups=2, saves=True)])
        assert worker._allocated_gvas == {}
        again = request_of("again", groups=2, saves=True)
        worker._alloc_gvas_for_save([again])
        assert client.write(again.save_keys) == [0] * 4
        assert client.pending() == []

    @defect("b2", mended=SAVES_MENDED)
    @within()
    def test_client_that_cannot_take_back(self) -> None:
        client = OldClient()
        scripted(client, batch_alloc=after(1, BrokenError))
        worker = worker_of(client, 2)
        with pytest.raises(BrokenError):
            worker._alloc_gvas_for_save([request_of(groups=2, saves=True)])
        again = request_of("again", groups=2, saves=True)
        worker._alloc_gvas_for_save([again])
        assert sorted(again.save_keys) == keys(0, 1)


class TestLoads:
    """What `_prepare_load_gvas` leases, and what is marked."""

    @pytest.mark.parametrize("groups", [1, 2, 3])
    @pytest.mark.parametrize("blocks", [0, 1, 5])
    @within()
    def test_every_block_of_every_group(self, blocks: int, groups: int) -> None:
        wanted = keys(*range(groups), blocks=blocks)
        client = Client(*wanted)
        worker = worker_of(client, groups)
        request = request_of(blocks=blocks, groups=groups, loads=True)
        worker._prepare_load_gvas([request])
        assert sorted(client.leased) == sorted(request.load_keys or []) == sorted(wanted)
        assert addresses(request, False) == [
            [client.objects[key(group, block)] for block in range(blocks)]
            for group in range(groups)
        ]
        assert worker.get_block_ids_with_load_errors() == set()

    @pytest.mark.parametrize("missing", [0, 1, 2])
    @within()
    def test_missing_block_is_marked(self, missing: int) -> None:
        there = [name for name in keys(0, blocks=3) if name != key(0, missing)]
        client = Client(*there)
        worker = worker_of(client)
        request = request_of(blocks=3, loads=True)
        worker._prepare_load_gvas([request])
        assert worker.get_block_ids_with_load_errors() == {10 + missing}
        assert sorted(client.leased) == sorted(request.load_keys) == there
        assert addresses(request, False)[0][missing] == 0

    @within()
    def test_nothing_is_there(self) -> None:
        client = Client()
        worker = worker_of(client)
        request = request_of(blocks=2, loads=True)
        worker._prepare_load_gvas([request])
        assert worker.get_block_ids_with_load_errors() == {10, 11}
        assert held(client) == {}

    @pytest.mark.parametrize("address", [0, -1], ids=["zero", "negative"])
    @within()
    def test_address_that_is_none(self, address: int) -> None:
        client = scripted(
            Client(*keys(0)), batch_get_key_info=[lambda given: [given[0], KeyInfo(address)]]
        )
        worker = worker_of(client)
        request = request_of(loads=True)
        worker._prepare_load_gvas([request])
        assert worker.get_block_ids_with_load_errors() == {11}
        assert list(client.leased) == [key(0, 0)]

    @defect("b6", mended=ANSWERS_MENDED)
    @within()
    def test_key_without_information_is_marked(self) -> None:
        client = scripted(Client(*keys(0)), batch_get_key_info=[lambda given: [given[0], None]])
        worker = worker_of(client)
        request = request_of(loads=True)
        worker._prepare_load_gvas([request])
        assert worker.get_block_ids_with_load_errors() == {11}
        assert list(client.leased) == [key(0, 0)]

    @pytest.mark.parametrize("code", [-1, NOT_READABLE, 7])
    @defect("b7", mended=LEASES_MENDED)
    @within()
    def test_refused_lease_is_marked_and_not_copied(self, code: int) -> None:
        client = scripted(Client(*keys(0)), batch_add_lease=[lambda given: [0, code]])
        worker = worker_of(client)
        request = request_of(loads=True)
        worker._prepare_load_gvas([request])
        assert worker.get_block_ids_with_load_errors() == {11}
        assert request.load_keys == list(client.leased) == [key(0, 0)]
        assert addresses(request, False)[0][1] == 0

    @pytest.mark.skipif(not ASKS_UNDER_LEASE, reason="the release asks once only")
    @within()
    def test_address_gone_under_the_lease(self) -> None:
        client = scripted(
            Client(*keys(0)), batch_get_key_info=after(1, lambda given: [given[0], None])
        )
        worker = worker_of(client)
        request = request_of(loads=True)
        worker._prepare_load_gvas([request])
        assert worker.get_block_ids_with_load_errors() == {11}
        assert addresses(request, False)[0][1] == 0
        assert set(client.leased) == set(request.load_keys)


class TestLoadsFail:
    """After a failure nothing is leased."""

    @pytest.mark.parametrize("error", [BrokenError, Stopped])
    @pytest.mark.parametrize("call", ["batch_get_key_info", "batch_add_lease"])
    @within()
    def test_first_group(self, call: str, error: type[BaseException]) -> None:
        client = scripted(Client(*keys(0, 1)), **{call: [error]})
        worker = worker_of(client, 2)
        with pytest.raises(error):
            worker._prepare_load_gvas([request_of(groups=2, loads=True)])
        assert held(client) == {}

    @pytest.mark.parametrize("error", [BrokenError, Stopped])
    @pytest.mark.parametrize("group", [1, 2])
    @defect("b3", mended=LOADS_MENDED)
    @within()
    def test_information_of_a_later_group(self, group: int, error: type[BaseException]) -> None:
        asked = group * (2 if ASKS_UNDER_LEASE else 1)
        client = scripted(Client(*keys(0, 1, 2)), batch_get_key_info=after(asked, error))
        worker = worker_of(client, 3)
        request = request_of(groups=3, loads=True)
        with pytest.raises(error):
            worker._prepare_load_gvas([request])
        assert held(client) == {}
        assert not request.load_keys

    @pytest.mark.parametrize("error", [BrokenError, Stopped])
    @defect("b3", mended=LOADS_MENDED)
    @within()
    def test_lease_of_a_later_group(self, error: type[BaseException]) -> None:
        client = scripted(Client(*keys(0, 1)), batch_add_lease=after(1, error))
        worker = worker_of(client, 2)
        with pytest.raises(error):
            worker._prepare_load_gvas([request_of(groups=2, loads=True)])
        assert held(client) == {}

    @defect("b3", mended=LOADS_MENDED)
    @within()
    def test_later_request(self) -> None:
        names = [*keys(0), *keys(0, first=10), *keys(0, first=20)]
        client = scripted(Client(*names), batch_add_lease=after(2, BrokenError))
        worker = worker_of(client)
        requests = [request_of(f"r{n}", first=10 * n, loads=True) for n in range(3)]
        with pytest.raises(BrokenError):
            worker._prepare_load_gvas(requests)
        assert held(client) == {}
        assert not any(request.load_keys for request in requests)

    @pytest.mark.skipif(not ASKS_UNDER_LEASE, reason="the release asks once only")
    @pytest.mark.parametrize(
        "answer", [BrokenError, lambda given: None, short], ids=["raises", "none", "short"]
    )
    @defect("b3", mended=LOADS_MENDED)
    @within()
    def test_information_under_the_lease(self, answer: Any) -> None:
        names = [*keys(0), *keys(0, first=10)]
        client = scripted(Client(*names), batch_get_key_info=after(3, answer))
        worker = worker_of(client)
        requests = [request_of(f"r{n}", first=10 * n, loads=True) for n in range(2)]
        with pytest.raises(RuntimeError):
            worker._prepare_load_gvas(requests)
        assert held(client) == {}

    @pytest.mark.parametrize("missing", [0, 1])
    @defect("b8", mended=LEASES_MENDED)
    @within()
    def test_one_group_of_several_is_not_there(self, missing: int) -> None:
        client = Client(*keys(1 - missing))
        worker = worker_of(client, 2)
        with pytest.raises(RuntimeError, match="load"):
            worker._prepare_load_gvas([request_of(groups=2, loads=True)])
        assert held(client) == {}

    @defect("b3", mended=LOADS_MENDED)
    @within()
    def test_one_group_of_a_later_request_is_not_there(self) -> None:
        client = Client(*keys(0, 1), *keys(0, first=10))
        worker = worker_of(client, 2)
        requests = [request_of(f"r{n}", groups=2, first=10 * n, loads=True) for n in range(2)]
        with pytest.raises(RuntimeError, match="load"):
            worker._prepare_load_gvas(requests)
        assert held(client) == {}

    @defect("b3", mended=LOADS_MENDED)
    @within()
    def test_retry_leases_again(self) -> None:
        names = keys(0, 1)
        client = scripted(Client(*names), batch_add_lease=after(1, BrokenError))
        worker = worker_of(client, 2)
        with pytest.raises(BrokenError):
            worker._prepare_load_gvas([request_of(groups=2, loads=True)])
        held = dict(client.leased)
        again = request_of("again", groups=2, loads=True)
        worker._prepare_load_gvas([again])
        assert held == {}
        assert sorted(client.leased) == sorted(again.load_keys) == names

    @within()
    def test_releasing_fails_too(self) -> None:
        client = scripted(
            Client(*keys(0, 1)),
            batch_add_lease=after(1, BrokenError("the first error")),
            batch_remove_lease=[BrokenError("the second error")],
        )
        worker = worker_of(client, 2)
        with pytest.raises(BrokenError, match="the first error"):
            worker._prepare_load_gvas([request_of(groups=2, loads=True)])


class TestAnswersOfAnotherLength:
    """A block of which the store says nothing is marked, or the step stops with nothing held."""

    @pytest.mark.parametrize("blocks", [1, 2, 5])
    @defect("b4", mended=ANSWERS_MENDED)
    @within()
    def test_short_information(self, blocks: int) -> None:
        client = scripted(Client(*keys(0, blocks=blocks)), batch_get_key_info=[short])
        worker = worker_of(client)
        request = request_of(blocks=blocks, loads=True)
        if self._stops(worker, request):
            assert held(client) == {}
            return
        assert worker.get_block_ids_with_load_errors() == {10 + blocks - 1}
        assert sorted(client.leased) == keys(0, blocks=blocks - 1)
        assert addresses(request, False)[0][-1] == 0

    @defect("b4", mended=ANSWERS_MENDED)
    @within()
    def test_no_information(self) -> None:
        client = scripted(Client(*keys(0)), batch_get_key_info=[[]])
        worker = worker_of(client)
        if not self._stops(worker, request_of(loads=True)):
            assert worker.get_block_ids_with_load_errors() == {10, 11}
        assert held(client) == {}

    @pytest.mark.skipif(not HAS_PARTIAL, reason="the release loads no partial blocks")
    @defect("b4", mended=ANSWERS_MENDED)
    @within()
    def test_short_information_with_a_partial_block(self) -> None:
        partial = "0/r/2/36"
        client = scripted(Client(*keys(0), partial), batch_get_key_info=[short])
        worker = worker_of(client, offload=True)
        request = request_of(loads=True, tail=4)
        if self._stops(worker, request):
            assert held(client) == {}
            return
        assert request.partial_load_gva_per_group == [0]
        assert worker.get_block_ids_with_load_errors() == {12}

    @within()
    def test_long_information(self) -> None:
        client = scripted(Client(*keys(0)), batch_get_key_info=[long])
        worker = worker_of(client)
        if self._stops(worker, request_of(loads=True)):
            assert held(client) == {}
        else:
            assert sorted(client.leased) == keys(0)

    @defect(
        "b3" if STRICT_LEASES else "b4",
        mended=LOADS_MENDED and (STRICT_LEASES or ANSWERS_MENDED),
    )
    @within()
    def test_short_leases(self) -> None:
        client = scripted(Client(*keys(0)), batch_add_lease=[short])
        worker = worker_of(client)
        request = request_of(loads=True)
        if self._stops(worker, request):
            assert held(client) == {}
            return
        assert worker.get_block_ids_with_load_errors() == {11}
        assert request.load_keys == list(client.leased) == [key(0, 0)]

    @staticmethod
    def _stops(worker: Any, request: Any) -> bool:
        """Whether the release refuses the answer, by design, instead of marking the block."""
        try:
            worker._prepare_load_gvas([request])
        except RuntimeError:
            return True
        return False


class TestSteps:
    """What one half of a step has taken goes back when the other half fails."""

    @within()
    def test_a_step_that_works(self) -> None:
        client = Client(*keys(0))
        worker = worker_of(client)
        requests = [request_of(loads=True), request_of("s", first=10, saves=True)]
        worker.process_layer_data(requests)
        assert client.pending() == keys(0, first=10)
        assert set(client.leased) >= set(keys(0))

    @pytest.mark.parametrize("error", [BrokenError, Stopped])
    @pytest.mark.parametrize("call", ["batch_alloc", "batch_get_key_info", "batch_add_lease"])
    @defect("b5", mended=STEPS_MENDED and SAVES_MENDED and LOADS_MENDED)
    @within()
    def test_either_half_fails(self, call: str, error: type[BaseException]) -> None:
        names = [*keys(0), *keys(0, first=20)]
        client = scripted(Client(*names), **{call: after(1, error)})
        worker = worker_of(client)
        requests = [
            request_of("l0", loads=True),
            request_of("s0", first=10, saves=True),
            request_of("l1", first=20, loads=True),
            request_of("s1", first=30, saves=True),
        ]
        with pytest.raises(error):
            worker.process_layer_data(requests)
        assert held(client) == {}
        assert worker._allocated_gvas == {}

    @defect("b5", mended=STEPS_MENDED)
    @within()
    def test_what_comes_after_both_fails(self) -> None:
        client = Client(*keys(0))
        worker = worker_of(client)
        worker._build_shared_load_data = _raises
        requests = [request_of(loads=True), request_of("s", first=10, saves=True)]
        with pytest.raises(BrokenError):
            worker.process_layer_data(requests)
        assert held(client) == {}
        assert worker._allocated_gvas == {}

    @defect("b5", mended=STEPS_MENDED)
    @within()
    def test_the_next_step_works(self) -> None:
        client = Client(*keys(0))
        worker = worker_of(client)
        worker._build_shared_load_data = _raises
        with pytest.raises(BrokenError):
            worker.process_layer_data([request_of(loads=True, saves=False), _saving()])
        worker._build_shared_load_data = lambda: None
        loading, saving = request_of("again", loads=True), _saving()
        worker.process_layer_data([loading, saving])
        assert set(client.leased) >= set(loading.load_keys) == set(keys(0))
        assert client.write(saving.save_keys) == [0, 0]
        assert client.pending() == []


def _saving() -> Any:
    return request_of("s", first=10, saves=True)


def _raises() -> None:
    raise BrokenError("no data for the threads")
