"""What becomes of a request, its thread and its waiters when handling it fails.

Right is: a load that did not arrive has its blocks marked invalid and ends; a save that failed ends
and is told to the main flow; the thread serves the next request, or the main flow is told that it
is gone; nobody waits for ever.
"""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
from tests.ut.distributed.ascend_store.failure_support import (
    Engine,
    Gone,
    RecordingStore,
    Watched,
    defect,
    hashes,
    kv_transfer,
    load_request,
    made,
    pool_worker,
    save_request,
    token_database,
    told,
    within,
)

Thread = kv_transfer.KVTransferThread
Receiving = kv_transfer.KVCacheStoreRecvingThread
Sending = kv_transfer.KVCacheStoreSendingThread

TELLS = hasattr(Thread, "raise_if_failed")
MENDED_LOADS = hasattr(Receiving, "_finish_failed_load")
MENDED_SAVES = hasattr(Sending, "take_failed_saves")
MENDED_START = "start" in vars(Thread)
MENDED_RUN = hasattr(Thread, "_outlives")
MENDED_ANSWERS = hasattr(kv_transfer, "_aligned_codes")

ORDINARY = ValueError("an ordinary error")
POSITIONS = {"first": 0, "middle": 1, "last": 2}
ERRORS = {"ordinary": ORDINARY, "base": Gone("not an Exception")}

positions = pytest.mark.parametrize("position", POSITIONS.values(), ids=POSITIONS)
errors = pytest.mark.parametrize("error", ERRORS.values(), ids=ERRORS)


@pytest.fixture
def logger(monkeypatch: pytest.MonkeyPatch) -> MagicMock:
    """What the threads log."""
    log = MagicMock()
    monkeypatch.setattr(kv_transfer, "logger", log)
    return log


def made_thread(cls: Any, store: RecordingStore, **more: Any) -> Watched:
    """A watched thread of ``cls`` on ``store``, not started."""
    wanted = {
        "m_store": store,
        "token_database": token_database(),
        "block_size": 16,
        "tp_rank": 0,
        "tp_size": 1,
        "dcp_size": 1,
        "ready_event": threading.Event(),
        "invalid_block_ids": set(),
        "invalid_block_ids_lock": threading.Lock(),
    }
    return Watched(made(cls, **wanted | more))


def script(position: int, error: BaseException) -> list[Any]:
    """Answers of a call, of which the one at ``position`` is an error."""
    return [lambda keys, *rest: [0] * len(keys)] * position + [error]


def three_loads() -> list[Any]:
    """Requests of two blocks each; the first block is there already."""
    return [load_request(f"r{index}", [4 * index, 4 * index + 1], cached=1) for index in range(3)]


