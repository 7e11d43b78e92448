"""Cases of the grammar bitmask: vocabularies, mappings and masks on which kernels broke."""

from __future__ import annotations

from typing import Any

import numpy as np

from ascendport.harness.case import Array, Case, Role, Tensor, Workload, numpy_dtype

VLLM_BLOCK = 8192
"""BLOCK_SIZE and the grid's tile in vllm's call."""


def _case(name: str, *tags: str, variants: tuple[str, ...] = (), **params: Any) -> Case:
    defaults = {"dtype": "fp32", "vocab": 32001, "rows": 3, "mask": "random", "order": "shuffled"}
    return Case(name, {**defaults, **params}, frozenset(tags), variants)


PACKED = ("packed",)

CASES = (
    # Every vocabulary of a served model that broke somebody's kernel: the last word or the last
    # tile is partial in another way in each.
    _case("vocab-1000", "grid", vocab=1000),
    _case("vocab-32001", vocab=32001, dtype="bf16"),
    _case("vocab-50257", vocab=50257, dtype="fp16"),
    _case("vocab-128256", vocab=128256, dtype="bf16"),
    _case("vocab-129280", vocab=129280),
    _case("vocab-151936", vocab=151936, dtype="bf16"),
    _case("vocab-152064", vocab=152064, dtype="fp16"),
    _case("vocab-262144", vocab=262144, dtype="bf16"),
    _case("vocab-31", vocab=31, rows=5),
    # Masks that take each path, for each dtype of logits.
    *(
        _case(f"{mask}-{dtype}", mask=mask, dtype=dtype)
        for mask in ("random", "all", "none", "few", "by-tile", "edges")
        for dtype in ("fp32", "fp16", "bf16")
    ),
    _case("special-values-fp32", logits="special"),
    _case("special-values-fp16", logits="special", dtype="fp16"),
    _case("special-values-bf16", logits="special", dtype="bf16"),
    # Rows: none, one, more than cores, in another order, a few among many, far apart.
    _case("no-rows", "grid", rows=0, others=2),
    _case("one-row", "grid", rows=1, vocab=151936),
    _case("more-rows-than-cores", "grid", rows=70, vocab=1000, dtype="fp16"),
    _case("rows-in-order", order="identity"),
    _case("rows-reversed", order="reversed", dtype="bf16"),
    _case("rows-among-others", rows=4, others=5),
    _case("stride-over-vocab", stride=32001 + 77, dtype="bf16"),
    _case("bitmask-wider-than-vocab", extra_words=3),
    _case("offset-over-2-31", vocab=1000, stride=2**30 + 640, dtype="fp16"),
    _case("more-than-65535-tiles", "grid", "large", vocab=40, rows=65537),
    # Several positions a request, some dropped by adaptive verification.
    _case("positions-1-to-5", variants=PACKED, positions=5, rows=6),
    _case("positions-dropped", variants=PACKED, positions=5, rows=6, dropped=True, dtype="bf16"),
    # Compiled for each SoC: three rows are enough work for the programs that serving compiles.
    *(
        _case(f"serving-{dtype}", "compile", vocab=151936, dtype=dtype)
        for dtype in ("fp32", "fp16", "bf16")
    ),
    # Timed.
    _case("64-rows-fp32", "bench", "large", vocab=151936, rows=64),
    _case("64-rows-bf16", "bench", "large", vocab=151936, rows=64, dtype="bf16"),
    _case("64-rows-bf16-all", "bench", "large", vocab=151936, rows=64, dtype="bf16", mask="all"),
    _case("64-rows-bf16-few", "bench", "large", vocab=151936, rows=64, dtype="bf16", mask="few"),
    _case("1-row-bf16", "bench", "grid", vocab=151936, rows=1, dtype="bf16"),
    # The shape of upstream's own test: many masks, 16 requests of up to 8 positions, some of them
    # past the request's rows; words all allowed, all blocked and mixed side by side.
    _case(
        "upstream-16-requests",
        "large",
        variants=PACKED,
        vocab=151936,
        rows=16,
        positions=8,
        dropped=True,
        mask="by-tile",
        dtype="bf16",
    ),
)


