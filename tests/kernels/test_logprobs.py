"""The port logprobs: how it deals rows to cores, its values, and that vllm reaches it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ascendport.checks import baseline, oracle, wiring
from ascendport.checks.outcome import Outcome
from ascendport.checks.subject import Options, Subject
from tests.conftest import RELEASES, ReleaseTree
from tests.kernels.subjects import assert_every_case_passes, pure_functions, subject

Split = Callable[[int, int, int, int], tuple[int, int, int]]

VARIANTS = [
    pytest.param("0.25.1rc1", id="topk-logprobs"),
    pytest.param("0.30.0rc2", id="topk-scores"),
]
QUICK = (
    "vocab-31",
    "vocab-32001",
    "ties-bf16",
    "zeros-fp32",
    "masked-fp16",
    "special-fp32",
    "row-all-minus-inf",
    "spread-over-400",
    "num-33",
    "no-rows",
    "70-rows",
    "sampled-outside",
    "token-ids-outside",
    "token-ids-9",
    "own-ids",
)


def _subject(tree: Path, options: Options) -> Subject:
    return subject(tree, "logprobs", options)


@pytest.fixture(scope="module")
def plain() -> dict[str, Any]:
    return pure_functions("logprobs", "_split_score_rows", "_score_tile")


@given(
    rows=st.integers(1, 5000),
    vocab=st.integers(1, 1_200_000),
    cores=st.integers(1, 64),
    tile=st.sampled_from([2048, 4096, 8192]),
)
def test_every_span_is_dealt_once_and_no_row_has_too_many_parts(
    plain: dict[str, Any], rows: int, vocab: int, cores: int, tile: int
) -> None:
    span, share, parts = plain["_split_score_rows"](rows, vocab, cores, tile)
    spans = -(-vocab // span)
    assert 0 < span <= tile
    assert span % 256 == 0
    assert parts <= plain["_SCORE_PARTS"]
    programs = -(-rows * spans // share)
    assert programs <= cores
    # As the kernels count: the parts of a row are the programs that its spans fall to.
    for row in {0, 1, rows // 2, rows - 1}:
        start = row * spans
        assert (start + spans - 1) // share - start // share + 1 <= parts


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        pytest.param(1, (3840, 1, 40), id="one-row-uses-every-core"),
        pytest.param(8, (3840, 8, 6), id="eight-rows-share-five-cores-each"),
        pytest.param(64, (4096, 61, 2), id="64-rows-take-full-tiles"),
    ],
)
def test_rows_of_151936_tokens_on_40_cores(
    plain: dict[str, Any], rows: int, expected: tuple[int, int, int]
) -> None:
    assert plain["_split_score_rows"](rows, 151936, 40, 4096) == expected


@pytest.mark.parametrize(
    ("ub_bytes", "tile"),
    [
        pytest.param(192 * 1024, 4096, id="A2-and-A3"),
        pytest.param(248 * 1024, 4096, id="A5"),
        pytest.param(128 * 1024, 2048, id="smaller"),
        pytest.param(512 * 1024, 8192, id="larger"),
    ],
)
def test_tile_follows_the_unified_buffer(plain: dict[str, Any], ub_bytes: int, tile: int) -> None:
    assert plain["_score_tile"](ub_bytes) == tile


@pytest.mark.ascend
@pytest.mark.network
@pytest.mark.parametrize("release", VARIANTS)
def test_values(release: str, release_tree: ReleaseTree) -> None:
    result = assert_every_case_passes(oracle, _subject(release_tree(release), Options(cases=QUICK)))
    before = {case.case: str(case.figures["before"]) for case in result.cases}
    # Upstream counts the logits above the token's, vllm-core those that are at least as high.
    if release == "0.25.1rc1":
        assert "ranks" in before["vocab-31"]
    assert before["token-ids-9"] == "same"


@pytest.mark.ascend
@pytest.mark.network
@pytest.mark.parametrize("release", VARIANTS)
def test_equals_vllm_core(release: str, release_tree: ReleaseTree) -> None:
    names = ("vocab-32001", "ties-bf16", "row-all-minus-inf", "token-ids-9", "own-ids")
    assert_every_case_passes(baseline, _subject(release_tree(release), Options(cases=names)))


@pytest.mark.network
@pytest.mark.parametrize("release", VARIANTS)
def test_each_tree_gets_the_name_that_its_vllm_reads(
    release: str, release_tree: ReleaseTree
) -> None:
    subject = _subject(release_tree(release), Options())
    wanted = "topk-logprobs" if release == "0.25.1rc1" else "topk-scores"
    assert subject.variant.name == wanted


@pytest.mark.slow
@pytest.mark.network
@pytest.mark.parametrize("release", RELEASES)
def test_vllm_reaches_every_symbol(release: str, release_tree: ReleaseTree) -> None:
    result = wiring.run(_subject(release_tree(release), Options()))
    assert result.outcome is Outcome.PASSED, result.reason
