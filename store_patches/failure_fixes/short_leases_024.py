class MemcacheBackend:
    def batch_add_lease(self, keys: list[str], lease_ttl_ms: int = 0) -> list[int]:
        """Return a code for each key; one that the store leaves out is not leased."""
        assert self.store is not None
        codes = list(self.store.batch_add_lease(keys, lease_ttl_ms) or [])
        if len(codes) != len(keys):
            logger.error("MemCache gave %d lease codes for %d keys.", len(codes), len(keys))
            codes = [*codes[: len(keys)], *[-1] * (len(keys) - len(codes))]
        return codes
