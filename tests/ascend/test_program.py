from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ascendport.ascend.bishengir import CompileRequest, Program, command, compile_program
from ascendport.ascend.facts import ProgramFacts, ScalarLoop, Transfer, total
from ascendport.ascend.lowering import Linalg, LoweringRequest, lower
from ascendport.ascend.program import read
from ascendport.ascend.soc import soc
from ascendport.ascend.toolchain import binary
from tests.ascend.conftest import FAMILIES, load
from tests.ascend.oracle import count

OLD = ("A2", "A3")
MakeProgram = Callable[..., Program]


def _line(kernel_text: str) -> int:
    """The line of kernels.py that starts with this text, indentation aside."""
    lines = Path(__file__).with_name("kernels.py").read_text().splitlines()
    return 1 + next(
        number for number, line in enumerate(lines) if line.strip().startswith(kernel_text)
    )


@pytest.mark.ascend
@pytest.mark.parametrize("part", FAMILIES)
class TestOwnKernels:
    """Each kernel's trait, on each family."""

    def test_elementwise(self, part: str, program: MakeProgram) -> None:
        facts = read(program("add_one", part).text)
        assert facts.name == "add_one"
        assert facts.vector_core
        assert facts.scalar_loops == ()
        assert facts.tile_rewrites == ()
        assert (facts.locks, facts.atomics, facts.scalar_iterations) == (0, 0, 0)
        assert facts.ub_capacity_bytes == soc(part).ub_bytes
        assert facts.trips_exact
        read_, written = facts.gm_reads[0], facts.gm_writes[0]
        assert len(facts.gm_reads) == len(facts.gm_writes) == 1
        assert (read_.argument, written.argument) == (0, 1)
        # A masked tail: the size is computed, the tile bounds it.
        assert (read_.bytes, read_.at_most) == (None, 4096)
        assert (written.bytes, written.at_most) == (None, 4096)
        assert not facts.bytes_in.exact
        assert facts.bytes_in.bytes == 4096
        assert facts.barriers["ALL"] == 1
        assert facts.events["MTE2->V"] == 1
        if part in OLD:
            assert facts.vector_calls["vadds_vs_1d_float"] == 1
        else:
            assert all("_vf_" in call for call in facts.vector_calls)

    def test_store_with_holes_rewrites_the_tile(self, part: str, program: MakeProgram) -> None:
        facts = read(program("keep_positive", part).text)
        assert [rewrite.bytes for rewrite in facts.tile_rewrites] == [4096]
        assert facts.tile_rewrites[0].argument == 1
        assert facts.tile_rewrites[0].line == _line("tl.store(y_ptr + offsets, x, mask=(x > 0.0)")
        assert sum(item.argument == 1 for item in facts.gm_reads) == 1

    def test_select_under_a_prefix_mask_does_not(self, part: str, program: MakeProgram) -> None:
        assert read(program("select_prefix", part).text).tile_rewrites == ()

    def test_shift_is_a_scalar_loop_on_old_parts(self, part: str, program: MakeProgram) -> None:
        facts = read(program("shift_right", part, "i32").text)
        if part in OLD:
            (loop,) = facts.scalar_loops
            expected = ScalarLoop(
                line=_line("tl.store(y_ptr + offsets, x >> (offsets & 31))"),
                trips=1024,
                loads=2,
                stores=1,
                operations=("shrsi",),
                transfers=0,
                vector_calls=0,
                times=1,
            )
            assert loop == expected
            assert facts.scalar_iterations == 1024
        else:
            assert facts.scalar_loops == ()
        assert (facts.bytes_in.bytes, facts.bytes_in.exact) == (4096, True)
        assert (facts.bytes_out.bytes, facts.bytes_out.exact) == (4096, True)

    def test_nest_is_one_loop_and_counts_each_entry(self, part: str, program: MakeProgram) -> None:
        facts = read(program("shift_rows", part, "i32", 16).text)
        if part in OLD:
            assert [loop.trips for loop in facts.scalar_loops] == [512]
            assert sum(loop.times for loop in facts.scalar_loops) in (1, 3)
        assert facts.trips_exact
        assert facts.bytes_out.bytes == 3 * 16 * 32 * 4
        assert {item.times for item in facts.gm_writes} == {3}

    def test_histogram(self, part: str, program: MakeProgram) -> None:
        facts = read(program("histogram", part, "i32", 256).text)
        (loop,) = facts.scalar_loops
        assert loop.trips == 256
        assert (loop.loads, loop.stores) == (2, 1)
        # The bins travel once an element on the old parts.
        assert loop.vector_calls == (1 if part in OLD else 0)
        if part in OLD:
            assert facts.weighted_vector_calls["copy_ubuf_to_ubuf_1d_int32_t"] == 256
            assert facts.vector_calls["copy_ubuf_to_ubuf_1d_int32_t"] == 1

    def test_atomic_tile(self, part: str, program: MakeProgram) -> None:
        facts = read(program("add_tile", part).text)
        assert facts.atomics == 1
        assert facts.gm_writes[0].atomic
        assert facts.gm_writes[0].bytes == 4096
        assert facts.locks == 0

    def test_scattered_or_takes_the_lock(self, part: str, program: MakeProgram) -> None:
        facts = read(program("scatter_or", part, "i32", 256).text)
        assert facts.locks == 1
        (loop,) = facts.scalar_loops
        assert (loop.trips, loop.transfers, loop.stores) == (256, 2, 0)
        assert [item.bytes for item in facts.gm_writes] == [4]
        assert facts.bytes_out == total(facts.gm_writes)
        assert facts.bytes_out.bytes == 1024
        assert facts.tile_rewrites == ()

    def test_while_has_no_trip_count(self, part: str, program: MakeProgram) -> None:
        facts = read(program("repeated_square", part, "i32", 256).text)
        assert not facts.trips_exact
        assert facts.scalar_loops == ()

    def test_loop_over_an_argument_has_no_trip_count(self, part: str, program: MakeProgram) -> None:
        facts = read(program("stream", part).text)
        assert not facts.trips_exact
        assert not facts.gm_reads[0].exact
        assert facts.gm_reads[0].times == 1


