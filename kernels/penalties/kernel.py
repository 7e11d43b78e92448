"""Repetition, frequency and presence penalties on logits; verified drafts count as output.

One program per core takes a run of spans, row by row. A row without a repetition penalty is not
scaled, and a row that asks for nothing costs three scalar loads.
"""

import torch
from vllm.triton_utils import tl, triton
from vllm_ascend.ops.triton import triton_utils

_PENALTIES_UB_BYTES = 192 * 1024
_PENALTIES_LANE_BYTES = 42
_PENALTIES_MIN_SPAN = 1024
_PENALTIES_SPAN_ALIGN = 256


def _penalties_tile(ub_bytes: int) -> int:
    """Tokens a tile: the largest power of two that the Unified Buffer holds.

    The compiler keeps up to 42 bytes a token (bf16), in less than 90 % of the buffer.
    """
    fitting = ub_bytes * 90 // 100 // _PENALTIES_LANE_BYTES
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
def _penalties_bits(TILE: tl.constexpr):
    """int16[TILE]: the bit of each lane in its half word. Made once a program."""
    bits = tl.full((16,), 1, tl.int16) << tl.arange(0, 16).to(tl.int16)
    return tl.broadcast_to(bits[None, :], (TILE // 16, 16)).reshape(TILE)


@triton.jit
def _penalties_halves(halves_ptr, first, width, num_halves, TILE: tl.constexpr):
    """int16[TILE // 16]: the packed prompt mask of the ``width`` tokens from ``first`` on."""
    half = tl.arange(0, TILE // 16)
    owned = tl.minimum((width + 15) // 16, num_halves - first // 16)
    return tl.load(halves_ptr + first // 16 + half, mask=half < owned, other=0)


@triton.jit
def _penalties_spread(halves, TILE: tl.constexpr):
    """int16[TILE]: each half word, once for each of its 16 tokens. A block of 32 bytes is one."""
    return tl.broadcast_to(halves[:, None], (TILE // 16, 16)).reshape(TILE)


@triton.jit
def _penalties_load(values_ptr, first, width, TILE: tl.constexpr):
    """The ``width`` values from ``first`` on."""
    lane = tl.arange(0, TILE)
    return tl.load(values_ptr + first + lane, mask=lane < width)


@triton.jit
def _penalties_count(
    counted, drafts_ptr, position, first, width, after, one, two, three, four, done, lanes,
    TILE: tl.constexpr,
):  # fmt: skip
    """``counted`` and the drafts among the ``width`` tokens from ``first``; the keys that are left.

    Exact below 2**24. ``done``: no draft is left beside the known keys. A draft's lane is found
    without a select, which would hold the scalar unit: all other lanes are one away or more.
    """
    none = tl.full((), 1 << 62, tl.int64)
    limit = (first + width).to(tl.int64) << 20
    # A tile that has a draft knows four keys or all: then their number is known, unless it is four.
    again = tl.where((one < limit) & (four == none) & (done == 0), position, 0)
    one = tl.where(again > 0, none, one)
    two = tl.where(again > 0, none, two)
    three = tl.where(again > 0, none, three)
    one, two, three, four = _penalties_drafts(drafts_ptr, again, after, one, two, three, four)
    done = tl.where((again > 0) & (four == none), 1, done)
    hits = (one < limit).to(tl.int32) + (two < limit).to(tl.int32) + (three < limit).to(tl.int32)
    for _ in tl.range(0, tl.where(four < limit, position, hits)):
        # Turns without a hit add nothing.
        hit = one < limit
        token = tl.where(hit, (one >> 20).to(tl.int32) - first, -1)
        same = tl.abs(lanes - token.to(tl.float32) * (0.5 / TILE)) * (-2.0 * TILE) + 1.0
        counted += tl.maximum(same, 0.0, propagate_nan=tl.PropagateNan.ALL)
        after = tl.where(hit, one, after)
        one = tl.where(hit, two, one)
        two = tl.where(hit, three, two)
        three = tl.where(hit, four, three)
        four = tl.where(hit, none, four)
        again = tl.where((one == none) & (done == 0), position, 0)
        one, two, three, four = _penalties_drafts(drafts_ptr, again, after, one, two, three, four)
        done = tl.where((again > 0) & (four == none), 1, done)
    return counted, after, one, two, three, four, done


@triton.jit
def _penalties_row(
    logits_ptr,
    penalised_ptr,
    counts_ptr,
    halves_ptr,
    drafts_ptr,
    position,
    vocab_size,
    num_halves,
    span,
    begin,
    end,
    repetition,
    frequency,
    presence,
    bits,
    lanes,
    TILE: tl.constexpr,
):
    """Penalises spans [begin, end) of the row at ``logits_ptr``, which is ``penalised_ptr`` too.

    ``drafts_ptr``: the row's own token; the drafts of earlier positions lie before it.
    ``repetition``: neither zero nor infinite, nor of extreme size.

    The order of the statements is the order of the pipes: what a span needs is loaded before the
    store of the span in front, as soon as the buffer has been read, and the half words of the
    prompt mask one span earlier. One loop serves all rows, so that there is one set of buffers.
    """
    none = tl.full((), 1 << 62, tl.int64)
    after = ((begin * span).to(tl.int64) << 20) - 1
    one, two, three, four = _penalties_drafts(drafts_ptr, position, after, none, none, none, none)
    done = (four == none).to(tl.int32)
    reciprocal = 1.0 / repetition
    # A positive logit takes the reciprocal, any other the penalty. Whatever its sign, that is the
    # lower one of the two products, or the higher one.
    lower = (repetition > 1.0) | ((repetition < 0.0) & (repetition > -1.0))
    higher = ((repetition > 0.0) & (repetition < 1.0)) | (repetition <= -1.0)
    lane = tl.arange(0, TILE)
    first = begin * span
    width = tl.minimum(span, vocab_size - first)
    second = tl.minimum(begin + 1, end - 1) * span
    halves = _penalties_halves(halves_ptr, first, width, num_halves, TILE)
    spread = _penalties_spread(halves, TILE)
    halves = _penalties_halves(
        halves_ptr, second, tl.minimum(span, vocab_size - second), num_halves, TILE
    )
    counts = _penalties_load(counts_ptr, first, width, TILE)
    logits = _penalties_load(logits_ptr, first, width, TILE)
    for index in tl.range(begin, end):
        counted, after, one, two, three, four, done = _penalties_count(
            counts.to(tl.float32), drafts_ptr, position, first, width,
            after, one, two, three, four, done, lanes, TILE,
        )  # fmt: skip
        # Behind the last span none follows: nothing is loaded.
        second = first + width
        second_width = tl.where(index + 1 < end, tl.minimum(span, vocab_size - second), 0)
        counts = _penalties_load(counts_ptr, second, second_width, TILE)
        values = logits.to(tl.float32)
        # A count is over each lane's number (they are below 1) or at most equal to it.
        if lower:
            prompt = (spread & bits).to(tl.int1)
            scaled = tl.minimum(
                values * reciprocal, values * repetition, propagate_nan=tl.PropagateNan.ALL
            )
            values = tl.where(prompt | (counted > lanes), scaled, values) - frequency * counted
        elif higher:
            prompt = (spread & bits).to(tl.int1)
            scaled = tl.maximum(
                values * reciprocal, values * repetition, propagate_nan=tl.PropagateNan.ALL
            )
            values = tl.where(prompt | (counted > lanes), scaled, values) - frequency * counted
        else:
            values -= frequency * counted
        spread = _penalties_spread(halves, TILE)
        logits = _penalties_load(logits_ptr, second, second_width, TILE)
        third = tl.minimum(index + 2, end - 1) * span
        halves = _penalties_halves(
            halves_ptr, third, tl.minimum(span, vocab_size - third), num_halves, TILE
        )
        values -= presence * tl.minimum(counted, 1.0, propagate_nan=tl.PropagateNan.ALL)
        stored = values.to(logits_ptr.dtype.element_ty)
        tl.store(penalised_ptr + first + lane, stored, mask=lane < width)
        first = second
        width = second_width


@triton.jit
def _penalties_odd_row(
    logits_ptr,
    penalised_ptr,
    counts_ptr,
    halves_ptr,
    drafts_ptr,
    position,
    num_halves,
    start,
    stop,
    repetition,
    frequency,
    presence,
    TILE: tl.constexpr,
):
    """Penalises tokens ``start`` to before ``stop`` by the definition, whatever the penalty is.

    No service sends what ends here; short tiles leave the buffer to the other rows.
    """
    none = tl.full((), 1 << 62, tl.int64)
    after = (start.to(tl.int64) << 20) - 1
    one, two, three, four = _penalties_drafts(drafts_ptr, position, after, none, none, none, none)
    done = (four == none).to(tl.int32)
    reciprocal = 1.0 / repetition
    bits = _penalties_bits(TILE)
    lane = tl.arange(0, TILE)
    lanes = lane.to(tl.float32) * (0.5 / TILE)
    for first in tl.range(start, stop, TILE):
        width = tl.minimum(TILE, stop - first)
        halves = _penalties_halves(halves_ptr, first, width, num_halves, TILE)
        counts = _penalties_load(counts_ptr, first, width, TILE)
        logits = _penalties_load(logits_ptr, first, width, TILE)
        counted, after, one, two, three, four, done = _penalties_count(
            counts.to(tl.float32), drafts_ptr, position, first, width,
            after, one, two, three, four, done, lanes, TILE,
        )  # fmt: skip
        prompt = (_penalties_spread(halves, TILE) & bits).to(tl.int1)
        values = logits.to(tl.float32)
        scaled = values * tl.where(values > 0, reciprocal, repetition)
        values = tl.where(prompt | (counted > lanes), scaled, values) - frequency * counted
        values -= presence * tl.minimum(counted, 1.0, propagate_nan=tl.PropagateNan.ALL)
        stored = values.to(logits_ptr.dtype.element_ty)
        tl.store(penalised_ptr + first + lane, stored, mask=lane < width)


@triton.jit(
    do_not_specialize=[
        "logits_stride",
        "prompt_halves_stride",
        "output_bin_counts_stride",
        "vocab_size",
        "span",
        "spans_per_row",
        "tasks",
    ]
)
def _penalties_kernel(
    logits_ptr,
    penalised_ptr,
    logits_stride,
    expanded_idx_mapping_ptr,
    token_ids_ptr,
    expanded_local_pos_ptr,
    repetition_penalty_ptr,
    frequency_penalty_ptr,
    presence_penalty_ptr,
    prompt_halves_ptr,
    prompt_halves_stride,
    output_bin_counts_ptr,
    output_bin_counts_stride,
    vocab_size,
    span,
    spans_per_row,
    tasks,
    TILE: tl.constexpr,
):
    """A task is a span of a row. Sizes are run-time values: one compilation serves them all.

    ``penalised_ptr``: the logits once more, to be stored to. Within one argument the compiler
    orders every load behind the store in front of it. ``prompt_halves_ptr``: the prompt masks as
    int16: a half word fills one block of the Unified Buffer when it is spread over its 16 tokens.
    """
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
    bits = _penalties_bits(TILE)
    lanes = tl.arange(0, TILE).to(tl.float32) * (0.5 / TILE)
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
            halves_row = prompt_halves_ptr + state * prompt_halves_stride
            penalised_row = penalised_ptr + row * logits_stride.to(tl.int64)
            size = tl.abs(repetition)
            if (size > 1e-30) & (size < 1e30):
                _penalties_row(
                    logits_row, penalised_row, counts_row, halves_row, token_ids_ptr + row,
                    position, vocab_size, prompt_halves_stride, span, first, last,
                    repetition, frequency, presence, bits, lanes, TILE,
                )  # fmt: skip
            else:
                _penalties_odd_row(
                    logits_row, penalised_row, counts_row, halves_row, token_ids_ptr + row,
                    position, prompt_halves_stride, first * span,
                    tl.minimum(last * span, vocab_size),
                    repetition, frequency, presence, TILE // 16,
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
        logits,
        logits.stride(0),
        expanded_idx_mapping,
        token_ids,
        expanded_local_pos,
        repetition_penalty,
        frequency_penalty,
        presence_penalty,
        prompt_bin_mask.view(torch.int16),
        2 * prompt_bin_mask.stride(0),
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
