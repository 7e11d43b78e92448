"""Cases of the log-probabilities: hard vocabularies, special values, ids, and how many are asked.

Two entries are called: compute_token_logprobs with ids of the caller's, and what vllm calls
(compute_topk_logprobs or compute_topk_scores, by release); and a kernel that upstream's test
launches by its name.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from ascendport.harness.case import Array, Case, Role, Tensor, Workload, numpy_dtype

ATOL, RTOL = 1e-5, 2e-7
"""1e-5, and of large values two units in the last place of fp32."""

MAX_OWN_IDS = 24
"""Columns of the requests' own ids; vllm has 128."""

TOKEN, TOPK = "compute_token_logprobs", "compute_topk_logprobs"
KERNEL = "_topk_log_softmax_kernel"
"""Upstream's test of it launches the kernel itself."""
SCORES = ("topk-scores",)
DTYPES = ("fp32", "fp16", "bf16")


CONTESTED = {
    "test_compute_topk_logprobs": "it counts the logits above the sampled one, so that the top "
    "token has rank 0; vllm-core counts those at least as high, and so does the port",
}
"""Tests of upstream's that pass before and not after."""


OUTSIDE = "it reads the logits where an id that the vocabulary has not leads"


def _case(
    name: str,
    *tags: str,
    entry: str = "",
    variants: tuple[str, ...] = (),
    undefined: str = "",
    **params: Any,
) -> Case:
    defaults = {
        "dtype": "fp32",
        "vocab": 9001,
        "rows": 3,
        "num": 5,
        "logits": "normal",
        "ids": "sampled",
        "token": entry in (TOKEN, KERNEL),
    }
    return Case(name, {**defaults, **params}, frozenset(tags), variants, entry, undefined)


def _bench(name: str, rows: int, dtype: str = "fp32", ids: str = "sampled") -> tuple[Case, ...]:
    """A row of the latency table. Before and after have one name in common."""
    params = {"vocab": 151936, "rows": rows, "dtype": dtype, "ids": ids}
    return (_case(name, "bench", "large", entry=TOPK, **params),)


