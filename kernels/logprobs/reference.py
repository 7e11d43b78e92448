"""What log-probabilities and ranks must be, in float64, from the definition."""

from __future__ import annotations

import numpy as np

from ascendport.harness.case import Array, Workload


def reference(workload: Workload, variant: str) -> dict[str, Array]:
    """``scores``, and for the entries that choose tokens ``ranks`` and ``chosen``.

    A rank counts the logits of the row that are at least the sampled token's: 1 for the top
    token. An id that the vocabulary has not scores -inf and ranks as a logit of -inf would: behind
    the row and the lanes that vllm-core's tiles of 8192 have past it, which it takes for -inf.
    """
    tensors = workload.tensors
    logits = tensors["logits"].values.astype(np.float64)
    rows, vocab = logits.shape
    if "token_ids" in tensors:
        scores = _scores(logits, tensors["token_ids"].values, "logits_mode" in workload.scalars)
        return {"scores": scores}
    num = int(workload.scalars["num_logprobs"])
    sampled = tensors["sampled"].values
    columns = tensors["scores"].values.shape[1]
    ids = np.full((rows, columns), -1, np.int64)
    ids[:, 0] = sampled
    # NaN counts as the highest, as in torch.
    keys = np.where(np.isnan(logits), -np.inf, -logits)
    for row in range(rows):
        request = int(tensors["mapping"].values[row]) if "mapping" in tensors else -1
        own = int(tensors["num_own"].values[request]) if request >= 0 else 0
        if own:
            ids[row, 1 : 1 + own] = tensors["own"].values[request, :own]
        else:
            ids[row, 1 : 1 + num] = _least(keys[row], num)
    scores = _scores(logits, ids, "logits_mode" in workload.scalars)
    known = (sampled >= 0) & (sampled < vocab)
    x = np.where(known, logits[np.arange(rows), np.where(known, sampled, 0)], -np.inf)
    with np.errstate(invalid="ignore"):
        ranks = (logits >= x[:, None]).sum(axis=1) + np.where(x == -np.inf, -vocab % 8192, 0)
    # Columns that a row does not use come back as id 0.
    back = ids.copy()
    back[:, 1:][back[:, 1:] < 0] = 0
    inside = (back >= 0) & (back < vocab)
    chosen = np.take_along_axis(logits, np.where(inside, back, 0), axis=1)
    return {
        "scores": scores,
        "ranks": ranks.astype(np.int64),
        "chosen": np.where(inside, chosen, -7.0).astype(np.float32),
    }


def _least(keys: Array, count: int) -> Array:
    """Where the ``count`` least of a vector lie, in order; of equals the first ones."""
    if count == 0:
        return np.zeros(0, np.int64)
    candidates = np.flatnonzero(keys <= np.partition(keys, count - 1)[count - 1])
    least: Array = candidates[np.argsort(keys[candidates], kind="stable")][:count]
    return least


def _scores(logits: Array, ids: Array, as_logits: bool) -> Array:
    """fp32 (rows, columns): log-probabilities or logits at ``ids``."""
    inside = (ids >= 0) & (ids < logits.shape[1])
    picked = np.take_along_axis(logits, np.where(inside, ids, 0), axis=1)
    if not as_logits:
        with np.errstate(all="ignore"):
            top = logits.max(axis=1, keepdims=True, initial=-np.inf)
            picked = picked - (top + np.log(np.exp(logits - top).sum(axis=1, keepdims=True)))
    scores: Array = np.where(inside, picked, -np.inf).astype(np.float32)
    return scores
