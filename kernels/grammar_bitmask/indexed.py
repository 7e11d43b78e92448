"""The form up to 0.27.1rc1: each bitmask names its row of logits."""

from vllm.triton_utils import tl, triton


@triton.jit(
    do_not_specialize=[
        "logits_stride",
        "bitmask_stride",
        "vocab_size",
        "span",
        "spans_per_row",
        "tasks",
    ]
)
def _apply_grammar_bitmask_kernel_impl(
    logits_ptr,
    logits_stride,
    logits_indices_ptr,
    bitmask_ptr,
    bitmask_stride,
    vocab_size,
    span,
    spans_per_row,
    tasks,
    TILE: tl.constexpr,
):
    """A task is a span of a row. Sizes are run-time values: one compilation serves them all."""
    bits = _grammar_bits()
    begin, end = _share_of_tasks(tasks)
    # Row by row: the row is looked up once, a scalar load from GM is some 450 cycles.
    for row in tl.range(begin // spans_per_row, (end + spans_per_row - 1) // spans_per_row):
        logits_row = tl.load(logits_indices_ptr + row)
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
            bitmask_ptr,
            bitmask_stride,
            vocab_size,
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
                bitmask_ptr,
                bitmask_stride,
                vocab_size,
                span,
                spans_per_row,
                tasks,
                TILE=tile,
            )

        return launch


_apply_grammar_bitmask_kernel = _ApplyGrammarBitmaskKernelLauncher()
