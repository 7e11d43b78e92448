"""Read leases that were taken for loads are released where the preparation fails."""

from __future__ import annotations

from typing import Any

from vllm.logger import logger


class _LeaseRecord:
    """Stands in front of the store while load addresses are fetched, and notes what it leased."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self._keys: dict[str, None] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def batch_add_lease(self, keys: list[str], *lease_ttl_ms: int) -> list[int]:
        results = self._store.batch_add_lease(keys, *lease_ttl_ms)
        self._keys.update((key, None) for key, result in zip(keys, results or ()) if result == 0)
        return results

    def batch_remove_lease(self, keys: list[str]) -> int:
        result = self._store.batch_remove_lease(keys)
        for key in keys:
            self._keys.pop(key, None)
        return result

    def give_back(self) -> list[str]:
        """Release what is still leased, and return its keys."""
        keys = list(self._keys)
        if keys:
            try:
                result = self._store.batch_remove_lease(keys)
                if result != 0:
                    logger.error(
                        "load_gvas: could not release read leases. keys=%s, result=%s", keys, result
                    )
            except Exception as e:
                logger.error("load_gvas: could not release read leases. keys=%s, error=%s", keys, e)
        return keys
