"""What bincount must give, from the definition: bits packed and tokens counted by NumPy."""

from __future__ import annotations

import numpy as np

from ascendport.harness.case import Array, Workload

BLOCK = 1024
"""Tokens are looked at in blocks of this length, both by vllm-core and by vllm-ascend."""


def reference(workload: Workload, variant: str) -> dict[str, Array]:
    """Rows of the requests in the mapping; all others as they were.

    Bit ``t % 32`` of word ``t // 32`` of the mask is set where the prompt holds token t. The
    counts are those of the tokens from the prompt's end to the prefill's, once for each time that
    the mapping names the request. Ids outside the vocabulary count nowhere. Looked at are the
    blocks that begin before both the request's prefill length and ``max_prefill_len``, and of
    them, whole, what belongs to the prompt. ``bincount`` clears the rows first; the kernel by
    itself adds to them.
    """
    tensors = {name: tensor.values for name, tensor in workload.tensors.items()}
    mask, counts = tensors["prompt_bin_mask"].copy(), tensors["output_bin_counts"].copy()
    vocab, words = counts.shape[1], mask.shape[1]
    mapping = tensors["expanded_idx_mapping"].tolist()
    limit = -(-int(workload.scalars["max_prefill_len"]) // BLOCK) * BLOCK
    if not workload.scalars["adds"]:
        mask[mapping] = 0
        counts[mapping] = 0
    for request in mapping:
        prompt, prefill = int(tensors["prompt_len"][request]), int(tensors["prefill_len"][request])
        blocks = min(limit, -(-prefill // BLOCK) * BLOCK)
        tokens = tensors["all_token_ids"][request]
        known = tokens[: min(prompt, blocks)]
        seen = np.zeros(words * 32, dtype=np.uint8)
        seen[known[(known >= 0) & (known < vocab)]] = 1
        mask[request] |= np.packbits(seen, bitorder="little").view(np.int32)
        made = tokens[prompt : min(prefill, limit)]
        made = made[(made >= 0) & (made < vocab)]
        counts[request] += np.bincount(made, minlength=vocab).astype(np.int32)
    return {"prompt_bin_mask": mask, "output_bin_counts": counts}
