# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators
"""Both sides of each piece of advice: ``<name>_loop`` has a scalar loop, ``<name>`` has none.

Loaded by the tests alone: it imports triton.
"""

import triton
import triton.language as tl


@triton.jit
def shift_loop(x_ptr, y_ptr, z_ptr, BLOCK: tl.constexpr):
    lane = tl.arange(0, BLOCK)
    tl.store(z_ptr + lane, tl.load(x_ptr + lane) >> tl.load(y_ptr + lane))


@triton.jit
def shift(x_ptr, y_ptr, z_ptr, BLOCK: tl.constexpr):
    lane = tl.arange(0, BLOCK)
    tl.store(z_ptr + lane, tl.load(x_ptr + lane) >> 5)


@triton.jit
def bits(x_ptr, y_ptr, z_ptr, BLOCK: tl.constexpr):
    lane = tl.arange(0, BLOCK)
    tl.store(z_ptr + lane, ((tl.load(x_ptr + lane) & tl.load(y_ptr + lane)) != 0).to(tl.int32))


@triton.jit
def wide_loop(x_ptr, y_ptr, z_ptr, BLOCK: tl.constexpr):
    lane = tl.arange(0, BLOCK)
    tl.store(z_ptr + lane, tl.load(x_ptr + lane).to(tl.int64) + tl.load(y_ptr + lane))


@triton.jit
def wide(x_ptr, y_ptr, z_ptr, BLOCK: tl.constexpr):
    lane = tl.arange(0, BLOCK)
    tl.store(z_ptr + lane, (tl.load(x_ptr + lane) + tl.load(y_ptr + lane)).to(tl.int64))


@triton.jit
def remainder_loop(x_ptr, y_ptr, z_ptr, BLOCK: tl.constexpr):
    lane = tl.arange(0, BLOCK)
    tl.store(z_ptr + lane, tl.load(x_ptr + lane) % tl.load(y_ptr + lane))


@triton.jit
def remainder(x_ptr, y_ptr, z_ptr, BLOCK: tl.constexpr):
    lane = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + lane)
    y = tl.load(y_ptr + lane)
    tl.store(z_ptr + lane, x - x // y * y)


@triton.jit
def remainder_of_two(x_ptr, y_ptr, z_ptr, BLOCK: tl.constexpr):
    lane = tl.arange(0, BLOCK)
    tl.store(z_ptr + lane, tl.load(x_ptr + lane) & 31)


@triton.jit
def short_loop(x_ptr, y_ptr, z_ptr, BLOCK: tl.constexpr):
    lane = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + lane).to(tl.int16)
    y = tl.load(y_ptr + lane).to(tl.int16)
    tl.store(z_ptr + lane, tl.where(x < y, x, y).to(tl.int32))


@triton.jit
def short(x_ptr, y_ptr, z_ptr, BLOCK: tl.constexpr):
    lane = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + lane)
    y = tl.load(y_ptr + lane)
    tl.store(z_ptr + lane, tl.where(x < y, x, y).to(tl.int16).to(tl.int32))


@triton.jit
def index_loop(x_ptr, y_ptr, z_ptr, BLOCK: tl.constexpr):
    lane = tl.arange(0, BLOCK)
    tl.store(z_ptr + lane, lane + tl.argmax(tl.load(x_ptr + lane), 0))


@triton.jit
def index(x_ptr, y_ptr, z_ptr, BLOCK: tl.constexpr):
    lane = tl.arange(0, BLOCK)
    tl.store(z_ptr + lane, lane + tl.argmax(tl.load(x_ptr + lane).to(tl.float32), 0))


@triton.jit
def running_loop(x_ptr, y_ptr, z_ptr, BLOCK: tl.constexpr):
    lane = tl.arange(0, BLOCK)
    tl.store(z_ptr + lane, tl.cumsum(tl.load(x_ptr + lane), 0))


@triton.jit
def running(x_ptr, y_ptr, z_ptr, BLOCK: tl.constexpr):
    lane = tl.arange(0, BLOCK)
    tl.store(z_ptr + lane, lane + tl.sum(tl.load(x_ptr + lane), 0))
