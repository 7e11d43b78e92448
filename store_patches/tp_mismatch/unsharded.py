"""Up to 0.27.1rc1: every rank saves all chunks, and nothing is measured."""

from __future__ import annotations


class KVPoolWorker:
    def _build_tp_mismatch_keys_and_addrs(
        self, block_hashes: list, block_ids: list[int], token_len: int, mask_num: int = 0
    ) -> tuple[list[str], list, list[list[int]], list[int]]:
        """One walk: keys, addresses, sizes and block id of every key."""
        walk = self.token_database.process_token_key_strings_with_block_ids(
            token_len, block_hashes, block_ids, mask_num=mask_num
        )
        keys, chunks = self._tp_mismatch_keys(walk)
        addrs, sizes = self._tp_mismatch_places(chunks) if keys else ([], [])
        return keys, addrs, sizes, [chunk[3] for chunk in chunks for _ in range(self.num_sub_keys)]

    def _tp_mismatch_own_chunks(self, req_meta: ReqMeta):
        return self.token_database.process_token_key_strings_with_block_ids(
            req_meta.token_len_chunk, req_meta.block_hashes, req_meta.block_ids_by_group[0]
        )

    def _tp_mismatch_shares_chunks(self) -> bool:
        return False

    def _get_tp_mismatch(self, keys: list[str], addrs: list, sizes: list[list[int]]):
        return self.m_store.get(keys, addrs, sizes)
