"""Up to 0.27.1rc1."""

from __future__ import annotations


class MooncakeBackend:
    def _put_slices(self, keys, addrs, sizes):
        options = ReplicateConfig()
        if self.config.preferred_segment:
            options.preferred_segment = self.local_seg
        options.prefer_alloc_in_same_node = self.config.prefer_alloc_in_same_node
        return self.store.batch_put_from_multi_buffers(keys, addrs, sizes, options)
