"""Cases of bincount: lengths, ids and mappings on which kernels broke, and serving's shapes."""

from __future__ import annotations

from typing import Any

import numpy as np

from ascendport.harness.case import Array, Case, Role, Tensor, Workload

KERNEL = "_bincount_kernel"
"""Upstream's test of the operator launches the kernel itself; it adds to what is there."""
BLOCK = 1024
"""BLOCK_SIZE of upstream's launches."""


def _case(name: str, *tags: str, entry: str = "", **params: Any) -> Case:
    defaults = {"vocab": 32001, "rows": 3, "others": 2, "lengths": "mixed", "ids": "mixed"}
    return Case(name, {**defaults, **params}, frozenset(tags), entry=entry)


CASES = (
    # The last word, the last span and the last tile are partial in another way in each.
    _case("vocab-1000", "grid", vocab=1000),
    _case("vocab-32001"),
    _case("vocab-50257", vocab=50257),
    _case("vocab-128256", vocab=128256),
    _case("vocab-129280", vocab=129280),
    _case("vocab-151936", "grid", vocab=151936),
    _case("vocab-152064", vocab=152064),
    _case("vocab-262144", vocab=262144),
    _case("vocab-31", vocab=31),
    _case("vocab-300001", vocab=300001),
    # Lengths: (prompt, prefill) of each request in turn.
    _case("no-prompt", lengths=((0, 0), (0, 1), (0, 300))),
    _case("prompt-only", lengths=((1, 1), (300, 300), (1024, 1024))),
    _case("lengths-at-blocks", lengths=((1023, 1024), (1024, 1025), (1025, 1026))),
    _case("one-long-prompt", rows=1, lengths=((2500, 2510),)),
    _case("long-output", rows=1, vocab=1000, lengths=((5, 2100),)),
    # vllm never asks for these; vllm-core says what they give.
    _case("prompt-past-the-prefill", lengths=((5, 3), (7, 0), (1500, 900), (2, 9))),
    _case("shorter-than-said", lengths=((1500, 1600), (40, 3000)), max_prefill_len=1000),
    _case("nothing-to-look-at", lengths=((5, 9),), max_prefill_len=0),
    # Ids: one token many times, both sides of every edge, and ids that are none.
    _case("one-token", ids="one"),
    _case("ids-at-edges", ids="edges", vocab=151936, lengths=((200, 400),)),
    _case("ids-at-edges-32001", ids="edges", lengths=((150, 300),)),
    _case(
        "ids-out-of-range",
        ids="invalid",
        vocab=1024,
        mask_stride=32 + 16,
        counts_stride=1024 + 512,
    ),
    # Requests: none, one, in any order, named more than once, more than cores.
    _case("no-rows", "grid", rows=0),
    _case("one-row", "grid", rows=1, vocab=151936, lengths=((700, 750),)),
    _case("rows-in-order", order="identity"),
    _case("rows-reversed", order="reversed"),
    _case("requests-named-twice", mapping=(2, 0, 2, 2, 1, 0)),
    _case("one-request-named-twice", rows=1, mapping=(1, 1), lengths=((400, 500),)),
    _case("more-rows-than-cores", "grid", rows=70, vocab=1000, lengths=((9, 12), (40, 40))),
    _case("named-across-tiles", "large", rows=1100, vocab=100, lengths=((2, 3),), again=1090),
    _case("4096-rows", "grid", "large", rows=4096, vocab=1000, lengths=((3, 5),)),
    # Rows that lie apart.
    _case("strides-over-columns", token_stride=640, mask_stride=1013, counts_stride=32100),
    # The last of three begins past 2**31 elements.
    _case("tokens-past-2-31", vocab=1000, others=0, token_stride=2**30 + 640),
    _case("mask-past-2-31", vocab=1000, others=0, mask_stride=2**30 + 640),
    _case("counts-past-2-31", vocab=1000, others=0, counts_stride=2**30 + 640),
    # The kernel by its name: the shape of upstream's own test, and rows that hold something.
    _case(
        "upstreams-test",
        entry=KERNEL,
        vocab=151936,
        rows=1,
        others=63,
        columns=40960,
        lengths="short",
        ids="small",
        zeroed=True,
    ),
    _case("kernel-adds", entry=KERNEL, vocab=1000, lengths=((1100, 1200), (40, 90))),
    _case("kernel-adds-to-many", entry=KERNEL, vocab=1000, rows=50, lengths=((30, 40),)),
    # Compiled for each SoC: prompts in one part, and in several.
    _case("serving-short", "compile", vocab=151936, rows=1, lengths=((50, 60),)),
    _case("serving-long", "compile", vocab=151936, rows=4, lengths=((1000, 1020),)),
    # Timed.
    *(
        _case(name, "bench", "large", vocab=151936, rows=rows, others=0, lengths=((prompt, all_),))
        for name, rows, prompt, all_ in (
            ("8-rows-4096-1024", 8, 4096, 5120),
            ("1-row-32768", 1, 32768, 32768),
            ("64-rows-1024-256", 64, 1024, 1280),
            ("1-row-1024", 1, 1024, 1024),
        )
    ),
)


