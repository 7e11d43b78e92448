"""Upstream kernels on guessed arguments: the simulator and Triton's interpreter give the same."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ReleaseTree
from tests.simulator.conftest import Compile

pytestmark = pytest.mark.ascend

SCRIPT = Path(__file__).parents[2] / "scripts" / "survey.py"
RELEASE = "0.30.0rc2"

QUICK = (
    "ops/triton/batch_invariant/rmsnorm.py:_rms_norm_kernel",
    "ops/triton/build_window_indices.py:_build_window_indices_kernel",
    "ops/triton/compressor/compressor_triton.py:_pool_kernel",
    "ops/triton/eplb.py:_map_to_physical_kernel",
    "ops/triton/fused_gdn_gating.py:fused_gdn_gating_kernel",
    "ops/triton/kda/l2norm.py:l2norm_fwd_tiled_kernel",
    "ops/triton/mamba/state_index.py:_gather_ssm_states_kernel",
    "ops/triton/muls_add.py:muls_add_kernel",
    "ops/triton/reject_sample.py:rejection_greedy_sample_triton",
    "ops/triton/rope.py:_triton_rope_siso",
    "ops/triton/spec_decode/utils.py:prepare_inputs_padded_kernel",
    "ops/triton/v2/apply_grammar_bitmask.py:_apply_grammar_bitmask_kernel_impl",
    "worker/v2/sample/bad_words.py:_bad_words_kernel",
    "worker/v2/sample/gumbel.py:_temperature_kernel",
    "worker/v2/sample/logprob.py:_topk_log_softmax_kernel",
    "worker/v2/sample/logprob.py:_ranks_kernel",
    "worker/v2/sample/min_p.py:_min_p_kernel",
    "worker/v2/sample/penalties.py:_penalties_kernel",
)
"""Kernels of a release that compile at the first guess and are interpreted in a second."""

OTHERWISE = {
    "_gumbel_sample_kernel": "random numbers: umulhi compiles to a signed product",
    "_pack_dcp_output_lse_kernel": "digits of a float: the last bit of a logarithm decides",
    "_pack_dcp_output_lse_batched_kernel": "digits of a float: the last bit of a logarithm decides",
    "chunk_local_cumsum_scalar_kernel": "at the guessed sizes, rows of one store overlap",
    "_fwd_kv_reduce": "at the guessed sizes, it writes past a tensor and reads that back",
}
"""Kernels that give something else in the simulator, and why (docs/simulator.md)."""


def survey(tree: Path, *options: str) -> dict[str, Any]:
    """What the command says, by kernel."""
    command = [sys.executable, "-W", "ignore", str(SCRIPT), str(tree), "--json", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return {entry["kernel"]: entry for entry in json.loads(done.stdout)}


@pytest.fixture(scope="module")
def quick(release_tree: ReleaseTree, compile_kernel: Compile) -> dict[str, Any]:
    chosen = [option for name in QUICK for option in ("--kernel", name)]
    return survey(release_tree(RELEASE), "--styles", "1", "--tries", "0", "--jobs", "1", *chosen)


@pytest.mark.parametrize("name", QUICK)
def test_values_are_the_interpreters(quick: dict[str, Any], name: str) -> None:
    entry = quick[f"vllm_ascend/{name}"]
    assert entry["verdict"] == "runs", entry
    assert [program["values"] for program in entry["programs"]] == ["agree"], entry


@pytest.mark.slow
def test_values_of_a_whole_tree(release_tree: ReleaseTree, compile_kernel: Compile) -> None:
    """No kernel breaks the simulator; what differs from the interpreter is known."""
    found = survey(release_tree(RELEASE))
    programs = {
        (name, program["label"]): program
        for name, entry in found.items()
        for program in entry["programs"]
    }
    assert len(programs) > 200
    assert not [key for key, program in programs.items() if program["error"]]
    differ = {
        key: program["why"] for key, program in programs.items() if program["values"] == "differ"
    }
    unknown = {
        key: why for key, why in differ.items() if key[0].rpartition(":")[2] not in OTHERWISE
    }
    assert not unknown
    agree = [key for key, program in programs.items() if program["values"] == "agree"]
    assert len(agree) > len(programs) // 2
