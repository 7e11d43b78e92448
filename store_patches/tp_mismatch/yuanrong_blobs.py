"""Up to 0.26.0rc1: buffers go as lists of blobs, so many keys at a time."""

from __future__ import annotations


class YuanrongBackend:
    def _put_batches(self, keys, addrs, sizes):
        """Puts batch after batch; yields the number of keys of each that is done."""
        self._ensure_device_ready()
        names = self._helper.normalize_keys(keys)
        blobs = self._helper.make_blob_lists(addrs, sizes)
        step = self._DS_MAX_BATCH_KEYS
        for first in range(0, len(names), step):
            part = slice(first, first + step)
            self._hetero_client.mset_d2h(names[part], blobs[part], self._ds_set_param)
            yield len(names[part])
