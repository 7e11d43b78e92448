"""From 0.28.0rc1 on: options come from a method, and a debugging switch traces puts."""

from __future__ import annotations


class MooncakeBackend:
    def _put_slices(self, keys, addrs, sizes):
        options = self._build_replicate_config()
        _emit_whole_key_debug_event("put", len(keys))
        return self.store.batch_put_from_multi_buffers(keys, addrs, sizes, options)
