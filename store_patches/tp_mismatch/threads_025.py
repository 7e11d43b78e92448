"""0.24.0rc1 and 0.25.1rc1: what layerwise saving and loading look like there."""

from __future__ import annotations


class KVPoolWorker:
    def _saves_layerwise(self) -> bool:
        return self.kv_role in ("kv_producer", "kv_both")

    def _layerwise_loader(self, common, ready, limits):
        return KVCacheStoreLayerRecvingThread(
            *common,
            ready,
            self.get_event,
            self.layer_load_finished_events,
            self.layer_save_finished_events,
            self.num_layers,
            self.h2d_stagger_us,
            *limits,
            group_builders=self._build_group_layer_builders(),
        )
