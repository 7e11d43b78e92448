"""bincount: which tokens a prompt holds (one bit each), and how often each was generated.

Each program builds what it owns in the Unified Buffer, token by token, and writes it once: a part
of a prompt's bitmask, or a span of a request's counters. No atomics, no locks. Where a prompt was
cut into parts, a second launch joins their bitmasks.
"""

import torch
from vllm.triton_utils import tl, triton
from vllm_ascend.ops.triton import triton_utils
from vllm_ascend.ops.triton.triton_utils import (
    get_element,
    get_vectorcore_num,
    init_device_properties_triton,
    insert_slice,
)

_BINCOUNT_BLOCK = 1024
_BINCOUNT_TOKENS = 1024
_BINCOUNT_REQUESTS = 1024
_BINCOUNT_JOIN_PARTS = 8
_BINCOUNT_JOIN_WORDS = 1024
_BINCOUNT_ALIGN = 128


def _bincount_split(
    num_reqs: int, num_tokens: int, vocab_size: int, num_cores: int, join: bool
) -> tuple[int, int]:
    """(slices, parts): slices of a request's counters, and parts of its prompt, at most as many.

    Takes the cheapest in nanoseconds as the time model has them for 910B3: a token costs the
    scalar unit 19, a slice or part some hundreds beside what it writes, and joining more than
    one part takes a second launch. Of equals the fewest parts and slices. ``join``: one part
    will not do.
    """

    def cost(split: tuple[int, int]) -> int:
        slices, parts = split
        rounds = -(-num_reqs * slices // num_cores)
        building = rounds * (900 + 4 * vocab_size // slices // 60)
        rounds = -(-num_reqs * parts // num_cores)
        building += rounds * (600 + num_tokens * 19 // parts)
        joining = 5000 + 55 * parts + num_reqs * parts * vocab_size // 8 // 1500
        return building + (joining if parts > 1 else 0)

    full = (rounds * num_cores // num_reqs for rounds in (1, 2, 4, 8))
    most = sorted({max(1 + join, min(num_cores, slices)) for slices in full})
    return min(
        (
            (slices, parts)
            for slices in most
            for parts in sorted({1, slices // 4, slices // 2, slices})
            if parts > join
        ),
        key=cost,
    )


def _bincount_spans(size: int, num_reqs: int, num_cores: int, tile: int, align: int) -> int:
    """Elements a span, where ``size`` elements of each request are cut for the cores.

    At most ``tile`` and a multiple of ``align``. Starts from the fewest spans, counts the rounds
    that the cores need, then takes as many spans as fit in the same number of rounds.
    """
    fewest = -(-size // tile)
    rounds = -(-num_reqs * fewest // num_cores)
    spans = max(fewest, rounds * num_cores // num_reqs)
    return min(tile, -(-size // (spans * align)) * align)


def _bincount_tiles(num_words: int, ub_bytes: int) -> tuple[int, int]:
    """(words of a bitmask, counters) that a program holds at a time, powers of two.

    Counters take at most three quarters of the Unified Buffer, as each tile of them walks over
    all generated tokens; the bitmask, which walks over the prompt, at most a fifth: on A2, A3 and
    A5 one tile for vocabularies of up to 262144 tokens.
    """

    def most(bytes_: int) -> int:
        return 1 << (bytes_ // 4).bit_length() - 1

    words = 1 << (num_words - 1).bit_length()
    return min(words, most(ub_bytes // 5)), most(ub_bytes * 3 // 4)


@triton.jit
def _bincount_share(tasks):
    """[begin, end) of the tasks that this program takes; shares differ by one at most."""
    program = tl.program_id(0)
    programs = tl.num_programs(0)
    share = tasks // programs
    rest = tasks - share * programs
    begin = program * share + tl.minimum(program, rest)
    return begin, begin + share + tl.where(program < rest, 1, 0)


@triton.jit
def _bincount_request(mapping_ptr, index, num_reqs, REQUESTS: tl.constexpr):
    """(request at ``index``, how often the mapping names it): 0 times where an earlier index does.

    A request that is named twice is the first index's business alone: no two programs write to
    its rows, and its tokens count twice.
    """
    request = tl.load(mapping_ptr + index)
    times = tl.minimum(num_reqs, 1)
    if num_reqs > 1:
        times = 0
        for first in tl.range(0, num_reqs, REQUESTS):
            times += _bincount_named(mapping_ptr + first, num_reqs - first, request, REQUESTS)
    if times > 1:
        earlier = 0
        for first in tl.range(0, index, REQUESTS):
            earlier += _bincount_named(mapping_ptr + first, index - first, request, REQUESTS)
        times = tl.where(earlier > 0, 0, times)
    return request, times


@triton.jit
def _bincount_named(mapping_ptr, left, request, REQUESTS: tl.constexpr):
    """How often ``request`` is among the first REQUESTS of ``left`` entries.

    Counts the others, in fp32 and without a comparison: a sum of int32 ends on the scalar unit.
    """
    lane = tl.arange(0, REQUESTS)
    other = tl.load(mapping_ptr + lane, mask=lane < left, other=-1)
    return tl.sum((other == request).to(tl.float32)).to(tl.int32)


@triton.jit
def _bincount_zeros(task, SIZE: tl.constexpr):
    """int32[SIZE] zeros, made anew for each ``task`` (>= 0).

    The value hangs on the task: zeros that every task shares would be kept in a buffer of their
    own and copied, and two such tiles do not fit.
    """
    return tl.full((SIZE,), 0, tl.int32) + tl.minimum(task, 0)


@triton.jit
def _bincount_marks(row_ptr, begin, end, first, tokens, tile, TOKENS: tl.constexpr):
    """``tile`` with the bits of tokens [first, first + tokens) that are at [begin, end) of the row.

    One token at a time, by the scalar unit: a vector has no store to an address of each lane's.
    """
    for start in tl.range(begin, end, TOKENS):
        count = tl.minimum(end - start, TOKENS)
        lane = tl.arange(0, TOKENS)
        chunk = tl.load(row_ptr + start + lane, mask=lane < count, other=-1)
        for at in tl.range(0, count):
            token = get_element(chunk, (at,)) - first
            # As unsigned, so that negative ones are too large.
            if token.to(tl.uint32) < tokens.to(tl.uint32):
                word = token >> 5
                bits = get_element(tile, (word,)) | (1 << (token & 31))
                tile = insert_slice(tile, tl.full((1,), 0, tl.int32) + bits, (word,), (1,), (1,))
    return tile


@triton.jit
def _bincount_counts(row_ptr, begin, end, first, tokens, times, tile, TOKENS: tl.constexpr):
    """``tile`` plus ``times`` for each of tokens [first, first + tokens) at [begin, end)."""
    for start in tl.range(begin, end, TOKENS):
        count = tl.minimum(end - start, TOKENS)
        lane = tl.arange(0, TOKENS)
        chunk = tl.load(row_ptr + start + lane, mask=lane < count, other=-1)
        for at in tl.range(0, count):
            token = get_element(chunk, (at,)) - first
            if token.to(tl.uint32) < tokens.to(tl.uint32):
                number = get_element(tile, (token,)) + times
                tile = insert_slice(tile, tl.full((1,), 0, tl.int32) + number, (token,), (1,), (1,))
    return tile


@triton.jit(
    do_not_specialize=[
        "num_reqs",
        "slices",
        "parts",
        "all_token_ids_stride",
        "limit",
        "mask_stride",
        "num_words",
        "counts_stride",
        "vocab_size",
        "span",
    ]
)
def _bincount_build(
    mapping_ptr,
    num_reqs,
    slices,
    parts,
    all_token_ids_ptr,
    all_token_ids_stride,
    prompt_len_ptr,
    prefill_len_ptr,
    limit,
    mask_ptr,
    mask_stride,
    num_words,
    counts_ptr,
    counts_stride,
    vocab_size,
    span,
    ADD: tl.constexpr,
    BLOCK: tl.constexpr,
    WORDS: tl.constexpr,
    COUNTERS: tl.constexpr,
    TOKENS: tl.constexpr,
    REQUESTS: tl.constexpr,
):
    """A task is a slice of a request: a span of its counters and, for the first ``parts`` slices,
    a part of the prompt's tokens.

    With one part the bitmask is the request's own row. With more, row ``index * parts + part`` of
    a workspace, and word ``num_words`` of the first part's says how often the mapping names the
    request. Sizes are run-time values: one compilation serves them all.
    """
    begin, end = _bincount_share(num_reqs * slices)
    for task in tl.range(begin, end):
        index = task // slices
        part = task - index * slices
        request, times = _bincount_request(mapping_ptr, index, num_reqs, REQUESTS)
        # 64 bits: a row may lie more than 2**31 elements from the start.
        row = tl.where(parts == 1, request, index * parts + part).to(tl.int64)
        row_ptr = mask_ptr + row * mask_stride
        if times > 0:
            prefill_len = tl.load(prefill_len_ptr + request)
            prompt_len = tl.load(prompt_len_ptr + request)
            tokens_ptr = all_token_ids_ptr + request.to(tl.int64) * all_token_ids_stride
            # Counters first: they are on their way out while the bitmask is made.
            counters_ptr = counts_ptr + request.to(tl.int64) * counts_stride
            stop = tl.minimum(part * span + span, vocab_size)
            for first in tl.range(part * span, stop, COUNTERS):
                width = tl.minimum(stop - first, COUNTERS)
                lane = tl.arange(0, COUNTERS)
                if ADD:
                    tile = tl.load(counters_ptr + first + lane, mask=lane < width, other=0)
                else:
                    tile = _bincount_zeros(first, COUNTERS)
                tile = _bincount_counts(
                    tokens_ptr,
                    prompt_len,
                    tl.minimum(prefill_len, limit),
                    first,
                    width,
                    times,
                    tile,
                    TOKENS,
                )
                tl.store(counters_ptr + first + lane, tile, mask=lane < width)
            # What upstream's grid looks at: blocks that begin before the prefill's end.
            blocks = (prefill_len + BLOCK - 1) // BLOCK * BLOCK
            length = tl.minimum(tl.minimum(prompt_len, limit), blocks)
            share = (length + parts - 1) // parts
            for first in tl.range(0, tl.where(part < parts, num_words, 0), WORDS):
                width = tl.minimum(num_words - first, WORDS)
                lane = tl.arange(0, WORDS)
                tile = _bincount_marks(
                    tokens_ptr,
                    tl.minimum(part * share, length),
                    tl.minimum(part * share + share, length),
                    first * 32,
                    tl.minimum(vocab_size - first * 32, width * 32),
                    _bincount_zeros(first, WORDS),
                    TOKENS,
                )
                tl.store(row_ptr + first + lane, tile, mask=lane < width)
        if (parts > 1) & (part == 0):
            tl.store(row_ptr + num_words, times)


@triton.jit
def _bincount_or(left, right):
    return left | right


@triton.jit(
    do_not_specialize=[
        "num_reqs",
        "parts_stride",
        "parts",
        "mask_stride",
        "num_words",
        "span",
        "spans",
    ]
)
def _bincount_join(
    mapping_ptr,
    num_reqs,
    parts_ptr,
    parts_stride,
    parts,
    mask_ptr,
    mask_stride,
    num_words,
    span,
    spans,
    ADD: tl.constexpr,
    PARTS: tl.constexpr,
    WORDS: tl.constexpr,
):
    """Each request's bitmask from those of its parts. A task is a span of words of a request."""
    begin, end = _bincount_share(num_reqs * spans)
    for task in tl.range(begin, end):
        index = task // spans
        part_ptr = parts_ptr + (index * parts).to(tl.int64) * parts_stride
        if tl.load(part_ptr + num_words) > 0:
            request = tl.load(mapping_ptr + index)
            first = (task - index * spans) * span
            width = tl.minimum(span, num_words - first)
            lane = tl.arange(0, WORDS)
            line = tl.arange(0, PARTS)
            out_ptr = mask_ptr + request.to(tl.int64) * mask_stride + first
            if ADD:
                joined = tl.load(out_ptr + lane, mask=lane < width, other=0)
            else:
                joined = _bincount_zeros(task, WORDS)
            for part in tl.range(0, parts, PARTS):
                words = tl.load(
                    part_ptr + (part + line)[:, None] * parts_stride + first + lane[None, :],
                    mask=((part + line) < parts)[:, None] & (lane < width)[None, :],
                    other=0,
                )
                joined = joined | tl.reduce(words, 0, _bincount_or)
            tl.store(out_ptr + lane, joined, mask=lane < width)


def _bincount_ub_bytes() -> int:
    """Bytes of the Unified Buffer; releases before 0.28 do not say, and have 192 KiB parts."""
    ask = getattr(triton_utils, "get_ub_size_bytes", None)
    return 192 * 1024 if ask is None else ask()


class _BincountKernel:
    """Launches what counts. Called like a kernel, ``kernel[grid](...)``, it adds to what the
    tensors hold."""

    def __getitem__(self, grid):
        num_reqs, num_blocks = grid

        def add(
            expanded_idx_mapping_ptr,
            all_token_ids_ptr,
            all_token_ids_stride,
            prompt_len_ptr,
            prefill_len_ptr,
            prompt_bin_mask_ptr,
            prompt_bin_mask_stride,
            output_bin_counts_ptr,
            output_bin_counts_stride,
            BLOCK_SIZE,
        ):
            self.launch(
                expanded_idx_mapping_ptr,
                num_reqs,
                all_token_ids_ptr,
                prompt_len_ptr,
                prefill_len_ptr,
                prompt_bin_mask_ptr,
                output_bin_counts_ptr,
                num_blocks * BLOCK_SIZE,
                BLOCK_SIZE,
                True,
            )

        return add

    def launch(
        self,
        mapping,
        num_reqs,
        all_token_ids,
        prompt_len,
        prefill_len,
        prompt_bin_mask,
        output_bin_counts,
        longest,
        block,
        add,
    ):
        """Looks at the blocks that begin before ``longest``. ``add``: to what is there."""
        if num_reqs == 0:
            return
        num_words, vocab_size = prompt_bin_mask.shape[1], output_bin_counts.shape[1]
        init_device_properties_triton()
        num_cores = get_vectorcore_num()
        words, counters = _bincount_tiles(num_words, _bincount_ub_bytes())
        slices, parts = _bincount_split(num_reqs, longest, vocab_size, num_cores, add)
        span = -(-vocab_size // (slices * _BINCOUNT_ALIGN)) * _BINCOUNT_ALIGN
        masks, mask_stride = prompt_bin_mask, prompt_bin_mask.stride(0)
        if parts > 1:
            # A word more than the bitmask has, and no two rows in one 512-byte block.
            mask_stride = (num_words // _BINCOUNT_ALIGN + 1) * _BINCOUNT_ALIGN
            masks = torch.empty(
                num_reqs * parts * mask_stride, dtype=torch.int32, device=prompt_bin_mask.device
            )
        _bincount_build[(min(num_cores, num_reqs * slices),)](
            mapping,
            num_reqs,
            slices,
            parts,
            all_token_ids,
            all_token_ids.stride(0),
            prompt_len,
            prefill_len,
            triton.cdiv(longest, block) * block,
            masks,
            mask_stride,
            num_words,
            output_bin_counts,
            output_bin_counts.stride(0),
            vocab_size,
            span,
            ADD=add,
            BLOCK=block,
            WORDS=words,
            COUNTERS=counters,
            TOKENS=_BINCOUNT_TOKENS,
            REQUESTS=_BINCOUNT_REQUESTS,
            multibuffer=False,
        )
        if parts > 1:
            span = _bincount_spans(
                num_words, num_reqs, num_cores, _BINCOUNT_JOIN_WORDS, _BINCOUNT_ALIGN
            )
            spans = -(-num_words // span)
            _bincount_join[(min(num_cores, num_reqs * spans),)](
                mapping,
                num_reqs,
                masks,
                mask_stride,
                parts,
                prompt_bin_mask,
                prompt_bin_mask.stride(0),
                num_words,
                span,
                spans,
                ADD=add,
                PARTS=_BINCOUNT_JOIN_PARTS,
                WORDS=_BINCOUNT_JOIN_WORDS,
            )


_bincount_kernel = _BincountKernel()


def bincount(
    expanded_idx_mapping: torch.Tensor,
    all_token_ids: torch.Tensor,
    prompt_len: torch.Tensor,
    prefill_len: torch.Tensor,
    prompt_bin_mask: torch.Tensor,
    output_bin_counts: torch.Tensor,
    max_prefill_len: int,
) -> None:
    """Rows of the requests in the mapping are written whole, others not touched."""
    _bincount_kernel.launch(
        expanded_idx_mapping,
        expanded_idx_mapping.shape[0],
        all_token_ids,
        prompt_len,
        prefill_len,
        prompt_bin_mask,
        output_bin_counts,
        max_prefill_len,
        _BINCOUNT_BLOCK,
        False,
    )
