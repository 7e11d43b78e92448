"""The port bincount: how it splits the work, its values, and faults that the checks must catch."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ascendport import commands
from ascendport.checks import baseline, oracle, simulate
from ascendport.checks.outcome import CaseResult, Outcome
from ascendport.checks.subject import Options, Subject
from tests.conftest import ReleaseCopy, ReleaseTree
from tests.kernels.subjects import assert_every_case_passes, pure_functions, subject

FILE = "vllm_ascend/worker/v2/sample/penalties.py"
QUICK = (
    "vocab-31",
    "vocab-1000",
    "no-prompt",
    "prompt-past-the-prefill",
    "nothing-to-look-at",
    "one-token",
    "ids-out-of-range",
    "no-rows",
    "requests-named-twice",
    "strides-over-columns",
    "counts-past-2-31",
    "kernel-adds",
)
CORE = ("vocab-1000", "prompt-past-the-prefill", "ids-out-of-range", "requests-named-twice")
KIB = 1024


def _subject(tree: Path, *cases: str) -> Subject:
    return subject(tree, "bincount", Options(cases=cases, socs=("Ascend910B3",)))


@pytest.fixture(scope="module")
def plan() -> dict[str, Callable[..., Any]]:
    return pure_functions("bincount", "_bincount_split", "_bincount_spans", "_bincount_tiles")


Plan = dict[str, Callable[..., Any]]


@given(
    requests=st.integers(1, 5000),
    tokens=st.integers(0, 300_000),
    vocab=st.integers(1, 300_000),
    cores=st.integers(1, 64),
    join=st.booleans(),
)
def test_a_split_uses_the_cores_and_no_more(
    plan: Plan, requests: int, tokens: int, vocab: int, cores: int, join: bool
) -> None:
    slices, parts = plan["_bincount_split"](requests, tokens, vocab, cores, join)
    assert 1 + join <= parts <= slices <= max(cores, 1 + join)
    assert parts == 1 or requests * parts * vocab // 8 < 2**31


@pytest.mark.parametrize(
    ("requests", "tokens", "expected"),
    [
        pytest.param(1, 10, (40, 1), id="short-prompt-in-one-part"),
        pytest.param(1, 1024, (40, 20), id="middling-prompt-in-twenty"),
        pytest.param(1, 32768, (40, 40), id="long-prompt-on-every-core"),
        pytest.param(8, 5120, (5, 5), id="eight-requests-on-forty-cores"),
        pytest.param(4096, 8, (1, 1), id="more-requests-than-cores"),
    ],
)
def test_splits_on_40_cores(
    plan: Plan, requests: int, tokens: int, expected: tuple[int, int]
) -> None:
    assert plan["_bincount_split"](requests, tokens, 151936, 40, False) == expected


@given(
    size=st.integers(1, 20_000),
    requests=st.integers(1, 5000),
    cores=st.integers(1, 64),
)
def test_spans_cover_a_row_in_the_fewest_rounds(
    plan: Plan, size: int, requests: int, cores: int
) -> None:
    span = plan["_bincount_spans"](size, requests, cores, 1024, 128)
    spans = -(-size // span)
    assert span % 128 == 0
    assert span <= 1024
    assert -(-requests * spans // cores) <= -(-requests * -(-size // 1024) // cores)


@pytest.mark.parametrize(
    ("words", "ub", "expected"),
    [
        pytest.param(4748, 192 * KIB, (8192, 32768), id="a2"),
        pytest.param(8192, 192 * KIB, (8192, 32768), id="a2-262144-tokens"),
        pytest.param(9376, 192 * KIB, (8192, 32768), id="a2-300001-tokens-in-two-tiles"),
        pytest.param(4748, 248 * KIB, (8192, 32768), id="a5"),
        pytest.param(32, 128 * KIB, (32, 16384), id="small-buffer"),
        pytest.param(1, 192 * KIB, (1, 32768), id="one-word"),
    ],
)
def test_tiles(plan: Plan, words: int, ub: int, expected: tuple[int, int]) -> None:
    assert plan["_bincount_tiles"](words, ub) == expected
    assert 4 * sum(expected) < ub * 9 // 10


@pytest.mark.ascend
@pytest.mark.network
def test_values(release_tree: ReleaseTree) -> None:
    result = assert_every_case_passes(oracle, _subject(release_tree("0.30.0rc2"), *QUICK))
    before = {case.case: str(case.figures["before"]) for case in result.cases}
    assert before["vocab-1000"] == "same"
    # What upstream's kernel does with an id that is none, and with a row past 2**31 elements.
    assert before["ids-out-of-range"].startswith("differs")
    assert before["counts-past-2-31"].startswith("fails")


@pytest.mark.ascend
@pytest.mark.network
def test_a_release_that_does_not_tell_the_buffers_size(release_tree: ReleaseTree) -> None:
    tree = release_tree("0.24.0rc1")
    helpers = (tree / "vllm_ascend/ops/triton/triton_utils.py").read_text()
    assert "get_ub_size_bytes" not in helpers
    result = oracle.run(_subject(tree, "vocab-1000"))
    assert result.outcome is Outcome.PASSED, result.reason


@pytest.mark.ascend
@pytest.mark.network
def test_equals_vllm_core(release_tree: ReleaseTree) -> None:
    assert_every_case_passes(baseline, _subject(release_tree("0.30.0rc2"), *CORE))


def _simulated(subject: Subject) -> dict[str, CaseResult]:
    """The first SoC's result of each case."""
    found: dict[str, CaseResult] = {}
    for case in simulate.run(subject).cases:
        found.setdefault(case.case.split()[0], case)
    return found


