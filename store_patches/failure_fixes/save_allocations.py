"""Addresses that were allocated for saves are given back where the preparation fails."""

from __future__ import annotations

import functools
from collections.abc import Callable
from numbers import Integral
from typing import Any

from vllm.logger import logger


class _AllocationRecord:
    """Stands in front of the store while save addresses are allocated, and notes what it gave."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self._keys: list[str] = []
        self._leased = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def batch_alloc(self, keys: list[str], sizes: list[int], *lease_ttl_ms: int) -> list[int]:
        gvas = self._store.batch_alloc(keys, sizes, *lease_ttl_ms)
        # Not the keys without an address: another writer may own them.
        self._keys += [
            key for key, gva in zip(keys, gvas or ()) if isinstance(gva, Integral) and gva > 0
        ]
        self._leased = self._leased or any(lease_ttl_ms)
        return gvas

    def give_back(self) -> list[str]:
        """Drop what was allocated, and return its keys."""
        keys = list(dict.fromkeys(self._keys))
        if not keys:
            return keys
        try:
            # The store drops an object whose write is reported as failed.
            results = self._store.batch_write_finish(keys, [-1] * len(keys))
            if any(result != 0 for result in results):
                logger.error(
                    "alloc_gvas: could not give back every address. keys=%s, results=%s",
                    keys,
                    results,
                )
        except Exception as e:
            logger.error("alloc_gvas: could not give back addresses. keys=%s, error=%s", keys, e)
        if self._leased:
            try:
                self._store.batch_remove_lease(keys)
            except Exception as e:
                logger.error(
                    "alloc_gvas: could not release write leases. keys=%s, error=%s", keys, e
                )
        return keys


def _gives_back_allocations(alloc_gvas_for_save: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(alloc_gvas_for_save)
    def guarded(self, requests: list[ReqMeta]) -> None:
        store = self.m_store
        record = self.m_store = _AllocationRecord(store)
        try:
            alloc_gvas_for_save(self, requests)
        except BaseException:
            # Nothing of this step is written: a key kept here would pass for saved ever after.
            for key in record.give_back():
                self._allocated_gvas.pop(key, None)
            for request in requests:
                request.save_keys = []
            raise
        finally:
            self.m_store = store

    return guarded
