# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators
"""Kernels of the tests' own, each with one trait that its program must show.

Loaded by the fixtures alone: it imports triton.
"""

import triton
import triton.language as tl


@triton.jit
def add_one(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    tl.store(y_ptr + offsets, tl.load(x_ptr + offsets, mask=inside, other=0.0) + 1.0, mask=inside)


@triton.jit
def keep_positive(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets)
    tl.store(y_ptr + offsets, x, mask=(x > 0.0) & (offsets < n))


@triton.jit
def select_prefix(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    inside = offsets < n
    x = tl.load(x_ptr + offsets, mask=inside, other=0.0)
    old = tl.load(y_ptr + offsets, mask=inside, other=0.0)
    tl.store(y_ptr + offsets, tl.where(x > 0.0, x, old), mask=inside)


@triton.jit
def shift_right(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets)
    tl.store(y_ptr + offsets, x >> (offsets & 31))


@triton.jit
def shift_rows(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    rows = tl.arange(0, BLOCK)
    columns = tl.arange(0, 32)
    for _ in range(3):
        x = tl.load(x_ptr + rows)
        bits = x[:, None] >> columns[None, :]
        tl.store(y_ptr + rows[:, None] * 32 + columns[None, :], bits)


@triton.jit
def histogram(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, BLOCK))
    tl.store(y_ptr + tl.arange(0, 64), tl.histogram(x, 64))


@triton.jit
def add_tile(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.atomic_add(y_ptr + offsets, tl.load(x_ptr + offsets))


@triton.jit
def scatter_or(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.atomic_or(y_ptr + tl.load(x_ptr + offsets), offsets)


@triton.jit
def repeated_square(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets)
    left = n
    while left > 0:
        x = x * x + left
        left = left // 2
    tl.store(y_ptr + offsets, x)


@triton.jit
def matrix_square(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :]
    x = tl.load(x_ptr + offsets)
    tl.store(y_ptr + offsets, tl.dot(x, x))


@triton.jit
def stream(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    for start in range(0, n, BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        inside = offsets < n
        x = tl.load(x_ptr + offsets, mask=inside, other=0.0)
        tl.store(y_ptr + offsets, x + 1.0, mask=inside)


@triton.jit
def unknown_name(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(y_ptr + offsets, missing)  # type: ignore[name-defined]  # noqa: F821


@triton.jit
def newer_function(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    tl.store(y_ptr, tl.not_in_this_version(n))


@triton.jit
def newer_argument(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets)
    tl.store(y_ptr + tl.arange(0, 64), tl.histogram(x, 64, mask=offsets < n))


@triton.jit
def first_maximum(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    tl.store(y_ptr, tl.argmax(tl.load(x_ptr + tl.arange(0, BLOCK)), 0))
