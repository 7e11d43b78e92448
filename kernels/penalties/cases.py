"""Cases of the penalties: every combination, drafts at every position, hard vocabularies."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np

from ascendport.harness.case import Array, Case, Role, Tensor, Workload, numpy_dtype

REPETITION = (1.0, 1.3, 0.7)
FREQUENCY = (0.0, 0.6, -0.4)
PRESENCE = (0.0, 0.9, -1.1)
COMBINATIONS = tuple(product(REPETITION, FREQUENCY, PRESENCE))
"""Off, on, and on the other side of off, of each penalty with each."""

KINDS: dict[str, tuple[tuple[float, float, float], ...]] = {
    "combinations": COMBINATIONS,
    "all": ((1.2, 0.5, 0.3),),
    "none": ((1.0, 0.0, 0.0),),
    "repetition": ((1.2, 0.0, 0.0),),
    "counts": ((1.0, 0.5, 0.3),),
    # One in four requests asks for penalties, the others for none.
    "some": ((1.2, 0.5, 0.3), (1.0, 0.0, 0.0), (1.0, 0.0, 0.0), (1.0, 0.0, 0.0)),
    # No service sends these, and still nothing but these rows may show it.
    "odd": (
        (np.nan, 0.0, 0.0),
        (1.0, np.nan, 0.0),
        (1.0, 0.0, np.inf),
        (0.0, 0.5, 0.5),
        (np.inf, 0.0, 0.0),
        (-1.5, 0.0, 0.0),
        (1.5, -0.0, -0.0),
        (1.0, -0.0, 0.5),
        (1.0, 0.5, -0.0),
        (1e-40, 1e-40, 1e-40),
        (3e38, -3e38, 3e38),
    ),
}
"""(repetition, frequency, presence) of the requests, in turn."""


def _case(name: str, *tags: str, **params: Any) -> Case:
    defaults = {
        "dtype": "fp32",
        "vocab": 9001,
        "requests": 3,
        "positions": 0,
        "penalties": "all",
    }
    return Case(name, {**defaults, **params}, frozenset(tags))


CASES = (
    # Each penalty off, on and on the other side, with each; two positions a request.
    *(
        _case(
            f"combinations-{dtype}",
            penalties="combinations",
            requests=27,
            positions=1,
            vocab=4500,
            dtype=dtype,
        )
        for dtype in ("fp32", "fp16", "bf16")
    ),
    *(
        _case(f"only-{kind}-{dtype}", penalties=kind, dtype=dtype, positions=2)
        for kind in ("repetition", "counts")
        for dtype in ("fp32", "fp16", "bf16")
    ),
    # Special logits, penalties and counts.
    *(
        _case(
            f"special-values-{dtype}",
            logits="special",
            penalties="combinations",
            requests=27,
            vocab=1000,
            dtype=dtype,
        )
        for dtype in ("fp32", "fp16", "bf16")
    ),
    _case("odd-penalties", penalties="odd", requests=11, logits="special", vocab=1000),
    _case("huge-counts", counts="huge", vocab=1000),
    _case("no-history", history=0.0, positions=2),
    _case("every-token-seen", history=1.0, vocab=5000),
    # Speculative decoding: drafts count at later positions, once each.
    _case("positions-0-to-1", positions=1, requests=4),
    _case("positions-0-to-16", positions=16, requests=2, vocab=20000, dtype="bf16"),
    _case("positions-0-to-40", positions=40, requests=1, vocab=5000),
    _case("one-draft-repeated", positions=6, drafts="repeated"),
    _case("drafts-in-one-tile", positions=8, drafts="near", dtype="fp16"),
    _case("drafts-at-edges", positions=16, drafts="edges", vocab=20000),
    _case("drafts-seen-before", positions=5, drafts="seen"),
    _case("drafts-outside-the-vocabulary", positions=8, drafts="outside", requests=4),
    _case("drafts-only-repetition", positions=5, penalties="repetition", drafts="repeated"),
    _case("drafts-before-the-first-row", positions=3, layout="loose", rows=8, requests=4),
    # Every vocabulary of a served model that broke somebody's kernel.
    _case("vocab-1", vocab=1, positions=1),
    _case("vocab-31", vocab=31, requests=5, dtype="fp16"),
    _case("vocab-1000", "grid", vocab=1000, dtype="bf16"),
    _case("vocab-32001", vocab=32001, requests=2, dtype="bf16", positions=1),
    _case("vocab-50257", vocab=50257, requests=2, dtype="fp16"),
    _case("vocab-128256", vocab=128256, requests=1),
    _case("vocab-129280", vocab=129280, requests=1, dtype="bf16", positions=1),
    _case("vocab-151936", vocab=151936, requests=2, dtype="bf16"),
    _case("vocab-152064", vocab=152064, requests=1, dtype="fp16"),
    _case("vocab-262144", vocab=262144, requests=1, positions=1),
    # More tiles a row than a 64-bit word has bits.
    _case("vocab-400000", vocab=400000, requests=1, positions=8, dtype="bf16"),
    # Rows: none, one, more than cores, some without penalties, far apart.
    _case("no-rows", "grid", requests=0, others=2),
    _case("one-row", "grid", requests=1, vocab=151936),
    _case("more-rows-than-cores", "grid", requests=70, vocab=1000, dtype="fp16"),
    _case("no-penalty-set", penalties="none", positions=1, logits="special"),
    _case("some-rows-penalised", penalties="some", requests=9, positions=2, others=4),
    _case("stride-over-vocab", stride=9001 + 77, counts_stride=9001 + 13, extra_words=3),
    _case("offset-over-2-31", vocab=1000, stride=2**30 + 640, dtype="fp16"),
    _case("state-offset-over-2-31", vocab=1000, counts_stride=2**30 + 640),
    _case("more-than-65535-tiles", "grid", "large", vocab=40, requests=65537, penalties="some"),
    # Shapes of upstream's own test: few tokens and states, states that repeat, any position.
    *(
        _case(
            f"upstream-{rows}-rows-{states}-states-{positions}-drafts-{dtype}",
            layout="loose",
            penalties="combinations",
            rows=rows,
            requests=states,
            positions=positions,
            vocab=1000,
            dtype=dtype,
        )
        for rows, states, positions, dtype in (
            (1, 1, 0, "bf16"),
            (1, 4, 0, "fp16"),
            (4, 1, 1, "bf16"),
            (4, 4, 3, "fp16"),
            (4, 4, 3, "bf16"),
        )
    ),
    _case(
        "upstream-2048-rows",
        "large",
        layout="loose",
        penalties="combinations",
        rows=2048,
        requests=4,
        positions=3,
        vocab=155648,
        dtype="bf16",
    ),
    # Compiled for each SoC: the programs that serving can meet.
    *(
        _case(f"serving-{dtype}", "compile", vocab=151936, requests=1, positions=1, dtype=dtype)
        for dtype in ("fp32", "fp16", "bf16")
    ),
    # Timed: 64 rows of requests that verify up to so many drafts.
    *(
        _case(
            f"64-rows-positions-0-to-{last}",
            "bench",
            "large",
            vocab=151936,
            requests=-(-64 // (last + 1)),
            rows=64,
            positions=last,
        )
        for last in (0, 4, 16)
    ),
    _case("64-rows-bf16", "bench", "large", vocab=151936, requests=64, dtype="bf16"),
    *(
        _case(
            f"64-rows-only-{kind}",
            "bench",
            "large",
            vocab=151936,
            requests=64,
            penalties=kind,
        )
        for kind in ("repetition", "counts")
    ),
    _case("64-rows-none-set", "bench", "large", vocab=151936, requests=64, penalties="none"),
    _case("1-row", "bench", "large", vocab=151936, requests=1),
)


def _logits(kind: str, rows: int, vocab: int, dtype: str, rng: np.random.Generator) -> Array:
    values = rng.standard_normal((rows, vocab), dtype=np.float32) * 8
    if kind == "special":
        special = np.array(
            [np.nan, np.inf, -np.inf, -0.0, 0.0, 1e-40, 6e-8, 3e38, -3e38], dtype=np.float32
        )
        picks = rng.integers(0, special.size, values.shape)
        values = np.where(rng.random(values.shape) < 0.5, special[picks], values)
    with np.errstate(over="ignore"):
        logits: Array = values.astype(numpy_dtype(dtype))
    return logits


def _seen(history: float, vocab: int, rng: np.random.Generator) -> Array:
    """Some tokens, and where there is a history the first, the last and those at tile edges."""
    if history == 0:
        return np.zeros(0, dtype=np.int64)
    count = max(1, int(vocab * history))
    picks = rng.permutation(vocab)[:count] if count < vocab else np.arange(vocab)
    edges = np.arange(0, vocab, 2048)
    edges = np.concatenate([edges, np.maximum(edges - 1, 0), [vocab - 1]])
    return np.unique(np.concatenate([picks, edges[rng.random(edges.size) < 0.7]]))


def _history(params: Any, states: int, vocab: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """(prompt masks, counts) of each state: int32 (states, words) and int32 (states, vocab).

    Bits of the last word past the vocabulary are noise.
    """
    words = -(-vocab // 32)
    seen = np.zeros((states, words * 32), dtype=np.uint8)
    seen[:, vocab:] = rng.integers(0, 2, (states, words * 32 - vocab))
    counts = np.zeros((states, vocab), dtype=np.int32)
    most = 2**31 if params.get("counts") == "huge" else 10
    for state in range(states):
        share = params.get("history", 0.05)
        seen[state, _seen(share, vocab, rng)] = 1
        output = _seen(share, vocab, rng)
        counts[state, output] = rng.integers(1, most, output.size)
    packed = np.packbits(seen, axis=1, bitorder="little").view(np.int32)
    extra = params.get("extra_words", 0)
    noise = rng.integers(0, 2**32, (states, extra), dtype=np.uint32).view(np.int32)
    return np.concatenate([packed, noise], axis=1), counts


def _drafts(kind: str, counts: Array, states: Array, vocab: int, rng: np.random.Generator) -> Array:
    """One token a row."""
    rows = states.size
    if kind == "repeated":
        return np.full(rows, vocab // 2, dtype=np.int32)
    if kind == "near":
        return (vocab // 2 + rng.integers(0, 40, rows)).astype(np.int32)
    if kind == "edges":
        first = rng.integers(0, -(-vocab // 256), rows) * 256
        edges = first - rng.integers(0, 2, rows) % np.maximum(first, 1)
        return np.asarray(np.minimum(edges, vocab - 1), dtype=np.int32)
    if kind == "seen":
        return np.array(
            [rng.choice(np.flatnonzero(counts[state])) for state in states], dtype=np.int32
        )
    tokens = rng.integers(0, vocab, rows)
    if kind == "outside":
        strange = np.array([-1, -(2**31), vocab, vocab + 3, 2**31 - 1])
        tokens = np.where(rng.random(rows) < 0.6, rng.choice(strange, rows), tokens)
    return tokens.astype(np.int32)


def _rows(params: Any, states: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """(state of each row, position of each row), int32.

    Rows of a request follow one another, its positions count up from 0. ``layout`` «loose» as in
    upstream's own test: any state and any position in any row, also one that reaches back before
    the first row.
    """
    positions = params["positions"]
    if params.get("layout") == "loose":
        rows = params["rows"]
        mapping = rng.integers(0, states, rows)
        return mapping.astype(np.int32), rng.integers(0, positions + 1, rows).astype(np.int32)
    requests = rng.permutation(states)[: params["requests"]]
    mapping = np.repeat(requests, positions + 1)
    position = np.tile(np.arange(positions + 1), requests.size)
    rows = params.get("rows", mapping.size)
    return mapping[:rows].astype(np.int32), position[:rows].astype(np.int32)


def workload(case: Case, variant: str, rng: np.random.Generator) -> Workload:
    """The arguments of `apply_penalties`.

    logits (rows, vocab); expanded_idx_mapping, token_ids, expanded_local_pos int32 (rows,);
    three penalties fp32 (states,); prompt_bin_mask int32 (states, words); output_bin_counts int32
    (states, vocab).
    """
    p = case.params
    vocab, kind = p["vocab"], KINDS[p["penalties"]]
    states = p["requests"] + p.get("others", 0)
    mapping, position = _rows(p, states, rng)
    words, counts = _history(p, states, vocab, rng)
    drafts = _drafts(p.get("drafts", "random"), counts, mapping, vocab, rng)
    penalties = np.array([kind[state % len(kind)] for state in range(states)], dtype=np.float32)
    if p["penalties"] == "combinations":
        # Values other than round ones; what is off stays off.
        off = np.array([1, 0, 0], dtype=np.float32)
        jitter = 1 + 0.1 * rng.random(penalties.shape, dtype=np.float32)
        penalties = np.where(penalties == off, penalties, penalties * jitter)
    logits = _logits(p.get("logits", "normal"), mapping.size, vocab, p["dtype"], rng)
    return Workload(
        {
            "logits": Tensor(logits, Role.INOUT, row_stride=p.get("stride")),
            "expanded_idx_mapping": Tensor(mapping),
            "token_ids": Tensor(drafts),
            "expanded_local_pos": Tensor(position),
            "repetition_penalty": Tensor(penalties[:, 0].copy()),
            "frequency_penalty": Tensor(penalties[:, 1].copy()),
            "presence_penalty": Tensor(penalties[:, 2].copy()),
            "prompt_bin_mask": Tensor(words),
            "output_bin_counts": Tensor(counts, row_stride=p.get("counts_stride")),
        }
    )


def launch(entry: Any, tensors: Any, scalars: Any, variant: str) -> None:
    """The call that vllm's PenaltiesState makes."""
    entry(
        tensors["logits"],
        tensors["expanded_idx_mapping"],
        tensors["token_ids"],
        tensors["expanded_local_pos"],
        tensors["repetition_penalty"],
        tensors["frequency_penalty"],
        tensors["presence_penalty"],
        tensors["prompt_bin_mask"],
        tensors["output_bin_counts"],
    )
