"""upstream-tests for kernel ports: judged on made-up outcomes, and run on a tree of our own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ascendport.checks import kernel_tests, upstream_tests
from ascendport.checks.kernel_tests import judge
from ascendport.checks.outcome import CheckResult, Outcome
from ascendport.checks.subject import Options, Subject
from ascendport.harness.pytest_child import Outcomes
from ascendport.harness.upstream import TOO_LONG, files_testing
from tests.conftest import ReleaseTree
from tests.evil import texts
from tests.evil.build import subject
from tests.kernels.subjects import subject as real_subject

CONTESTED = {"test_ranks": "it counts otherwise"}


def _outcomes(**found: str) -> Outcomes:
    return Outcomes(
        {f"tests.ops.{name.replace('__', '::')}": how for name, how in found.items()},
        why={f"tests.ops.{name.replace('__', '::')}": f"why {how}" for name, how in found.items()},
    )


def _cases(result: CheckResult) -> dict[str, Outcome]:
    return {case.case: case.outcome for case in result.cases}


def test_what_passed_and_passes() -> None:
    both = _outcomes(test_a__test_x="passed", test_a__test_y="failed", test_b__test_z="error")
    result = judge(both, both, {})
    assert result.outcome is Outcome.PASSED
    assert result.reason.startswith("1 tests pass, with Triton's interpreter in the place of")
    assert "2 fail before as after" in result.reason
    assert _cases(result) == {"test_a": Outcome.PASSED, "test_b": Outcome.NOT_RUN}
    assert "why error" in result.cases[1].reason


def test_what_is_skipped_on_both_sides_is_told_of() -> None:
    both = _outcomes(test_a__test_x="passed", test_a__test_y="skipped")
    result = judge(both, both, {})
    assert result.outcome is Outcome.PASSED
    assert result.reason.endswith("; 1 are skipped: why skipped")


@pytest.mark.parametrize(
    ("seconds", "outcome"),
    [pytest.param(40.0, Outcome.PASSED, id="slow"), pytest.param(1.0, Outcome.FAILED, id="hangs")],
)
def test_what_runs_out_of_time_after(seconds: float, outcome: Outcome) -> None:
    before = _outcomes(test_a__test_x="passed", test_a__test_y="passed")
    before = replace(before, seconds={"tests.ops.test_a::test_y": seconds})
    after = _outcomes(test_a__test_x="passed", test_a__test_y="skipped")
    after = replace(after, why={"tests.ops.test_a::test_y": TOO_LONG})
    result = judge(before, after, {})
    assert result.outcome is outcome
    assert TOO_LONG in result.reason


def test_what_failed_and_passes() -> None:
    before = _outcomes(test_a__test_x="passed", test_a__test_y="failed")
    after = _outcomes(test_a__test_x="passed", test_a__test_y="passed")
    result = judge(before, after, {})
    assert result.outcome is Outcome.PASSED
    assert result.reason.startswith("2 tests pass, with")
    assert result.reason.endswith("; 1 of them fail before")


@pytest.mark.parametrize("after", ["failed", "error", "skipped"])
def test_what_passed_and_does_not_pass(after: str) -> None:
    result = judge(_outcomes(test_a__test_x="passed"), _outcomes(test_a__test_x=after), CONTESTED)
    assert result.outcome is Outcome.FAILED
    assert f"1 tests that passed do not pass, first test_x: why {after}" in result.reason


def test_a_test_that_is_gone_did_not_pass() -> None:
    before = _outcomes(test_a__test_x="passed", test_b__test_x="passed")
    result = judge(before, _outcomes(test_a__test_x="passed"), {})
    assert result.outcome is Outcome.FAILED
    assert "it is not there" in result.reason


def test_a_contested_test_is_told_of_and_does_not_fail_the_port() -> None:
    before = _outcomes(test_a__test_x="passed", **{"test_b__test_ranks[1]": "passed"})
    after = _outcomes(test_a__test_x="passed", **{"test_b__test_ranks[1]": "failed"})
    result = judge(before, after, CONTESTED)
    assert result.outcome is Outcome.PASSED
    assert "1 of test_ranks pass before and fail after, contested: it counts" in result.reason
    assert _cases(result) == {"test_a": Outcome.PASSED, "test_b": Outcome.NOT_RUN}
    # Nothing is proved by contested tests alone.
    alone = judge(
        _outcomes(test_b__test_ranks="passed"), _outcomes(test_b__test_ranks="failed"), CONTESTED
    )
    assert alone.outcome is Outcome.NOT_RUN


def test_a_contested_test_that_passes_is_a_stale_claim() -> None:
    both = _outcomes(test_a__test_ranks="passed")
    result = judge(both, both, CONTESTED)
    assert result.outcome is Outcome.FAILED
    assert "take it out" in result.reason


def test_no_end_or_no_test_before_is_not_run() -> None:
    nothing = Outcomes({}, "no end after 5 s")
    passing = _outcomes(test_a__test_x="passed")
    assert judge(nothing, passing, {}).outcome is Outcome.NOT_RUN
    assert judge(_outcomes(test_a__test_x="failed"), passing, {}).outcome is Outcome.NOT_RUN
    assert judge(passing, nothing, {}).outcome is Outcome.FAILED


TEST = """\
import pytest
import torch
import torch_npu
from vllm.triton_utils import triton

