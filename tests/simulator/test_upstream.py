"""Real kernels: what upstream's do, what the port does, and that values are right."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from ascendport.harness.loading import loaded
from ascendport.harness.workspace import Tree
from ascendport.simulator import Kind, Simulator
from tests.conftest import ReleaseTree
from tests.simulator.conftest import Compile, run_time_arguments

pytestmark = pytest.mark.ascend

DTYPES: dict[str, Any] = {"fp32": np.float32, "fp16": np.float16, "bf16": ml_dtypes.bfloat16}
VOCAB = 3003
ROWS = 4
WORDS = -(-VOCAB // 32)

OLD = ("0.26.0rc1", "vllm_ascend/worker/v2/structured_outputs.py", "_apply_grammar_bitmask_kernel")
NEW = (
    "0.30.0rc2",
    "vllm_ascend/ops/triton/v2/apply_grammar_bitmask.py",
    "_apply_grammar_bitmask_kernel_impl",
)


def draw(dtype: str) -> tuple[Any, Any, Any]:
    """(logits, packed masks, right answer)."""
    rng = np.random.default_rng(7)
    logits = rng.standard_normal((ROWS, VOCAB)).astype(DTYPES[dtype])
    words = rng.integers(0, 2**32, (ROWS, WORDS), dtype=np.uint32)
    allowed = np.unpackbits(words.view(np.uint8), axis=1, bitorder="little")[:, :VOCAB]
    wanted = np.where(allowed, logits, np.array(-np.inf, logits.dtype)).astype(logits.dtype)
    return logits, words.view(np.int32), wanted


def same(a: Any, b: Any) -> bool:
    bits = np.dtype(f"u{a.dtype.itemsize}")
    return bool((a.view(bits) == b.view(bits)).all())


@pytest.mark.parametrize(
    ("dtype", "part"), [("fp32", "A2"), ("fp16", "A2"), ("bf16", "A2"), ("bf16", "A3")]
)
@pytest.mark.parametrize("form", [OLD, NEW], ids=["0.26.0rc1", "0.30.0rc2"])
def test_upstreams_grammar_kernels_leave_their_rows(
    compile_kernel: Compile, release_tree: ReleaseTree, form: Any, dtype: str, part: str
) -> None:
    release, file, name = form
    block = 1024
    blocks = -(-VOCAB // block)
    arguments: dict[str, Any] = {
        "logits_ptr": f"*{dtype}",
        "logits_stride": VOCAB,
        "logits_indices_ptr": "*i32",
        "bitmask_ptr": "*i32",
        "bitmask_stride": WORDS,
        "vocab_size": VOCAB,
        "BLOCK_SIZE": block,
    }
    options: dict[str, Any] = {}
    if form is NEW:
        arguments |= {"cu_num_logits_ptr": "*i32", "total_tasks": ROWS * blocks}
        arguments |= {"NUM_PROGRAMS": 7, "NUM_VOCAB_BLOCKS": blocks, "MASK_STRIDE": 1}
        options = {"multibuffer": False}
    with loaded(Tree(release_tree(release)), file) as module:
        text = compile_kernel(getattr(module, name), arguments, part, **options)
    logits, words, wanted = draw(dtype)
    indices = np.arange(ROWS, dtype=np.int32)
    values: list[Any] = [logits, VOCAB, indices]
    names = ["logits", "stride", "indices"]
    if form is NEW:
        values.append(np.arange(ROWS + 1, dtype=np.int32))
        names.append("cu")
    values += [words, WORDS, VOCAB]
    names += ["masks", "mask_stride", "vocab"]
    grid = (ROWS, blocks)
    if form is NEW:
        values.append(ROWS * blocks)
        grid = (7, 1)
    result = Simulator(text).run(values, grid, names=names)
    # Run one after another, the programs happen to give the right values.
    assert same(logits, wanted)
    found = {finding.kind for finding in result.findings}
    assert found == {Kind.GM_READ, Kind.GM_WRITE, Kind.CONFLICT}
    end = ROWS * VOCAB
    for kind in (Kind.GM_READ, Kind.GM_WRITE):
        (finding,) = result.of(kind)
        assert finding.tensor == "logits"
        assert finding.offset == end * logits.itemsize
        assert finding.location is not None
        assert finding.location.file.endswith(file)
    for finding in result.of(Kind.CONFLICT):
        assert finding.tensor == "logits"
        assert finding.other_program == finding.program + 1
        assert finding.offset is not None
        assert finding.offset % (VOCAB * logits.itemsize) == 0


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_ports_grammar_kernel_is_clean_and_exact(
    compile_kernel: Compile, release_tree: ReleaseTree, tmp_path: Path, dtype: str
) -> None:
    from ascendport.checkout.tree import recognise
    from ascendport.harness.workspace import workspace
    from ascendport.patching.images import images
    from ascendport.ports.catalogue import catalogue

    release, file, name = NEW
    port = next(port for port in catalogue() if port.name == "grammar_bitmask")
    checkout = recognise(release_tree(release))
    made = images(checkout, port)
    with (
        workspace(checkout.root, made.before, made.after) as sides,
        loaded(sides.after, file) as module,
    ):
        span, spans = 512, -(-VOCAB // 512)
        kernel = getattr(module, name)
        known: dict[str, Any] = {
            "logits_ptr": f"*{dtype}",
            "masked_ptr": f"*{dtype}",
            "logits_indices_ptr": "*i32",
            "cu_num_logits_ptr": "*i32",
            "halves_ptr": "*i16",
            "logits_stride": VOCAB,
            "halves_stride": 2 * WORDS,
            "vocab_size": VOCAB,
            "tasks_per_row": spans,
            "tasks": ROWS * spans,
            "mask_stride": 1,
            "TILE": span,
            "CHUNK": span,
        }
        arguments: dict[str, Any] = {
            name: known[name] for name in (parameter.name for parameter in kernel.params)
        }
        text = compile_kernel(kernel, arguments, multibuffer=False)
        order = run_time_arguments(kernel, arguments)
    logits, words, wanted = draw(dtype)
    tensors = {
        "logits_ptr": logits,
        "masked_ptr": logits,
        "logits_indices_ptr": np.arange(ROWS, dtype=np.int32),
        "cu_num_logits_ptr": np.arange(ROWS + 1, dtype=np.int32),
        "halves_ptr": words.view(np.int16),
    }
    values: list[Any] = [tensors.get(name, arguments[name]) for name in order]
    result = Simulator(text).run(values, (5,), names=order)
    assert result.findings == ()
    assert result.clean
    assert same(logits, wanted)


PENALTIES = "vllm_ascend/worker/v2/sample/penalties.py"


def test_upstreams_bincount_waits_for_ever_where_a_program_skips_a_lock(
    compile_kernel: Compile, release_tree: ReleaseTree
) -> None:
    """A lock goes from program to program: one that skips it stops all that come after."""
    vocab, stride = 512, 128
    arguments: dict[str, Any] = {
        "expanded_idx_mapping_ptr": "*i32",
        "all_token_ids_ptr": "*i32",
        "all_token_ids_stride": stride,
        "prompt_len_ptr": "*i32",
        "prefill_len_ptr": "*i32",
        "prompt_bin_mask_ptr": "*i32",
        "prompt_bin_mask_stride": vocab // 32,
        "output_bin_counts_ptr": "*i32",
        "output_bin_counts_stride": vocab,
        "BLOCK_SIZE": 64,
    }
    with loaded(Tree(release_tree("0.30.0rc2")), PENALTIES) as module:
        text = compile_kernel(module._bincount_kernel, arguments)
    simulator = Simulator(text)
    rng = np.random.default_rng(1)
    tokens = rng.integers(0, vocab, (2, stride)).astype(np.int32)

    def right(lengths: tuple[int, int], mask: Any, counts: Any) -> None:
        for row, (first, last) in enumerate(zip((40, 30), lengths, strict=True)):
            wanted = np.zeros(vocab, np.uint8)
            wanted[tokens[row, :first]] = 1
            bits = np.unpackbits(mask[row].view(np.uint8), bitorder="little")
            assert (bits == wanted).all()
            assert (counts[row] == np.bincount(tokens[row, first:last], minlength=vocab)).all()

    def launch(
        lengths: tuple[int, int], grid: tuple[int, int], **options: Any
    ) -> tuple[Any, Any, Any]:
        mask = np.zeros((2, vocab // 32), np.int32)
        counts = np.zeros((2, vocab), np.int32)
        prompt, prefill = np.array([40, 30], np.int32), np.array(lengths, np.int32)
        mapping = np.arange(2, dtype=np.int32)
        values: list[Any] = [
            mapping,
            tokens,
            stride,
            prompt,
            prefill,
            mask,
            vocab // 32,
            counts,
            vocab,
        ]
        return simulator.run(values, grid, **options), mask, counts

    # One block a request: every program takes both locks, one for each atomic of the kernel.
    result, mask, counts = launch((60, 64), (2, 1))
    assert result.clean
    right((60, 64), mask, counts)
    # Two blocks: the second one has no prompt tokens, so it skips the first lock.
    result, _, _ = launch((100, 128), (2, 2))
    assert [finding.kind for finding in result.findings] == [Kind.LOCK]
    assert result.findings[0].program == 2
    assert "for ever" in result.stopped
    result, mask, counts = launch((100, 128), (2, 2), past_locks=True)
    assert {finding.kind for finding in result.findings} == {Kind.LOCK}
    right((100, 128), mask, counts)


def test_upstreams_penalties_are_exact(compile_kernel: Compile, release_tree: ReleaseTree) -> None:
    rows, vocab = 8, 1003
    words = -(-vocab // 32)
    arguments: dict[str, Any] = {
        "logits_ptr": "*fp32",
        "logits_stride": vocab,
        "expanded_idx_mapping_ptr": "*i32",
        "token_ids_ptr": "*i32",
        "expanded_local_pos_ptr": "*i32",
        "repetition_penalty_ptr": "*fp32",
        "frequency_penalty_ptr": "*fp32",
        "presence_penalty_ptr": "*fp32",
        "prompt_bin_mask_ptr": "*i32",
        "prompt_bin_mask_stride": words,
        "output_bin_counts_ptr": "*i32",
        "output_bin_counts_stride": vocab,
        "vocab_size": vocab,
        "NUM_VOCAB_BLOCKS": 4,
        "VOCAB_GRID_SIZE": 3,
        "BLOCK_SIZE": 256,
    }
    with loaded(Tree(release_tree("0.30.0rc2")), PENALTIES) as module:
        text = compile_kernel(module._penalties_kernel, arguments)
    rng = np.random.default_rng(4)
    logits = (rng.standard_normal((rows, vocab)) * 4).astype(np.float32)
    repetition = np.array([1, 1.2, 1, 1, 1.7, 0.9, 1, 1.2], np.float32)
    frequency = np.array([0, 0, 0.3, 0, 0.3, 0, -0.3, 0.1], np.float32)
    presence = np.array([0, 0, 0, 0.7, 0.7, 0, 0, 0.2], np.float32)
    mask = rng.random((rows, words * 32)) < 0.1
    packed = np.packbits(mask, axis=1, bitorder="little").view(np.int32)
    counts = rng.integers(-9, 4, (rows, vocab)).clip(0).astype(np.int32)
    position = (np.arange(rows) % 4).astype(np.int32)
    tokens = rng.integers(0, vocab, rows).astype(np.int32)
    wanted = logits.copy()
    one = np.float32(1)
    for row, at in enumerate(position.tolist()):
        if (repetition[row], frequency[row], presence[row]) == (1, 0, 0):
            continue
        seen = counts[row].copy()
        for before in range(at):
            seen[tokens[row - at + before + 1]] += 1
        used = mask[row, :vocab] | (seen != 0)
        scale = np.where(used, repetition[row], one)
        value = wanted[row]
        if repetition[row] != 1:
            value = value * np.where(value > 0, one / scale, scale)
        value = value - frequency[row] * seen.astype(np.float32)
        wanted[row] = value - presence[row] * (seen != 0).astype(np.float32)
    mapping = np.arange(rows, dtype=np.int32)
    values: list[Any] = [logits, vocab, mapping, tokens, position]
    values += [repetition, frequency, presence, packed, words, counts, vocab, vocab]
    result = Simulator(text).run(values, (rows, 3))
    assert result.clean, result.findings
    assert same(logits, wanted)


def test_upstreams_log_softmax_is_right(compile_kernel: Compile, release_tree: ReleaseTree) -> None:
    rows, vocab, top = 2, 5000, 3
    arguments = {
        "output_ptr": "*fp32",
        "logits_ptr": "*fp32",
        "logits_stride": vocab,
        "topk_ids_ptr": "*i64",
        "topk": top,
        "vocab_size": vocab,
        "BLOCK_SIZE": 1024,
        "PADDED_TOPK": 4,
    }
    file = "vllm_ascend/worker/v2/sample/logprob.py"
    with loaded(Tree(release_tree("0.30.0rc2")), file) as module:
        text = compile_kernel(module._topk_log_softmax_kernel, arguments)
    rng = np.random.default_rng(2)
    logits = (rng.standard_normal((rows, vocab)) * 5).astype(np.float32)
    ids = rng.integers(0, vocab, (rows, top))
    out = np.zeros((rows, top), np.float32)
    result = Simulator(text).run([out, logits, vocab, ids, top, vocab], (rows,))
    assert result.clean
    wide = logits.astype(np.float64)
    wide -= np.log(np.exp(wide).sum(axis=1, keepdims=True))
    assert np.abs(out - np.take_along_axis(wide, ids, 1)).max() < 2e-6
