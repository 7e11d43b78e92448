"""The form from 0.26.0rc1 on: vllm reads compute_topk_scores."""

import torch
from vllm.v1.outputs import LogprobsTensors


def _as_logprobs_tensors(scored, cu_num_logits) -> LogprobsTensors:
    """What `_topk_scores` gives, as vllm takes it."""
    token_ids, scores, ranks = scored
    if isinstance(cu_num_logits, torch.Tensor):
        # Since 0.29: boundaries that only the device knows.
        return LogprobsTensors(
            logprob_token_ids=token_ids,
            logprobs=scores,
            selected_token_ranks=ranks,
            cu_num_generated_tokens_tensor=cu_num_logits,
        )
    return LogprobsTensors(
        logprob_token_ids=token_ids,
        logprobs=scores,
        selected_token_ranks=ranks,
        cu_num_generated_tokens=cu_num_logits,
    )


def compute_topk_logprobs(
    logits: torch.Tensor,
    num_logprobs: int,
    sampled_token_ids: torch.Tensor,
    cu_num_logits: list[int] | torch.Tensor | None = None,
    logprob_token_ids_state=None,
    expanded_idx_mapping: torch.Tensor | None = None,
    max_per_req_token_ids: int = 0,
) -> LogprobsTensors:
    """Log-probabilities of the sampled and the likeliest tokens, and the sampled ones' ranks.

    A rank counts the logits that are as high as the sampled token's, as vllm-core does: the top
    token has rank 1. vllm has no such name any more; `compute_topk_scores` calls it.
    """
    scored = _topk_scores(
        logits,
        num_logprobs,
        sampled_token_ids,
        logprob_token_ids_state,
        expanded_idx_mapping,
        max_per_req_token_ids,
        False,
    )
    return _as_logprobs_tensors(scored, cu_num_logits)


def compute_topk_scores(
    logits: torch.Tensor,
    num_logprobs: int,
    sampled_token_ids: torch.Tensor,
    cu_num_logits: list[int] | torch.Tensor | None = None,
    logprob_token_ids_state=None,
    expanded_idx_mapping: torch.Tensor | None = None,
    max_per_req_token_ids: int = 0,
    logits_mode: bool = False,
) -> LogprobsTensors:
    """As `compute_topk_logprobs`; with ``logits_mode`` the scores are the logits themselves."""
    if not logits_mode:
        return compute_topk_logprobs(
            logits,
            num_logprobs,
            sampled_token_ids,
            cu_num_logits,
            logprob_token_ids_state,
            expanded_idx_mapping,
            max_per_req_token_ids,
        )
    scored = _topk_scores(
        logits,
        num_logprobs,
        sampled_token_ids,
        logprob_token_ids_state,
        expanded_idx_mapping,
        max_per_req_token_ids,
        True,
    )
    return _as_logprobs_tensors(scored, cu_num_logits)