@pytest.mark.ascend
@pytest.mark.network
def test_compiled_programs_give_the_values_and_upstreams_hangs(release_tree: ReleaseTree) -> None:
    found = _simulated(_subject(release_tree("0.30.0rc2"), "lengths-at-blocks", "kernel-adds"))
    for case in found.values():
        assert case.outcome is Outcome.PASSED, case.reason
    # A program without output tokens returns before a lock that all others wait for.
    assert "lock" in str(found["lengths-at-blocks"].figures["before"])


def _changed(subject: Subject, old: str, new: str) -> Subject:
    """The port with one line of its kernel changed."""
    text = subject.after[FILE].decode()
    assert text.count(old) >= 1
    return Subject(
        subject.checkout,
        subject.port,
        subject.variant,
        subject.before,
        {**subject.after, FILE: text.replace(old, new).encode()},
        subject.options,
    )


@pytest.mark.ascend
@pytest.mark.network
@pytest.mark.parametrize(
    ("case", "old", "new"),
    [
        pytest.param(
            "ids-out-of-range",
            "token.to(tl.uint32) < tokens.to(tl.uint32)",
            "token < tokens",
            id="negative-ids-let-in",
        ),
        pytest.param("one-token", "get_element(tile, (token,)) + times", "times", id="no-adding"),
        pytest.param("requests-named-twice", ") + times", ") + 1", id="named-twice-counted-once"),
        pytest.param(
            "prompt-past-the-prefill",
            "tl.minimum(tl.minimum(prompt_len, limit), blocks)",
            "tl.minimum(prompt_len, prefill_len)",
            id="prompt-cut-at-the-prefill",
        ),
    ],
)
def test_wrong_values_are_caught(case: str, old: str, new: str, release_tree: ReleaseTree) -> None:
    """`test_values` has the same cases, unchanged."""
    assert case in QUICK
    wrong = _changed(_subject(release_tree("0.30.0rc2"), case), old, new)
    assert oracle.run(wrong).outcome is Outcome.FAILED


@pytest.mark.ascend
@pytest.mark.network
def test_two_programs_on_one_row_are_caught(release_tree: ReleaseTree) -> None:
    """Both write the same values: only the conflict shows it."""
    right = _subject(release_tree("0.30.0rc2"), "one-request-named-twice")
    wrong = _changed(right, "times = tl.where(earlier > 0, 0, times)", "times += 0 * earlier")
    assert _simulated(right)["one-request-named-twice"].outcome is Outcome.PASSED
    found = _simulated(wrong)["one-request-named-twice"]
    assert found.outcome is Outcome.FAILED
    assert "conflict" in found.reason


@pytest.mark.network
@pytest.mark.parametrize("order", [("penalties", "bincount"), ("bincount", "penalties")])
def test_goes_in_together_with_penalties(
    order: tuple[str, str], release_copy: ReleaseCopy, tmp_path: Path
) -> None:
    root = release_copy("0.30.0rc2", tmp_path / "tree")
    before = (root / FILE).read_bytes()

    def note(line: str) -> None:
        raise AssertionError(line)

    for name in order:
        done = commands.apply(root, [name], (), note, dry_run=False, force=False)
        assert [str(one.outcome) for one in done.ports] == ["applied"]
    module = ast.parse((root / FILE).read_bytes())
    names = [node.name for node in module.body if isinstance(node, ast.FunctionDef)]
    assert {"bincount", "apply_penalties", "_bincount_build"} <= set(names)
    assert len(names) == len(set(names))
    imported = [
        alias.asname or alias.name
        for node in module.body
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    ]
    assert len(imported) == len(set(imported))
    for name in order:
        commands.revert(root, [name], (), note, dry_run=False)
    assert (root / FILE).read_bytes() == before
