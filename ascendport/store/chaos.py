"""A store that fails at random, around one that does not.

What it does wrong can be noticed by whoever looks at its answers: it raises, refuses keys, leaves
answers out, writes a part of a block and says so. It never answers that all is well where it is
not.
"""

from __future__ import annotations

import ctypes
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ascendport.store.memory import GoneError

REFUSED = -800
"""Mooncake's code for a transfer that failed (ErrorCode::TRANSFER_FAIL)."""


@dataclass
class Chaos:
    """``inner``: a store with the calls of Mooncake's client.

    ``rate``: the share of calls that fail. ``breaks``: also the backend around the client raises,
    before it does anything. ``injected``: failure → how often it was injected.
    """

    inner: Any
    seed: int
    rate: float = 0.15
    breaks: bool = False
    injected: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self._rng = np.random.default_rng(self.seed)
        # Threads share it, and a generator is not made for that.
        self._lock = threading.Lock()

    @property
    def outside(self) -> list[str]:
        found: list[str] = self.inner.outside
        return found

    def register_buffer(self, address: int, length: int) -> int:
        code: int = self.inner.register_buffer(address, length)
        return code

    def enter(self, operation: str) -> None:
        """Called by the backend before it does anything.

        Raises:
            GoneError: at random, where ``breaks``.
        """
        if self.breaks and self.draw(self.rate / 4):
            with self._lock:
                self.injected[f"{operation} breaks"] += 1
            raise _gone(operation, "breaks")

    def batch_is_exist(self, keys: Sequence[str]) -> list[int]:
        kind = self._kind("exists", "raises", "codes", "short")
        if kind == "raises":
            raise _gone("exists", kind)
        answer = list(self.inner.batch_is_exist(keys))
        for at in self._some(len(keys)) if kind == "codes" else ():
            answer[at] = REFUSED
        return answer[: len(answer) // 2] if kind == "short" else answer

    def batch_put_from_multi_buffers(
        self, keys: Sequence[str], addresses: Any, sizes: Any, *rest: Any
    ) -> list[int]:
        kind = self._kind("put", "raises", "raises-late", "codes", "short")
        if kind == "raises":
            raise _gone("put", kind)
        refused = set(self._some(len(keys))) if kind == "codes" else set()
        taken = [at for at in range(len(keys)) if at not in refused]
        answer = [REFUSED] * len(keys)
        if taken:
            codes = self.inner.batch_put_from_multi_buffers(
                [keys[at] for at in taken],
                [addresses[at] for at in taken],
                [sizes[at] for at in taken],
                *rest,
            )
            for at, code in zip(taken, codes, strict=True):
                answer[at] = code
        if kind == "raises-late":
            raise _gone("put", kind)
        return answer[: len(answer) // 2] if kind == "short" else answer

    def batch_get_into_multi_buffers(
        self, keys: Sequence[str], addresses: Any, sizes: Any
    ) -> list[int]:
        kind = self._kind("get", "raises", "codes", "short")
        if kind == "raises":
            raise _gone("get", kind)
        answer = list(self.inner.batch_get_into_multi_buffers(keys, addresses, sizes))
        for at in self._some(len(keys)) if kind == "codes" else ():
            # The transfer broke off in the middle of the block.
            answer[at] = REFUSED
            place, length = int(addresses[at][-1]), int(sizes[at][-1])
            ctypes.memset(place, 0x5A, length)
        return answer[: len(answer) // 2] if kind == "short" else answer

    def draw(self, rate: float) -> bool:
        """True in a share ``rate`` of calls: for failures outside of the store."""
        with self._lock:
            return bool(self._rng.random() < rate)

    # --- inside ---

    def _kind(self, operation: str, *kinds: str) -> str:
        """What goes wrong in this call; empty: nothing."""
        with self._lock:
            if self._rng.random() >= self.rate:
                return ""
            kind = str(self._rng.choice(kinds))
            self.injected[f"{operation} {kind}"] += 1
            return kind

    def _some(self, count: int) -> list[int]:
        """Some of ``count`` keys, at least one where there is one."""
        with self._lock:
            picked = self._rng.permutation(count)[: self._rng.integers(1, max(count, 1) + 1)]
        return sorted(int(at) for at in picked)


def _gone(operation: str, kind: str) -> GoneError:
    return GoneError(f"{operation}: the store fails ({kind})")
