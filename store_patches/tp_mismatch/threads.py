"""Up to 0.26.0rc1: the worker is handed to the threads that save and load whole requests."""

from __future__ import annotations


class KVPoolWorker:
    def _start_kv_transfer_threads(self) -> None:
        """Starts the threads that this rank's role asks for, once."""
        if self._transfer_threads_started:
            return
        if self.use_layerwise:
            self._start_layerwise_threads()
        else:
            self._start_request_threads()
        self._transfer_threads_started = True

    @staticmethod
    def _running(make):
        """The thread that ``make`` gives for a ready event, started and ready."""
        ready = threading.Event()
        thread = make(ready)
        thread.start()
        ready.wait()
        return thread

    def _start_request_threads(self) -> None:
        common = (
            self.m_store,
            self.token_database,
            self.grouped_block_size,
            self.tp_rank,
            self.tp_size,
            self.dcp_size,
        )
        # Without a worker a thread moves whole blocks, which the other side never asks for.
        worker = self if self.tp_mismatch else None
        if self.kv_role in ("kv_producer", "kv_both") or self.consumer_is_to_put:
            self.kv_send_thread = self._running(
                lambda ready: KVCacheStoreSendingThread(
                    *common,
                    self.put_step,
                    self.kv_role,
                    ready,
                    self.group_uses_align_state,
                    self.enable_kv_events,
                    worker=worker,
                )
            )
        if self.load_async:
            self.kv_recv_thread = self._running(
                lambda ready: KVCacheStoreRecvingThread(
                    *common,
                    ready,
                    invalid_block_ids=self._invalid_block_ids,
                    invalid_block_ids_lock=self._invalid_block_ids_lock,
                    worker=worker,
                )
            )

    def _start_layerwise_threads(self) -> None:
        """TP mismatch has no layerwise form; these threads are as they were."""
        layers = self.num_layers
        self.get_event = threading.Event()
        self.layer_load_finished_events = [threading.Event() for _ in range(layers)]
        self.layer_save_finished_events = [threading.Event() for _ in range(layers)]
        self.sync_save_events = [torch.npu.Event() for _ in range(layers)]
        common = (
            self.m_store,
            self.token_database,
            self.block_size,
            self.tp_rank,
            self.tp_size,
            self.dcp_size,
        )
        region = (self.my_key_index, self.num_ranks_per_layer, self.page_size_bytes)
        limits = (self.layerwise_max_transfer_blocks, self.layerwise_max_transfer_bytes)
        if self._saves_layerwise():
            saved = (layers, self.layer_save_finished_events, self.sync_save_events)
            if self.use_gva_layerwise:
                self.kv_send_thread = self._running(
                    lambda ready: KVCacheStoreLayerSendingThread(
                        *common,
                        self.put_step,
                        *region,
                        ready,
                        *saved,
                        *limits,
                        group_builders=self._build_group_layer_builders(),
                    )
                )
            else:
                self.kv_send_thread = self._running(
                    lambda ready: KVCacheStoreKeyLayerSendingThread(
                        *common, self.put_step, ready, *saved
                    )
                )
        if self.use_gva_layerwise:
            self.kv_recv_thread = self._running(
                lambda ready: self._layerwise_loader(common + region, ready, limits)
            )
        else:
            self.kv_recv_thread = self._running(
                lambda ready: KVCacheStoreKeyLayerRecvingThread(
                    *common,
                    ready,
                    self.get_event,
                    self.layer_load_finished_events,
                    self.layer_save_finished_events,
                    layers,
                )
            )