def _words(mask: str, rows: int, vocab: int, rng: np.random.Generator) -> Array:
    """Packed masks, int32 (rows, words); bits past the vocabulary are noise."""
    words = -(-vocab // 32)
    noise = rng.integers(0, 2**32, (rows, words), dtype=np.uint32)
    if mask == "all":
        return np.full_like(noise, 2**32 - 1).view(np.int32)
    if mask == "random":
        return noise.view(np.int32)
    allowed = np.zeros((rows, words * 32), dtype=np.uint8)
    if mask == "few":
        for row in allowed:
            row[rng.integers(0, vocab, 20)] = 1
    elif mask == "by-tile":
        # Each stretch of 1024 tokens all allowed, all blocked or mixed.
        for row in allowed:
            for first in range(0, words * 32, 1024):
                kind = rng.integers(0, 3)
                part = row[first : first + 1024]
                part[:] = kind if kind < 2 else rng.integers(0, 2, part.size)
    elif mask == "edges":
        # The first and last token, and both sides of each edge of a word or tile.
        for step in (32, 1024, VLLM_BLOCK):
            allowed[:, ::step] = 1
            allowed[:, step - 1 :: step] = 1
        allowed[:, vocab - 1] = 1
    elif mask != "none":
        raise ValueError(f"no such mask: {mask}")
    packed = np.packbits(allowed, axis=1, bitorder="little").view(np.uint32)
    tail = vocab % 32
    if tail:
        unused = np.uint32(2**32 - 2**tail)
        packed[:, -1] = (packed[:, -1] & ~unused) | (noise[:, -1] & unused)
    return packed.view(np.int32)


def _logits(kind: str, rows: int, vocab: int, dtype: str, rng: np.random.Generator) -> Array:
    values = rng.standard_normal((rows, vocab), dtype=np.float32) * 8
    if kind == "special":
        special = np.array([np.nan, np.inf, -np.inf, -0.0, 0.0, 1e-40, 6e-8], dtype=np.float32)
        picks = rng.integers(0, special.size, values.shape)
        values = np.where(rng.random(values.shape) < 0.5, special[picks], values)
    return values.astype(numpy_dtype(dtype))


def _packed_rows(
    rows: int, positions: int, dropped: bool, order: str, rng: np.random.Generator
) -> tuple[Array, Array, int]:
    """(mapping, cu_num_logits, rows of logits) for ``rows`` requests of up to ``positions``."""
    lengths = rng.integers(1, positions + 1, rows) if positions > 1 else np.ones(rows, np.int64)
    cumulative = np.zeros(rows + 1, dtype=np.int32)
    kept = np.maximum(1, lengths - rng.integers(0, 3, rows)) if dropped else lengths
    cumulative[1:] = np.cumsum(kept)
    requests = _order(order, rows, rng)
    mapping = [request * positions + at for request in requests for at in range(lengths[request])]
    return np.array(mapping, dtype=np.int32), cumulative, int(cumulative[-1])


def _order(order: str, rows: int, rng: np.random.Generator) -> Array:
    if order == "identity":
        return np.arange(rows)
    if order == "reversed":
        return np.arange(rows)[::-1].copy()
    return rng.permutation(rows)


def workload(case: Case, variant: str, rng: np.random.Generator) -> Workload:
    """Logits (rows, vocab), bitmasks int32 (masks, words) and the mapping from mask to row."""
    p = case.params
    rows, vocab, others = p["rows"], p["vocab"], p.get("others", 0)
    tensors: dict[str, Tensor] = {}
    scalars: dict[str, int | float | bool] = {"vocab_size": vocab}
    if variant == "packed":
        positions = p.get("positions", 1)
        # The other rows are requests that no mask names.
        mapping, cumulative, logits_rows = _packed_rows(
            rows + others, positions, p.get("dropped", False), p["order"], rng
        )
        mapping = mapping[: rows * positions] if others else mapping
        tensors["cu_num_logits"] = Tensor(cumulative)
        scalars["mask_stride"] = positions
    else:
        logits_rows = rows + others
        mapping = _order(p["order"], logits_rows, rng)[:rows].astype(np.int32)
    words = _words(p["mask"], len(mapping), vocab, rng)
    extra = p.get("extra_words", 0)
    if extra:
        noise = rng.integers(0, 2**32, (len(mapping), extra), dtype=np.uint32).view(np.int32)
        words = np.concatenate([words, noise], axis=1)
    logits = _logits(p.get("logits", "normal"), logits_rows, vocab, p["dtype"], rng)
    tensors["logits"] = Tensor(logits, Role.INOUT, row_stride=p.get("stride"))
    tensors["logits_indices"] = Tensor(mapping)
    tensors["bitmask"] = Tensor(words)
    return Workload(tensors, scalars)


def launch(entry: Any, tensors: Any, scalars: Any, variant: str) -> None:
    """The call that vllm's StructuredOutputsWorker makes."""
    logits, bitmask = tensors["logits"], tensors["bitmask"]
    vocab = scalars["vocab_size"]
    grid = (bitmask.shape[0], -(-vocab // VLLM_BLOCK))
    kernel = entry[grid]
    if variant == "packed":
        kernel(
            logits,
            logits.stride(0),
            tensors["logits_indices"],
            tensors["cu_num_logits"],
            bitmask,
            bitmask.stride(0),
            vocab,
            MASK_STRIDE=scalars["mask_stride"],
            BLOCK_SIZE=VLLM_BLOCK,
        )
    else:
        kernel(
            logits,
            logits.stride(0),
            tensors["logits_indices"],
            bitmask,
            bitmask.stride(0),
            vocab,
            BLOCK_SIZE=VLLM_BLOCK,
        )
