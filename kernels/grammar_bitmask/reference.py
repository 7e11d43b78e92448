"""What the grammar bitmask must give, token by token, from the definition."""

from __future__ import annotations

import numpy as np

from ascendport.harness.case import Array, Workload


def reference(workload: Workload, variant: str) -> dict[str, Array]:
    """Logits (rows, vocab) where each token whose bit is 0 is -inf; all other bits as given.

    Bit ``t % 32`` of word ``t // 32``, least significant first, belongs to token ``t``. With the
    packed mapping, entry = request * mask_stride + position, and the row is
    ``cu_num_logits[request] + position`` if that is before the next request's first row.
    """
    logits = workload.tensors["logits"].values.copy()
    vocab = logits.shape[1]
    words = workload.tensors["bitmask"].values
    starts = workload.tensors["cu_num_logits"].values.tolist() if variant == "packed" else []
    for mask_row, entry in enumerate(workload.tensors["logits_indices"].values.tolist()):
        row = entry
        if variant == "packed":
            request, position = divmod(entry, int(workload.scalars["mask_stride"]))
            row = starts[request] + position
            if row >= starts[request + 1]:
                continue
        bits = np.unpackbits(
            np.ascontiguousarray(words[mask_row]).view(np.uint8), bitorder="little", count=vocab
        )
        logits[row, bits == 0] = -np.inf
    return {"logits": logits}