class TestLoadThatFails:
    """KVCacheStoreRecvingThread: loads beside the forward pass."""

    @positions
    @errors
    @defect("a1: a load that raises is never finished and never marked", mended=MENDED_LOADS)
    @within()
    def test_marked_and_finished(
        self, position: int, error: BaseException, logger: MagicMock
    ) -> None:
        store = RecordingStore(get=script(position, error))
        watched = made_thread(Receiving, store).start()

        watched.add(*three_loads())

        thread = watched.thread
        assert watched.alive
        assert watched.unfinished == 0
        assert thread.get_and_clear_finished_requests() == {"r0", "r1", "r2"}
        assert thread._invalid_block_ids == {4 * position + 1}
        assert len(store.asked("get")) == 3
        assert told(logger, f"r{position}")

    @pytest.mark.parametrize("place", ["load_mask", "names", "addresses"])
    @errors
    @defect("a1: a load that raises is never finished and never marked", mended=MENDED_LOADS)
    @within()
    def test_wherever_it_fails(
        self,
        place: str,
        error: BaseException,
        logger: MagicMock,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        watched = made_thread(Receiving, RecordingStore())
        database = watched.thread.token_database
        name = {
            "load_mask": "load_mask",
            "names": "process_token_key_strings_with_block_ids",
            "addresses": "prepare_value",
        }[place]
        with monkeypatch.context() as patch:
            patch.setattr(database, name, MagicMock(side_effect=error))
            watched.start().add(load_request("bad", [3, 4]))
        watched.add(load_request("good", [5]))

        assert watched.alive
        assert watched.unfinished == 0
        assert watched.thread.get_and_clear_finished_requests() == {"bad", "good"}
        assert watched.thread._invalid_block_ids == {3, 4}

    @defect("a1: a load that raises is never finished and never marked", mended=MENDED_LOADS)
    @within()
    def test_marked_before_finished(self, logger: MagicMock) -> None:
        """Who sees the request finished must find its blocks marked."""
        seen: list[set[int]] = []
        watched = made_thread(Receiving, RecordingStore(get=[ORDINARY]))
        finish = watched.thread.set_finished_request

        def finishing(name: str) -> None:
            seen.append(set(watched.thread._invalid_block_ids))
            finish(name)

        watched.thread.set_finished_request = finishing
        watched.start().add(load_request("r", [7]))

        assert seen == [{7}]

    @defect("a1: a load that raises is never finished and never marked", mended=MENDED_LOADS)
    @within()
    def test_more_than_one_group_is_finished_unmarked(self, logger: MagicMock) -> None:
        """The scheduler cannot take marks of several groups; upstream leaves them out by design."""
        store = RecordingStore(get=[ORDINARY])
        watched = made_thread(
            Receiving, store, token_database=token_database(groups=2), block_size=[16, 16]
        ).start()

        request = load_request("r", [1], block_ids_by_group=[[1], [2]], kv_cache_group_ids=[0, 1])
        watched.add(request, load_request("next", [3]))

        assert watched.thread.get_and_clear_finished_requests() == {"r", "next"}
        assert watched.thread._invalid_block_ids == set()
        assert told(logger, "r")

    @defect("a1: a request that is no request ends the thread", mended=MENDED_LOADS)
    @within()
    def test_malformed_request(self, logger: MagicMock) -> None:
        watched = made_thread(Receiving, RecordingStore()).start()

        watched.add(SimpleNamespace(req_id="odd"), load_request("next", [3]))

        assert watched.alive
        assert watched.unfinished == 0
        assert watched.thread.get_and_clear_finished_requests() == {"odd", "next"}

    @pytest.mark.parametrize("given", [0, 1, 2])
    @defect("a7: what a short answer of get leaves out counts as loaded", mended=MENDED_ANSWERS)
    @within()
    def test_short_answer(self, given: int, logger: MagicMock) -> None:
        watched = made_thread(Receiving, RecordingStore(get=[[0] * given])).start()

        watched.add(load_request("r", [5, 6, 7]))

        assert watched.thread._invalid_block_ids == {5, 6, 7} - set([5, 6, 7][:given])
        assert watched.thread.get_and_clear_finished_requests() == {"r"}

    @within()
    def test_long_answer(self, logger: MagicMock) -> None:
        watched = made_thread(Receiving, RecordingStore(get=[[0, -1, 0, 0, -1]])).start()

        watched.add(load_request("r", [5, 6, 7]))

        assert watched.thread._invalid_block_ids == {6}

    @pytest.mark.parametrize("tp_rank", range(4))
    @within()
    def test_codes_mark_the_same_blocks_on_every_rank(
        self, tp_rank: int, logger: MagicMock
    ) -> None:
        """Ranks ask in different orders; the block, not the place in the answer, counts."""

        def lose_one(keys: list[str], *rest: Any) -> list[int]:
            return [-704 if hashes(4)[2].hex() in key else 0 for key in keys]

        watched = made_thread(
            Receiving, RecordingStore(get=[lose_one]), tp_rank=tp_rank, tp_size=4
        ).start()
        watched.add(load_request("r", [5, 6, 7, 8]))

        assert watched.thread._invalid_block_ids == {7}
        assert watched.thread.get_and_clear_finished_requests() == {"r"}

    @within()
    def test_no_answer_marks_all(self, logger: MagicMock) -> None:
        watched = made_thread(Receiving, RecordingStore(get=[None])).start()

        watched.add(load_request("r", [5, 6, 7], cached=1))

        assert watched.thread._invalid_block_ids == {6, 7}
        assert watched.thread.get_and_clear_finished_requests() == {"r"}

    @within()
    def test_without_load_spec_and_without_blocks(self, logger: MagicMock) -> None:
        watched = made_thread(Receiving, RecordingStore()).start()

        bare = load_request("bare", [1])
        bare.load_spec = None
        watched.add(bare, load_request("empty", []), load_request("there", [1], cached=1))

        assert watched.thread.get_and_clear_finished_requests() == {"bare", "empty", "there"}
        assert watched.unfinished == 0


class TestSaveThatFails:
    """KVCacheStoreSendingThread: saves beside, or at the end of, the forward pass."""

    @staticmethod
    def saves() -> list[Any]:
        return [save_request(f"s{index}", [2 * index, 2 * index + 1]) for index in range(3)]

    def saved(self, store: RecordingStore) -> Watched:
        """A thread that was handed those saves, and has come to rest."""
        watched = made_thread(Sending, store).start()
        for request in (requests := self.saves()):
            watched.thread.add_stored_request(request.req_id)
        watched.add(*requests)
        return watched

    @positions
    @within()
    def test_request_ends_and_the_next_is_saved(self, position: int, logger: MagicMock) -> None:
        watched = self.saved(RecordingStore(put=script(position, ORDINARY)))

        assert watched.alive
        assert watched.unfinished == 0
        assert watched.thread.get_and_clear_finished_requests() == {"s0", "s1", "s2"}
        assert not watched.thread.stored_requests
        assert told(logger, f"s{position}")

    @positions
    @defect("a5: an error that is no Exception ends the thread unseen", mended=MENDED_RUN)
    @within()
    def test_base_exception(self, position: int, logger: MagicMock) -> None:
        store = RecordingStore(put=script(position, ERRORS["base"]))

        watched = self.saved(store)

        assert watched.alive
        assert watched.unfinished == 0
        assert watched.thread.get_and_clear_finished_requests() == {"s0", "s1", "s2"}
        assert len(store.asked("put")) == 3

    @pytest.mark.parametrize("place", ["put", "event"])
    @errors
    @defect("a2: nobody but the log learns of a failed save", mended=MENDED_SAVES)
    @within()
    def test_main_flow_learns(
        self, place: str, error: BaseException, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store = RecordingStore(**({"put": [error]} if place == "put" else {}))
        engine = Engine(monkeypatch, store).begin()
        thread = engine.worker.kv_send_thread
        request = save_request("lost", [1, 2])
        if place == "event":
            request.current_event = MagicMock()
            request.current_event.synchronize.side_effect = error
        thread.add_stored_request("lost")
        engine.watched(thread).add(request)

        log = MagicMock()
        monkeypatch.setattr(pool_worker, "logger", log)
        engine.worker.get_finished(set(), step(delayed_free_req_ids={"lost"}))

        assert told(log, "lost")
        assert not told_again(engine, log)

    @defect("a5: an error that is no Exception ends the thread unseen", mended=MENDED_RUN)
    @within()
    def test_waiter_of_a_save_ends(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Up to 0.28.0rc1 wait_for_save waits for its queue; later ones fence by the next step."""
        store = RecordingStore(put=[ERRORS["base"]])
        engine = Engine(monkeypatch, store).begin()
        worker = engine.worker

        worker.wait_for_save(step(requests=[save_request("lost", [1]), save_request("next", [2])]))
        engine.world.settle()

        assert engine.watched(worker.kv_send_thread).unfinished == 0
        assert len(store.asked("put")) == 2

    @within()
    def test_untracked_request_is_left_out(self, logger: MagicMock) -> None:
        store = RecordingStore()
        watched = made_thread(Sending, store).start()

        watched.add(save_request("stranger", [1]))

        assert store.asked("put") == []
        assert watched.unfinished == 0

    @within()
    def test_exists_that_raises_saves_everything(self, logger: MagicMock) -> None:
        store = RecordingStore(exists=[ORDINARY])
        watched = made_thread(Sending, store).start()
        watched.thread.add_stored_request("s")

        watched.add(save_request("s", [1, 2]))

        assert [len(keys) for keys, *_ in store.asked("put")] == [2]
        assert watched.thread.get_and_clear_finished_requests() == {"s"}


def step(**fields: Any) -> SimpleNamespace:
    """A step's connector metadata."""
    known = {"requests": [], "preempted_req_ids": set(), "loading_req_ids": set()}
    return SimpleNamespace(**known | {"delayed_free_req_ids": set()} | fields)


def told_again(engine: Engine, log: MagicMock) -> bool:
    """Whether the next step tells of the same save once more."""
    log.reset_mock()
    engine.worker.get_finished(set(), step())
    return told(log, "lost")


class Fussy(Thread):  # type: ignore[misc, valid-type]
    """A thread whose requests are functions to call."""

    handler_error: BaseException | None = None

    def _handle_request(self, request: Any) -> None:
        try:
            request()
        finally:
            self.request_queue.task_done()

    def _handle_request_exception(self, request: Any) -> None:
        if self.handler_error is not None:
            raise self.handler_error


class TestRun:
    """KVTransferThread.run: what every transfer thread does."""

    @staticmethod
    def fed(position: int, error: BaseException, handler: BaseException | None = None) -> Any:
        """A thread that was given three requests, one of which fails; and what it did."""
        done: list[int] = []

        def fail() -> None:
            raise error

        requests: list[Any] = [lambda index=index: done.append(index) for index in range(3)]
        requests[position] = fail
        watched = made_thread(Fussy, RecordingStore(), name="fussy")
        watched.thread.handler_error = handler
        watched.start().add(*requests)
        return watched, done

    @staticmethod
    def nothing_swallowed(
        watched: Watched, done: list[int], position: int, error: BaseException
    ) -> bool:
        """The thread lives and did the others, or whoever asks learns what ended it."""
        if watched.alive:
            return done == [index for index in range(3) if index != position]
        if not TELLS:
            return False
        with pytest.raises(RuntimeError) as raised:
            watched.thread.raise_if_failed()
        return raised.value.__cause__ is error

    @positions
    @within()
    def test_ordinary_error(self, position: int, logger: MagicMock) -> None:
        watched, done = self.fed(position, ORDINARY)

        assert self.nothing_swallowed(watched, done, position, ORDINARY)
        assert told(logger, "an ordinary error")

    @positions
    @defect("a5: an error that is no Exception ends the thread unseen", mended=MENDED_RUN)
    @within()
    def test_base_exception(self, position: int, logger: MagicMock) -> None:
        watched, done = self.fed(position, ERRORS["base"])

        assert self.nothing_swallowed(watched, done, position, ERRORS["base"])
        assert told(logger, "not an Exception")

    @positions
    @errors
    @defect("a6: an error in the error handler ends the thread unseen", mended=TELLS or MENDED_RUN)
    @within()
    def test_error_in_the_error_handler(
        self, position: int, error: BaseException, logger: MagicMock
    ) -> None:
        watched, done = self.fed(position, ORDINARY, handler=error)

        assert self.nothing_swallowed(watched, done, position, ORDINARY)

    @within()
    def test_none_is_skipped(self, logger: MagicMock) -> None:
        done: list[int] = []
        watched = made_thread(Fussy, RecordingStore(), name="fussy").start()

        watched.add(None, lambda: done.append(1))

        assert watched.alive
        assert watched.unfinished == 0
        assert done == [1]

    @errors
    @defect(
        "a4: set_device raises: whoever waits for the thread waits for ever", mended=MENDED_START
    )
    @within()
    def test_set_device_raises(self, error: BaseException, logger: MagicMock) -> None:
        thread = made_thread(Fussy, RecordingStore(set_device=[error]), name="fussy").thread

        with pytest.raises(RuntimeError) as raised:
            thread.start()

        assert raised.value.__cause__ is error
        assert thread.ready_event.is_set()
        assert told(logger, str(error))

    @pytest.mark.parametrize("first", [True, False], ids=["first thread", "second thread"])
    @pytest.mark.parametrize("layerwise", [False, True], ids=["requests", "layers"])
    @errors
    @defect(
        "a4: set_device raises: whoever waits for the thread waits for ever", mended=MENDED_START
    )
    @within()
    def test_worker_does_not_start_without_its_device(
        self, first: bool, layerwise: bool, error: BaseException, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store = RecordingStore(set_device=[error] if first else [None, error])
        engine = Engine(
            monkeypatch, store, layerwise=layerwise, load_async=True, backend="yuanrong"
        )

        with pytest.raises(RuntimeError) as raised:
            engine.begin()

        assert raised.value.__cause__ is error

    @within()
    def test_healthy_threads_start(self, monkeypatch: pytest.MonkeyPatch) -> None:
        engine = Engine(monkeypatch, RecordingStore(), load_async=True).begin()

        assert [watched.alive for watched in engine.world.threads] == [True, True]
        assert len(engine.store.asked("set_device")) == 2
