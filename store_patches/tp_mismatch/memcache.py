"""All releases: the memcache backend's put says what it stored."""

from __future__ import annotations


class MemcacheBackend:
    def put(self, key: list[str], addr: list[list[int]], size: list[list[int]]):
        """Puts the keys; one code for each, 0 where it is stored."""
        self.ensure_initialized()
        detail = ""
        try:
            answer = self.store.batch_put_from_layers(key, addr, size, MmcDirect.COPY_L2G.value)
            codes = [int(code) for code in answer]
        except Exception as error:
            codes = [-1] * len(key)
            detail = f"{type(error).__name__}: {error}"
        bad = [at for at, code in enumerate(codes) if code]
        if bad:
            said = detail or ", ".join(str(code) for code in sorted({codes[at] for at in bad}))
            logger.error(
                "Memcache did not store %d of %d keys (%s); look at its capacity and connection",
                len(bad),
                len(key),
                said,
            )
            logger.debug("Not stored: %s", [key[at] for at in bad])
            if self._lazy_init:
                logger.warning("A compressed model's first request may fail before all is set up")
        return codes
