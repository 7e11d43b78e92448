"""Up to 0.26.0rc1: loads that do not wait for a thread take the TP-mismatch way too."""

from __future__ import annotations


class KVPoolWorker:
    def start_load_kv(self, metadata: AscendConnectorMetadata):
        """Starts, or without an own thread does, the loads of one step."""
        self.current_layer = 0
        self.layerwise_retrievers = []
        if self.use_layerwise:
            self._begin_layerwise_step()
            if metadata.requests:
                self.process_layer_data(metadata.requests)
            return
        for request in metadata.requests:
            spec = request.load_spec
            if spec is not None and spec.can_load:
                self._load_request(request)
            else:
                logger.debug("Nothing to load for request %s", request.req_id)

    def _load_request(self, request: ReqMeta) -> None:
        spec = request.load_spec
        request.skip_null_blocks_by_group = self.group_uses_align_state
        spec.token_len = spec.kvpool_cached_tokens
        # The scheduler leaves the last token to be computed; its block is in the store all the
        # same.
        cut_block = spec.kvpool_cached_tokens % self.cache_transfer_granularity != 0
        if cut_block and spec.kvpool_cached_tokens == request.token_len_chunk - 1:
            spec.token_len += 1
        logger.debug("Loading %d tokens of request %s", spec.token_len, request.req_id)
        if self.load_async:
            self.kv_recv_thread.add_request(request)
        elif self.tp_mismatch:
            size = self.grouped_block_size[0]
            self._load_kv_tp_mismatch(
                request.block_hashes,
                request.block_ids_by_group[0],
                spec.token_len,
                spec.vllm_cached_tokens // size * size,
            )
        else:
            self._load_whole_blocks(request)

    def _load_whole_blocks(self, request: ReqMeta) -> None:
        """Both sides have one TP size: a key is a block of this rank."""
        found = list(self._whole_blocks(request))
        if not found:
            return
        turn = self.tp_rank % len(found)
        keys, addrs, sizes, blocks = (
            list(part) for part in zip(*found[turn:], *found[:turn], strict=True)
        )
        logger.debug("Loading %d keys of request %s", len(keys), request.req_id)
        answer = self.m_store.get(keys, addrs, sizes)
        codes = [1] * len(keys) if answer is None else answer
        if not any(code != 0 for code in codes):
            return
        lost = record_failed_blocks(blocks, codes)
        groups = len(request.block_ids_by_group)
        if groups == 1:
            self._invalid_block_ids.update(lost)
        elif lost:
            logger.error(
                "Blocks %s of request %s did not load; with several groups of caches they cannot "
                "be marked",
                lost,
                request.req_id,
            )

    def _whole_blocks(self, request: ReqMeta):
        """(key, addresses, sizes, block id) of every chunk to load, group after group."""
        database = self.token_database
        spec = request.load_spec
        chunks_of, masks = self._chunks_to_load(request)
        for group_id in request.kv_cache_group_ids or [0]:
            if group_id >= len(request.block_ids_by_group):
                continue
            blocks = request.block_ids_by_group[group_id]
            size = self.grouped_block_size[group_id]
            aligned = self.group_uses_align_state[group_id : group_id + 1]
            for start, end, key, _, block in chunks_of(
                spec.token_len,
                request.block_hashes,
                blocks,
                spec.vllm_cached_tokens // size * size,
                kv_cache_group_id=group_id,
                skip_null_blocks=any(aligned),
                chunk_filter=lambda at, group=group_id: database.mask_allows_chunk(
                    masks, group, at
                ),
            ):
                addrs, sizes, block_id = database.prepare_value(
                    start, end, blocks, kv_cache_group_id=group_id, block_id=block
                )
                yield key, addrs, sizes, block_id