@pytest.mark.ascend
@pytest.mark.parametrize("part", ["A2", "A5"])  # A3 programs differ from A2 in attributes alone
@pytest.mark.parametrize(
    ("kernel", "element", "block"),
    [
        ("add_one", "bf16", 1000),
        ("keep_positive", "fp16", 1024),
        ("shift_rows", "i32", 16),
        ("histogram", "i32", 256),
        ("scatter_or", "i32", 256),
        ("repeated_square", "i32", 256),
    ],
)
def test_agrees_with_the_oracle(
    part: str, kernel: str, element: str, block: int, program: MakeProgram, tmp_path: Path
) -> None:
    assert_agrees(program(kernel, part, element, block), tmp_path)


def assert_agrees(made: Program, folder: Path) -> None:
    a5 = made.soc.name == soc("A5").name
    facts, truth = read(made.text), count(made.text, folder, a5=a5)
    locks = ("sync_block_lock", "sync_block_unlock", "free_lock_var")
    moves = {name for name in truth.calls if "gm_to_" in name or "_to_gm" in name}
    vector = {
        name: number
        for name, number in truth.calls.items()
        if name not in moves and name not in locks
    }
    assert dict(facts.vector_calls) == vector
    assert facts.locks == truth.calls["sync_block_lock"]
    dma = [item for item in (*facts.gm_reads, *facts.gm_writes) if "memref" not in item.call]
    assert len(dma) == sum(truth.calls[name] for name in moves)
    scalar = len(facts.gm_reads) + len(facts.gm_writes) - len(dma)
    assert scalar == truth.gm_elements
    assert sum(facts.barriers.values()) == truth.barriers
    assert sum(facts.events.values()) == truth.flags
    assert facts.ub_peak_bytes == truth.peak > 0
    assert sum(loop.loads + loop.stores for loop in facts.scalar_loops) <= truth.ub_elements
    assert bool(truth.loops) >= bool(facts.scalar_loops)
    assert facts.trips_exact or truth.loops
    if not a5:
        weighted = {name: truth.weighted[name] for name in vector}
        assert dict(facts.weighted_vector_calls) == weighted


@pytest.mark.ascend
def test_cube_program(program: MakeProgram) -> None:
    facts = read(program("matrix_square", "A2", "fp32", 64).text)
    assert not facts.vector_core
    assert facts.ub_peak_bytes == 0
    assert (facts.bytes_in.bytes, facts.bytes_out.bytes) == (64 * 64 * 4, 64 * 64 * 4)


