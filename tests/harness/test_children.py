import os
import sys
import time
from collections.abc import Callable

import pytest

from ascendport.harness.children import Children, Failure


def _double(x: int) -> int:
    return 2 * x


def _raise(x: int) -> int:
    raise ValueError(f"no {x}\nand more")


def _leave(x: int) -> int:
    sys.exit(x)


def _die(x: int) -> int:
    os._exit(x)


def _hang(x: int) -> int:
    while True:
        time.sleep(x)


def test_a_result_comes_back() -> None:
    with Children(1) as children:
        assert children.result(children.submit(_double, 21), 60) == 42


@pytest.mark.parametrize(
    ("work", "reason"),
    [
        pytest.param(_raise, "ValueError: no 0", id="raises"),
        pytest.param(_leave, "SystemExit: 0", id="leaves"),
        pytest.param(_die, "the child process died", id="dies"),
    ],
)
def test_a_child_that_fails_is_a_reason(work: Callable[[int], int], reason: str) -> None:
    with Children(1) as children:
        assert children.result(children.submit(work, 0), 60) == Failure(reason)


def test_a_child_that_hangs_is_stopped() -> None:
    with Children(1) as children:
        future = children.submit(_hang, 3600)
        failure = children.result(future, 3)
    assert isinstance(failure, Failure)
    assert "no answer in 3 s" in failure.reason
