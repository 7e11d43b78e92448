# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators
"""One kernel with two tiles: one fits the Unified Buffer of every part, the other of none.

Imported only where kernels are compiled.
"""

import triton
import triton.language as tl

FITS = 1024
"""A tile of 4 KiB fp32."""
OVERFLOWS = 65536
"""A tile of 256 KiB fp32: more than 192 or 248 KiB, however it is planned."""


@triton.jit
def canary(out_ptr, in_ptr, BLOCK: tl.constexpr):  # noqa: N803
    offsets = tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, tl.load(in_ptr + offsets))
