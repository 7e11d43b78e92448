"""Up to 0.25.1rc1: a step ends when its layers are saved, however long that takes."""

from __future__ import annotations

from vllm.logger import logger


class KVPoolWorker:
    def save_kv_layer(self, connector_metadata: AscendConnectorMetadata) -> None:
        """Queue the current layer's saves; after the last layer, wait for them."""
        layer_id = self.current_layer
        if layer_id >= self.num_layers:
            return
        assert self.sync_save_events is not None
        assert self.layer_save_finished_events is not None
        assert self.kv_send_thread is not None
        finished = self.layer_save_finished_events
        self.sync_save_events[layer_id].record()
        tasks = self.layer_save_tasks[layer_id]
        if tasks:
            for task in tasks:
                for block_range in task.block_ranges:
                    self.kv_send_thread.add_stored_request(block_range.request.req_id)
            self.kv_send_thread.add_request(tasks)  # type: ignore[arg-type]
        else:
            finished[layer_id].set()
        if layer_id == self.num_layers - 1:
            while not finished[layer_id].wait(timeout=10):
                logger.info("Layer %d is not saved yet, keep waiting", layer_id)
            for event in finished:
                event.clear()
        self.current_layer = layer_id + 1
