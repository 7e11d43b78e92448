"""The form up to 0.25.1rc1: vllm reads compute_topk_logprobs."""

import torch
from vllm.v1.outputs import LogprobsTensors


def compute_topk_logprobs(
    logits: torch.Tensor,
    num_logprobs: int,
    sampled_token_ids: torch.Tensor,
    cu_num_logits: list[int] | None = None,
    logprob_token_ids_state=None,
    expanded_idx_mapping: torch.Tensor | None = None,
    max_per_req_token_ids: int = 0,
) -> LogprobsTensors:
    """Log-probabilities of the sampled and the likeliest tokens, and the sampled ones' ranks.

    A rank counts the logits that are as high as the sampled token's, as vllm-core does: the top
    token has rank 1.
    """
    token_ids, logprobs, ranks = _topk_scores(
        logits,
        num_logprobs,
        sampled_token_ids,
        logprob_token_ids_state,
        expanded_idx_mapping,
        max_per_req_token_ids,
        False,
    )
    return LogprobsTensors(
        logprob_token_ids=token_ids,
        logprobs=logprobs,
        selected_token_ranks=ranks,
        cu_num_generated_tokens=cu_num_logits,
    )
