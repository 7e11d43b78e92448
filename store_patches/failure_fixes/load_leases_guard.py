from __future__ import annotations

import functools
from collections.abc import Callable


def _gives_back_leases(prepare_load_gvas: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(prepare_load_gvas)
    def guarded(self, requests: list[ReqMeta]) -> None:
        store = self.m_store
        record = self.m_store = _LeaseRecord(store)
        try:
            prepare_load_gvas(self, requests)
        except BaseException:
            record.give_back()
            if hasattr(self, "_step_lease_result"):
                # What the step remembers of its leases is void too.
                self._step_lease_result = {}
            for request in requests:
                request.load_keys = []
            raise
        finally:
            self.m_store = store

    return guarded
