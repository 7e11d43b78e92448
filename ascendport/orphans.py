"""Child processes that end with their parent, however that ends."""

from __future__ import annotations

import ctypes
import os
import signal

_SET_PARENT_DEATH_SIGNAL = 1
"""PR_SET_PDEATHSIG of linux/prctl.h."""

_C = ctypes.CDLL(None)
"""Looked up early: between fork and exec nothing may be imported or locked."""


def die_with(parent: int) -> None:
    """Kills this process when the thread that started it ends, so at the latest with ``parent``.

    Where the system is not Linux an orphan runs to the end of its work.
    """
    try:
        _C.prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    except AttributeError:
        return
    if os.getppid() != parent:  # it ended before the call
        os._exit(1)