CASES = (
    # Vocabularies of served models: the last span is partial in another way in each.
    _case("vocab-1000", "grid", vocab=1000),
    _case("vocab-32001", vocab=32001, dtype="bf16"),
    _case("vocab-50257", vocab=50257, dtype="fp16"),
    _case("vocab-128256", vocab=128256, dtype="bf16"),
    _case("vocab-129280", vocab=129280, rows=2),
    _case("vocab-151936", "grid", vocab=151936),
    _case("vocab-152064", vocab=152064, dtype="fp16", rows=2),
    _case("vocab-262144", vocab=262144, dtype="bf16", rows=2),
    _case("vocab-4096", vocab=4096),
    _case("vocab-4097", vocab=4097),
    _case("vocab-31", vocab=31, rows=5),
    # Values that sums of exponentials and counts trip over, for each dtype.
    *(
        _case(f"{kind}-{dtype}", logits=kind, dtype=dtype, num=0, ids="any", rows=6)
        for kind in ("ties", "equal", "zeros", "masked", "minus-inf-tiles", "special")
        for dtype in DTYPES
    ),
    _case("row-all-minus-inf", logits="minus-inf-row", num=0, rows=4),
    _case("row-with-nan", logits="nan-row", num=0, rows=4),
    _case("row-with-plus-inf", logits="plus-inf-row", num=0, rows=4),
    _case("spread-over-400", logits="wide", ids="lowest", rows=4),
    _case("spread-over-400-top", logits="wide", ids="top", rows=4),
    _case("around-1000", logits="high", rows=4),
    _case("chosen-is-top", ids="top"),
    _case("chosen-is-lowest", ids="lowest", dtype="bf16"),
    # How many are asked for.
    *(_case(f"num-{num}", "grid", num=num, rows=2) for num in (0, 1, 2, 32, 33, 64, 65)),
    _case("num-1025", num=1025, rows=2),
    _case("num-is-vocab", num=31, vocab=31),
    # Rows: none, more than cores, more than fit one round, apart.
    _case("no-rows", "grid", rows=0),
    _case("no-rows-num-0", rows=0, num=0),
    _case("one-row", "grid", rows=1, vocab=151936),
    _case("40-rows", "grid", rows=40, vocab=1000),
    _case("70-rows", "grid", rows=70, vocab=5000, dtype="fp16"),
    _case("4096-rows", "grid", "large", rows=4096, vocab=300, num=1),
    _case("stride-over-vocab", stride=9001 + 77, dtype="bf16"),
    _case("offset-over-2-31", vocab=1000, stride=2**30 + 640, dtype="fp16"),
    # Ids that there are not.
    _case("sampled-outside", ids="outside", rows=6, undefined=OUTSIDE),
    _case("token-ids-outside", entry=TOKEN, ids="outside", rows=6, num=9, undefined=OUTSIDE),
    # compute_token_logprobs itself: what upstream's tests try, and the numbers around a chunk.
    *(
        _case(f"token-ids-{num}", entry=TOKEN, num=num, ids="any", vocab=vocab)
        for num, vocab in ((1, 32000), (2, 50257), (5, 9001), (8, 9001), (9, 65024), (64, 9001))
    ),
    _case("token-ids-1025", entry=TOKEN, num=1025, ids="any", rows=2),
    *(
        _case(f"token-ids-{dtype}", entry=TOKEN, num=10, ids="any", vocab=32000, dtype=dtype)
        for dtype in DTYPES
    ),
    _case("token-ids-extremes", entry=TOKEN, num=5, ids="first", logits="extremes", rows=4),
    _case("token-ids-masked", entry=TOKEN, num=5, ids="any", logits="masked", rows=4),
    _case("token-ids-no-rows", entry=TOKEN, rows=0),
    # The other shapes of upstream's tests, in our words: one id of one row, many rows, the
    # vocabularies of served models, random ids beside the likeliest, the kernel by its name.
    *(
        _case(
            f"token-ids-upstream-{rows}-rows-{vocab}-{num}",
            entry=TOKEN,
            rows=rows,
            vocab=vocab,
            num=num,
            ids="any",
        )
        for rows, vocab, num in (
            (1, 151936, 1),
            (16, 32000, 10),
            (32, 50257, 5),
            (2, 128256, 20),
            (3, 151936, 32),
        )
    ),
    *(
        _case(f"upstream-{rows}-rows-{vocab}-{num}", rows=rows, vocab=vocab, num=num, ids="any")
        for rows, vocab, num in ((48, 1024, 5), (96, 1024, 0), (24, 1519, 1), (1, 320, 10))
    ),
    *(
        _case(
            f"kernel-by-name-{num}",
            entry=KERNEL,
            undefined="its kernel of that name takes other arguments since vllm 0.25",
            rows=rows,
            vocab=vocab,
            num=num,
            ids="any",
        )
        for rows, vocab, num in ((4, 102400, 50), (9, 102400, 1), (2, 151936, 8))
    ),
    # Requests with ids of their own beside others.
    _case("own-ids", custom=True, rows=7, num=5),
    _case("own-ids-num-0", custom=True, rows=5, num=0),
    _case("own-ids-num-70", custom=True, rows=4, num=70, dtype="bf16"),
    _case("own-ids-no-rows", custom=True, rows=0),
    # Logits instead of log-probabilities.
    _case("logits-mode", variants=SCORES, mode="logits", ids="any"),
    _case(
        "logits-mode-bf16", variants=SCORES, mode="logits", dtype="bf16", logits="special", num=0
    ),
    _case("logits-mode-own-ids", variants=SCORES, mode="logits", custom=True, rows=5),
    _case(
        "logits-mode-outside",
        variants=SCORES,
        mode="logits",
        ids="outside",
        rows=6,
        undefined=OUTSIDE,
    ),
    # Compiled for each SoC: the programs that serving meets.
    *(_case(f"serving-{dtype}", "compile", vocab=151936, dtype=dtype) for dtype in DTYPES),
    *(
        _case(f"serving-own-ids-{dtype}", "compile", "large", custom=True, vocab=32001, dtype=dtype)
        for dtype in DTYPES
    ),
    *(
        _case(f"serving-token-ids-{dtype}", "compile", "large", entry=TOKEN, dtype=dtype)
        for dtype in DTYPES
    ),
    *(
        _case(
            f"serving-logits-mode-{dtype}",
            "compile",
            "large",
            variants=SCORES,
            mode="logits",
            dtype=dtype,
        )
        for dtype in DTYPES
    ),
    # Timed.
    *_bench("1-row", 1),
    *_bench("8-rows", 8),
    *_bench("64-rows", 64),
    *_bench("64-rows-bf16", 64, "bf16"),
    *_bench("1024-rows", 1024),
    _case("1-row-token-ids", "bench", "large", entry=TOKEN, vocab=151936, rows=1, num=6),
    _case("64-rows-token-ids", "bench", "large", entry=TOKEN, vocab=151936, rows=64, num=6),
)


