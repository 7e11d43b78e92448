"""The port grammar_bitmask: how it cuts rows, and its values in each variant."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ascendport.checks import baseline, oracle
from ascendport.checks.subject import Options, Subject
from tests.conftest import ReleaseTree
from tests.kernels.subjects import assert_every_case_passes, pure_functions, subject

Split = Callable[[int, int, int, int], tuple[int, int]]

VARIANTS = [
    pytest.param("0.26.0rc1", id="worker-v2"),
    pytest.param("0.27.1rc1", id="ops-v2"),
    pytest.param("0.30.0rc2", id="packed"),
]
QUICK = (
    "vocab-31",
    "vocab-32001",
    "by-tile-bf16",
    "edges-fp16",
    "special-values-fp32",
    "no-rows",
    "more-rows-than-cores",
    "rows-among-others",
    "stride-over-vocab",
    "bitmask-wider-than-vocab",
    "offset-over-2-31",
)


def _subject(tree: Path, options: Options) -> Subject:
    return subject(tree, "grammar_bitmask", options)


@pytest.fixture(scope="module")
def split() -> Split:
    names = pure_functions("grammar_bitmask", "_split_grammar_rows")
    alone: Split = names["_split_grammar_rows"]
    return alone


@given(
    rows=st.integers(1, 5000),
    vocab=st.integers(1, 300_000),
    cores=st.integers(1, 64),
    tile=st.sampled_from([4096, 8192]),
)
def test_spans_cover_a_row_once_in_the_fewest_rounds(
    split: Split, rows: int, vocab: int, cores: int, tile: int
) -> None:
    spans, span = split(rows, vocab, cores, tile)
    assert (spans - 1) * span < vocab <= spans * span
    assert span <= tile
    assert span % 256 == 0
    fewest = -(-vocab // tile)
    assert -(-rows * spans // cores) <= -(-rows * fewest // cores)


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        pytest.param(1, (40, 3840), id="one-row-uses-every-core"),
        pytest.param(8, (20, 7680), id="eight-rows-fill-four-rounds"),
        pytest.param(64, (19, 8192), id="many-rows-take-full-tiles"),
    ],
)
def test_rows_of_151936_tokens_on_40_cores(
    split: Split, rows: int, expected: tuple[int, int]
) -> None:
    assert split(rows, 151936, 40, 8192) == expected


@pytest.mark.ascend
@pytest.mark.network
@pytest.mark.parametrize("release", VARIANTS)
def test_values(release: str, release_tree: ReleaseTree) -> None:
    names = QUICK + (("positions-dropped",) if release == "0.30.0rc2" else ())
    result = assert_every_case_passes(oracle, _subject(release_tree(release), Options(cases=names)))
    before = {case.case: str(case.figures["before"]) for case in result.cases}
    # What upstream's own kernel does with a row that lies past 2**31 elements.
    assert before["offset-over-2-31"].startswith("fails")
    assert before["vocab-32001"] == "same"


@pytest.mark.ascend
@pytest.mark.network
@pytest.mark.parametrize("release", VARIANTS)
def test_equals_vllm_core(release: str, release_tree: ReleaseTree) -> None:
    names = tuple(name for name in QUICK if name != "offset-over-2-31")
    assert_every_case_passes(baseline, _subject(release_tree(release), Options(cases=names)))
