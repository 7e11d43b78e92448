"""What is known of the real releases, found by the analysis itself."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from ascendport.checkout.pins import pins
from ascendport.wiring.analysis import analyse_tree
from ascendport.wiring.model import Judged, Verdict, Wiring
from ascendport.wiring.sources import python_files

pytestmark = pytest.mark.network

QUICK = ("0.25.1rc1", "0.30.0rc2")
"""The others take half a minute each on a cold cache."""
RELEASES = [
    pytest.param(release, marks=() if release in QUICK else pytest.mark.slow) for release in pins()
]
RENAMED = "compute_topk_logprobs"


@cache
def _wiring(root: Path, release: str) -> Wiring:
    files = python_files(root, "vllm_ascend")
    progress: Callable[[str, int, int], None] = lambda what, done, total: None  # noqa: E731
    return analyse_tree(files, pins()[release], progress, name=f"tree {root}").wiring


@pytest.fixture
def judged(request: pytest.FixtureRequest, release_tree: Callable[[str], Path]) -> list[Judged]:
    release: str = request.param
    return list(_wiring(release_tree(release), release).judged)


def of(judged: list[Judged], name: str) -> dict[str, Judged]:
    return {
        item.assignment.target: item
        for item in judged
        if item.assignment.name == name
        and item.assignment.file.endswith("patch_v2/patch_triton.py")
    }


on_releases = pytest.mark.parametrize("judged", RELEASES, indirect=True)


@on_releases
def test_the_renamed_function(judged: list[Judged], request: pytest.FixtureRequest) -> None:
    """vllm 0.26.0 renamed what three modules read; the patch kept the old name."""
    found = of(judged, RENAMED)
    release = request.node.callspec.params["judged"]
    if release in ("0.24.0rc1", "0.25.1rc1"):
        assert found
        assert {item.verdict for item in found.values()} == {Verdict.LIVE}
        return
    assert set(found) == {
        f"{module}.{RENAMED}" for module in ("sampler", "prompt_logprob", "rejection_sampler")
    }
    for item in found.values():
        assert item.verdict is Verdict.NO_SUCH_NAME
        assert item.instead == "compute_topk_scores"


@on_releases
def test_the_eagle_speculator_has_no_such_name(judged: list[Judged]) -> None:
    found = of(judged, "gumbel_sample")
    assert found["speculator.gumbel_sample"].verdict is Verdict.NO_SUCH_NAME
    assert found["sampler.gumbel_sample"].verdict is Verdict.LIVE


@on_releases
def test_the_grammar_kernel_is_reached(judged: list[Judged]) -> None:
    found = of(judged, "_apply_grammar_bitmask_kernel")
    assert [item.verdict for item in found.values()] == [Verdict.LIVE]
    assert next(iter(found.values())).reads[0].file == "vllm/v1/worker/gpu/structured_outputs.py"


@on_releases
def test_almost_all_is_decided(judged: list[Judged]) -> None:
    unknown = [item for item in judged if item.verdict is Verdict.UNKNOWN]
    alive = [item for item in judged if item.verdict.alive]
    assert len(alive) > 120
    assert len(unknown) * 20 < len(judged)
    assert all(item.reason for item in judged if not item.verdict.alive)
