"""From 0.27.1rc1 on: buffers go as they are, all keys at once."""

from __future__ import annotations


class YuanrongBackend:
    def _put_batches(self, keys, addrs, sizes):
        """Puts all keys; yields their number once they are there."""
        self.store.mset_d2h_from_multi_buffers(keys, addrs, sizes, self._ds_set_param)
        yield len(keys)
