"""Compares the time model with published latencies, and fits the fitted constants.

Usage: python scripts/fit_table.py [--trees DIRECTORY] [--write]

Lowers every measured kernel from its release's own source, runs it for its trace, predicts each
row with the constants that ship, and with each kernel left out of the fit. Releases are fetched
through the user's package index; ``--trees``: a directory with trees named vllm_ascend-<release>
saves their download. One kernel is vLLM's own and is read from its wheel. ``--write`` puts the
table into docs/time-model.md. Needs the extra `ascend`.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import importlib.util
import itertools
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import ml_dtypes
import numpy as np

from ascendport.ascend.bishengir import CompileRequest, compile_many
from ascendport.ascend.diagnostics import Refusal
from ascendport.ascend.lowering import LoweringRequest, lower
from ascendport.ascend.soc import Soc, soc
from ascendport.checkout.fetch import fetch
from ascendport.checkout.vllm import open_source
from ascendport.harness.loading import Device, loaded
from ascendport.harness.workspace import Tree
from ascendport.simulator import Simulator
from ascendport.timing.constants import Constants, constants
from ascendport.timing.fit import Candidate, Known, best, errors, left_out, typical
from ascendport.timing.launch import Programs, collect, fits_l2, place, read
from ascendport.timing.measurements import Measured, Ratio, Row, measurements, ratios

ROOT = Path(__file__).parent.parent
TEXT = ROOT / "docs" / "time-model.md"
MARK = "<!-- everything below is written by scripts/fit_table.py -->\n"
SUMMARY = ROOT / "docs" / "simulator.md"
SUMMARY_MARKS = ("<!-- fit: written by scripts/fit_table.py -->\n", "<!-- end of the fit -->\n")

FITTED = {
    "load_latency_ns": (115.0, 275.0, 4.0),
    "fetch_cycles_per_core": (0.39, 0.99, 0.02),
}
"""Least, most and step of what is fitted. A load: from what is published of an isolated one to a
scalar load that misses.
"""
PUBLISHED = {"load_latency_ns": 115.0, "fetch_cycles_per_core": 0.58}
"""What is published of them: an isolated load (pto-isa); 64 bytes at 110 bytes a cycle (hicann)."""

NODES = {
    "load_latency_ns": (115.0, 195.0, 275.0),
    "fetch_cycles_per_core": (0.39, 0.69, 0.99),
}
"""Values that are predicted with; those between are interpolated."""

PROGRAMS = 16
"""Of a launch, so many are run: a program between two of them does what the one before does."""

VOCABULARY = 151936
BF16 = np.dtype(ml_dtypes.bfloat16)


@dataclass(frozen=True)
class Setup:
    """A launch. ``arguments``: as the compiler sees them; ``values``: of those at run time."""

    arguments: Mapping[str, object]
    values: Mapping[str, Any]
    grid: tuple[int, ...]
    options: Mapping[str, object]


def log_softmax(case: Mapping[str, int], part: Soc) -> Setup:
    rows, k = case["rows"], case["k"]
    values = {
        "output_ptr": np.zeros((rows, k), np.float32),
        "logits_ptr": np.zeros((rows, VOCABULARY), np.float32),
        "logits_stride": VOCABULARY,
        "topk_ids_ptr": np.zeros((rows, k), np.int64),
        "topk": k,
        "vocab_size": VOCABULARY,
    }
    padded = max(2, 1 << (k - 1).bit_length())
    fixed = {"BLOCK_SIZE": 12944, "PADDED_TOPK": padded}
    types = {"output_ptr": "*fp32", "logits_ptr": "*fp32", "topk_ids_ptr": "*i64"}
    return Setup({**values, **types, **fixed}, values, (rows,), {"multibuffer": False})


def gdn_gating(case: Mapping[str, int], part: Soc) -> Setup:
    heads, batch = case["heads"], case["batch"]
    rows_a_core = -(-batch // part.vector_cores)
    values = {
        "g": np.zeros((batch, heads), np.float32),
        "beta_output": np.zeros((batch, heads), BF16),
        "A_log": np.zeros(heads, np.float32),
        "a": np.zeros((batch, heads), BF16),
        "b": np.zeros((batch, heads), BF16),
        "dt_bias": np.zeros(heads, np.float32),
        "seq_len": 1,
        "NUM_HEADS": heads,
        "NUM_BATCHES": batch,
        "beta": 1.0,
        "threshold": 20.0,
        "ROW_ITER": -(-rows_a_core // 64),
    }
    half = dict.fromkeys(("beta_output", "a", "b"), "*bf16")
    full = dict.fromkeys(("g", "A_log", "dt_bias"), "*fp32")
    fixed = {"BLK_HEADS": 8, "BLK_BATCHES": 64}
    return Setup({**values, **half, **full, **fixed}, values, (part.vector_cores, 1), {})


def rms_norm(case: Mapping[str, int], part: Soc) -> Setup:
    rows = case["rows"]
    values = {
        "hidden_state_ptr": np.ones((rows, 512), BF16),
        "hidden_state_stride_bs": 512,
        "norm_output_ptr": np.zeros((rows, 512), BF16),
        "variance_epsilon": 1e-6,
        "total_batch": rows,
    }
    fixed = {"DIM": 512, "BLOCK_M": min(16, -(-rows // part.vector_cores))}
    types = dict.fromkeys(("hidden_state_ptr", "norm_output_ptr"), "*bf16")
    return Setup({**values, **types, **fixed}, values, (part.vector_cores,), {})


def slot_mapping(case: Mapping[str, int], part: Soc) -> Setup:
    requests, tokens, block = case["requests"], case["tokens"], 128
    total = requests * tokens
    blocks = max(2048, (case["first"] + tokens) // block + 1)
    values = {
        "num_tokens": total,
        "max_num_tokens": case["most"],
        "query_start_loc_ptr": np.arange(0, total + 1, tokens, dtype=np.int32),
        "positions_ptr": np.tile(np.arange(tokens, dtype=np.int64), requests) + case["first"],
        "block_table_ptr": np.zeros((requests, blocks), np.int32),
        "block_table_stride": blocks,
        "block_size": block,
        "slot_mapping_ptr": np.zeros(case["most"], np.int32),
    }
    fixed = {
        "KV_CACHE_BLOCK_SIZE": block,
        "BLOCKS_PER_KV_BLOCK": 1,
        "TOTAL_CP_WORLD_SIZE": 1,
        "TOTAL_CP_RANK": 0,
        "CP_KV_CACHE_INTERLEAVE_SIZE": 1,
        "PAD_ID": -1,
        "TILE_BLOCK_SIZE": 1024,
        "BLOCK_TABLE_WINDOW_SIZE": 16,
    }
    types = dict.fromkeys(("query_start_loc_ptr", "block_table_ptr", "slot_mapping_ptr"), "*i32")
    types["positions_ptr"] = "*i64"
    return Setup({**values, **types, **fixed}, values, (requests + 1,), {})


def slot_mapping_vllm(case: Mapping[str, int], part: Soc) -> Setup:
    setup = slot_mapping(case, part)
    gone = ("TILE_BLOCK_SIZE", "BLOCK_TABLE_WINDOW_SIZE")
    arguments = {name: value for name, value in setup.arguments.items() if name not in gone}
    return Setup({**arguments, "BLOCK_SIZE": 1024}, setup.values, setup.grid, setup.options)


def copy_and_expand(case: Mapping[str, int], part: Soc) -> Setup:
    requests, context, queries, drafts, blocks = case["requests"], case["context"], 4, 3, 256
    total = requests * context

    def words(*shape: int) -> Any:
        return np.zeros(shape, np.int32)

    values = {
        "next_token_ids_ptr": words(requests),
        "target_positions_ptr": words(total),
        "context_slot_mapping_ptr": words(total),
        "out_input_ids_ptr": words(requests * queries),
        "out_context_positions_ptr": words(total),
        "out_query_positions_ptr": words(requests * queries),
        "out_context_slot_mapping_ptr": words(total),
        "out_query_slot_mapping_ptr": words(requests * queries),
        "out_token_indices_ptr": words(requests * drafts),
        "block_table_ptr": words(requests, blocks),
        "block_table_stride": blocks,
        "query_start_loc_ptr": np.arange(0, total + 1, context, dtype=np.int32),
        "seq_lens_ptr": np.full(requests, context, np.int32),
        "num_rejected_tokens_ptr": None,
        "parallel_drafting_token_id": 7,
        "block_size": 128,
        "num_query_per_req": queries,
        "num_speculative_tokens": drafts,
        "total_input_tokens": total,
        "batch_size": requests,
    }
    types = {name: "*i32" for name, value in values.items() if isinstance(value, np.ndarray)}
    fixed = {"HAS_NUM_REJECTED": False, "SAMPLE_FROM_ANCHOR": False}
    return Setup({**values, **types, **fixed}, values, (1,), {})


def store_one_by_one(case: Mapping[str, int], part: Soc) -> Setup:
    values = {"out_ptr": np.zeros(8192, np.int32), "first": 72, "last": 72 + case["elements"]}
    return Setup({**values, "out_ptr": "*i32", "value": -1}, values, (1,), {})


def log_softmax_in_one_pass(case: Mapping[str, int], part: Soc) -> Setup:
    rows, ids = case["rows"], case["k"]
    values = {
        "out_ptr": np.zeros((rows, ids), np.float32),
        "logits_ptr": np.zeros((rows, VOCABULARY), np.float32),
        "row_stride": VOCABULARY,
        "ids_ptr": np.zeros((rows, ids), np.int64),
        "ids_a_row": ids,
        "columns": VOCABULARY,
    }
    types = {"out_ptr": "*fp32", "logits_ptr": "*fp32", "ids_ptr": "*i64"}
    fixed = {"tile": 12944, "ids": 8}
    return Setup({**values, **types, **fixed}, values, (rows,), {"multibuffer": False})


def mark_prompt(case: Mapping[str, int], part: Soc) -> Setup:
    rows, tokens, words, tile = case["rows"], case["tokens"], VOCABULARY // 32, 1024
    drawn = np.random.default_rng(0).integers(0, VOCABULARY, (rows, tokens))
    values = {
        "tokens_ptr": drawn.astype(np.int32),
        "tokens_stride": tokens,
        "length": tokens,
        "bits_ptr": np.zeros((rows, words), np.int32),
        "bits_stride": words,
    }
    fixed = {"tile": tile, "atomic": bool(case["atomic"])}
    types = dict.fromkeys(("tokens_ptr", "bits_ptr"), "*i32")
    return Setup({**values, **types, **fixed}, values, (rows, -(-tokens // tile)), {})


SETUPS: Mapping[str, Callable[[Mapping[str, int], Soc], Setup]] = {
    "log_softmax": log_softmax,
    "gdn_gating": gdn_gating,
    "gdn_gating_long": gdn_gating,
    "rms_norm": rms_norm,
    "slot_mapping": slot_mapping,
    "slot_mapping_vllm": slot_mapping_vllm,
    "copy_and_expand": copy_and_expand,
    "store_one_by_one": store_one_by_one,
    "log_softmax_in_one_pass": log_softmax_in_one_pass,
    "mark_prompt": mark_prompt,
}


# --- where kernels come from -------------------------------------------------------------------


@contextmanager
def sources(kernel: Measured, trees: Path, device: Device) -> Iterator[ModuleType]:
    """A module that holds the kernel."""
    if kernel.origin == "own":
        yield importlib.import_module(kernel.file)
        return
    if kernel.origin == "vllm":
        text = open_source(kernel.release, lambda *_: None).read(kernel.file)
        if text is None:
            raise SystemExit(f"vllm {kernel.release} has no {kernel.file}")
        with alone(kernel, text.decode("utf-8")) as module:
            yield module
        return
    root = trees / f"vllm_ascend-{kernel.release}"
    if not root.is_dir():
        fetch(kernel.release, root, lambda what, done, total: None)
    if kernel.without:
        with alone(kernel, (root / kernel.file).read_text("utf-8")) as module:
            yield module
    else:
        with loaded(Tree(root), kernel.file, device) as module:
            yield module


@contextmanager
def alone(kernel: Measured, text: str) -> Iterator[ModuleType]:
    """The kernel in a module of its own, without what is to be left out of its source."""
    [function] = [
        node
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef) and node.name == kernel.kernel
    ]
    first = min((function.lineno, *(one.lineno for one in function.decorator_list)))
    body = "\n".join(text.splitlines()[first - 1 : function.end_lineno])
    for part in kernel.without:
        if part not in body:
            raise SystemExit(f"{kernel.name}: its source has no {part}")
        body = body.replace(part, "")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{kernel.name}.py"
        path.write_text(f"import triton\nimport triton.language as tl\n\n\n{body}\n", "utf-8")
        spec = importlib.util.spec_from_file_location(kernel.name, path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        yield module


@dataclass(frozen=True)
class Traced:
    """A measured row, run."""

    kernel: Measured
    row: Row
    launched: Programs
    part: Soc
    resident: bool

    def predict(self, table: Constants) -> float:
        """The modelled latency, us."""
        return place(
            self.launched,
            self.part,
            resident=self.resident,
            in_service=self.kernel.in_service,
            table=table,
        ).us


def traced(kernel: Measured, trees: Path) -> Iterator[Traced]:
    """Each row of a kernel, lowered and run."""
    part = soc(kernel.soc)
    known: dict[str, Simulator] = {}
    device = Device(part.vector_cores, part.ub_bytes)
    with sources(kernel, trees, device) as module:
        function = getattr(module, kernel.kernel)
        for row in kernel.rows:
            setup = SETUPS[kernel.name](row.case, part)
            request = LoweringRequest.of_launch(function, setup.arguments, setup.options)
            lowered = lower(request, part)
            if isinstance(lowered, Refusal):
                raise SystemExit(f"{kernel.kernel}: {lowered.reason}")
            if lowered.key not in known:
                job = CompileRequest(lowered.text, part, lowered.multibuffer, lowered.flags)
                [program] = compile_many([job])
                if isinstance(program, Refusal):
                    raise SystemExit(f"{kernel.kernel}: {program.reason}")
                known[lowered.key] = Simulator(program.text)
            values = [
                value for name, value in setup.values.items() if name not in request.constants
            ]
            traces = collect(known[lowered.key], values, setup.grid, limit=PROGRAMS)
            launched = read(traces, int(np.prod(setup.grid)))
            yield Traced(kernel, row, launched, part, fits_l2(values, part))


# --- fitting -----------------------------------------------------------------------------------


def candidates(rows: Sequence[Traced]) -> list[Candidate]:
    """Predictions over the grid of fitted constants, interpolated between `NODES`.

    A row that is not fitted on has no part in choosing: its prediction is left 1.
    """
    shape = tuple(len(values) for values in NODES.values())
    points = np.ones((*shape, len(rows)))
    for node in np.ndindex(shape):
        values = {name: NODES[name][at] for name, at in zip(NODES, node, strict=True)}
        table = constants().having(**values)
        for number, row in enumerate(rows):
            if row.kernel.fitted:
                points[(*node, number)] = row.predict(table)
    grid = [np.arange(low, high + step / 2, step).round(2) for low, high, step in FITTED.values()]
    return [
        Candidate(
            dict(zip(FITTED, map(float, point), strict=True)),
            tuple(_between(points, *map(float, point)).tolist()),
        )
        for point in itertools.product(*grid)
    ]


def _between(points: Any, latency: float, fetching: float) -> Any:
    """Linear in both constants between the nodes around them."""
    near = points
    for name, value in zip(NODES, (latency, fetching), strict=True):
        nodes = NODES[name]
        at = min(max(1, int(np.searchsorted(nodes, value))), len(nodes) - 1)
        share = (value - nodes[at - 1]) / (nodes[at] - nodes[at - 1])
        near = near[at - 1] * (1 - share) + near[at] * share
    return near


# --- the table ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Table:
    """What a run found: each published row, modelled; errors with its kernel left out; the fit."""

    rows: Sequence[Traced]
    modelled: Sequence[float]
    left: Sequence[float]
    fit: Mapping[str, float]

    @property
    def known(self) -> list[Known]:
        """The rows with a published latency."""
        return [
            Known(row.kernel.name, row.row.us, row.kernel.fitted)
            for row in self.rows
            if row.row.us is not None
        ]

    @property
    def numbers(self) -> list[int]:
        """Which rows those are."""
        return [number for number, row in enumerate(self.rows) if row.row.us is not None]


def compare(rows: Sequence[Traced]) -> Table:
    """Fits, and predicts every row."""
    modelled = [row.predict(constants()) for row in rows]
    numbers = [number for number, row in enumerate(rows) if row.row.us is not None]
    here = [rows[number] for number in numbers]
    table = Table(rows, modelled, (), {})
    tried = candidates(here)
    chosen = best(table.known, tried, published=PUBLISHED)
    plain = errors(table.known, [modelled[number] for number in numbers])
    fitted = left_out(table.known, tried, PUBLISHED)
    left = [
        out if row.kernel.fitted else error
        for out, error, row in zip(fitted, plain, here, strict=True)
    ]
    return Table(rows, modelled, left, chosen.values)


def lines(table: Table) -> list[str]:
    """The comparison as Markdown."""
    found = [
        "| kernel | case | published, us | modelled, us | error | error when left out |",
        "|---|---|---:|---:|---:|---:|",
    ]
    here = errors(table.known, [table.modelled[number] for number in table.numbers])
    for at, number in enumerate(table.numbers):
        row = table.rows[number]
        found.append(
            f"| {row.kernel.name} | {row.row.name} | {row.row.us:.2f}"
            f" | {table.modelled[number]:.2f} | {here[at]:+.0%} | {table.left[at]:+.0%} |"
        )
    found += [
        "",
        "| kernel | median error | worst | median left out | worst | |",
        "|---|---:|---:|---:|---:|---|",
    ]
    for kernel in dict.fromkeys(known.kernel for known in table.known):
        places = [at for at, known in enumerate(table.known) if known.kernel == kernel]
        own = [abs(here[at]) for at in places]
        out = [abs(table.left[at]) for at in places]
        fitted = table.known[places[0]].fitted
        found.append(
            f"| {kernel} | {np.median(own):.0%} | {max(own):.0%} | {np.median(out):.0%}"
            f" | {max(out):.0%} | {'fitted' if fitted else 'never fitted'} |"
        )
    found += ["", *ratio_lines(table)]
    shipped = constants()
    fit = ", ".join(f"{name} {value:g}" for name, value in table.fit.items())
    here_now = ", ".join(f"{name} {shipped[name]:g}" for name in table.fit)
    found += [
        "",
        f"The fit of this run: {fit}; the constants that ship: {here_now}.",
        "Typical left-out error, the mean over kernels of the median:"
        f" {typical_left(table):.0%} (model_error {shipped['model_error']:.0%}).",
    ]
    return found


def typical_left(table: Table) -> float:
    """The typical left-out error of the kernels that check something."""
    checks = [
        (known, error)
        for number, known, error in zip(table.numbers, table.known, table.left, strict=True)
        if not table.rows[number].kernel.gives
    ]
    return typical([known for known, _ in checks], [error for _, error in checks])


def ratio_lines(table: Table) -> list[str]:
    """Published against modelled ratios."""
    found = [
        "| before : after | published | modelled | error |",
        "|---|---:|---:|---:|",
    ]
    for ratio in ratios():
        value = _modelled(table, ratio.before) / _modelled(table, ratio.after)
        said, error = _ratio_error(ratio, value)
        found.append(f"| {ratio.name} | {said} | {value:.2f} | {error:+.0%} |")
    return found


def _modelled(table: Table, which: tuple[str, int]) -> float:
    kernel, number = which
    [*places] = [at for at, row in enumerate(table.rows) if row.kernel.name == kernel]
    return table.modelled[places[number]]


def _ratio_error(ratio: Ratio, value: float) -> tuple[str, float]:
    """What is published, and how far ``value`` is from it: 0 within a range."""
    if ratio.low == ratio.high:
        return f"{ratio.low:g}", value / ratio.low - 1
    near = min(max(value, ratio.low), ratio.high)
    return f"{ratio.low:g} to {ratio.high:g}", value / near - 1


def with_summary(text: str, found: list[str]) -> str:
    """The simulator's page with the tables by kernel and by ratio of ``found``, not by row."""
    first = next(at for at, line in enumerate(found) if line.startswith("| kernel | median"))
    begin, end = SUMMARY_MARKS
    head, _, rest = text.partition(begin)
    _, found_end, tail = rest.partition(end)
    if not found_end:
        raise SystemExit(f"{SUMMARY}: no place for the table between {begin!r} and {end!r}")
    return head + begin + "\n".join(found[first:]) + "\n" + end + tail


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--trees", type=Path, help="holds trees named vllm_ascend-<release>")
    parser.add_argument("--write", action="store_true", help="put the table into the docs")
    options = parser.parse_args()
    sys.path.insert(0, str(Path(__file__).parent))
    rows: list[Traced] = []
    with tempfile.TemporaryDirectory() as scratch:
        for kernel in measurements():
            rows += traced(kernel, options.trees or Path(scratch))
        found = lines(compare(rows))
    print("\n".join(found))
    if options.write:
        head = TEXT.read_text("utf-8").partition(MARK)[0] if TEXT.exists() else ""
        TEXT.write_text(head + MARK + "\n" + "\n".join(found) + "\n", "utf-8")
        SUMMARY.write_text(with_summary(SUMMARY.read_text("utf-8"), found), "utf-8")


if __name__ == "__main__":
    main()
