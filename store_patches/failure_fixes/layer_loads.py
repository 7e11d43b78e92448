"""A layer that did not arrive is marked, before attention may use it."""

from __future__ import annotations

from collections.abc import Iterable

from vllm.logger import logger


def _layer_codes(answer: Iterable[int] | None, count: int) -> list[int]:
    """One code a key. What the backend gave no answer for did not arrive."""
    codes = [] if answer is None else list(answer)[:count]
    return codes + [1] * (count - len(codes))


class KVTransferThread:
    def _mark_lost_layer(self, rows: Iterable[tuple[ReqMeta, int]]) -> None:
        """Mark the blocks of these (request, block id); `take_lost_blocks` hands them on."""
        rows = list(rows)
        if any(len(request.block_ids_by_group) > 1 for request, _ in rows):
            # One id stands for blocks of several kinds: no mark would be right.
            raise RuntimeError("Layerwise load of a hybrid request failed; refusing incomplete KV")
        with self.done_task_lock:
            lost = getattr(self, "_lost_block_ids", set())
            self._lost_block_ids = lost | {block_id for _, block_id in rows}

    def take_lost_blocks(self) -> set[int]:
        """Return, once, the blocks of which a layer did not arrive."""
        with self.done_task_lock:
            lost, self._lost_block_ids = getattr(self, "_lost_block_ids", set()), set()
        return lost


class KVCacheStoreKeyLayerRecvingThread:
    def _handle_request(  # type: ignore[override]
        self, data: LayerLoadTask
    ):
        layer_id = data.layer_id
        if data.wait_for_save_layer is not None:
            self._wait_for_save(data.wait_for_save_layer)
        if data.attention_start_gate is not None:
            while not data.attention_start_gate.wait(timeout=10):
                logger.info("Load of layer %d waits until attention starts", layer_id)
        if len(data.transfer_tasks) > 1:
            raise ValueError(
                f"Layer {layer_id} has {len(data.transfer_tasks)} load tasks; it may have one"
            )
        ranges = data.transfer_tasks[0].block_ranges if data.transfer_tasks else []
        rows = [row for block_range in ranges for row in self._rows_to_load(block_range, layer_id)]
        if rows:
            self._get_rows(layer_id, rows)
        if layer_id == self.final_layer_id:
            for block_range in ranges:
                if block_range.request.is_last_chunk:
                    self.set_finished_request(block_range.request.req_id)
        assert not self.layer_load_finished_events[layer_id].is_set(), (
            f"layer {layer_id} is loaded twice"
        )
        self.layer_load_finished_events[layer_id].set()
        data.transfer_tasks.clear()
        self.request_queue.task_done()
        self.get_event.set()

    def _rows_to_load(self, block_range: LayerBlockRange, layer_id: int) -> list[tuple]:
        """Return the key, addresses, sizes, request and block id of each block with a hash."""
        request = block_range.request
        block_size = self._get_block_size(0)
        rows = []
        for index in range(
            block_range.start_block, min(block_range.end_block, len(request.block_hashes))
        ):
            block_hash = request.block_hashes[index]
            key = self.token_database._make_key_by_hash(
                block_hash if isinstance(block_hash, str) else block_hash.hex()
            )
            addrs, sizes, block_id = self.token_database.prepare_value_layer(
                index * block_size, (index + 1) * block_size, request.block_ids, layer_id
            )
            rows.append(
                (self._layer_keys(key)[layer_id].to_string(), addrs, sizes, request, block_id)
            )
        return rows

    def _get_rows(self, layer_id: int, rows: list[tuple]) -> None:
        """Load the rows; ranks begin at different ones."""
        rows = _circular_shift(rows, (self.tp_rank * len(rows)) // self.tp_size)
        keys, addrs, sizes, requests, block_ids = (list(column) for column in zip(*rows))
        codes = _layer_codes(self.m_store.get(keys, addrs, sizes), len(keys))
        lost = [row for row, code in zip(zip(requests, block_ids), codes) if code != 0]
        if lost:
            logger.error(
                "Layer %d: %d of %d keys did not arrive. blocks=%s, codes=%s",
                layer_id,
                len(lost),
                len(keys),
                [block_id for _, block_id in lost],
                codes,
            )
            self._mark_lost_layer(lost)