@pytest.mark.ascend
@pytest.mark.parametrize(
    ("kernel", "element"),
    [("add_one", "bf16"), ("keep_positive", "fp32"), ("histogram", "i32"), ("shift_rows", "i32")],
)
def test_peak_is_what_the_compiler_counts(
    kernels: Any, tmp_path: Path, kernel: str, element: str
) -> None:
    """The Ascend 950 compiler prints it on request; that of A2 and A3 does not."""
    part = soc("A5")
    arguments = {"x_ptr": f"*{element}", "y_ptr": f"*{element}", "n": 1000, "BLOCK": 64}
    lowered = lower(LoweringRequest.of_launch(getattr(kernels, kernel), arguments), part)
    assert isinstance(lowered, Linalg)
    (tmp_path / "kernel.mlir").write_text(lowered.text)
    request = CompileRequest(lowered.text, part, lowered.multibuffer, lowered.flags)
    line = command(request, tmp_path / "kernel.mlir", tmp_path / "out", tmp_path / "temps")
    said = subprocess.run(
        [str(binary(part.compiler)), *line, "--enable-print-memory-allocated-size"],
        capture_output=True,
        text=True,
    )
    printed = re.search(r"UB size = (\d+) bits", said.stdout + said.stderr)
    assert printed, said
    facts = read((tmp_path / "temps" / "module.hivm.opt.mlir").read_text())
    assert facts.ub_peak_bytes * 8 == int(printed[1])


@pytest.mark.parametrize("text", ["", "module {}", "  func.func @host() -> i8 {\n  }\n"])
def test_what_is_no_program_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a finished program"):
        read(text)


@pytest.mark.ascend
def test_buffer_without_a_planned_place_is_no_small_peak(program: MakeProgram) -> None:
    text = re.sub(r"pointer_cast\(%\w+\)", "pointer_cast(%unknown)", program("add_one", "A2").text)
    with pytest.raises(ValueError, match="planned place"):
        read(text)


transfers = st.builds(
    Transfer,
    call=st.just("load_gm_to_ubuf_1d_float"),
    bytes=st.none() | st.integers(0, 2**20),
    at_most=st.none() | st.integers(0, 2**20),
    argument=st.none(),
    line=st.none(),
    times=st.integers(0, 100),
    exact=st.booleans(),
)


@given(st.lists(transfers, max_size=5), st.lists(transfers, max_size=5))
def test_total_adds_up_and_doubt_spreads(some: list[Transfer], more: list[Transfer]) -> None:
    first, second, both = total(tuple(some)), total(tuple(more)), total((*some, *more))
    assert both.bytes == first.bytes + second.bytes
    assert both.exact == (first.exact and second.exact)
    assert total(()) == total((*(),)) and total(()).exact


# --- upstream's kernels, from the real trees --------------------------------------------------

Facts = Callable[..., ProgramFacts]


