"""Up to 0.25.1rc1: a layer whose load fails is marked, and its waiters go on."""

from __future__ import annotations

from collections.abc import Iterator

from vllm.logger import logger


class KVTransferThread:
    def raise_if_failed(self) -> None:
        """Raise, on the main flow, what this thread cannot mend with marks."""
        error = getattr(self, "_fatal_error", None)
        if error is not None:
            raise RuntimeError(f"{self.name} failed during asynchronous transfer") from error

    def _close_failed_layer(self, data: LayerLoadTask) -> None:
        """Mark what did not arrive, and end every wait for it."""
        try:
            self._mark_lost_layer(_rows_of(data.transfer_tasks))
        except BaseException as error:
            self._fatal_error = error
        requests = [
            block_range.request for task in data.transfer_tasks for block_range in task.block_ranges
        ]
        if data.layer_id == self.final_layer_id:
            for request in requests:
                if request.is_last_chunk:
                    self.set_finished_request(request.req_id)
        self.layer_load_finished_events[data.layer_id].set()
        self.request_queue.task_done()
        self.get_event.set()


def _rows_of(tasks: list[LayerTransferTask]) -> Iterator[tuple[ReqMeta, int]]:
    """Yield the request and block id of every block that the tasks load."""
    for task in tasks:
        for block_range in task.block_ranges:
            request = block_range.request
            groups = request.block_ids_by_group
            block_ids = groups[task.group_id] if task.group_id < len(groups) else request.block_ids
            for block_id in block_ids[max(0, block_range.start_block) : block_range.end_block]:
                yield request, block_id
            partial = block_range.partial_block_index
            if partial is not None and 0 <= partial < len(block_ids):
                yield request, block_ids[partial]


class KVCacheStoreKeyLayerRecvingThread:
    def _handle_request_exception(self, request_data: LayerLoadTask):
        self._close_failed_layer(request_data)


class KVCacheStoreLayerRecvingThread:
    def _batch_copy_with_limits(self, *arguments, **named) -> int:
        """A code of the store is a failed load, as an exception is."""
        code = super()._batch_copy_with_limits(*arguments, **named)
        if code != 0:
            raise RuntimeError(f"Layerwise load batch_copy failed with return code {code}")
        return code

    def _handle_request_exception(self, request_data: LayerLoadTask):
        keys = [
            key
            for task in request_data.transfer_tasks
            for block_range in task.block_ranges
            for key in block_range.request.load_keys or ()
        ]
        if request_data.layer_id == self.final_layer_id and keys:
            try:
                self.m_store.batch_remove_lease(list(dict.fromkeys(keys)))
            except Exception as error:
                logger.error("Could not release the leases of a failed load. error=%s", error)
        self._close_failed_layer(request_data)
