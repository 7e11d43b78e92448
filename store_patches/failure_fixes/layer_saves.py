"""Who waits for a save learns that the thread which does it has failed."""

from __future__ import annotations

from vllm.logger import logger


class KVCacheStoreKeyLayerRecvingThread:
    def _wait_for_save(self, layer_id: int) -> None:
        check_saves = getattr(self, "save_failure_checker", None)
        saved = self.layer_save_finished_events[layer_id]
        while not saved.wait(timeout=10):
            if check_saves is not None:
                check_saves()
            logger.info("Layer %d is not saved yet, its buffer cannot be loaded into", layer_id)
        saved.clear()
