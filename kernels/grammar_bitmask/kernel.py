"""Grammar bitmask: blocked tokens of a row of logits become -inf, all others stay.

Both forms of the kernel (indexed.py, packed.py) share what is here: how rows are shared out over
the cores, and what one program does with its part of a row.
"""

from vllm.triton_utils import tl, triton
from vllm_ascend.ops.triton import triton_utils

_GRAMMAR_UB_BYTES = 192 * 1024
_GRAMMAR_CHUNK = 2048


def _grammar_tile(ub_bytes: int, element_size: int) -> int:
    """Tokens a tile: the largest power of two whose buffers take 90 % of the Unified Buffer.

    The compiler keeps up to four buffers of logits (loaded, and stored in turn) and six of 16 bits
    a token (bits, words spread over lanes, what is left of them).
    """
    fitting = ub_bytes * 9 // 10 // (4 * element_size + 12)
    return 1 << (fitting.bit_length() - 1)


def _grammar_launch(num_rows: int, vocab_size: int, element_size: int) -> tuple[int, int, int, int]:
    """(programs, tasks a row, tasks, tokens a tile). A task is a tile of a row.

    Vector instructions work on whole tiles, so a row is cut into as few as hold it. One program
    for each core, as far as there are tasks: programs that have code to fetch wait for each other.
    """
    triton_utils.init_device_properties_triton()
    num_cores = triton_utils.get_vectorcore_num()
    # Releases up to 0.27.1rc1 do not say how large the buffer is.
    ub_bytes = getattr(triton_utils, "get_ub_size_bytes", lambda: _GRAMMAR_UB_BYTES)
    tile = _grammar_tile(ub_bytes(), element_size)
    tasks_per_row = -(-vocab_size // tile)
    tasks = num_rows * tasks_per_row
    return min(num_cores, tasks), tasks_per_row, tasks, tile


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
def _grammar_bits(TILE: tl.constexpr):
    """int16[TILE]: the bit of each lane in its half word. Made once a program."""
    bits = tl.full((16,), 1, tl.int16) << tl.arange(0, 16).to(tl.int16)
    return tl.broadcast_to(bits[None, :], (TILE // 16, 16)).reshape(TILE)


@triton.jit
def _load_halves(halves_ptr, first, limit, num_halves, TILE: tl.constexpr):
    """int16[TILE // 16]: the bits of tokens ``first`` to before ``limit``; 0 beyond."""
    half = tl.arange(0, TILE // 16)
    end = tl.minimum((limit + 15) // 16, num_halves)
    return tl.load(halves_ptr + first // 16 + half, mask=half < end - first // 16, other=0)


@triton.jit
def _spread(halves, TILE: tl.constexpr):
    """int16[TILE]: each half word, once for each of its 16 tokens. A block of 32 bytes is one."""
    return tl.broadcast_to(halves[:, None], (TILE // 16, 16)).reshape(TILE)


@triton.jit
def _all_allowed(halves_ptr, first, limit, num_halves, CHUNK: tl.constexpr):
    """Whether all tokens from ``first`` to before ``limit`` are allowed.

    The scalar unit looks at the first half word, and where a token is blocked there, that is all.
    """
    begin = first // 16
    end = (limit + 15) // 16
    allowed = False
    if (tl.load(halves_ptr + begin) == -1) & (end <= num_halves):
        half = tl.arange(0, CHUNK)
        common = tl.full((CHUNK,), -1, tl.int16)
        for at in tl.range(begin, end, CHUNK):
            common &= tl.load(halves_ptr + at + half, mask=half < end - at, other=-1)
        # As fp32: a reduction of integers ends on the scalar unit.
        allowed = tl.max(tl.abs(common.to(tl.float32) + 1.0)) == 0.0
    return allowed


@triton.jit
def _mask_tiles(
    row_ptr,
    masked_ptr,
    halves_ptr,
    num_halves,
    vocab_size,
    begin,
    end,
    bits,
    TILE: tl.constexpr,
    CHUNK: tl.constexpr,
):
    """Masks tiles [begin, end) of the row of logits at ``row_ptr``, which is ``masked_ptr`` too.

    ``num_halves``: half words of the row's bitmask; tokens beyond them are blocked. Every store
    covers a prefix of the tile: one whose mask has holes would be compiled to load, select and
    store of the whole tile, and so write lanes that other programs own.

    The order of the statements is the order of the pipes. A select holds the scalar unit until the
    vector unit is done with what is in front of it, so nothing of the next tile can be issued
    before: its logits are loaded right behind the select, the half words of the one after as well,
    and the next half words are spread in front of it, while the logits are still on their way.
    """
    lane = tl.arange(0, TILE)
    start = begin * TILE
    limit = tl.minimum(end * TILE, vocab_size)
    if not _all_allowed(halves_ptr, start, limit, num_halves, CHUNK):
        spread = _spread(_load_halves(halves_ptr, start, limit, num_halves, TILE), TILE)
        logits = tl.load(row_ptr + start + lane, mask=lane < limit - start)
        halves = _load_halves(halves_ptr, start + TILE, limit, num_halves, TILE)
        for first in tl.range(start, limit, TILE):
            # Bit 15 alone is -32768: any one bit is no 0 in fp16, as which 16 bits are compared.
            allowed = (spread & bits).to(tl.int1)
            spread = _spread(halves, TILE)
            masked = tl.where(allowed, logits, -float("inf"))
            second = first + TILE
            halves = _load_halves(halves_ptr, second + TILE, limit, num_halves, TILE)
            logits = tl.load(row_ptr + second + lane, mask=lane < limit - second)
            tl.store(masked_ptr + first + lane, masked, mask=lane < limit - first)
