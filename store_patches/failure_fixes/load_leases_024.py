from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np


class _AddressRecord(_LeaseRecord):
    """Notes besides at which address each key lies; 0: at none."""

    def __init__(self, store: Any) -> None:
        super().__init__(store)
        self._gvas: dict[str, int] = {}

    def batch_get_key_info(self, keys: list[str]) -> list[Any]:
        infos = self._store.batch_get_key_info(keys)
        for key, info in zip(keys, infos):
            self._gvas[key] = info.gva_list()[0] if info.size() > 0 else 0
        return infos

    def refused(self) -> dict[str, int]:
        """Addresses of the keys that cannot be read: absent, or not leased."""
        return {key: gva for key, gva in self._gvas.items() if key not in self._keys}


def _gives_back_leases(prepare_load_gvas: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(prepare_load_gvas)
    def guarded(self, requests: list[ReqMeta]) -> None:
        store = self.m_store
        record = self.m_store = _AddressRecord(store)
        try:
            prepare_load_gvas(self, requests)
            self._leave_out_refused(requests, record.refused())
        except BaseException:
            record.give_back()
            for request in requests:
                request.load_keys = []
            raise
        finally:
            self.m_store = store

    return guarded


class KVPoolWorker:
    def _leave_out_refused(self, requests: list[ReqMeta], refused: dict[str, int]) -> None:
        """Keep what cannot be read from being copied; its blocks are marked invalid already."""
        if not refused:
            return
        if self.num_kv_cache_groups > 1:
            # The scheduler cannot recompute one group's blocks alone, and attention must not
            # run on a part of them.
            raise RuntimeError(f"Layerwise KV load of several groups failed. keys={list(refused)}")
        for request in requests:
            if request.load_keys:
                request.load_keys = [key for key in request.load_keys if key not in refused]
            for gvas in request.load_block_gvas_by_group_np or ():
                gvas[np.isin(gvas, list(refused.values()))] = 0
