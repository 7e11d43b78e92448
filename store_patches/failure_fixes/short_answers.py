"""The memcache backend answers for every key that it was asked about."""

from __future__ import annotations

from typing import Any

from vllm.logger import logger


class _AbsentKey:
    """What is known of a key about which the store says nothing: there is nothing to read."""

    def size(self) -> int:
        return 0

    def gva_list(self) -> list[int]:
        return []


class MemcacheBackend:
    def batch_get_key_info(self, keys: list[str]) -> list[Any]:
        """Return what is known of each key; one that the store leaves out cannot be read."""
        infos = self._stored_key_info(keys)
        if len(infos) != len(keys):
            logger.error("MemCache gave %d key infos for %d keys.", len(infos), len(keys))
            infos = [*infos[: len(keys)], *[None] * (len(keys) - len(infos))]
        return [_AbsentKey() if info is None else info for info in infos]

    def _stored_key_info(self, keys: list[str]) -> list[Any]:
        if self._lazy_init and not self._store_initialized:
            logger.debug("No MemCache store yet; nothing is known of %d keys.", len(keys))
            return []
        assert self.store is not None
        return list(self.store.batch_get_key_info(keys) or [])
