"""From 0.28.0rc1 on: PCP ranks share the chunks of a save out, and loads are measured."""

from __future__ import annotations

import time


class KVPoolWorker:
    def _build_tp_mismatch_keys_and_addrs(
        self,
        block_hashes: list,
        block_ids: list[int],
        token_len: int,
        mask_num: int = 0,
        shard_rank: int | None = None,
        shard_size: int | None = None,
    ) -> tuple[list[str], list, list[list[int]], list[int]]:
        """One walk: keys, addresses, sizes and block id of every key."""
        walk = self.token_database.process_token_key_strings_with_block_ids(
            token_len,
            block_hashes,
            block_ids,
            mask_num=mask_num,
            shard_rank=shard_rank,
            shard_size=shard_size,
        )
        keys, chunks = self._tp_mismatch_keys(walk)
        addrs, sizes = self._tp_mismatch_places(chunks) if keys else ([], [])
        return keys, addrs, sizes, [chunk[3] for chunk in chunks for _ in range(self.num_sub_keys)]

    def _tp_mismatch_own_chunks(self, req_meta: ReqMeta):
        return self.token_database.process_token_key_strings_with_block_ids(
            req_meta.token_len_chunk,
            req_meta.block_hashes,
            req_meta.block_ids_by_group[0],
            shard_rank=self.pcp_rank,
            shard_size=self.pcp_size,
        )

    def _tp_mismatch_shares_chunks(self) -> bool:
        return self.pcp_size > 1

    def _get_tp_mismatch(self, keys: list[str], addrs: list, sizes: list[list[int]]):
        begin = time.perf_counter()
        try:
            return self.m_store.get(keys, addrs, sizes)
        finally:
            self._record_kv_connector_operation("load_get", time.perf_counter() - begin, len(keys))
