"""Grammar bitmask: blocked tokens of a row of logits become -inf, all others stay.

Both forms of the kernel (indexed.py, packed.py) share what is here: how a row is cut into
spans, and what one program does with a span.
"""

from vllm.triton_utils import tl, triton
from vllm_ascend.ops.triton.triton_utils import get_vectorcore_num, init_device_properties_triton

_GRAMMAR_TILE_BYTES = 16384
_GRAMMAR_SPAN_ALIGN = 256
_GRAMMAR_MIN_SPAN = 1024


def _split_grammar_rows(
    num_rows: int, vocab_size: int, num_cores: int, tile: int
) -> tuple[int, int]:
    """Cuts each row into spans of at most ``tile`` tokens that keep every core equally busy.

    Starts from the fewest spans (one tile each), counts the rounds that the cores need for all
    of them, then takes as many spans a row as fit in the same number of rounds: the last round
    is full and the spans are as short as they can be. Spans are multiples of 256 tokens, so that
    two cores never write to one 512-byte block of an aligned row.

    Returns:
        (spans a row, tokens a span); the last span of a row may be shorter.
    """
    fewest = -(-vocab_size // tile)
    rounds = -(-num_rows * fewest // num_cores)
    most = -(-vocab_size // _GRAMMAR_MIN_SPAN)
    spans = max(fewest, min(most, rounds * num_cores // num_rows))
    span = -(-vocab_size // spans)
    span = min(tile, -(-span // _GRAMMAR_SPAN_ALIGN) * _GRAMMAR_SPAN_ALIGN)
    return -(-vocab_size // span), span


def _grammar_launch(
    num_rows: int, vocab_size: int, element_size: int
) -> tuple[int, int, int, int, int]:
    """(programs, tokens a span, spans a row, tasks, tokens a tile): a program for each core.

    A tile is 16 KiB of logits: DMAs shorter than that lose bandwidth, and larger ones leave the
    compiler no room in the Unified Buffer for a second buffer.
    """
    init_device_properties_triton()
    num_cores = get_vectorcore_num()
    tile = _GRAMMAR_TILE_BYTES // element_size
    spans_per_row, span = _split_grammar_rows(num_rows, vocab_size, num_cores, tile)
    tasks = num_rows * spans_per_row
    return min(num_cores, tasks), span, spans_per_row, tasks, tile


@triton.jit
def _grammar_bits():
    """int32[32]: one bit each. Made once a program: a shift by a vector runs on the scalar unit."""
    return tl.full((32,), 1, tl.int32) << tl.arange(0, 32)


@triton.jit
def _share_of_tasks(tasks):
    """[begin, end) of the tasks that this program takes; shares differ by one at most."""
    program = tl.program_id(0)
    programs = tl.num_programs(0)
    share = tasks // programs
    rest = tasks - share * programs
    begin = program * share + tl.minimum(program, rest)
    return begin, begin + share + tl.where(program < rest, 1, 0)


@triton.jit
def _mask_span(span_ptr, words_ptr, width, words_left, bits, TILE: tl.constexpr):
    """Masks ``width`` (<= TILE) logits at ``span_ptr`` by the bits at ``words_ptr``.

    ``words_left``: words of this row's bitmask from here on; tokens beyond them are blocked.
    Every store covers a prefix of the tile. A store whose mask has holes would be compiled to
    load, select and store of the whole tile, and so write lanes that other programs own.
    """
    word = tl.arange(0, TILE // 32)
    owned = word < tl.minimum((width + 31) // 32, words_left)
    words = tl.load(words_ptr + word, mask=owned, other=0)
    # Least and greatest of the owned words: the others must not take part. As fp32, since a
    # reduction of int32 ends on the scalar unit; -1 and 0 are exact and nothing rounds to them.
    values = words.to(tl.float32)
    lowest = tl.min(tl.where(owned, values, 4e9))
    highest = tl.max(tl.where(owned, values, -4e9))
    # All words -1: every token is allowed, nothing to read or write.
    if (lowest != -1) | (highest != -1):
        lane = tl.arange(0, TILE)
        inside = lane < width
        if (lowest == 0) & (highest == 0):
            blocked = tl.full((TILE,), -float("inf"), span_ptr.dtype.element_ty)
            tl.store(span_ptr + lane, blocked, mask=inside)
        else:
            allowed = ((words[:, None] & bits[None, :]) != 0).reshape(TILE)
            logits = tl.load(span_ptr + lane, mask=inside, other=0.0)
            tl.store(span_ptr + lane, tl.where(allowed, logits, -float("inf")), mask=inside)


@triton.jit
def _mask_spans(
    row_ptr, words_ptr, num_words, vocab_size, span, begin, end, bits, TILE: tl.constexpr
):
    """Masks spans [begin, end) of the row of logits at ``row_ptr``."""
    for index in tl.range(begin, end):
        first = index * span
        _mask_span(
            row_ptr + first,
            words_ptr + first // 32,
            tl.minimum(span, vocab_size - first),
            num_words - first // 32,
            bits,
            TILE,
        )
