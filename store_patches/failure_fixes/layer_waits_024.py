"""Up to 0.25.1rc1: attention waits for its layer as long as somebody loads it."""

from __future__ import annotations

from vllm.logger import logger


class KVPoolWorker:
    def wait_for_layer_load(self) -> None:
        """Return when the current layer has arrived, or what is lost of it is marked."""
        layer_id = self.current_layer
        if layer_id >= self.num_layers:
            return
        assert self.layer_load_finished_events is not None
        assert self.kv_recv_thread is not None
        finished = self.layer_load_finished_events[layer_id]
        self.kv_recv_thread.raise_if_failed()
        reset_attention_compute_start_gate()
        self._submit_ready_layer_loads()
        if self.layer_load_tasks[layer_id]:
            while not finished.wait(timeout=10):
                self.kv_recv_thread.raise_if_failed()
                logger.info("Layer %d is not loaded yet, keep waiting", layer_id)
            self.kv_recv_thread.raise_if_failed()
        finished.clear()
