"""The main flow says once a step which saves have failed."""

from __future__ import annotations

import functools
from collections.abc import Callable

from vllm.logger import logger


def _tells_of_failed_saves(get_finished: Callable[..., tuple]) -> Callable[..., tuple]:
    @functools.wraps(get_finished)
    def telling(self, finished_req_ids: set[str], meta: AscendConnectorMetadata) -> tuple:
        take_failed_saves = getattr(type(self.kv_send_thread), "take_failed_saves", None)
        failed = take_failed_saves(self.kv_send_thread) if take_failed_saves is not None else None
        if failed:
            logger.warning(
                "KV pool could not save %d request(s); they are computed again. errors=%s",
                len(failed),
                {req_id: f"{type(error).__name__}: {error}" for req_id, error in failed.items()},
            )
        return get_finished(self, finished_req_ids, meta)

    return telling
