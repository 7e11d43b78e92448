"""The port grammar_bitmask: how it sizes tiles, and its values in each variant."""

from __future__ import annotations

from pathlib import Path

import pytest

from ascendport.checks import baseline, oracle
from ascendport.checks.subject import Options, Subject
from tests.conftest import ReleaseTree
from tests.kernels.subjects import assert_every_case_passes, pure_functions, subject

KIB = 1024

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


@pytest.mark.parametrize(
    ("ub_bytes", "element_size", "expected"),
    [
        pytest.param(192 * KIB, 2, 8192, id="A2-16-bits"),
        pytest.param(192 * KIB, 4, 4096, id="A2-32-bits"),
        pytest.param(248 * KIB, 2, 8192, id="A5-16-bits"),
        pytest.param(248 * KIB, 4, 4096, id="A5-32-bits"),
        pytest.param(128 * KIB, 2, 4096, id="smaller"),
        pytest.param(512 * KIB, 4, 16384, id="larger"),
    ],
)
def test_tile_fits_the_buffer(ub_bytes: int, element_size: int, expected: int) -> None:
    names = pure_functions("grammar_bitmask", "_grammar_tile")
    assert names["_grammar_tile"](ub_bytes, element_size) == expected


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
