"""Which checks must run, and which ports they are asked of. Without compiler and device."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from ascendport import commands
from ascendport.checks import registry
from ascendport.checks.outcome import CheckResult, Outcome
from ascendport.checks.subject import Options, Subject
from ascendport.commands.verifying import _required
from ascendport.errors import ExitCode, UserError
from ascendport.ports.catalogue import catalogue, select
from tests.conftest import ReleaseCopy


@pytest.mark.parametrize(
    ("names", "only", "required"),
    [
        pytest.param([], [], set(), id="none"),
        pytest.param(["compile"], ["bincount"], {"compile"}, id="one"),
        pytest.param(["soak"], [], {"soak"}, id="one-on-request"),
        pytest.param(
            ["all"],
            ["bincount"],
            {"source", "wiring", "oracle", "baseline", "compile", "simulate", "upstream-tests"},
            id="all-but-the-device",
        ),
        pytest.param(["all"], ["failure_tests"], {"failures"}, id="all-that-a-manifest-names"),
        pytest.param(["all", "device"], ["failure_tests"], {"failures", "device"}, id="both"),
    ],
)
def test_what_must_run(names: list[str], only: list[str], required: set[str]) -> None:
    ports = select(catalogue(), only)
    assert _required(names, registry.select([]), ports) == required


def test_a_name_that_is_no_check() -> None:
    with pytest.raises(UserError, match="no such check"):
        _required(["all", "souce"], registry.select([]), catalogue())


def _verify(root: Path, only: Sequence[str], require: Sequence[str]) -> commands.Verdict:
    def silent(*_: object) -> None:
        pass

    chosen = Options(socs=(), cases=(), seed=0, large=False)
    return commands.verify(root, only, (), ["source"], require, chosen, silent, silent)


@pytest.mark.network
def test_a_tree_without_a_ports_target(
    release_copy: ReleaseCopy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lacking: set[str] = set()

    def runs(self: registry.Check, subject: Subject) -> CheckResult:
        if subject.port.name in lacking:
            return CheckResult.not_run(self.name, "no compiler")
        return CheckResult(self.name, Outcome.PASSED)

    monkeypatch.setattr(registry.Check, "run", runs)
    root = release_copy("0.30.0rc2", tmp_path / "tree")
    (root / "vllm_ascend/ops/triton/v2/apply_grammar_bitmask.py").unlink()
    every = _verify(root, [], ["source"])
    assert every.results["grammar_bitmask"][0].reason.startswith("missing: ")
    assert every.code is ExitCode.OK
    # One that is asked for by name should be there.
    assert _verify(root, ["grammar_bitmask", "bincount"], ["source"]).code is ExitCode.NOT_RUN
    # Nor does a check that could not run on one port pass since it ran on another.
    lacking.add("bincount")
    assert _verify(root, [], ["source"]).code is ExitCode.NOT_RUN
    assert _verify(root, [], []).code is ExitCode.OK
