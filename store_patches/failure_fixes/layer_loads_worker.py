"""What the layer threads have lost is reported with the other blocks."""

from __future__ import annotations


class KVPoolWorker:
    def get_block_ids_with_load_errors(self) -> set[int]:
        """Return, once, the blocks that did not arrive; the scheduler has them computed."""
        take_lost_blocks = getattr(type(self.kv_recv_thread), "take_lost_blocks", None)
        lost = take_lost_blocks(self.kv_recv_thread) if take_lost_blocks is not None else set()
        with self._invalid_block_ids_lock:
            invalid = self._invalid_block_ids | lost
            self._invalid_block_ids.clear()
        return invalid
