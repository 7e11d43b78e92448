"""A block's keys by layer."""

from __future__ import annotations

from typing import Any


class KVCacheStoreKeyLayerRecvingThread:
    def _layer_keys(self, key: Any) -> list:
        return key.split_layers(self.final_layer_id + 1)
