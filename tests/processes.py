"""Looking at processes from tests."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path


def alive(process: int) -> bool:
    """Whether it runs; a zombie does not, and here nobody may be there to collect it."""
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def ends(process: int, seconds: float = 30.0) -> bool:
    """Whether it ends by itself within ``seconds``; afterwards it is dead in any case."""
    limit = time.monotonic() + seconds
    while time.monotonic() < limit:
        if not alive(process):
            return True
        time.sleep(0.05)
    os.kill(process, signal.SIGKILL)
    return False
