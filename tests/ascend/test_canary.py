from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from ascendport.ascend import canary
from ascendport.ascend.bishengir import CompileRequest, Program, compile_many
from ascendport.ascend.canary import prove
from ascendport.ascend.diagnostics import Kind, Refusal, Stage
from ascendport.ascend.soc import DEFAULTS, soc

pytestmark = pytest.mark.ascend
A2 = soc("A2")


def test_alive_on_every_family(kernels: Any) -> None:
    result = prove([soc(name) for name in DEFAULTS])
    assert result.alive, result.reason
    assert result.reason == ""


def _accepts(requests: Sequence[CompileRequest]) -> list[Program | Refusal]:
    return [Program("func.func", request.soc, (), 0.0) for request in requests]


def _refuses(kind: Kind, reason: str) -> Callable[[Sequence[CompileRequest]], list[Any]]:
    def compile_all(requests: Sequence[CompileRequest]) -> list[Program | Refusal]:
        return [Refusal(Stage.BISHENGIR, kind, reason) for _ in requests]

    return compile_all


def _overflow_taken_for_a_crash(requests: Sequence[CompileRequest]) -> list[Program | Refusal]:
    crash = Refusal(Stage.BISHENGIR, Kind.CRASH, "crashed")
    return [crash if isinstance(result, Refusal) else result for result in compile_many(requests)]


@pytest.mark.parametrize(
    ("broken", "says"),
    [
        pytest.param(_accepts, "cannot fit was accepted", id="accepts-all"),
        pytest.param(_refuses(Kind.OVERFLOW, "too big"), "was refused: too big", id="refuses-all"),
        pytest.param(_overflow_taken_for_a_crash, "taken for: crashed", id="wrong-reason"),
    ],
)
def test_dead_when_the_compiler_cannot_tell(kernels: Any, broken: Any, says: str) -> None:
    result = prove([A2], compile_all=broken)
    assert not result.alive
    assert says in result.reason
    assert result.reason.startswith(A2.name)


def test_dead_when_the_front_end_refuses(kernels: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    refusal = Refusal(Stage.TRITON, Kind.KERNEL, "no")
    monkeypatch.setattr(canary, "lower_all", lambda _, socs: dict.fromkeys(socs, refusal))
    assert prove([A2]) == canary.CanaryResult(False, f"{A2.name}: canary: no")


def test_no_part_proves_nothing() -> None:
    with pytest.raises(ValueError, match="no part"):
        prove([])