from vllm_ascend.worker.scale import scale


@pytest.mark.skip(reason="the compiler hangs")
@pytest.mark.parametrize("rows", [1, 5])
def test_scale(rows):
    device = torch.device("npu:0")
    x = torch.randn(rows, 40, dtype=torch.float32, device="npu")
    out = torch.empty_like(x).npu().to(device)
    scale(out, x, 2.0)
    torch.npu.synchronize()
    assert out.device == x.device
    assert torch.equal(out, 2 * x)
"""
"""In the manner of a checkout's tests, for the victim of `tests.evil`."""


def _with_test(folder: Path, kernel: str) -> Subject:
    given = subject(folder, kernel, options=Options(timeout_s=120.0))
    tests = folder / "tree/tests/ops"
    tests.mkdir(parents=True)
    (tests / "test_scale.py").write_text(TEST)
    (tests / "test_other.py").write_text("from vllm_ascend.worker.scale import cores\n")
    return given


@pytest.mark.ascend
def test_a_test_that_takes_too_long_is_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = _with_test(tmp_path, texts.RIGHT)
    file = tmp_path / "tree/tests/ops/test_scale.py"
    endless = "\n\ndef test_endless():\n    while True:\n        scale\n"
    file.write_text(TEST.replace("[1, 5]", "[1]") + endless)
    sitecustomize = "import ascendport.harness.upstream as u\nu.LIMIT_S = 2.0\n"
    (tmp_path / "sitecustomize.py").write_text(sitecustomize)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    result = kernel_tests.run(given)
    assert result.outcome is Outcome.PASSED, result.reason
    assert "1 tests pass" in result.reason
    assert f"1 are skipped: {TOO_LONG}" in result.reason


def test_only_tests_of_what_the_port_replaces_are_taken(tmp_path: Path) -> None:
    _with_test(tmp_path, texts.RIGHT)
    wanted = {texts.FILE: frozenset(texts.SYMBOLS)}
    assert files_testing(tmp_path / "tree", wanted) == ("tests/ops/test_scale.py",)


@pytest.mark.ascend
@pytest.mark.parametrize(
    ("kernel", "outcome", "says"),
    [
        pytest.param(texts.RIGHT, Outcome.PASSED, "2 tests pass, with", id="right"),
        pytest.param(texts.EVIL["zeros"], Outcome.FAILED, "first test_scale[1]: ", id="wrong"),
    ],
)
def test_a_checkouts_own_test_runs_without_a_device(
    tmp_path: Path, kernel: str, outcome: Outcome, says: str
) -> None:
    result = upstream_tests.run(_with_test(tmp_path, kernel))
    assert result.outcome is outcome, result.reason
    assert says in result.reason
    assert [case.case for case in result.cases] == ["test_scale"]


def test_a_tree_without_such_a_test_is_not_run(tmp_path: Path) -> None:
    result = kernel_tests.run(subject(tmp_path, texts.RIGHT))
    assert result.outcome is Outcome.NOT_RUN
    assert result.reason == "the checkout has no test of what the port replaces"


@pytest.mark.ascend
@pytest.mark.slow
@pytest.mark.network
@pytest.mark.parametrize("release", ["0.24.0rc1", "0.30.0rc2"])
@pytest.mark.parametrize("port", ["bincount", "grammar_bitmask", "logprobs", "penalties"])
def test_a_release_keeps_its_tests(release: str, port: str, release_tree: ReleaseTree) -> None:
    given = real_subject(release_tree(release), port, Options(timeout_s=1800.0))
    result = upstream_tests.run(given)
    wanted = Outcome.PASSED
    if (port, release) == ("grammar_bitmask", "0.24.0rc1"):
        wanted = Outcome.NOT_RUN
    assert result.outcome is wanted, result.reason
