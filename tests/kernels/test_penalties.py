"""The port penalties: how it cuts rows, sizes tiles, and its values."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ascendport.checks import baseline, oracle
from ascendport.checks.subject import Options, Subject
from ascendport.harness.case import Role, Tensor, Workload
from ascendport.harness.portcode import load_port
from tests.conftest import ReleaseTree
from tests.kernels.subjects import assert_every_case_passes, port, pure_functions, subject

VARIANTS = [
    pytest.param("0.25.1rc1", marks=pytest.mark.slow, id="old-text"),
    pytest.param("0.30.0rc2", id="new-text"),
]
QUICK = (
    "vocab-31",
    "odd-penalties",
    "special-values-bf16",
    "drafts-outside-the-vocabulary",
    "drafts-in-one-tile",
    "no-rows",
    "more-rows-than-cores",
    "no-penalty-set",
    "stride-over-vocab",
    "offset-over-2-31",
)
KIB = 1024


def _subject(tree: Path, options: Options) -> Subject:
    return subject(tree, "penalties", options)


@pytest.fixture(scope="module")
def pure() -> dict[str, Callable[..., Any]]:
    return pure_functions("penalties", "_penalties_split", "_penalties_tile")


@given(
    rows=st.integers(1, 5000),
    vocab=st.integers(1, 500_000),
    cores=st.integers(1, 64),
    tile=st.sampled_from([2048, 4096]),
)
def test_spans_cover_a_row_once_in_the_fewest_rounds(
    pure: dict[str, Callable[..., Any]], rows: int, vocab: int, cores: int, tile: int
) -> None:
    spans, span = pure["_penalties_split"](rows, vocab, cores, tile)
    assert (spans - 1) * span < vocab <= spans * span
    assert span <= tile
    assert span % 256 == 0
    fewest = -(-vocab // tile)
    assert -(-rows * spans // cores) <= -(-rows * fewest // cores)


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        pytest.param(1, (40, 3840), id="one-row-uses-every-core"),
        pytest.param(8, (40, 3840), id="eight-rows-fill-eight-rounds"),
        pytest.param(64, (38, 4096), id="many-rows-take-full-tiles"),
    ],
)
def test_rows_of_151936_tokens_on_40_cores(
    pure: dict[str, Callable[..., Any]], rows: int, expected: tuple[int, int]
) -> None:
    assert pure["_penalties_split"](rows, 151936, 40, 4096) == expected


@pytest.mark.parametrize(
    ("ub_bytes", "tile"),
    [
        pytest.param(192 * KIB, 4096, id="A2"),
        pytest.param(248 * KIB, 4096, id="A5"),
        pytest.param(128 * KIB, 2048, id="smaller"),
        pytest.param(512 * KIB, 8192, id="larger"),
    ],
)
def test_tile_fits_the_buffer(
    pure: dict[str, Callable[..., Any]], ub_bytes: int, tile: int
) -> None:
    assert pure["_penalties_tile"](ub_bytes) == tile


def _one_row(**changes: Any) -> Workload:
    """Row 2 of three, at position 2 of one request; 40 tokens, whose logits are 2 and -2."""
    values: dict[str, Any] = {
        "logits": np.tile(np.array([2, -2], dtype=np.float32), (3, 20)),
        "expanded_idx_mapping": np.zeros(3, dtype=np.int32),
        "token_ids": np.array([9, 5, 5], dtype=np.int32),
        "expanded_local_pos": np.array([0, 1, 2], dtype=np.int32),
        "repetition_penalty": np.ones(1, dtype=np.float32),
        "frequency_penalty": np.zeros(1, dtype=np.float32),
        "presence_penalty": np.zeros(1, dtype=np.float32),
        "prompt_bin_mask": np.zeros((1, 2), dtype=np.int32),
        "output_bin_counts": np.zeros((1, 40), dtype=np.int32),
    }
    for name, value in changes.items():
        values[name] = np.array(value, dtype=values[name].dtype).reshape(values[name].shape)
    return Workload(
        {
            name: Tensor(value, Role.INOUT if name == "logits" else Role.IN)
            for name, value in values.items()
        }
    )


def _answer(**changes: Any) -> Any:
    return load_port(port("penalties")).reference(_one_row(**changes), "worker-v2")["logits"]


def test_reference_counts_the_drafts_of_a_position_once_each() -> None:
    got = _answer(frequency_penalty=[1.0])
    assert got[:, 5].tolist() == [-2, -3, -4]
    assert got[:, 9].tolist() == [-2, -2, -2]


def test_reference_divides_positive_logits_and_multiplies_others() -> None:
    got = _answer(repetition_penalty=[2.0], prompt_bin_mask=[0b11, 0b1])
    assert got[0, :4].tolist() == [1, -4, 2, -2]
    assert got[0, 32] == 1


def test_reference_takes_the_presence_off_once() -> None:
    counts = np.zeros(40)
    counts[7] = 3
    got = _answer(presence_penalty=[0.5], output_bin_counts=counts)
    assert got[0, 6:9].tolist() == [2, -2.5, 2]


def test_reference_leaves_a_row_without_penalties() -> None:
    assert np.array_equal(_answer(prompt_bin_mask=[-1, -1]), _one_row().tensors["logits"].values)


@pytest.mark.ascend
@pytest.mark.network
@pytest.mark.parametrize("release", VARIANTS)
def test_values(release: str, release_tree: ReleaseTree) -> None:
    assert_every_case_passes(oracle, _subject(release_tree(release), Options(cases=QUICK)))


@pytest.mark.ascend
@pytest.mark.network
@pytest.mark.parametrize("release", VARIANTS)
def test_equals_vllm_core(release: str, release_tree: ReleaseTree) -> None:
    names = tuple(name for name in QUICK if name != "offset-over-2-31")
    assert_every_case_passes(baseline, _subject(release_tree(release), Options(cases=names)))
