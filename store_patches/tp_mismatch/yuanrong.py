"""Shared by both forms of the yuanrong backend: put says what it stored."""

from __future__ import annotations


class YuanrongBackend:
    def put(self, keys: list[str], addrs: list[list[int]], sizes: list[list[int]]):
        """Puts the keys; one code for each, 0 where it is stored. The client says nothing of a
        single key: it raises where a batch fails, and then none of that batch counts."""
        codes: list[int] = []
        if not keys:
            return codes
        try:
            for done in self._put_batches(keys, addrs, sizes):
                codes += [0] * done
        except Exception as error:
            lost = len(keys) - len(codes)
            logger.error(
                "Yuanrong did not store %d of %d keys (%s: %s); look at its service and network",
                lost,
                len(keys),
                type(error).__name__,
                error,
            )
            logger.debug("Not stored: %s", keys[-lost:])
            codes += [-1] * lost
        return codes