class _Anything(ModuleType):
    """A module in which every name exists."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


@pytest.fixture
def upstream(
    kernels: Any,
    release_tree: Callable[[str], Path],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> Facts:
    """``upstream(release, file, kernel, arguments, part, **options)``."""
    import triton
    import triton.language

    def facts(
        release: str,
        file: str,
        kernel: str,
        arguments: dict[str, object],
        part: str,
        **options: Any,
    ) -> ProgramFacts:
        shim = ModuleType("vllm.triton_utils")
        shim.tl, shim.triton = triton.language, triton  # type: ignore[attr-defined]
        for name in (
            "torch", "vllm", "vllm.logger", "vllm.v1", "vllm.v1.outputs", "vllm_ascend",
            "vllm_ascend.ops", "vllm_ascend.ops.triton", "vllm_ascend.ops.triton.triton_utils",
        ):  # fmt: skip
            monkeypatch.setitem(sys.modules, name, _Anything(name))
        monkeypatch.setitem(sys.modules, "vllm.triton_utils", shim)
        name = f"upstream_{kernel}"
        module = load(release_tree(release) / "vllm_ascend" / file, name)
        monkeypatch.delitem(sys.modules, name)
        request = LoweringRequest.of_launch(getattr(module, kernel), arguments, options)
        lowered = lower(request, soc(part))
        assert isinstance(lowered, Linalg), lowered
        made = compile_program(
            lowered.text, soc(part), multibuffer=lowered.multibuffer, flags=lowered.flags
        )
        assert isinstance(made, Program), made
        if part != "A3":  # which differs from A2 in attributes alone
            assert_agrees(made, tmp_path)
        return read(made.text)

    return facts


@pytest.mark.ascend
@pytest.mark.network
@pytest.mark.parametrize("part", FAMILIES)
class TestUpstream:
    """What is known of upstream's kernels must be seen."""

    def test_grammar_of_0_26(self, part: str, upstream: Facts) -> None:
        facts = upstream(
            "0.26.0rc1",
            "worker/v2/structured_outputs.py",
            "_apply_grammar_bitmask_kernel",
            {
                "logits_ptr": "*bf16",
                "logits_stride": 151936,
                "logits_indices_ptr": "*i32",
                "bitmask_ptr": "*i32",
                "bitmask_stride": 4748,
                "vocab_size": 151936,
                "BLOCK_SIZE": 8192,
            },
            part,
        )
        assert [rewrite.bytes for rewrite in facts.tile_rewrites] == [2048]
        assert facts.tile_rewrites[0].times == 8
        assert facts.trips_exact
        assert facts.bytes_out.bytes == 16384
        if part in OLD:
            (loop,) = facts.scalar_loops
            assert (loop.trips, loop.times) == (1024, 8)
            assert (loop.loads, loop.stores, loop.operations) == (2, 1, ("shrsi",))
        else:
            assert facts.scalar_loops == ()

    def test_grammar_of_0_30(self, part: str, upstream: Facts) -> None:
        facts = upstream(
            "0.30.0rc2",
            "ops/triton/v2/apply_grammar_bitmask.py",
            "_apply_grammar_bitmask_kernel_impl",
            {
                "logits_ptr": "*bf16",
                "logits_stride": 151936,
                "logits_indices_ptr": "*i32",
                "cu_num_logits_ptr": "*i32",
                "bitmask_ptr": "*i32",
                "bitmask_stride": 4748,
                "vocab_size": 151936,
                "total_tasks": 1216,
                "NUM_PROGRAMS": 40,
                "NUM_VOCAB_BLOCKS": 19,
                "MASK_STRIDE": 1,
                "BLOCK_SIZE": 8192,
            },
            part,
            multibuffer=False,
        )
        assert [rewrite.bytes for rewrite in facts.tile_rewrites] == [16384]
        assert max((loop.trips or 0 for loop in facts.scalar_loops), default=0) <= 32

    def test_bincount(self, part: str, upstream: Facts) -> None:
        pointers = (
            "expanded_idx_mapping_ptr",
            "all_token_ids_ptr",
            "prompt_len_ptr",
            "prefill_len_ptr",
            "prompt_bin_mask_ptr",
            "output_bin_counts_ptr",
        )
        strides = ("all_token_ids_stride", "prompt_bin_mask_stride", "output_bin_counts_stride")
        facts = upstream(
            "0.26.0rc1",
            "worker/v2/sample/penalties.py",
            "_bincount_kernel",
            {**dict.fromkeys(pointers, "*i32"), **dict.fromkeys(strides, 4748), "BLOCK_SIZE": 1024},
            part,
        )
        assert facts.locks == 1
        assert facts.atomics == 1
        under_the_lock = [loop for loop in facts.scalar_loops if loop.transfers == 2]
        assert [loop.trips for loop in under_the_lock] == [1024]
        scattered = [item for item in facts.gm_writes if item.bytes == 4]
        assert {item.times for item in scattered} == {1024}
        operations = {name for loop in facts.scalar_loops for name in loop.operations}
        assert ({"remsi", "shli"} <= operations) == (part in OLD)

    def test_ranks(self, part: str, upstream: Facts) -> None:
        facts = upstream(
            "0.26.0rc1",
            "worker/v2/sample/logprob.py",
            "_ranks_kernel",
            {
                "output_ptr": "*i64",
                "logits_ptr": "*fp32",
                "logits_stride": 151936,
                "token_ids_ptr": "*i64",
                "vocab_size": 151936,
                "batch_size": 64,
                "rows_per_core": 2,
                "BLOCK_SIZE": 8192,
            },
            part,
            multibuffer=False,
        )
        assert facts.scalar_loops == ()
        assert facts.tile_rewrites == ()
        assert not facts.trips_exact
        if part in OLD:
            assert facts.vector_calls["vcast_bool_to_int32_t_1d_with_temp"] == 1
