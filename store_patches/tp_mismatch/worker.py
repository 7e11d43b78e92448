"""Shared by all variants: saving and loading when the other side has another TP size."""

from __future__ import annotations

import numpy as np


class KVPoolWorker:
    def _tp_mismatch_slices(self) -> _TpMismatchSlices:
        """The table of slices for the caches as they are registered."""
        layout = (
            self.group_kv_caches_base_addr[0],
            self.group_block_len[0],
            self.group_block_stride[0],
            self.block_size,
            self.num_sub_keys,
        )
        table = getattr(self, "_tp_mismatch_table", None)
        if table is None or not table.describes(*layout):
            table = self._tp_mismatch_table = _TpMismatchSlices(*layout)
        return table

    def _tp_mismatch_keys(self, walk) -> tuple[list[str], list[tuple]]:
        """One walk over chunks: the names of all keys, a chunk's sub-keys next to each other, and
        for each chunk its first token, number of tokens, hash and block id."""
        keys: list[str] = []
        chunks: list[tuple] = []
        ranks = range(self.tp_rank * self.num_sub_keys, (self.tp_rank + 1) * self.num_sub_keys)
        prefix, names = "", []
        for start, end, base_key, block_hash, block_id in walk:
            # Keys differ in their hash alone, so the rank is written once into what they share.
            if not names or not base_key.startswith(prefix):
                prefix = base_key[: base_key.rfind("@") + 1]
                names = [self._make_sub_key_str(prefix, rank) for rank in ranks]
            rest = base_key[len(prefix) :]
            keys.extend([name + rest for name in names])
            chunks.append((start, end - start, block_hash, block_id))
        return keys, chunks

    def _tp_mismatch_places(self, chunks, wanted=None) -> tuple[list, list[list[int]]]:
        """Addresses and sizes of the slices of the keys ``wanted`` (indices; None: all), one
        sequence a key. Keys of equally long chunks share their list of sizes.

        A backend that says so is handed views of one array in place of lists of integers.
        """
        table = self._tp_mismatch_slices()
        sub_keys = self.num_sub_keys
        as_views = getattr(self.m_store, "takes_address_views", False) is True
        if wanted is None:
            wanted = range(len(chunks) * sub_keys)
        # Two lengths at most: only the last chunk can be shorter than the others.
        by_length: dict[int, list[tuple]] = {}
        for row, at in enumerate(wanted):
            _, tokens, _, block_id = chunks[at // sub_keys]
            by_length.setdefault(tokens, []).append((row, block_id, at % sub_keys))
        addresses: list = [None] * len(wanted)
        sizes: list = [None] * len(wanted)
        for tokens, keys in by_length.items():
            rows, blocks, subs = zip(*keys)
            found, row_sizes = table.of(tokens, blocks, subs)
            parts = map(memoryview, found.view(np.uint64)) if as_views else found.tolist()
            for row, part in zip(rows, parts):
                addresses[row] = part
                sizes[row] = row_sizes
        return addresses, sizes

    def _build_strided_addrs(
        self, block_id: int, token_count: int, sub_idx: int
    ) -> tuple[list[int], list[int]]:
        """Addresses and sizes of one sub-key's slices in one block."""
        table = self._tp_mismatch_slices()
        found, sizes = table.of(token_count, [block_id], [sub_idx])
        return found[0].tolist(), sizes

    def _load_kv_tp_mismatch(
        self, block_hashes: list, block_ids: list[int], token_len: int, mask_num: int
    ) -> None:
        """Loads every chunk from ``mask_num`` on. Blocks that did not come are marked invalid,
        whatever went wrong: the request goes on, and they are computed again."""
        parts = self._build_tp_mismatch_keys_and_addrs(block_hashes, block_ids, token_len, mask_num)
        if not parts[0]:
            return
        # Ranks start at different keys, so that they do not all read from one place at once.
        turn = self.tp_rank % len(parts[0])
        keys, addrs, sizes, key_blocks = (part[turn:] + part[:turn] for part in parts)
        logger.debug("TP mismatch: loading %d keys", len(keys))
        try:
            answer = self._get_tp_mismatch(keys, addrs, sizes)
        except Exception:
            logger.exception("TP mismatch: the store failed while loading %d keys", len(keys))
            answer = None
        codes = [] if answer is None else list(answer)
        codes += [1] * (len(keys) - len(codes))
        if any(codes):
            lost = record_failed_blocks(key_blocks, codes)
            with self._invalid_block_ids_lock:
                self._invalid_block_ids.update(lost)

    def _store_kv_tp_mismatch(self, req_meta: ReqMeta) -> None:
        """Saves the chunks of a request that the store lacks. Every key is asked for once, and
        addresses are made for the missing ones only."""
        send_thread = self.kv_send_thread
        if send_thread is None or not send_thread.is_stored_request(req_meta.req_id):
            return
        try:
            keys, chunks = self._tp_mismatch_keys(self._tp_mismatch_own_chunks(req_meta))
            if not keys:
                return
            missing = [at for at, there in enumerate(send_thread.lookup(keys)) if not there]
            failed = self._put_tp_mismatch(req_meta, keys, chunks, missing)
            if self.enable_kv_events:
                self._announce_tp_mismatch(req_meta, chunks, missing, failed)
        finally:
            send_thread.dec_stored_request(req_meta.req_id)

    def _put_tp_mismatch(
        self, req_meta: ReqMeta, keys: list[str], chunks: list[tuple], missing: list[int]
    ) -> set[int]:
        """Puts the keys ``missing`` (indices); the indices of those that were not stored."""
        if not missing:
            return set()
        addrs, sizes = self._tp_mismatch_places(chunks, missing)
        if req_meta.current_event is not None:
            req_meta.current_event.synchronize()
        answer = self.m_store.put([keys[at] for at in missing], addrs, sizes)
        if not isinstance(answer, (list, tuple)):
            # A backend that answers nothing raises where it fails.
            return set()
        codes = [*answer, *[None] * (len(missing) - len(answer))]
        failed = {at for at, code in zip(missing, codes) if code != 0}
        if failed:
            logger.error(
                "TP mismatch: %d of %d keys of request %s were not stored; the store answered %s",
                len(failed),
                len(missing),
                req_meta.req_id,
                sorted({str(code) for code in codes if code != 0}),
            )
        return failed

    def _announce_tp_mismatch(
        self, req_meta: ReqMeta, chunks: list[tuple], missing: list[int], failed: set[int]
    ) -> None:
        """Queues one event for each block that this save completed: a part of it was missing, and
        all of it is there now.

        An event counts once all ranks have it. Where PCP ranks share a request's chunks out, each
        therefore names the others' blocks as well and leaves out, of its own, what it did not
        store.
        """
        own = {chunk[0]: at for at, chunk in enumerate(chunks)}
        touched = {at // self.num_sub_keys for at in missing}
        broken = {at // self.num_sub_keys for at in failed}
        database = self.token_database
        if self._tp_mismatch_shares_chunks():
            every = database.process_token_key_strings(
                req_meta.token_len_chunk, req_meta.block_hashes
            )
            spans = [(start, end - start, block_hash) for start, end, _, block_hash in every]
        else:
            spans = [chunk[:3] for chunk in chunks]
        size = database.get_block_size(0)
        hashes = get_block_hashes(req_meta.block_hashes, size, database.hash_block_size)
        block_size = req_meta.original_block_size
        if isinstance(block_size, list):
            block_size = block_size[0]
        events = []
        for start, tokens, block_hash in spans:
            at = own.get(start)
            if at is not None and (at not in touched or at in broken):
                continue
            before = start // size - 1
            ids = req_meta.token_ids
            events.append(
                BlockStored(
                    block_hashes=[maybe_convert_block_hash(block_hash)],
                    parent_block_hash=(
                        maybe_convert_block_hash(hashes[before]) if before >= 0 else None
                    ),
                    token_ids=None if ids is None else ids[start : start + tokens],
                    block_size=block_size,
                    lora_id=None,
                    medium="cpu",
                    lora_name=None,
                )
            )
        if events:
            self.kv_send_thread.update_kv_event(events)
