"""What an asynchronous load asks the store for."""

from __future__ import annotations

import functools
from collections.abc import Iterator


class KVCacheStoreRecvingThread:
    def _chunks_to_load(self, req_meta: ReqMeta) -> Iterator[tuple]:
        """Yield the key, addresses, sizes and block id of every chunk that the masks allow."""
        load_spec = req_meta.load_spec
        masks = self.token_database.load_mask(req_meta.block_hashes, load_spec.token_len)
        for group_id in req_meta.kv_cache_group_ids or [0]:
            block_ids = req_meta.block_ids_by_group[group_id]
            block_size = self._get_block_size(group_id)
            found = self.token_database.process_token_key_strings_with_block_ids(
                load_spec.token_len,
                req_meta.block_hashes,
                block_ids,
                load_spec.vllm_cached_tokens // block_size * block_size,
                kv_cache_group_id=group_id,
                skip_null_blocks=self._skip_null_blocks(req_meta, group_id),
                chunk_filter=functools.partial(
                    self.token_database.mask_allows_chunk, masks, group_id
                ),
            )
            for start, end, key, _block_hash, block_id in found:
                addrs, sizes, block_id = self._prepare_value(
                    start, end, block_ids, kv_cache_group_id=group_id, block_id=block_id
                )
                yield key, addrs, sizes, block_id
