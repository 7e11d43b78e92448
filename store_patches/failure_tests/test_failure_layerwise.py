"""Layer by layer: what attention is given, and who waits for whom, when a layer's copy fails.

Right is: a layer is released only with data that arrived, or with the lost blocks marked invalid,
or it is not released and the main flow raises; nobody waits for ever; no object is published of
which a layer is missing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pytest
from tests.ut.distributed.ascend_store.failure_support import (
    Engine,
    Gone,
    OpenGate,
    RecordingStore,
    Watched,
    expected,
    fence,
    kv_transfer,
    load_request,
    metadata,
    pool_worker,
    within,
)

Thread = kv_transfer.KVTransferThread
Loader = kv_transfer.KVCacheStoreLayerRecvingThread

TELLS = hasattr(Thread, "raise_if_failed") and not hasattr(Thread, "_close_failed_layer")
"""A release in which a failed layer thread ends and raises on the main flow."""
RANGES = hasattr(Loader, "_handle_range_request")
"""A release that has blocks as one object with a range a layer."""
MENDED_RUN = hasattr(Thread, "_outlives")
MENDED_LOADS = hasattr(Thread, "take_lost_blocks")
MENDED_RANGES = hasattr(kv_transfer, "_fails_as_exception")
MENDED_SAVES = hasattr(Thread, "_close_failed_save")
MENDED_LOADER = hasattr(pool_worker, "_introduces_threads")
MENDED_GATES = hasattr(fence.AttentionComputeStartGate, "abandon")

LAYERS = 3
BLOCKS = [2, 3, 5]
ORDINARY = ValueError("an ordinary error")
BASE = Gone("not an Exception")
BACKENDS = {"keys": "yuanrong", "addresses": "memcache", "ranges": "mooncake"}
"""Plane → a backend that has it: a key a block and layer, addresses in the pool, ranges."""
PLANES = [plane for plane in BACKENDS if plane != "ranges" or RANGES]

Fault = Callable[[int, int], "int | BaseException | None"]
"""(layer, block) → a code, an error to raise, or nothing."""


class LayerStore(RecordingStore):
    """A store that knows which block of which layer lies at an address."""

    def __init__(self, load_fault: Fault | None = None, save_fault: Fault | None = None) -> None:
        super().__init__()
        self.load_fault = load_fault or (lambda layer, block: None)
        self.save_fault = save_fault or (lambda layer, block: None)
        self.arrived: set[tuple[int, int]] = set()
        self.database: Any = None

    def place(self, address: int) -> tuple[int, int]:
        """Layer and block at an address."""
        bases = self.database.group_kv_caches_base_addr[0]
        strides = self.database.group_block_stride.get(0) or self.database.group_block_len[0]
        for index, (base, stride) in enumerate(zip(bases, strides, strict=True)):
            block, rest = divmod(address - base, stride)
            if rest == 0 and 0 <= block < 8:
                return index // (len(bases) // LAYERS), block
        raise AssertionError(f"no block lies at {address:#x}")

    def copied(self, address: int, load: bool) -> int:
        """The code of copying what lies at an address."""
        layer, block = self.place(address)
        fault = (self.load_fault if load else self.save_fault)(layer, block)
        if isinstance(fault, BaseException):
            raise fault
        if not fault and load:
            self.arrived.add((layer, block))
        return fault or 0

    def _plain_get(self, keys: list[str], addresses: list[list[int]], sizes: Any) -> list[int]:
        return [self.copied(first, True) for first, *_ in addresses]

    def _plain_put(self, keys: list[str], addresses: list[list[int]], sizes: Any) -> list[int]:
        return [self.copied(first, False) for first, *_ in addresses]

    def _plain_batch_copy(
        self, pool: list[int], addresses: list[int], sizes: list[int], direction: int
    ) -> int:
        codes = [self.copied(address, direction == 1) for address in addresses]
        return next((code for code in codes if code), 0)

    def _plain_batch_copy_get(
        self, keys: list[str], addresses: list[list[int]], *rest: Any
    ) -> list[int]:
        return self._plain_get(keys, addresses, None)

    def _plain_batch_copy_put(
        self, keys: list[str], addresses: list[list[int]], *rest: Any
    ) -> list[int]:
        return self._plain_put(keys, addresses, None)

    def published(self) -> set[str]:
        """Keys whose object the store was told to be whole."""
        finished = {
            key
            for keys, results in self.asked("batch_write_finish")
            for key, result in zip(keys, results, strict=True)
            if result == 0
        }
        return finished | {key for (keys,) in self.asked("batch_commit") for key in keys}


@dataclass
class Outcome:
    """What a step came to. ``released``: layer → what had arrived when attention was let in."""

    released: dict[int, frozenset[tuple[int, int]]] = field(default_factory=dict)
    raised: BaseException | None = None
    marked: frozenset[int] = frozenset()


class Step:
    """One forward pass over the layers of a worker."""

    def __init__(
        self,
        patch: pytest.MonkeyPatch,
        plane: str,
        load_fault: Fault | None = None,
        save_fault: Fault | None = None,
        **more: Any,
    ) -> None:
        self.plane = plane
        self.store = LayerStore(load_fault, save_fault)
        self.engine = Engine(
            patch, self.store, layers=LAYERS, layerwise=True, backend=BACKENDS[plane], **more
        ).begin()
        self.worker = self.engine.worker
        self.store.database = self.worker.token_database
        self.worker.current_layer = 0
        self.worker.next_layer_to_submit = 0
        # Some releases load no layer ahead unless told to: gates are for those that are.
        self.worker.num_prefetch_layers = 2
        self.worker._attention_saved_layers = set()
        self.attention_starts = True

    @property
    def loader(self) -> Watched:
        return self.engine.watched(self.worker.kv_recv_thread)

    @property
    def saver(self) -> Watched:
        return self.engine.watched(self.worker.kv_send_thread)

    def tasks(self, layer: int, request: Any, save: bool = False) -> list[Any]:
        """What is to be copied of one layer of a request."""
        task = metadata.LayerTransferTask(
            layer_id=layer,
            block_ranges=[metadata.LayerBlockRange(request, 0, len(BLOCKS))],
            layer_idx_in_group=layer,
        )
        keys = [f"{request.req_id}-{block}" for block in BLOCKS]
        shared: dict[str, Any] = {
            "block_ids_arr": np.asarray(BLOCKS, dtype=np.int64),
            "req_ids": [request.req_id],
            "is_last_chunks": [True],
        }
        if self.plane == "addresses":
            shared["block_gvas_arr"] = np.asarray([4096, 8192, 12288], dtype=np.int64)
            shared["save_keys" if save else "load_keys"] = keys
            if save and layer == LAYERS - 1 and hasattr(task, "write_finish_keys"):
                task.write_finish_keys = keys
        elif self.plane == "ranges":
            shared |= {"block_gvas_arr": None, "block_keys": keys}
            task.use_key_major_ranges = True
            task.final_group_layer = layer == LAYERS - 1
        if self.plane != "keys":
            task.shared_block_data = metadata.SharedBlockData(**shared)
        return [task]

    def loads(self, request: Any) -> Step:
        """Every layer of ``request`` is to be loaded."""
        if self.plane == "addresses":
            request.load_keys = [f"{request.req_id}-{block}" for block in BLOCKS]
        self.worker.layer_load_tasks = [self.tasks(layer, request) for layer in range(LAYERS)]
        return self

    def saves(self, request: Any) -> Step:
        """Every layer of ``request`` is to be saved."""
        request.save_start_token, request.save_end_token = 0, len(BLOCKS) * 16
        self.worker.layer_save_tasks = [self.tasks(layer, request, True) for layer in range(LAYERS)]
        return self

    def lose_patience(self) -> None:
        """Keeps a thread in the store until somebody has waited in vain."""
        world = self.engine.world
        world.wait(lambda: bool(world.fruitless), what="the main flow to lose patience")

    def run(self) -> Outcome:
        """The main flow of the step; a wait without an end fails the test."""
        outcome = Outcome()
        try:
            for layer in range(LAYERS):
                self.worker.wait_for_layer_load()
                outcome.released[layer] = frozenset(self.store.arrived)
                if self.attention_starts:
                    fence.record_attention_compute_start()
                self.worker.save_kv_layer(None)
        except Exception as error:
            outcome.raised = error
            # As the next step begins, if there is one.
            fence.reset_attention_compute_start_gate()
        self.engine.world.settle()
        if self.engine.world.endless:
            pytest.fail(str(self.engine.world.endless[0]))
        outcome.marked = frozenset(self.worker.get_block_ids_with_load_errors())
        return outcome


def honest(outcome: Outcome) -> bool:
    """Whether attention was only ever let in to what had arrived or is marked."""
    return all(
        (layer, block) in arrived or block in outcome.marked
        for layer, arrived in outcome.released.items()
        for block in BLOCKS
    )


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """The errors that these tests provoke are not to be read."""
    monkeypatch.setattr(kv_transfer, "logger", MagicMock())
    monkeypatch.setattr(fence, "torch", MagicMock())


def request() -> Any:
    """The request of a step."""
    return load_request("r", BLOCKS)


def at(layer: int, fault: Any, block: int = 3) -> Fault:
    """A fault of one block in one layer."""
    return lambda place, which: fault if (place, which) == (layer, block) else None


D1 = "d1: codes of a layer's get are ignored"
D4 = "d4: a layer that failed or is late is released as if it had come"
A5 = "a5: an error that is no Exception ends the thread unseen"


def _load_cases() -> list[Any]:
    """Plane and kind of failure, with the defect that it shows."""
    cases = []
    told = TELLS or MENDED_LOADS
    marks = {
        ("keys", "code"): (D1, MENDED_LOADS),
        ("keys", "base"): (A5, MENDED_RUN and told),
        ("addresses", "base"): (A5, MENDED_RUN and told),
        ("ranges", "base"): (A5, MENDED_RANGES),
    }
    for plane in PLANES:
        for kind in ("code", "ordinary", "base"):
            name, mended = marks.get((plane, kind), (D4, told or plane == "ranges"))
            cases.append(
                pytest.param(plane, kind, id=f"{plane}-{kind}", marks=expected(name, mended))
            )
    return cases


FAULTS: dict[str, Any] = {"code": -704, "ordinary": ORDINARY, "base": BASE}
planes = pytest.mark.parametrize("plane", PLANES)
fatal_planes = pytest.mark.parametrize(
    "plane",
    [
        pytest.param(plane, marks=expected(D4, TELLS or MENDED_LOADS or plane == "ranges"))
        for plane in PLANES
    ],
)


class TestLoad:
    """A layer's load fails."""

    @planes
    @within()
    def test_healthy_step(self, plane: str, monkeypatch: pytest.MonkeyPatch) -> None:
        step = Step(monkeypatch, plane).loads(request())

        outcome = step.run()

        assert outcome.raised is None
        assert list(outcome.released) == [0, 1, 2]
        assert outcome.marked == frozenset()
        assert honest(outcome)
        assert step.loader.alive
        assert step.loader.unfinished == 0

    @pytest.mark.parametrize("layer", [0, 1, LAYERS - 1])
    @pytest.mark.parametrize(("plane", "kind"), _load_cases())
    @within()
    def test_no_attention_on_what_did_not_arrive(
        self, plane: str, kind: str, layer: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        step = Step(monkeypatch, plane, at(layer, FAULTS[kind])).loads(request())

        outcome = step.run()

        assert honest(outcome)
        assert outcome.raised is not None or step.loader.unfinished == 0

    @fatal_planes
    @within()
    def test_failure_before_the_gate(self, plane: str, monkeypatch: pytest.MonkeyPatch) -> None:
        step = Step(monkeypatch, plane).loads(request())
        broken = MagicMock(side_effect=ORDINARY)
        monkeypatch.setattr(kv_transfer.LayerBatchBuilder, "build_addrs", broken)
        monkeypatch.setattr(step.worker.token_database, "prepare_value_layer", broken)

        assert honest(step.run())

    @fatal_planes
    @within()
    def test_failure_at_the_gate(self, plane: str, monkeypatch: pytest.MonkeyPatch) -> None:
        step = Step(monkeypatch, plane).loads(request())
        gate = OpenGate(ORDINARY)
        monkeypatch.setattr(pool_worker, "get_attention_compute_start_gate", lambda: gate)

        assert honest(step.run())

    @pytest.mark.parametrize(
        "plane",
        [
            pytest.param(
                plane,
                marks=expected(
                    "d3: a gate that attention has passed by holds the loader for ever",
                    MENDED_GATES and (TELLS or MENDED_LOADS),
                ),
            )
            for plane in PLANES
        ],
    )
    @within()
    def test_gate_that_never_opens(self, plane: str, monkeypatch: pytest.MonkeyPatch) -> None:
        step = Step(monkeypatch, plane).loads(request())
        step.attention_starts = False

        outcome = step.run()

        assert honest(outcome)
        assert step.loader.rests()

    @fatal_planes
    @within()
    def test_late_layer_is_waited_for(self, plane: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """The load goes on only after the main flow has once waited in vain."""

        def late(layer: int, block: int) -> None:
            if layer == 0:
                step.lose_patience()

        step = Step(monkeypatch, plane, late).loads(request())

        assert honest(step.run())

    @pytest.mark.parametrize("tp_rank", range(4))
    @pytest.mark.parametrize(
        "plane",
        [
            pytest.param(plane, marks=expected(D1, MENDED_LOADS or plane == "ranges"))
            for plane in PLANES
            if plane != "addresses"
        ],
    )
    @within()
    def test_marks_are_the_same_on_every_rank(
        self, plane: str, tp_rank: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        step = Step(
            monkeypatch, plane, at(1, -1), tp_rank=tp_rank, tp_size=4, role="kv_both"
        ).loads(request())

        assert step.run().marked == {3}

    @pytest.mark.parametrize(
        ("plane", "kind"),
        [
            pytest.param("keys", "code", marks=expected(D1, MENDED_LOADS)),
            pytest.param("addresses", "code", marks=expected(D4, TELLS or MENDED_LOADS)),
        ],
    )
    @within()
    def test_several_groups_stop_the_step(
        self, plane: str, kind: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A mark would be right for one group only: the main flow raises."""
        step = Step(monkeypatch, plane, at(1, FAULTS[kind]))
        step.loads(load_request("r", BLOCKS, block_ids_by_group=[BLOCKS, [6, 7]]))

        outcome = step.run()

        assert outcome.raised is not None
        assert 1 not in outcome.released
        assert outcome.marked == frozenset()

    @pytest.mark.parametrize(
        "answer",
        [None, [], [0, 0]],
        ids=["none", "empty", "short"],
    )
    @pytest.mark.parametrize("plane", [pytest.param("keys", marks=expected(D1, MENDED_LOADS))])
    @within()
    def test_answers_that_leave_something_out(
        self, plane: str, answer: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        step = Step(monkeypatch, plane).loads(request())
        step.store.script["get"] = [answer]

        assert step.run().marked == set(BLOCKS[len(answer or []) :])

    @pytest.mark.parametrize(
        "plane",
        [
            pytest.param(plane, marks=expected(D1 if plane == "keys" else D4, MENDED_LOADS))
            for plane in PLANES
            if plane == "keys" or not TELLS
        ],
    )
    @within()
    def test_next_step_works(self, plane: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """Where marks are enough, the thread serves the next step as if nothing had been."""
        step = Step(monkeypatch, plane, at(0, -704)).loads(request())
        first = step.run()
        step.store.load_fault = lambda layer, block: None
        step.worker.current_layer = step.worker.next_layer_to_submit = 0

        second = step.loads(load_request("next", BLOCKS)).run()

        assert 3 in first.marked
        assert second.raised is None
        assert second.marked == frozenset()
        assert list(second.released) == [0, 1, 2]


D2 = "d2: the loader waits for ever for a save that failed"
D5 = "d5: a layer's failed save leaves its waiters, or publishes a hole"


def _dead_saver_cases() -> list[Any]:
    cases = []
    survives = MENDED_SAVES
    for plane in PLANES:
        for kind in ("ordinary", "base"):
            if plane == "ranges" and kind == "base":
                continue
            sees = plane != "keys" and TELLS
            if kind == "base":
                mended = MENDED_RUN and (survives or (MENDED_LOADER if plane == "keys" else TELLS))
            else:
                mended = sees or survives or (TELLS and MENDED_LOADER)
            cases.append(
                pytest.param(
                    plane,
                    kind,
                    id=f"{plane}-{kind}",
                    marks=expected(A5 if kind == "base" and sees else D2, mended),
                )
            )
    return cases


class TestSave:
    """A layer's save fails."""

    @planes
    @within()
    def test_healthy_step(self, plane: str, monkeypatch: pytest.MonkeyPatch) -> None:
        step = Step(monkeypatch, plane).saves(request())

        outcome = step.run()

        assert outcome.raised is None
        assert step.saver.alive
        assert step.saver.unfinished == 0
        if plane != "keys":
            assert step.store.published() == {f"r-{block}" for block in BLOCKS}

    @pytest.mark.parametrize(("plane", "kind"), _dead_saver_cases())
    @within()
    def test_dead_saver_is_seen_by_the_loader(
        self, plane: str, kind: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The loader may write to a buffer only when its old layer is saved."""
        step = Step(monkeypatch, plane, save_fault=at(0, FAULTS[kind]))
        step.saves(request())
        step.worker.save_kv_layer(None)
        step.saver.settle()
        load = metadata.LayerLoadTask(
            wait_for_save_layer=0,
            transfer_tasks=step.tasks(1, load_request("r2", BLOCKS)),
            layer_id=1,
        )

        step.loader.add(load)

        assert step.engine.world.endless == []
        if TELLS:
            with pytest.raises(RuntimeError):
                step.worker.kv_recv_thread.raise_if_failed()
        else:
            assert step.loader.alive
            assert {(1, block) for block in BLOCKS} <= step.store.arrived

    @pytest.mark.parametrize("layer", [0, LAYERS - 1])
    @pytest.mark.parametrize(
        "plane",
        [
            pytest.param(plane, marks=expected(D5, TELLS or MENDED_SAVES or plane == "ranges"))
            for plane in PLANES
        ],
    )
    @within()
    def test_failed_save_ends_and_is_not_published(
        self, plane: str, layer: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        step = Step(monkeypatch, plane, save_fault=at(layer, ORDINARY)).saves(request())

        outcome = step.run()

        assert "r-3" not in step.store.published()
        if outcome.raised is None:
            assert step.saver.unfinished == 0
            assert not step.worker.kv_send_thread.stored_requests
        else:
            with pytest.raises(RuntimeError):
                step.worker.kv_send_thread.raise_if_failed()

    @pytest.mark.parametrize(
        "plane",
        [
            pytest.param(plane, marks=expected(A5, MENDED_RUN and (TELLS or MENDED_SAVES)))
            for plane in PLANES
        ],
    )
    @within()
    def test_base_exception_is_not_waited_for(
        self, plane: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        step = Step(monkeypatch, plane, save_fault=at(1, BASE)).saves(request())

        outcome = step.run()

        assert "r-3" not in step.store.published()
        assert outcome.raised is not None or step.saver.unfinished == 0

    @pytest.mark.parametrize(
        "plane",
        [
            pytest.param(
                plane,
                marks=expected(
                    "d4: a step ends while a layer is still being saved", TELLS or MENDED_SAVES
                ),
            )
            for plane in PLANES
        ],
    )
    @within()
    def test_late_save_is_waited_for(self, plane: str, monkeypatch: pytest.MonkeyPatch) -> None:
        def late(layer: int, block: int) -> None:
            if layer == LAYERS - 1:
                step.lose_patience()

        step = Step(monkeypatch, plane, save_fault=late).saves(request())
        unfinished: list[int] = []
        save = step.worker.save_kv_layer

        def saving(connector_metadata: Any) -> None:
            save(connector_metadata)
            unfinished.append(step.saver.unfinished)

        step.worker.save_kv_layer = saving
        step.run()

        assert unfinished[-1] == 0
