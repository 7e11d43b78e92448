"""Repetition, frequency and presence penalties on logits; verified drafts count as output.

One program per core takes a run of spans, row by row. What a row does not ask for is neither read
nor computed, and a row that asks for nothing costs three scalar loads.
"""

import torch
from vllm.triton_utils import tl, triton
from vllm_ascend.ops.triton import triton_utils

_PENALTIES_UB_BYTES = 192 * 1024
_PENALTIES_LANE_BYTES = 44
_PENALTIES_MIN_SPAN = 1024
_PENALTIES_SPAN_ALIGN = 256


def _penalties_tile(ub_bytes: int) -> int:
    """Tokens a tile: the largest power of two that the Unified Buffer holds.

    The compiler keeps up to eleven values of 4 bytes a token, in 95 % of the buffer.
    """
    fitting = ub_bytes * 95 // 100 // _PENALTIES_LANE_BYTES
    return 1 << (fitting.bit_length() - 1)


def _penalties_split(num_rows: int, vocab_size: int, num_cores: int, tile: int) -> tuple[int, int]:
    """Cuts each row into spans of at most ``tile`` tokens that keep every core equally busy.

    Starts from the fewest spans (one tile each), counts the rounds that the cores need for all
    of them, then takes as many spans a row as fit in the same number of rounds. Spans are
    multiples of 256 tokens, so that two cores never write to one 512-byte block of an aligned
    row, and a span starts at a whole word of the prompt mask.

    Returns:
        (spans a row, tokens a span); the last span of a row may be shorter.
    """
    fewest = -(-vocab_size // tile)
    rounds = -(-num_rows * fewest // num_cores)
    most = -(-vocab_size // _PENALTIES_MIN_SPAN)
    spans = max(fewest, min(most, rounds * num_cores // num_rows))
    span = -(-vocab_size // spans)
    span = min(tile, -(-span // _PENALTIES_SPAN_ALIGN) * _PENALTIES_SPAN_ALIGN)
    return -(-vocab_size // span), span


@triton.jit
def _penalties_share(tasks):
    """[begin, end) of the tasks that this program takes; shares differ by one at most."""
    program = tl.program_id(0)
    programs = tl.num_programs(0)
    share = tasks // programs
    rest = tasks - share * programs
    begin = program * share + tl.minimum(program, rest)
    return begin, begin + share + tl.where(program < rest, 1, 0)


@triton.jit
def _penalties_drafts(drafts_ptr, position, after, one, two, three, four):
    """The four lowest keys > ``after`` of the drafts at ``drafts_ptr`` and before, in order.

    A key is token << 20 | how far back, so no two are equal. ``one`` … ``four``: keys that are
    there already. Nothing but scalar code: a row has few drafts, and four at a time save most
    of the reading.
    """
    for back in tl.range(0, position):
        key = (tl.load(drafts_ptr - back).to(tl.int64) << 20) + back
        key = tl.where(key > after, key, 1 << 62)
        low = tl.minimum(one, key)
        key = tl.maximum(one, key)
        one = low
        low = tl.minimum(two, key)
        key = tl.maximum(two, key)
        two = low
        low = tl.minimum(three, key)
        key = tl.maximum(three, key)
        three = low
        four = tl.minimum(four, key)
    return one, two, three, four


@triton.jit
def _penalties_load(
    logits_ptr,
    counts_ptr,
    words_ptr,
    first,
    width,
    num_words,
    REPETITION: tl.constexpr,
    TILE: tl.constexpr,
):
    """(logits, output counts, packed prompt mask) of the ``width`` tokens from ``first`` on."""
    lane = tl.arange(0, TILE)
    counts = tl.load(counts_ptr + first + lane, mask=lane < width, other=0)
    words = 0
    if REPETITION:
        word = tl.arange(0, TILE // 32)
        owned = tl.minimum((width + 31) // 32, num_words - first // 32)
        words = tl.load(words_ptr + first // 32 + word, mask=word < owned, other=0)
    logits = tl.load(logits_ptr + first + lane, mask=lane < width, other=0.0)
    return logits, counts, words


@triton.jit
def _penalties_row(
    logits_ptr,
    counts_ptr,
    words_ptr,
    drafts_ptr,
    position,
    vocab_size,
    num_words,
    span,
    begin,
    end,
    repetition,
    frequency,
    presence,
    bits,
    lanes,
    REPETITION: tl.constexpr,
    COUNTS: tl.constexpr,
    TILE: tl.constexpr,
):
    """Penalises spans [begin, end) of one row.

    ``drafts_ptr``: the row's own token; the drafts of earlier positions lie before it.
    REPETITION: 0 off; 1 at least 1 and of ordinary size; 2 anything. COUNTS: frequency or
    presence has to be taken off.

    The order of the statements is the order of the pipes: a span's loads are issued before the
    store of the span in front, as soon as the last select (which holds the scalar unit) has
    read the buffer that they fill, so data moves while the vector unit works.
    """
    none = tl.full((), 1 << 62, tl.int64)
    after = ((begin * span).to(tl.int64) << 20) - 1
    one, two, three, four = _penalties_drafts(drafts_ptr, position, after, none, none, none, none)
    reciprocal = 1.0 / repetition
    lane = tl.arange(0, TILE)
    first = begin * span
    width = tl.minimum(span, vocab_size - first)
    logits, counts, words = _penalties_load(
        logits_ptr, counts_ptr, words_ptr, first, width, num_words, REPETITION, TILE
    )
    for index in tl.range(begin, end):
        if REPETITION:
            prompt = ((words[:, None] & bits[None, :]) != 0).reshape(TILE)
        counted = counts.to(tl.float32)
        # Drafts that are tokens of this span; exact below 2**24.
        limit = (first + width).to(tl.int64) << 20
        for _ in tl.range(0, tl.where(one < limit, position, 0)):
            if one < limit:
                token = (one >> 20).to(tl.int32)
                counted = tl.where(lanes == token - first, counted + 1, counted)
                after = one
                one = two
                two = three
                three = four
                four = none
                again = tl.where(one == none, position, 0)
                one, two, three, four = _penalties_drafts(
                    drafts_ptr, again, after, one, two, three, four
                )
        values = logits.to(tl.float32)
        if REPETITION:
            seen = prompt | (counted > 0)
            if REPETITION == 1:
                # Of the two products the lower one is the right one: a positive logit grows less
                # by the reciprocal, a negative one falls lower by the penalty.
                scaled = tl.minimum(
                    values * reciprocal, values * repetition, propagate_nan=tl.PropagateNan.ALL
                )
            else:
                scaled = values * tl.where(values > 0, reciprocal, repetition)
            values = tl.where(seen, scaled, values)
        next_first = tl.minimum(index + 1, end - 1) * span
        next_width = tl.minimum(span, vocab_size - next_first)
        logits, counts, words = _penalties_load(
            logits_ptr, counts_ptr, words_ptr, next_first, next_width, num_words, REPETITION, TILE
        )
        if COUNTS:
            values -= frequency * counted
            values -= presence * tl.minimum(counted, 1.0, propagate_nan=tl.PropagateNan.ALL)
        stored = values.to(logits_ptr.dtype.element_ty)
        tl.store(logits_ptr + first + lane, stored, mask=lane < width)
        first = next_first
        width = next_width


@triton.jit(
    do_not_specialize=[
        "logits_stride",
        "prompt_bin_mask_stride",
        "output_bin_counts_stride",
        "vocab_size",
        "span",
        "spans_per_row",
        "tasks",
    ]
)
def _penalties_kernel(
    logits_ptr,
    logits_stride,
    expanded_idx_mapping_ptr,
    token_ids_ptr,
    expanded_local_pos_ptr,
    repetition_penalty_ptr,
    frequency_penalty_ptr,
    presence_penalty_ptr,
    prompt_bin_mask_ptr,
    prompt_bin_mask_stride,
    output_bin_counts_ptr,
    output_bin_counts_stride,
    vocab_size,
    span,
    spans_per_row,
    tasks,
    TILE: tl.constexpr,
):
    """A task is a span of a row. Sizes are run-time values: one compilation serves them all."""
    begin, end = _penalties_share(tasks)
    stop = (end + spans_per_row - 1) // spans_per_row
    # Where no row asks for penalties, the constants below would be most of the time.
    asked = 0
    for row in tl.range(begin // spans_per_row, stop):
        state = tl.load(expanded_idx_mapping_ptr + row).to(tl.int64)
        repeats = tl.load(repetition_penalty_ptr + state) != 1.0
        counts = tl.load(frequency_penalty_ptr + state) != 0.0
        asked += (repeats | counts | (tl.load(presence_penalty_ptr + state) != 0.0)).to(tl.int32)
    if asked == 0:
        return
    bits = tl.full((32,), 1, tl.int32) << tl.arange(0, 32)
    lanes = tl.arange(0, TILE)
    for row in tl.range(begin // spans_per_row, stop):
        # 64 bits: a row may lie more than 2**31 elements from the start.
        state = tl.load(expanded_idx_mapping_ptr + row).to(tl.int64)
        repetition = tl.load(repetition_penalty_ptr + state)
        frequency = tl.load(frequency_penalty_ptr + state)
        presence = tl.load(presence_penalty_ptr + state)
        repeats = repetition != 1.0
        if repeats | (frequency != 0.0) | (presence != 0.0):
            # A position that reaches back before the first row has no drafts there.
            position = tl.minimum(tl.load(expanded_local_pos_ptr + row), row + 1)
            first = tl.maximum(begin - row * spans_per_row, 0)
            last = tl.minimum(end - row * spans_per_row, spans_per_row)
            logits_row = logits_ptr + row * logits_stride.to(tl.int64)
            counts_row = output_bin_counts_ptr + state * output_bin_counts_stride
            words_row = prompt_bin_mask_ptr + state * prompt_bin_mask_stride
            # By their bits: taking off -0.0 turns a logit of -0.0 into 0.0, taking off 0.0 not.
            signs = frequency.to(tl.int32, bitcast=True) | presence.to(tl.int32, bitcast=True)
            if repeats == 0:
                _penalties_row(
                    logits_row, counts_row, words_row, token_ids_ptr + row, position,
                    vocab_size, prompt_bin_mask_stride, span, first, last,
                    repetition, frequency, presence, bits, lanes, 0, True, TILE,
                )  # fmt: skip
            elif (repetition >= 1.0) & (repetition < 1e30):
                if signs == 0:
                    _penalties_row(
                        logits_row, counts_row, words_row, token_ids_ptr + row, position,
                        vocab_size, prompt_bin_mask_stride, span, first, last,
                        repetition, frequency, presence, bits, lanes, 1, False, TILE,
                    )  # fmt: skip
                else:
                    _penalties_row(
                        logits_row, counts_row, words_row, token_ids_ptr + row, position,
                        vocab_size, prompt_bin_mask_stride, span, first, last,
                        repetition, frequency, presence, bits, lanes, 1, True, TILE,
                    )  # fmt: skip
            else:
                _penalties_row(
                    logits_row, counts_row, words_row, token_ids_ptr + row, position,
                    vocab_size, prompt_bin_mask_stride, span, first, last,
                    repetition, frequency, presence, bits, lanes, 2, True, TILE,
                )  # fmt: skip


def apply_penalties(
    logits: torch.Tensor,
    expanded_idx_mapping: torch.Tensor,
    token_ids: torch.Tensor,
    expanded_local_pos: torch.Tensor,
    repetition_penalty: torch.Tensor,
    frequency_penalty: torch.Tensor,
    presence_penalty: torch.Tensor,
    prompt_bin_mask: torch.Tensor,
    output_bin_counts: torch.Tensor,
) -> None:
    """Penalises ``logits`` (rows, vocab) in place; columns of a row are contiguous.

    ``expanded_idx_mapping``, ``token_ids``, ``expanded_local_pos``: int32 (rows,): state,
    draft and position of each row. The penalties: float32 (states,). ``prompt_bin_mask``: int32
    (states, words), a bit a token. ``output_bin_counts``: int32 (states, vocab).
    """
    num_rows, vocab_size = logits.shape
    if num_rows == 0 or vocab_size == 0:
        return
    triton_utils.init_device_properties_triton()
    num_cores = triton_utils.get_vectorcore_num()
    # Releases up to 0.27.1rc1 do not say how large the buffer is.
    ub_size = getattr(triton_utils, "get_ub_size_bytes", lambda: _PENALTIES_UB_BYTES)
    tile = _penalties_tile(ub_size())
    spans_per_row, span = _penalties_split(num_rows, vocab_size, num_cores, tile)
    tasks = num_rows * spans_per_row
    _penalties_kernel[(min(num_cores, tasks),)](
        logits,
        logits.stride(0),
        expanded_idx_mapping,
        token_ids,
        expanded_local_pos,
        repetition_penalty,
        frequency_penalty,
        presence_penalty,
        prompt_bin_mask,
        prompt_bin_mask.stride(0),
        output_bin_counts,
        output_bin_counts.stride(0),
        vocab_size,
        span,
        spans_per_row,
        tasks,
        TILE=tile,
        # The loop holds the next span's data itself; second buffers would crowd the rest out.
        multibuffer=False,
    )
