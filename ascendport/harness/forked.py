"""Work in a fork of this process: it sees all that is loaded here, and changes nothing of it.

For code of a tree that has to run next to what this process already translated. Memory that both
share has to be made for it (`Arena.anonymous(..., shared=True)`).
"""

from __future__ import annotations

import os
import pickle
import signal
from collections.abc import Callable
from typing import TypeVar

from ascendport.harness.child import one_line
from ascendport.harness.children import Failure
from ascendport.orphans import die_with

R = TypeVar("R")


def in_fork(work: Callable[[], R]) -> R | Failure:
    """What ``work`` gave, by way of pickle; or why it gave nothing.

    The fork dies with this process. Threads of this process do not exist in it.
    """
    read, write = os.pipe()
    parent = os.getpid()
    child = os.fork()
    if child == 0:
        os.close(read)
        _live(work, write, parent)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        data = pipe.read()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return Failure(f"the fork died of {signal.Signals(os.WTERMSIG(status)).name}")
    if not data:
        return Failure(f"the fork left with exit status {os.WEXITSTATUS(status)}")
    answer: R | Failure = pickle.loads(data)
    return answer


def _live(work: Callable[[], R], write: int, parent: int) -> None:
    """The fork's whole life. Never returns."""
    try:
        die_with(parent)
        answer: R | Failure
        try:
            answer = work()
        except (Exception, SystemExit) as error:  # whatever a tree's own code raises
            answer = Failure(one_line(error))
        data = memoryview(pickle.dumps(answer))
        while data:
            data = data[os.write(write, data) :]
    finally:
        os._exit(1)
