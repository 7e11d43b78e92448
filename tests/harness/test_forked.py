import os
import signal
import time
from collections.abc import Callable

import numpy as np
import pytest

from ascendport.harness.buffers import Arena
from ascendport.harness.case import Role, Tensor, Workload
from ascendport.harness.children import Failure
from ascendport.harness.forked import in_fork


def _raise() -> int:
    raise ValueError("no\nand more")


def _leave() -> int:
    raise SystemExit(3)


def _exit() -> int:
    os._exit(7)


def _die() -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60)
    return 0


def test_a_result_comes_back_and_nothing_else_changes() -> None:
    seen: list[int] = []

    def work() -> list[int]:
        seen.append(1)
        return [*seen, os.getpid()]

    answer = in_fork(work)
    assert isinstance(answer, list)
    assert (answer[0], seen) == (1, [])
    assert answer[1] != os.getpid()


@pytest.mark.parametrize(
    ("work", "reason"),
    [
        pytest.param(_raise, "ValueError: no and more", id="raises"),
        pytest.param(_leave, "SystemExit: 3", id="leaves"),
        pytest.param(_exit, "exit status 7", id="exits"),
        pytest.param(_die, "SIGKILL", id="dies"),
        pytest.param(lambda: in_fork, "exit status 1", id="gives-nothing-to-pickle"),
    ],
)
def test_failures_have_a_reason(work: Callable[[], object], reason: str) -> None:
    answer = in_fork(work if reason != "exit status 1" else lambda: lambda: 0)
    assert isinstance(answer, Failure)
    assert reason in answer.reason


@pytest.mark.parametrize("shared", [True, False])
def test_shared_memory_is_seen_here_and_other_memory_is_not(shared: bool) -> None:
    values = np.arange(5, dtype=np.int32)
    workload = Workload({"x": Tensor(values, Role.INOUT)})
    with Arena.anonymous(workload, shared=shared) as arena:

        def work() -> int:
            arena.arrays()["x"][2] = 77
            return 0

        assert in_fork(work) == 0
        assert arena.read("x")[2] == (77 if shared else 2)