def _lengths(kind: Any, requests: int, rng: np.random.Generator) -> Array:
    """(prompt, prefill) of each request, int32 (requests, 2)."""
    if kind == "short":
        # Drawn apart from each other, so that a prompt may be longer than the prefill.
        return rng.integers(0, 10, (requests, 2), dtype=np.int32)
    if kind == "mixed":
        prompt = rng.integers(0, 300, requests)
        return np.stack([prompt, prompt + rng.integers(0, 40, requests)], axis=1).astype(np.int32)
    repeats = -(-requests // len(kind))
    return np.tile(np.array(kind, dtype=np.int32), (repeats, 1))[:requests]


def _edges(vocab: int) -> Array:
    """Both sides of each edge of a word, of a span and of a tile."""
    steps = (32, 1024, 3840, 4096, 7680, 16384, 30464, 32768)
    at = np.concatenate([np.arange(0, vocab + step, step) for step in steps])
    near = np.concatenate([at - 1, at, [vocab - 1, vocab - 2]])
    return np.unique(near[(near >= 0) & (near < vocab)])


def _ids(kind: str, shape: tuple[int, int], vocab: int, rng: np.random.Generator) -> Array:
    if kind == "one":
        return np.full(shape, rng.integers(0, vocab), dtype=np.int32)
    if kind == "small":
        return rng.integers(0, min(10, vocab), shape, dtype=np.int32)
    ids = rng.integers(0, vocab, shape, dtype=np.int32)
    if kind == "edges":
        return rng.choice(_edges(vocab), shape).astype(np.int32)
    # A third of the ids from a few, so that they repeat.
    few = rng.integers(0, vocab, 7, dtype=np.int32)
    ids = np.where(rng.random(shape) < 0.3, rng.choice(few, shape), ids)
    if kind == "invalid":
        none = rng.choice(np.array([-1, vocab, vocab + 1, vocab + 511], np.int32), shape)
        ids = np.where(rng.random(shape) < 0.3, none, ids)
    return ids.astype(np.int32)


def _mapping(params: Any, requests: int, rng: np.random.Generator) -> Array:
    """The requests to look at, int32 (rows,)."""
    order, rows = params.get("order", "shuffled"), params["rows"]
    if "mapping" in params:
        return np.array(params["mapping"], dtype=np.int32)
    picked = rng.permutation(requests)[:rows] if order == "shuffled" else np.arange(rows)
    if order == "reversed":
        picked = picked[::-1]
    if "again" in params:
        picked = np.concatenate([picked[: params["again"]], picked[: rows - params["again"]]])
    return picked.astype(np.int32)


def workload(case: Case, variant: str, rng: np.random.Generator) -> Workload:
    """Tokens int32 (requests, columns), lengths int32 (requests,), the mapping int32 (rows,), and
    what there is before: bitmasks int32 (requests, words), counts int32 (requests, vocab)."""
    p = case.params
    vocab, requests = p["vocab"], p["rows"] + p["others"]
    lengths = _lengths(p["lengths"], requests, rng)
    longest = int(lengths.max(initial=1))
    columns = p.get("columns", longest + int(rng.integers(0, 9)))
    mapping = _mapping(p, requests, rng)
    words = -(-vocab // 32)
    shape = (requests, words), (requests, vocab)
    if p.get("zeroed"):
        mask, counts = (np.zeros(s, np.int32) for s in shape)
    else:
        mask = rng.integers(0, 2**32, shape[0], dtype=np.uint32).view(np.int32)
        counts = rng.integers(0, 1000, shape[1], dtype=np.int32)
    tensors = {
        "expanded_idx_mapping": Tensor(mapping),
        "all_token_ids": Tensor(
            _ids(p["ids"], (requests, columns), vocab, rng), row_stride=p.get("token_stride")
        ),
        "prompt_len": Tensor(lengths[:, 0].copy()),
        "prefill_len": Tensor(lengths[:, 1].copy()),
        "prompt_bin_mask": Tensor(mask, Role.INOUT, row_stride=p.get("mask_stride")),
        "output_bin_counts": Tensor(counts, Role.INOUT, row_stride=p.get("counts_stride")),
    }
    most = int(lengths[mapping, 1].max(initial=0))
    scalars = {
        "max_prefill_len": p.get("max_prefill_len", 10 if p["lengths"] == "short" else most),
        "adds": case.entry == KERNEL,
    }
    return Workload(tensors, scalars)


def launch(entry: Any, tensors: Any, scalars: Any, variant: str) -> None:
    """The call that vllm's PenaltiesState makes, or the launch that upstream's test makes."""
    mapping, tokens = tensors["expanded_idx_mapping"], tensors["all_token_ids"]
    mask, counts = tensors["prompt_bin_mask"], tensors["output_bin_counts"]
    lengths = tensors["prompt_len"], tensors["prefill_len"]
    longest = scalars["max_prefill_len"]
    if scalars["adds"]:
        kernel = entry[(mapping.shape[0], -(-longest // BLOCK))]
        kernel(
            mapping,
            tokens,
            tokens.stride(0),
            *lengths,
            mask,
            mask.stride(0),
            counts,
            counts.stride(0),
            BLOCK_SIZE=BLOCK,
        )
    else:
        entry(mapping, tokens, *lengths, mask, counts, longest)
