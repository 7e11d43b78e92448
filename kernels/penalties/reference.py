"""What penalties must give, token by token, from the definition."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ascendport.harness.case import Array, Workload


def _single(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Rounded to float32. One operation on float32 values in float64, then this, is the same as
    the operation in float32: 53 bits are more than twice 24."""
    with np.errstate(over="ignore"):
        return values.astype(np.float32).astype(np.float64)


def _counts(workload: Workload, row: int, request: int) -> NDArray[np.int64]:
    """How often each token was generated before ``row``'s position, drafts included; (vocab,).

    At position p the drafts are the tokens of rows start + 1 … start + p, where start is the row
    of position 0. A draft that is no token of the vocabulary, or that would lie before the first
    row, counts nowhere.
    """
    counts: NDArray[np.int64] = (
        workload.tensors["output_bin_counts"].values[request].astype(np.int64)
    )
    drafts = workload.tensors["token_ids"].values
    position = int(workload.tensors["expanded_local_pos"].values[row])
    for token in drafts[max(row - position + 1, 0) : row + 1].tolist():
        if 0 <= token < counts.size:
            counts[token] += 1
    return counts


def reference(workload: Workload, variant: str) -> dict[str, Array]:
    """Logits (rows, vocab), each operation rounded to float32 and the result to their own type.

    A token of the prompt or the output is divided by the repetition penalty where its logit is
    positive (multiplied by the rounded reciprocal) and multiplied by it where not; then the
    frequency penalty times its count is taken off; then, where the count is positive, the
    presence penalty. A row whose three penalties are 1, 0 and 0 keeps its bits.
    """
    logits = workload.tensors["logits"].values.copy()
    vocab = logits.shape[1]
    states = workload.tensors["expanded_idx_mapping"].values.tolist()
    for row, request in enumerate(states):
        repetition, frequency, presence = (
            np.float64(workload.tensors[f"{name}_penalty"].values[request])
            for name in ("repetition", "frequency", "presence")
        )
        if repetition == 1 and frequency == 0 and presence == 0:
            continue
        counts = _counts(workload, row, request)
        words = np.ascontiguousarray(workload.tensors["prompt_bin_mask"].values[request])
        prompt = np.unpackbits(words.view(np.uint8), bitorder="little", count=vocab) == 1
        values = logits[row].astype(np.float64)
        with np.errstate(all="ignore"):
            if repetition != 1:
                seen = prompt | (counts > 0)
                reciprocal = _single(np.array(1 / repetition))
                values[seen] *= np.where(values[seen] > 0, reciprocal, repetition)
                values = _single(values)
            values = _single(values - _single(frequency * _single(counts.astype(np.float64))))
            values = _single(values - presence * (counts > 0))
            logits[row] = values.astype(np.float32).astype(logits.dtype)
    return {"logits": logits}
