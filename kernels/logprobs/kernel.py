"""Log-probabilities and ranks of chosen tokens: one read of the logits, shared by all cores.

A first launch reads each row once, in tiles, and leaves for each row and core a partial sum of
exponentials and a partial rank. A second launch merges them and writes what was asked for.
"""

import torch
from vllm.triton_utils import tl, triton
from vllm_ascend.ops.triton import triton_utils as _triton_utils
from vllm_ascend.ops.triton.triton_utils import get_vectorcore_num, init_device_properties_triton

_SCORE_PARTS = 64
_SCORE_SPAN_ALIGN = 256
_SCORE_MIN_SPAN = 2048
_SCORE_COLUMNS = 64
_SCORE_GATHER = 8


def _score_tile(ub_bytes: int) -> int:
    """Tokens a tile: the largest power of two of which 36 bytes each fill 0.9 of the UB.

    The compiled kernels hold 30 bytes a token: tiles of fp32 for two loads, the distance, both
    accumulators and what lies between them.
    """
    tile = 1024
    while tile * 2 * 36 <= ub_bytes * 9 // 10:
        tile *= 2
    return tile


def _split_score_rows(
    num_rows: int, vocab_size: int, num_cores: int, tile: int
) -> tuple[int, int, int]:
    """Cuts rows into spans and deals the spans of all rows, in order, to the cores.

    Starts from spans of one tile, counts the rounds that the cores need for them, and takes
    shorter spans where those fit in as many rounds: a single row then keeps the cores busy. No
    row is shared by more than `_SCORE_PARTS` programs, whose parts the second launch merges.

    Returns:
        (tokens a span, spans a program, most programs that share a row).
    """
    fewest = -(-vocab_size // tile)
    rounds = -(-num_rows * fewest // num_cores)
    most = min(_SCORE_PARTS, -(-vocab_size // _SCORE_MIN_SPAN))
    spans = max(fewest, min(most, rounds * num_cores // num_rows))
    span = -(-vocab_size // spans)
    span = min(tile, -(-span // _SCORE_SPAN_ALIGN) * _SCORE_SPAN_ALIGN)
    spans = -(-vocab_size // span)
    share = -(-num_rows * spans // num_cores)
    if share > 1 or spans > _SCORE_PARTS:
        # A program may begin anywhere in a row, so the spans of a row touch one part more.
        share = max(share, -(-spans // (_SCORE_PARTS - 2)))
    if share == 1:
        return span, 1, spans
    return span, share, min(spans, (spans - 2) // share + 2)


@triton.jit
def _chosen_logit(row_ptr, token_ptr, vocab_size):
    """fp32: the logit of the token at ``token_ptr``; -inf for an id that the row has not."""
    token = tl.load(token_ptr).to(tl.int64)
    known = (token >= 0) & (token < vocab_size)
    x = tl.load(row_ptr + tl.where(known, token, 0)).to(tl.float32)
    return tl.where(known, x, -float("inf"))


@triton.jit
def _load_span(row_ptr, first, span, vocab_size, TILE: tl.constexpr):
    """fp32[TILE]: the ``span`` logits from token ``first`` on, and -inf behind them."""
    lane = tl.arange(0, TILE)
    inside = lane < tl.minimum(span, vocab_size - first)
    return tl.load(row_ptr + first + lane, mask=inside, other=-float("inf")).to(tl.float32)


@triton.jit
def _exact_row(row_ptr, vocab_size, x, TILE: tl.constexpr):
    """(maximum, sum of exp(logit - maximum), rank) of a row: right for any input, and slow."""
    lane = tl.arange(0, TILE)
    # A zero that the compiler cannot see through: it would fill tiles for rows that are not slow.
    zero = tl.minimum(vocab_size, 0).to(tl.float32)
    highest = tl.full((TILE,), zero - float("inf"), tl.float32)
    for first in tl.range(0, vocab_size, TILE):
        logits = _load_span(row_ptr, first, TILE, vocab_size, TILE)
        highest = tl.maximum(highest, logits)
    top = tl.max(highest)
    sums = tl.full((TILE,), zero, tl.float32)
    ranks = tl.full((TILE,), zero, tl.float32)
    for first in tl.range(0, vocab_size, TILE):
        logits = _load_span(row_ptr, first, TILE, vocab_size, TILE)
        sums += tl.exp(logits - top)
        ranks += tl.where((logits >= x) & (lane < vocab_size - first), 1.0, 0.0)
    # vllm-core takes the lanes of its last tile of 8192 that lie past the vocabulary for -inf.
    past = (vocab_size + 8191) // 8192 * 8192 - vocab_size
    return top, tl.sum(sums), tl.sum(ranks) + tl.where(x == -float("inf"), past, 0)


@triton.jit(
    do_not_specialize=[
        "logits_stride",
        "token_ids_stride",
        "vocab_size",
        "span",
        "spans",
        "share",
        "tasks",
        "parts",
        "plane",
    ],
    do_not_specialize_on_alignment=["logits_ptr", "token_ids_ptr"],
)
def _score_parts_kernel(
    parts_ptr,
    logits_ptr,
    logits_stride,
    token_ids_ptr,
    token_ids_stride,
    vocab_size,
    span,
    spans,
    share,
    tasks,
    parts,
    plane,
    TILE: tl.constexpr,
    WITH_RANKS: tl.constexpr,
):
    """Takes ``share`` spans: for each row among them, a partial sum and a partial rank.

    ``parts_ptr``: fp32 (2, rows, ``parts``), ``plane`` elements each: sums, then ranks. A sum is
    of exp(logit - x), x being the row's chosen logit: it is known before the row is read, so that
    no tile waits for a maximum. A sum that is NaN, +inf or very large, and the rank beside it,
    are of no use: `_score_merge_kernel` sees to that.
    """
    program = tl.program_id(0)
    begin = program * share
    end = tl.minimum(begin + share, tasks)

    for row in tl.range(begin // spans, (end + spans - 1) // spans):
        start = row * spans
        first = tl.maximum(begin - start, 0)
        last = tl.minimum(end - start, spans)
        # 64 bits: a row may lie more than 2**31 elements from the start.
        row_ptr = logits_ptr + row * logits_stride.to(tl.int64)
        logits = _load_span(row_ptr, first * span, span, vocab_size, TILE)
        # Looked up while the first tile is on its way.
        x = _chosen_logit(row_ptr, token_ids_ptr + row * token_ids_stride.to(tl.int64), vocab_size)
        # 0 - x, not -x: -0.0 + 0.0 is 0.0, so that equal zeros leave no sign.
        base = 0.0 - x
        distance = logits + base
        # The sign bit, spread: -1 below x. A select would go through the scalar unit.
        below = distance.to(tl.int32, bitcast=True) >> 31
        sums = tl.exp(distance)
        for index in tl.range(first + 1, last):
            distance = _load_span(row_ptr, index * span, span, vocab_size, TILE) + base
            if WITH_RANKS:
                below += distance.to(tl.int32, bitcast=True) >> 31
            sums += tl.exp(distance)
        part_ptr = parts_ptr + row * parts.to(tl.int64) + (program - start // share)
        tl.store(part_ptr, tl.sum(sums))
        if WITH_RANKS:
            # Lanes past the end of a span count as below x.
            rank = (last - first) * TILE + tl.sum(below)
            tl.store(part_ptr + plane, rank.to(tl.float32))


@triton.jit(
    do_not_specialize=[
        "scores_stride",
        "logits_stride",
        "token_ids_stride",
        "values_stride",
        "columns",
        "vocab_size",
        "spans",
        "share",
        "rows",
        "parts",
        "plane",
    ],
    do_not_specialize_on_alignment=["logits_ptr", "token_ids_ptr", "values_ptr"],
)
def _score_merge_kernel(
    scores_ptr,
    scores_stride,
    ranks_ptr,
    parts_ptr,
    logits_ptr,
    logits_stride,
    token_ids_ptr,
    token_ids_stride,
    values_ptr,
    values_stride,
    columns,
    vocab_size,
    spans,
    share,
    rows,
    parts,
    plane,
    PARTS: tl.constexpr,
    COLUMNS: tl.constexpr,
    TILE: tl.constexpr,
):
    """Merges the parts of each row and writes its log-probabilities and the rank.

    ``scores_ptr`` fp32 (rows, …) or None, ``ranks_ptr`` int64 (rows,) or None. Scores are those
    of the row's first token id and then of ``columns`` more: of the logits at ``values_ptr``
    (rows, ``columns``), or, where that is None, of the ids that follow.
    """
    lane = tl.arange(0, PARTS)
    column = tl.arange(0, COLUMNS)
    for row in tl.range(tl.program_id(0), rows, tl.num_programs(0)):
        start = row * spans
        used = (start + spans - 1) // share - start // share + 1
        part_ptr = parts_ptr + row * parts.to(tl.int64)
        row_ptr = logits_ptr + row * logits_stride.to(tl.int64)
        ids_ptr = token_ids_ptr + row * token_ids_stride.to(tl.int64)
        sums = tl.load(part_ptr + lane, mask=lane < used, other=0.0)
        if ranks_ptr is not None:
            ranks = tl.load(part_ptr + plane + lane, mask=lane < used, other=0.0)
        x = _chosen_logit(row_ptr, ids_ptr, vocab_size)
        top = x
        total = tl.sum(sums)
        rank = total
        if ranks_ptr is not None:
            rank = tl.sum(ranks)
        # x is -inf or far below the others, or something is NaN or +inf: NaN has to get here too.
        if not (total <= 1e24):
            top, total, rank = _exact_row(row_ptr, vocab_size, x, TILE)
        if ranks_ptr is not None:
            tl.store(ranks_ptr + row, rank.to(tl.int64))
        if scores_ptr is not None:
            log = tl.log(total)
            out_ptr = scores_ptr + row * scores_stride.to(tl.int64)
            tl.store(out_ptr, x - top - log)
            for at in tl.range(0, columns, COLUMNS):
                inside = column < columns - at
                if values_ptr is not None:
                    value_ptr = values_ptr + row * values_stride.to(tl.int64) + at
                    logits = tl.load(value_ptr + column, mask=inside, other=0.0)
                else:
                    token = tl.load(ids_ptr + 1 + at + column, mask=inside, other=-1)
                    token = token.to(tl.int32)
                    known = (token >= 0) & (token < vocab_size)
                    logits = tl.load(row_ptr + tl.where(known, token, 0))
                score = logits.to(tl.float32) - top - log
                if values_ptr is None:
                    score = tl.where(known, score, -float("inf"))
                tl.store(out_ptr + 1 + at + column, score, mask=inside)


@triton.jit(
    do_not_specialize=[
        "out_stride",
        "sampled_stride",
        "topk_stride",
        "num_topk",
        "own_stride",
        "columns",
        "rows",
    ],
    do_not_specialize_on_alignment=["sampled_ptr", "topk_ptr", "mapping_ptr"],
)
def _list_token_ids_kernel(
    out_ptr,
    out_stride,
    sampled_ptr,
    sampled_stride,
    topk_ptr,
    topk_stride,
    num_topk,
    mapping_ptr,
    num_own_ptr,
    own_ptr,
    own_stride,
    columns,
    rows,
    COLUMNS: tl.constexpr,
):
    """Each row's token ids, int64 (rows, 1 + ``columns``), -1 where it has no more.

    The sampled id, then the ids that the row's request asked for (``own_ptr``, int32), or, where
    it asked for none, its ``num_topk`` likeliest.
    """
    lane = tl.arange(0, COLUMNS)
    for row in tl.range(tl.program_id(0), rows, tl.num_programs(0)):
        out = out_ptr + row * out_stride.to(tl.int64)
        tl.store(out, tl.load(sampled_ptr + row * sampled_stride.to(tl.int64)).to(tl.int64))
        request = tl.load(mapping_ptr + row).to(tl.int64)
        own = tl.load(num_own_ptr + request)
        for at in tl.range(0, columns, COLUMNS):
            if own > 0:
                own_ids = own_ptr + request * own_stride + at
                tokens = tl.load(own_ids + lane, mask=lane < own - at, other=-1).to(tl.int64)
            else:
                top_ids = topk_ptr + row * topk_stride.to(tl.int64) + at
                tokens = tl.load(top_ids + lane, mask=lane < num_topk - at, other=-1)
            tl.store(out + 1 + at + lane, tokens, mask=lane < columns - at)


def _score_rows(
    num_rows,
    vocab_size,
    logits,
    logits_stride,
    token_ids,
    token_ids_stride,
    columns,
    scores=None,
    scores_stride=0,
    ranks=None,
    values=None,
    values_stride=0,
):
    """Both launches, for `_score_merge_kernel`'s outputs ``scores`` and ``ranks``.

    Sizes are run-time values: one compilation serves every batch, vocabulary and number of
    log-probabilities.
    """
    init_device_properties_triton()
    num_cores = get_vectorcore_num()
    # Releases before 0.27 do not ask for the size of the UB; they know A2 and A3 only.
    ub_size = getattr(_triton_utils, "get_ub_size_bytes", None)
    tile = _score_tile(ub_size() if ub_size else 192 * 1024)
    span, share, parts = _split_score_rows(num_rows, vocab_size, num_cores, tile)
    spans = -(-vocab_size // span)
    tasks = num_rows * spans
    partial = logits.new_empty((2, num_rows, parts), dtype=torch.float32)
    _score_parts_kernel[(-(-tasks // share),)](
        partial,
        logits,
        logits_stride,
        token_ids,
        token_ids_stride,
        vocab_size,
        span,
        spans,
        share,
        tasks,
        parts,
        num_rows * parts,
        TILE=tile,
        WITH_RANKS=ranks is not None,
    )
    _score_merge_kernel[(min(num_rows, num_cores),)](
        scores,
        scores_stride,
        ranks,
        partial,
        logits,
        logits_stride,
        token_ids,
        token_ids_stride,
        values,
        values_stride,
        columns,
        vocab_size,
        spans,
        share,
        num_rows,
        parts,
        num_rows * parts,
        PARTS=_SCORE_PARTS,
        COLUMNS=_SCORE_GATHER if values is None else _SCORE_COLUMNS,
        TILE=tile,
        # Nothing to overlap: the second buffers would only cost scalar work.
        multibuffer=False,
    )


class _ScoreLauncher:
    """Called like the kernel whose name it has, ``launcher[grid](...)``."""

    def __init__(self, launch):
        self.launch = launch

    def __getitem__(self, grid):
        return lambda *args, **kwargs: self.launch(grid[0], *args, **kwargs)


def _launch_log_softmax(
    num_rows,
    output_ptr,
    logits_ptr,
    logits_stride,
    topk_ids_ptr,
    topk,
    vocab_size,
    BLOCK_SIZE=None,
    PADDED_TOPK=None,
    **options,
):
    """Log-probabilities fp32 (rows, ``topk``) of the ids int64 (rows, ``topk``).

    Tiles are chosen here; ``BLOCK_SIZE``, ``PADDED_TOPK`` and launch options have no effect.
    """
    if num_rows and topk:
        _score_rows(
            num_rows,
            vocab_size,
            logits_ptr,
            logits_stride,
            topk_ids_ptr,
            topk,
            topk - 1,
            scores=output_ptr,
            scores_stride=topk,
        )


_topk_log_softmax_kernel = _ScoreLauncher(_launch_log_softmax)


def _launch_ranks(
    grid,
    output_ptr,
    logits_ptr,
    logits_stride,
    token_ids_ptr,
    vocab_size,
    batch_size,
    rows_per_core=None,
    BLOCK_SIZE=None,
    **options,
):
    """Ranks int64 (rows,): how many logits of the row are as high as its token's, itself included.

    ``token_ids_ptr``: contiguous. The grid, ``rows_per_core``, ``BLOCK_SIZE`` and launch options
    have no effect.
    """
    if batch_size:
        _score_rows(
            batch_size,
            vocab_size,
            logits_ptr,
            logits_stride,
            token_ids_ptr,
            1,
            0,
            ranks=output_ptr,
        )


_ranks_kernel = _ScoreLauncher(_launch_ranks)


def _with_near_columns(logits: torch.Tensor) -> torch.Tensor:
    """``logits`` with columns side by side, copied where they are not."""
    return logits if logits.stride(1) == 1 else logits.contiguous()


def compute_token_logprobs(logits: torch.Tensor, token_ids: torch.Tensor) -> torch.Tensor:
    """fp32 (rows, columns): log-probabilities of ``token_ids`` under the rows of ``logits``.

    An id that the vocabulary has not gets -inf.
    """
    rows, vocab = logits.shape
    logits = _with_near_columns(logits)
    wanted = token_ids.to(torch.int64).contiguous()
    result = torch.empty(wanted.shape, dtype=torch.float32, device=logits.device)
    _topk_log_softmax_kernel[(rows,)](
        result, logits, logits.stride(0), wanted, wanted.shape[1], vocab
    )
    return result


def _logits_at(logits: torch.Tensor, token_ids: torch.Tensor) -> torch.Tensor:
    """fp32, the logits of ``token_ids`` (rows, columns); -inf for ids that there are not."""
    known = (token_ids >= 0) & (token_ids < logits.shape[1])
    found = logits.gather(-1, token_ids.clamp(0, logits.shape[1] - 1)).to(torch.float32)
    return found.masked_fill(~known, -float("inf"))


def _list_token_ids(
    sampled_token_ids, topk_indices, num_topk, state, mapping, max_per_req_token_ids
):
    """int64 (rows, 1 + columns): the sampled id, then each request's own ids or the likeliest.

    -1 where a row has fewer than the longest.
    """
    rows = sampled_token_ids.shape[0]
    columns = max(num_topk, max_per_req_token_ids)
    token_ids = sampled_token_ids.new_empty((rows, 1 + columns), dtype=torch.int64)
    if rows == 0:
        return token_ids
    init_device_properties_triton()
    own = state.token_ids.gpu
    _list_token_ids_kernel[(min(rows, get_vectorcore_num()),)](
        token_ids,
        token_ids.stride(0),
        sampled_token_ids,
        sampled_token_ids.stride(0),
        topk_indices,
        topk_indices.stride(0),
        num_topk,
        mapping,
        state.num_token_ids.gpu,
        own,
        own.stride(0),
        columns,
        rows,
        COLUMNS=_SCORE_COLUMNS,
    )
    return token_ids


def _topk_scores(
    logits: torch.Tensor,
    num_logprobs: int,
    sampled_token_ids: torch.Tensor,
    logprob_token_ids_state,
    expanded_idx_mapping: torch.Tensor | None,
    max_per_req_token_ids: int,
    logits_mode: bool,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(token ids, their scores, ranks of the sampled ids) of each row.

    Columns are the sampled token, then the ``num_logprobs`` likeliest or the request's own.
    """
    assert num_logprobs >= 0
    rows, vocab_size = logits.shape
    logits = _with_near_columns(logits)
    topk = torch.topk(logits, num_logprobs, dim=-1) if num_logprobs > 0 else None
    custom = max_per_req_token_ids != 0
    if custom:
        assert logprob_token_ids_state is not None
        assert expanded_idx_mapping is not None
        token_ids = _list_token_ids(
            sampled_token_ids,
            sampled_token_ids.unsqueeze(-1).to(torch.int64) if topk is None else topk.indices,
            num_logprobs,
            logprob_token_ids_state,
            expanded_idx_mapping,
            max_per_req_token_ids,
        )
    else:
        token_ids = sampled_token_ids.unsqueeze(-1)
        if topk is not None:
            token_ids = torch.cat((token_ids, topk.indices), dim=1)
    ranks = torch.empty(rows, dtype=torch.int64, device=logits.device)
    if logits_mode:
        scores = _logits_at(logits, token_ids)
        _ranks_kernel[(rows,)](
            ranks,
            logits,
            logits.stride(0),
            sampled_token_ids.contiguous(),
            vocab_size,
            rows,
        )
    else:
        scores = logits.new_empty(token_ids.shape, dtype=torch.float32)
        # The values of topk are at hand. Ids of requests' own have to be looked up.
        values = None
        if not custom:
            values = logits if topk is None else topk.values
        if rows:
            _score_rows(
                rows,
                vocab_size,
                logits,
                logits.stride(0),
                token_ids,
                token_ids.stride(0),
                token_ids.shape[1] - 1,
                scores=scores,
                scores_stride=token_ids.shape[1],
                ranks=ranks,
                values=values,
                values_stride=0 if values is None else values.stride(0),
            )
    if custom:
        # Unused columns hold id 0, as vllm has them; they scored -inf.
        token_ids[:, 1:].clamp_(min=0)
    return token_ids, scores, ranks
