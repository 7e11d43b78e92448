"""The form since 0.28.0rc1: each bitmask names a request and a position in it.

The row of logits is found on the device, from ``cu_num_logits``: positions that adaptive
verification has dropped have no row and are skipped.
"""

import torch
from vllm.triton_utils import tl, triton


@triton.jit(
    do_not_specialize=[
        "logits_stride",
        "halves_stride",
        "vocab_size",
        "tasks_per_row",
        "tasks",
        "mask_stride",
    ]
)
def _apply_grammar_bitmask_kernel_impl(
    logits_ptr,
    masked_ptr,
    logits_stride,
    logits_indices_ptr,
    cu_num_logits_ptr,
    halves_ptr,
    halves_stride,
    vocab_size,
    tasks_per_row,
    tasks,
    mask_stride,
    TILE: tl.constexpr,
    CHUNK: tl.constexpr,
):
    """A task is a tile of a row. Sizes are run-time values: one compilation serves them all.

    ``masked_ptr``: the logits once more, to be stored to. Within one argument the compiler lets no
    load pass a store, and a program's loads of a tile come before the store of the one in front.
    ``halves_ptr``: the bitmasks as int16: a half word is one block of the Unified Buffer when it is
    spread over its 16 tokens, and instructions on it are full.
    """
    bits = _grammar_bits(TILE)
    begin, end = _share_of_tasks(tasks)
    # Row by row: the row is looked up once, a scalar load from GM is some 450 cycles.
    for row in tl.range(begin // tasks_per_row, (end + tasks_per_row - 1) // tasks_per_row):
        packed = tl.load(logits_indices_ptr + row)
        request = packed // mask_stride
        logits_row = tl.load(cu_num_logits_ptr + request) + packed - request * mask_stride
        if logits_row < tl.load(cu_num_logits_ptr + request + 1):
            # 64 bits: a row may lie more than 2**31 elements from the start.
            offset = logits_row.to(tl.int64) * logits_stride
            _mask_tiles(
                logits_ptr + offset,
                masked_ptr + offset,
                halves_ptr + row * halves_stride.to(tl.int64),
                halves_stride,
                vocab_size,
                tl.maximum(begin - row * tasks_per_row, 0),
                tl.minimum(end - row * tasks_per_row, tasks_per_row),
                bits,
                TILE,
                CHUNK,
            )


class _ApplyGrammarBitmaskKernelLauncher:
    """Called like a kernel, ``launcher[grid](...)``; takes as many programs as there are cores."""

    def __getitem__(self, grid):
        num_masks = grid[0]

        def launch(
            logits_ptr,
            logits_stride,
            logits_indices_ptr,
            cu_num_logits_ptr,
            bitmask_ptr,
            bitmask_stride,
            vocab_size,
            MASK_STRIDE,
            BLOCK_SIZE,
        ):
            if num_masks == 0 or vocab_size == 0:
                return None
            programs, tasks_per_row, tasks, tile = _grammar_launch(
                num_masks, vocab_size, logits_ptr.element_size()
            )
            return _apply_grammar_bitmask_kernel_impl[(programs,)](
                logits_ptr,
                logits_ptr,
                logits_stride,
                logits_indices_ptr,
                cu_num_logits_ptr,
                bitmask_ptr.view(torch.int16),
                2 * bitmask_stride,
                vocab_size,
                tasks_per_row,
                tasks,
                MASK_STRIDE,
                TILE=tile,
                CHUNK=_GRAMMAR_CHUNK,
            )

        return launch


_apply_grammar_bitmask_kernel = _ApplyGrammarBitmaskKernelLauncher()
