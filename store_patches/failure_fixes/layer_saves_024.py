"""Up to 0.25.1rc1: a layer whose save fails is not published, and its waiters go on."""

from __future__ import annotations

from vllm.logger import logger


class KVTransferThread:
    def _close_failed_save(self, transfer_tasks: list[LayerTransferTask]) -> None:
        """Forget the requests of a save that failed, and end every wait for it."""
        for task in transfer_tasks:
            for block_range in task.block_ranges:
                with self.done_task_lock:
                    self.stored_requests.pop(block_range.request.req_id, None)
                self.set_finished_request(block_range.request.req_id)
        if transfer_tasks:
            self.layer_save_finished_events[transfer_tasks[0].layer_id].set()
        transfer_tasks.clear()
        self.request_queue.task_done()


class KVCacheStoreKeyLayerSendingThread:
    def _handle_request_exception(self, request_data: list[LayerTransferTask]):
        self._close_failed_save(request_data)


class KVCacheStoreLayerSendingThread:
    def _handle_request_exception(self, request_data: list[LayerTransferTask]):
        shared = [
            task.shared_block_data for task in request_data if task.shared_block_data is not None
        ]
        keys = list(dict.fromkeys(key for data in shared for key in data.save_keys))
        for key in keys:
            # The last layer publishes an object only if no layer of it has failed.
            self.write_results[key] = -1
        try:
            if keys and request_data[0].layer_id == self.final_layer_id:
                results = [self.write_results.pop(key) for key in keys]
                self.m_store.batch_write_finish(keys, results)
        except Exception as error:
            logger.error("Could not drop objects %s of a failed save. error=%s", keys, error)
        self._close_failed_save(request_data)
