"""A load that fails ends, and its blocks are marked invalid."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from vllm.logger import logger


def _aligned_codes(answer: Iterable[int] | None, count: int) -> list[int]:
    """One code a key. What the backend gave no answer for did not arrive."""
    codes = [] if answer is None else list(answer)[:count]
    return codes + [1] * (count - len(codes))


class KVCacheStoreRecvingThread:
    def _handle_request(self, req_meta: ReqMeta):
        try:
            self._load(req_meta)
            self.set_finished_request(req_meta.req_id)
        except BaseException as error:
            self._finish_failed_load(req_meta, error)
            raise
        finally:
            self.request_queue.task_done()

    def _outlives(self, request_data: Any, error: BaseException) -> bool:
        # Nobody waits for the failed request any more: it costs only itself.
        return True

    def _load(self, req_meta: ReqMeta) -> None:
        load_spec = req_meta.load_spec
        if load_spec is None:
            logger.error(
                "Request %s does not say what to load; nothing is loaded.", req_meta.req_id
            )
        elif self.worker is not None and getattr(self.worker, "tp_mismatch", False):
            block_size = self._get_block_size(0)
            self.worker._load_kv_tp_mismatch(
                req_meta.block_hashes,
                req_meta.block_ids_by_group[0],
                load_spec.token_len,
                load_spec.vllm_cached_tokens // block_size * block_size,
            )
        else:
            chunks = list(self._chunks_to_load(req_meta))
            if chunks:
                self._get_chunks(req_meta, chunks)

    def _get_chunks(self, req_meta: ReqMeta, chunks: list[tuple]) -> None:
        """Load (key, addresses, sizes, block id) each; ranks begin at different ones."""
        chunks = _circular_shift(chunks, self.tp_rank % len(chunks))
        keys, addrs, sizes, block_ids = (list(column) for column in zip(*chunks))
        logger.debug("Loading %d keys of request %s: %s", len(keys), req_meta.req_id, keys[:3])
        begin = time.perf_counter()
        answer = self.m_store.get(keys, addrs, sizes)
        record_operation = getattr(self, "_record_operation_cb", None)
        if record_operation is not None:
            record_operation("load_get", time.perf_counter() - begin, len(keys))
        codes = _aligned_codes(answer, len(keys))
        if any(code != 0 for code in codes):
            self._mark_lost(req_meta, record_failed_blocks(block_ids, codes))

    def _mark_lost(self, req_meta: ReqMeta, block_ids: set[int]) -> None:
        if len(req_meta.block_ids_by_group) == 1:
            with self._invalid_block_ids_lock:
                self._invalid_block_ids.update(block_ids)
        elif block_ids:
            # The scheduler cannot invalidate blocks of a request with several groups.
            logger.error(
                "Blocks %s of hybrid request %s did not arrive, and cannot be marked.",
                block_ids,
                req_meta.req_id,
            )

    def _finish_failed_load(self, req_meta: Any, error: BaseException) -> None:
        """Nothing is known of what arrived: all of it counts as lost, and nobody waits for it."""
        req_id = getattr(req_meta, "req_id", None)
        logger.error(
            "KV pool could not load request %s. type=%s, error=%s",
            req_id,
            type(error).__name__,
            error,
        )
        try:
            self._mark_lost(req_meta, self._blocks_to_load(req_meta))
        except Exception as again:
            logger.error("Cannot tell which blocks request %s has lost: %s", req_id, again)
        if req_id is not None:
            self.set_finished_request(req_id)

    def _blocks_to_load(self, req_meta: ReqMeta) -> set[int]:
        block_ids: set[int] = set()
        for group_id, group_block_ids in enumerate(req_meta.block_ids_by_group):
            block_size = self._get_block_size(group_id)
            begin = req_meta.load_spec.vllm_cached_tokens // block_size
            end = -(-req_meta.load_spec.token_len // block_size)
            null_blocks = {0} if self._skip_null_blocks(req_meta, group_id) else set()
            block_ids.update(set(group_block_ids[begin:end]) - null_blocks)
        return block_ids
