import os
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from ascendport.harness.children import Children, Failure
from tests.processes import ends


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


@pytest.mark.skipif(sys.platform != "linux", reason="needs prctl")
def test_workers_end_with_a_parent_that_is_killed() -> None:
    parent = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import os, time\n"
            "from tests.harness import test_children as t\n"
            "from ascendport.harness.children import Children\n"
            "if __name__ == '__main__':\n"
            "    with Children(1) as children:\n"
            "        print(children.submit(os.getpid).result(), flush=True)\n"
            "        children.submit(t._hang, 1)\n"
            "        time.sleep(60)\n",
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert parent.stdout is not None
    worker = int(parent.stdout.readline())
    parent.kill()
    parent.wait()
    parent.stdout.close()
    assert ends(worker)


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
