"""A step that fails while it is prepared keeps neither addresses nor leases."""

from __future__ import annotations

import functools
from collections.abc import Callable

from vllm.logger import logger


def _leaves_nothing_behind(process_layer_data: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(process_layer_data)
    def guarded(self, requests: list[ReqMeta]) -> None:
        try:
            process_layer_data(self, requests)
        except BaseException:
            # Sessions of a block-key store end with their requests.
            if not getattr(self, "use_block_key_layerwise", False):
                self._abandon_layerwise_step(requests)
            raise

    return guarded


class KVPoolWorker:
    def _abandon_layerwise_step(self, requests: list[ReqMeta]) -> None:
        """Give back what a step has allocated and leased of which nothing will be copied."""
        allocated = list(
            dict.fromkeys(key for request in requests for key in request.save_keys or ())
        )
        leased = list(dict.fromkeys(key for request in requests for key in request.load_keys or ()))
        for request in requests:
            request.save_keys = []
            request.load_keys = []
        for key in allocated:
            self._allocated_gvas.pop(key, None)
        for done_with, keys in (
            # The store drops an object whose write is reported as failed.
            (lambda keys: self.m_store.batch_write_finish(keys, [-1] * len(keys)), allocated),
            # Apart, since only some releases lease what they allocate.
            (self.m_store.batch_remove_lease, allocated),
            (self.m_store.batch_remove_lease, leased),
        ):
            try:
                if keys:
                    done_with(keys)
            except Exception as e:
                logger.error("Failed to give back the keys of a step. keys=%s, error=%s", keys, e)