def _logits(kind: str, rows: int, vocab: int, dtype: str, rng: np.random.Generator) -> Array:
    values = rng.standard_normal((rows, vocab), dtype=np.float32) * 4
    if kind == "ties":
        values = np.round(values / 2)
    elif kind == "equal":
        values[:] = 0.5
    elif kind == "zeros":
        values = np.where(rng.random(values.shape) < 0.7, np.copysign(0.0, values), values)
    elif kind == "masked":
        # As after top-k: few tokens are left, in some rows one.
        values[rng.random(values.shape) > 40 / vocab] = -np.inf
        values[:, rng.integers(0, vocab)] = 1.5
    elif kind == "minus-inf-tiles":
        for first in range(0, vocab, 1024):
            values[rng.random(rows) < 0.5, first : first + 1024] = -np.inf
        values[:, vocab - 1] = 0.25
    elif kind == "special":
        odd = np.array([np.inf, -np.inf, np.nan, -0.0, 0.0, 1e-40, -1e-40, 6e-8], np.float32)
        share = np.array([0.0, 0.3, 0.0, 0.2, 0.2, 0.1, 0.1, 0.1])
        for row in range(rows):
            # NaN or +inf in every third row only: there all else is NaN too.
            share[0], share[2] = (1e-3, 0.0) if row % 3 == 1 else (0.0, 1e-3 * (row % 3 == 2))
            picks = rng.choice(odd.size, vocab, p=share / share.sum())
            values[row] = np.where(rng.random(vocab) < 0.5, odd[picks], values[row])
    elif kind in ("minus-inf-row", "nan-row", "plus-inf-row"):
        if kind == "minus-inf-row":
            values[1] = -np.inf
        else:
            values[1, vocab // 2] = np.nan if kind == "nan-row" else np.inf
    elif kind == "wide":
        values *= 25
    elif kind == "high":
        values += np.float32(1000) * np.where(np.arange(rows) % 2, -1, 1)[:, None]
    elif kind == "extremes":
        values[0, 0], values[1, 0] = 100.0, -100.0
        values[2], values[3] = 0.0, 1.0
    elif kind != "normal":
        raise ValueError(f"no such logits: {kind}")
    return values.astype(numpy_dtype(dtype))


def _ids(kind: str, logits: Array, columns: int, rng: np.random.Generator) -> Array:
    """int64 (rows, columns)."""
    rows, vocab = logits.shape
    ids = rng.integers(0, vocab, (rows, columns))
    if rows == 0 or columns == 0:
        return ids
    wide = logits.astype(np.float64)
    if kind == "sampled":
        # A draw from the softmax: the largest after Gumbel noise.
        ids[:, 0] = np.argmax(np.nan_to_num(wide) + rng.gumbel(size=wide.shape), axis=1)
    elif kind == "top":
        ids[:, 0] = np.argmax(wide, axis=1)
    elif kind == "lowest":
        ids[:, 0] = np.argmin(wide, axis=1)
    elif kind == "first":
        ids[:, 0] = 0
    elif kind == "outside":
        odd = np.array([-1, vocab, vocab + 12345, -(2**31)])
        for row in range(0, rows, 2):
            ids[row, (row // 2) % columns] = odd[(row // 2) % odd.size]
    elif kind != "any":
        raise ValueError(f"no such ids: {kind}")
    return ids


def workload(case: Case, variant: str, rng: np.random.Generator) -> Workload:
    """Logits (rows, vocab), ids, and room for what comes back.

    ``scores`` fp32 (rows, columns). ``chosen`` fp32: the logits of the token ids that came back,
    which do not depend on the order of ties.
    """
    p = case.params
    rows, vocab, num = p["rows"], p["vocab"], p["num"]
    logits = _logits(p["logits"], rows, vocab, p["dtype"], rng)
    tensors = {"logits": Tensor(logits, row_stride=p.get("stride"))}
    scalars: dict[str, int | float | bool] = {}
    if p["token"]:
        columns = num
        scalars["by_name"] = case.entry == KERNEL
        tensors["token_ids"] = Tensor(_ids(p["ids"], logits, num, rng))
    else:
        columns = 1 + num
        tensors["sampled"] = Tensor(_ids(p["ids"], logits, 1, rng)[:, 0].copy())
        tensors["ranks"] = Tensor(np.zeros(rows, np.int64), Role.OUT)
        scalars["num_logprobs"] = num
        if p.get("mode") == "logits":
            scalars["logits_mode"] = True
    if p.get("custom"):
        requests = rows + 2
        counts = rng.integers(1, MAX_OWN_IDS + 1, requests).astype(np.int32)
        counts[rng.permutation(requests)[: requests // 2]] = 0
        mapping = rng.permutation(requests)[:rows].astype(np.int32)
        tensors["num_own"] = Tensor(counts)
        tensors["own"] = Tensor(rng.integers(0, vocab, (requests, MAX_OWN_IDS)).astype(np.int32))
        tensors["mapping"] = Tensor(mapping)
        most = int(counts[mapping].max(initial=0)) if rows else 3
        most = max(most, 1)
        scalars["max_own"] = most
        columns = 1 + max(num, most)
    if not p["token"]:
        tensors["chosen"] = Tensor(np.zeros((rows, columns), np.float32), Role.OUT)
    tensors["scores"] = Tensor(
        np.zeros((rows, columns), np.float32), Role.OUT, exact=False, atol=ATOL, rtol=RTOL
    )
    return Workload(tensors, scalars)


def launch(entry: Any, tensors: Any, scalars: Any, variant: str) -> None:
    """vllm's calls; what comes back is copied to where it is compared."""
    logits = tensors["logits"]
    if "token_ids" in tensors:
        ids = tensors["token_ids"]
        if scalars["by_name"]:
            num, vocab = ids.shape[1], logits.shape[1]
            padded = 1 << max(1, (num - 1).bit_length())
            kernel = entry[(logits.shape[0],)]
            result, stride = tensors["scores"], logits.stride(0)
            kernel(result, logits, stride, ids, num, vocab, BLOCK_SIZE=1024, PADDED_TOPK=padded)
        else:
            tensors["scores"].copy_(entry(logits, ids))
        return
    more: dict[str, Any] = {}
    if "own" in tensors:
        more["logprob_token_ids_state"] = SimpleNamespace(
            num_token_ids=SimpleNamespace(gpu=tensors["num_own"]),
            token_ids=SimpleNamespace(gpu=tensors["own"]),
        )
        more["expanded_idx_mapping"] = tensors["mapping"]
        more["max_per_req_token_ids"] = scalars["max_own"]
    if scalars.get("logits_mode"):
        more["logits_mode"] = True
    got = entry(logits, scalars["num_logprobs"], tensors["sampled"], None, **more)
    ids = got.logprob_token_ids
    tensors["scores"].copy_(got.logprobs)
    tensors["ranks"].copy_(got.selected_token_ranks)
    known = (ids >= 0) & (ids < logits.shape[1])
    chosen = logits.gather(1, ids.clamp(0, logits.shape[1] - 1)).float()
    tensors["chosen"].copy_(chosen.masked_fill(~known, -7.0))
