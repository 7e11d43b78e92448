"""The form since 0.28.0rc1: each bitmask names a request and a position in it.

The row of logits is found on the device, from ``cu_num_logits``: positions that adaptive
verification has dropped have no row and are skipped.
"""

from vllm.triton_utils import tl, triton


@triton.jit(
    do_not_specialize=[
        "logits_stride",
        "bitmask_stride",
        "vocab_size",
        "span",
        "spans_per_row",
        "tasks",
        "mask_stride",
    ]
)
def _apply_grammar_bitmask_kernel_impl(
    logits_ptr,
    logits_stride,
    logits_indices_ptr,
    cu_num_logits_ptr,
    bitmask_ptr,
    bitmask_stride,
    vocab_size,
    span,
    spans_per_row,
    tasks,
    mask_stride,
    TILE: tl.constexpr,
):
    """A task is a span of a row. Sizes are run-time values: one compilation serves them all."""
    bits = _grammar_bits()
    begin, end = _share_of_tasks(tasks)
    # Row by row: the row is looked up once, a scalar load from GM is some 450 cycles.
    for row in tl.range(begin // spans_per_row, (end + spans_per_row - 1) // spans_per_row):
        packed = tl.load(logits_indices_ptr + row)
        request = packed // mask_stride
        logits_row = tl.load(cu_num_logits_ptr + request) + packed - request * mask_stride
        if logits_row < tl.load(cu_num_logits_ptr + request + 1):
            # 64 bits: a row may lie more than 2**31 elements from the start.
            _mask_spans(
                logits_ptr + logits_row.to(tl.int64) * logits_stride,
                bitmask_ptr + row * bitmask_stride.to(tl.int64),
                bitmask_stride,
                vocab_size,
                span,
                tl.maximum(begin - row * spans_per_row, 0),
                tl.minimum(end - row * spans_per_row, spans_per_row),
                bits,
                TILE,
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
            programs, span, spans_per_row, tasks, tile = _grammar_launch(
                num_masks, vocab_size, logits_ptr.element_size()
            )
            return _apply_grammar_bitmask_kernel_impl[(programs,)](
                logits_ptr,
                logits_stride,
                logits_indices_ptr,
                cu_num_logits_ptr,
                bitmask_ptr,
                bitmask_stride,
                vocab_size,
                span,
                spans_per_row,
                tasks,
                MASK_STRIDE,
                TILE=tile,
            )

        return launch


_apply_grammar_bitmask_kernel = _ApplyGrammarBitmaskKernelLauncher()
