"""Shared by both forms of the Mooncake backend: put says what it stored."""

from __future__ import annotations


class MooncakeBackend:
    # Its client takes any sequence of integers for the addresses of a key.
    takes_address_views = True

    def put(self, keys: list[str], addrs: list[list[int]], sizes: list[list[int]]):
        """Puts the keys; one code for each, 0 where it is stored. A key that is there already,
        or that another rank is putting at this moment, counts as stored."""
        already_there = -705
        self.ensure_initialized()
        detail = ""
        try:
            answer = self._put_slices(keys, addrs, sizes)
            codes = [
                0 if int(code) >= 0 or int(code) == already_there else int(code) for code in answer
            ]
        except Exception as error:
            codes = [-1] * len(keys)
            detail = f"{type(error).__name__}: {error}"
        bad = [at for at, code in enumerate(codes) if code]
        if bad:
            said = detail or ", ".join(str(code) for code in sorted({codes[at] for at in bad}))
            logger.error(
                "Mooncake did not store %d of %d keys (%s); look at its capacity and connection",
                len(bad),
                len(keys),
                said,
            )
            logger.debug("Not stored: %s", [keys[at] for at in bad])
            if self._lazy_init:
                logger.warning("A compressed model's first request may fail before all is set up")
        return codes
