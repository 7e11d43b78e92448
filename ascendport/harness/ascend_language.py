# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators
"""Functions of triton-ascend's language, written in triton's own: for devices other than an NPU.

Each works for vectors of integers, and for single elements of them. Where an index lies outside
of the vector, `get_element` gives 0 and `insert_slice` changes nothing; an NPU would read or write
whatever lies there. Imports triton.
"""

import triton
import triton.language as tl


@triton.jit
def get_element(source, place):
    """The element of a vector at ``place``, a tuple of one index."""
    tl.static_assert(len(source.shape) == 1, "a vector")
    tl.static_assert(source.dtype.is_int(), "of integers")
    lane = tl.arange(0, source.shape[0])
    return tl.sum(tl.where(lane == place[0], source, 0), 0).to(source.dtype)


@triton.jit
def insert_slice(full, part, offsets, sizes, strides):
    """The vector ``full`` with the one element of ``part`` at ``offsets``, a tuple of one index."""
    tl.static_assert(len(full.shape) == 1, "a vector")
    tl.static_assert(part.shape[0] == 1, "of one element")
    tl.static_assert(full.dtype.is_int(), "of integers")
    lane = tl.arange(0, full.shape[0])
    return tl.where(lane == offsets[0], tl.sum(part, 0).to(full.dtype), full)


STAND_INS = {"get_element": get_element, "insert_slice": insert_slice}
"""By the names that triton-ascend has for them."""
