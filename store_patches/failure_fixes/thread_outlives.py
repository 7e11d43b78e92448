"""From 0.26.0rc1 on a failure is fatal to a thread, unless the thread says otherwise."""

from __future__ import annotations

from typing import Any


class KVTransferThread:
    def _outlives(self, request_data: Any, error: BaseException) -> bool:
        """Whether the thread serves on after this failure; otherwise `raise_if_failed` tells."""
        return False
