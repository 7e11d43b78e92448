"""A save that failed is told to the main flow, and the thread goes on."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any


def _remembers_failure(handle_stored_request: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(handle_stored_request)
    def remembering(self, req_meta: ReqMeta) -> None:
        try:
            handle_stored_request(self, req_meta)
        except BaseException as error:
            with self.done_task_lock:
                self._failed_saves = getattr(self, "_failed_saves", {}) | {req_meta.req_id: error}
            raise

    return remembering


class KVCacheStoreSendingThread:
    def _outlives(self, request_data: Any, error: BaseException) -> bool:
        # Its books are closed by then: a save that fails costs only itself.
        return True

    def take_failed_saves(self) -> dict[str, BaseException]:
        """Return, once, which requests could not be saved and why."""
        with self.done_task_lock:
            failed, self._failed_saves = getattr(self, "_failed_saves", {}), {}
        return failed
