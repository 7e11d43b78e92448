"""A block's keys by layer; with pipeline parallelism the names count from the first stage."""

from __future__ import annotations

from typing import Any


class KVCacheStoreKeyLayerRecvingThread:
    def _layer_keys(self, key: Any) -> list:
        return key.split_layers(self.final_layer_id + 1, self.layer_offset)
