"""0.26.0rc1: what layerwise saving and loading look like there."""

from __future__ import annotations


class KVPoolWorker:
    def _saves_layerwise(self) -> bool:
        return self.kv_role in ("kv_producer", "kv_both") or self.consumer_is_to_put

    def _layerwise_loader(self, common, ready, limits):
        sender = self.kv_send_thread
        return KVCacheStoreLayerRecvingThread(
            *common,
            ready,
            self.get_event,
            self.layer_load_finished_events,
            self.layer_save_finished_events,
            self.sync_save_events,
            self.num_layers,
            self.h2d_stagger_us,
            *limits,
            group_builders=self._build_group_layer_builders(),
            external_slot_release_waiter=self.external_slot_release_waiter,
            save_failure_checker=None if sender is None else sender.raise_if_failed,
        )
