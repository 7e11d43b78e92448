"""Compares the time model with published latencies, and fits the fitted constants.

Usage: python scripts/fit_table.py [--trees DIRECTORY] [--write]

Lowers every measured kernel from its release's own source, runs it for its trace, predicts each
row with the constants that ship, and with each kernel left out of the fit. Releases are fetched
through the user's package index; ``--trees``: a directory with trees named vllm_ascend-<release>
saves their download. ``--write`` puts the table into docs/time-model.md. Needs the extra `ascend`.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from ascendport.ascend.bishengir import CompileRequest, compile_many
from ascendport.ascend.diagnostics import Refusal
from ascendport.ascend.lowering import LoweringRequest, lower
from ascendport.ascend.soc import Soc, soc
from ascendport.checkout.fetch import fetch
from ascendport.harness.loading import Device, loaded
from ascendport.harness.workspace import Tree
from ascendport.simulator import Simulator, Trace
from ascendport.timing.constants import constants
from ascendport.timing.fit import Candidate, Known, best, errors, left_out, typical
from ascendport.timing.launch import collect, fits_l2, launch_time
from ascendport.timing.measurements import Measured, Row, measurements

ROOT = Path(__file__).parent.parent
TEXT = ROOT / "docs" / "time-model.md"
MARK = "<!-- everything below is written by scripts/fit_table.py -->\n"

FETCH = (15.0, 20.0, 25.0, 30.0, 35.0, 40.0, 50.0)
"""Values of fetch_cycles_per_line that are predicted with; those between are interpolated."""
FETCH_STEP = 1.0
LAUNCH = tuple(round(1.4 + 0.1 * step, 1) for step in range(17))
"""Values of launch_us: the smallest kernels that were published take 1.4 to 3 us."""

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


SETUPS: Mapping[str, Callable[[Mapping[str, int], Soc], Setup]] = {
    "log_softmax": log_softmax,
    "gdn_gating": gdn_gating,
    "rms_norm": rms_norm,
    "slot_mapping": slot_mapping,
}


@dataclass(frozen=True)
class Traced:
    """A measured row, run."""

    kernel: Measured
    row: Row
    traces: Mapping[int, Trace]
    programs: int
    part: Soc
    resident: bool

    def predict(self, launch_us: float, fetch: float, *, as_compiled: bool = False) -> float:
        """The modelled latency, us."""
        table = constants().having(launch_us=launch_us, fetch_cycles_per_line=fetch)
        return launch_time(
            self.traces,
            self.programs,
            self.part,
            resident=self.resident,
            vector_loops=self.kernel.vector_loops and not as_compiled,
            table=table,
        ).us


def traced(kernel: Measured, tree: Path) -> Iterator[Traced]:
    """Each row of a kernel, lowered from ``tree`` and run."""
    part = soc(kernel.soc)
    known: dict[str, Simulator] = {}
    device = Device(part.vector_cores, part.ub_bytes)
    with loaded(Tree(tree), kernel.file, device) as module:
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
            traces = collect(known[lowered.key], values, setup.grid)
            programs = int(np.prod(setup.grid))
            yield Traced(kernel, row, traces, programs, part, fits_l2(values, part))


def candidates(rows: list[Traced]) -> list[Candidate]:
    """Predictions over the grid of fitted constants."""
    points = np.array([[row.predict(0.0, cycles) for row in rows] for cycles in FETCH])
    found = []
    for cycles in np.arange(FETCH[0], FETCH[-1] + FETCH_STEP, FETCH_STEP):
        device = [float(np.interp(cycles, FETCH, points[:, at])) for at in range(len(rows))]
        for launch in LAUNCH:
            values = {"fetch_cycles_per_line": float(cycles), "launch_us": launch}
            found.append(Candidate(values, tuple(us + launch for us in device)))
    return found


def table(rows: list[Traced]) -> list[str]:
    """The comparison as Markdown."""
    known = [Known(row.kernel.name, row.row.us, row.kernel.fitted) for row in rows]
    tried = candidates(rows)
    chosen = best(known, tried)
    shipped = constants()
    values = (shipped["launch_us"], shipped["fetch_cycles_per_line"])
    predicted = [row.predict(*values) for row in rows]
    here = errors(known, predicted)
    out = left_out(known, tried)
    lines = [
        "| kernel | case | published, us | modelled, us | error | error when left out |",
        "|---|---|---:|---:|---:|---:|",
    ]
    for number, row in enumerate(rows):
        lines.append(
            f"| {row.kernel.name} | {row.row.name} | {row.row.us:.2f} | {predicted[number]:.2f}"
            f" | {here[number]:+.0%} | {out[number]:+.0%} |"
        )
    lines += [
        "",
        "| kernel | median error | worst | median left out | worst | |",
        "|---|---:|---:|---:|---:|---|",
    ]
    for kernel in dict.fromkeys(row.kernel.name for row in rows):
        own = [abs(here[at]) for at, row in enumerate(rows) if row.kernel.name == kernel]
        left = [abs(out[at]) for at, row in enumerate(rows) if row.kernel.name == kernel]
        fitted = next(row.kernel.fitted for row in rows if row.kernel.name == kernel)
        lines.append(
            f"| {kernel} | {np.median(own):.0%} | {max(own):.0%} | {np.median(left):.0%}"
            f" | {max(left):.0%} | {'fitted' if fitted else 'never fitted'} |"
        )
    compiled = [row for row in rows if row.kernel.vector_loops]
    if compiled:
        lines += ["", "As compiled here, scalar loops and all:", ""]
        lines += [
            f"- {row.kernel.name}, {row.row.name}: {row.predict(*values, as_compiled=True):.1f} us,"
            f" published {row.row.us:.2f}"
            for row in compiled
        ]
    fit = ", ".join(f"{name} {value:g}" for name, value in chosen.values.items())
    lines += [
        "",
        f"The fit of this run: {fit}; the constants that ship: launch_us {values[0]:g},"
        f" fetch_cycles_per_line {values[1]:g}.",
        f"Typical left-out error, the mean over kernels of the median: {typical(known, out):.0%}"
        f" (model_error {shipped['model_error']:.0%}).",
    ]
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--trees", type=Path, help="holds trees named vllm_ascend-<release>")
    parser.add_argument("--write", action="store_true", help="put the table into the docs")
    options = parser.parse_args()
    rows: list[Traced] = []
    with tempfile.TemporaryDirectory() as scratch:
        trees = options.trees or Path(scratch)
        for kernel in measurements():
            root = trees / f"vllm_ascend-{kernel.release}"
            if not root.is_dir():
                fetch(kernel.release, root, lambda what, done, total: None)
            rows += traced(kernel, root)
        lines = table(rows)
    print("\n".join(lines))
    if options.write:
        head = TEXT.read_text("utf-8").partition(MARK)[0] if TEXT.exists() else ""
        TEXT.write_text(head + MARK + "\n" + "\n".join(lines) + "\n", "utf-8")


if __name__ == "__main__":
    main()
