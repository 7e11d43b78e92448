# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators
"""Kernels that scripts/fit_table.py lowers for figures whose source is in no release."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["first", "last"])
def store_one_by_one(out_ptr, first, last, value: tl.constexpr):
    """``out[first:last] = value``, an element a store."""
    for place in range(first, last):
        tl.store(out_ptr + place, value)


@triton.jit
def log_softmax_in_one_pass(
    out_ptr,
    logits_ptr,
    row_stride,
    ids_ptr,
    ids_a_row,
    columns,
    tile: tl.constexpr,
    ids: tl.constexpr,
):
    """Log-softmax of chosen tokens, a row a program, each logit read once: the sum so far is
    rescaled whenever the maximum rises."""
    row = tl.program_id(0)
    start_of_row = logits_ptr + row * row_stride
    top = float("-inf")
    total = 0.0
    for first in range(0, columns, tile):
        place = first + tl.arange(0, tile)
        value = tl.load(start_of_row + place, mask=place < columns, other=float("-inf"))
        raised = tl.maximum(top, tl.max(value))
        total = total * tl.exp(top - raised) + tl.sum(tl.exp(value - raised))
        top = raised
    number = tl.arange(0, ids)
    wanted = tl.load(ids_ptr + row * ids_a_row + number, mask=number < ids_a_row, other=0)
    chosen = tl.load(start_of_row + wanted, mask=number < ids_a_row)
    out = chosen - top - tl.log(total)
    tl.store(out_ptr + row * ids_a_row + number, out, mask=number < ids_a_row)


@triton.jit
def mark_prompt(
    tokens_ptr,
    tokens_stride,
    length,
    bits_ptr,
    bits_stride,
    tile: tl.constexpr,
    atomic: tl.constexpr,
):
    """Sets the bit of each prompt token in its row; without ``atomic`` by plain stores."""
    row = tl.program_id(0)
    place = tl.program_id(1) * tile + tl.arange(0, tile)
    inside = place < length
    token = tl.load(tokens_ptr + row * tokens_stride + place, mask=inside, other=0)
    bit = tl.full((tile,), 1, tl.int32) << (token % 32)
    word = bits_ptr + row * bits_stride + token // 32
    if atomic:
        tl.atomic_or(word, bit, mask=inside)
    else:
        tl.store(word, bit, mask=inside)
