"""Child processes for work that may crash, hang or leave: the parent gets a reason instead."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor, TimeoutError
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import get_context
from typing import ParamSpec, TypeVar

from ascendport.orphans import die_with

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True)
class Failure:
    """Why a child gave no result, in one line."""

    reason: str


class Children:
    """Worker processes that live for the time of the block, then are killed.

    Started by spawning: a forked copy of a process with threads can deadlock.
    """

    def __init__(self, workers: int) -> None:
        self._pool = ProcessPoolExecutor(
            workers,
            mp_context=get_context("spawn"),
            initializer=die_with,
            initargs=(os.getpid(),),
        )

    def __enter__(self) -> Children:
        return self

    def __exit__(self, *exc: object) -> None:
        self._kill()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def submit(self, work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        """Starts ``work`` when a worker is free. Function and arguments must be picklable."""
        return self._pool.submit(work, *args, **kwargs)

    def result(self, future: Future[R], timeout_s: float) -> R | Failure:
        """What the work gave; or, where it raised, died or took too long, why there is nothing.

        After a timeout the workers are killed: what else was submitted fails too.
        """
        try:
            return future.result(timeout_s)
        except TimeoutError:
            self._kill()
            return Failure(f"no answer in {timeout_s:g} s; the child was stopped")
        except BrokenProcessPool:
            return Failure("the child process died")
        except (Exception, SystemExit) as error:  # whatever a tree's own code raises
            said = str(error).partition("\n")[0]
            return Failure(f"{type(error).__name__}: {said}")

    def _kill(self) -> None:
        for process in list((self._pool._processes or {}).values()):
            process.kill()
