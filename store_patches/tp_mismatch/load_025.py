"""0.25.1rc1: what begins a layerwise step there."""

from __future__ import annotations


class KVPoolWorker:
    def _begin_layerwise_step(self) -> None:
        self.next_layer_to_submit = 0
        reset_attention_compute_start_gate()

    def _chunks_to_load(self, request: ReqMeta):
        """What walks over the chunks, and the masks of those to load."""
        masks = self.token_database.load_mask(request.block_hashes, request.load_spec.token_len)
        return self.token_database.process_token_key_strings_with_block_ids, masks
