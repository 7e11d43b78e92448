"""The loading thread can ask how the saving one fares."""

from __future__ import annotations

import functools
from collections.abc import Callable


def _introduces_threads(register_kv_caches: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(register_kv_caches)
    def introducing(self, kv_caches: dict[str, torch.Tensor]) -> None:
        register_kv_caches(self, kv_caches)
        loader, saver = self.kv_recv_thread, self.kv_send_thread
        check_saves = getattr(saver, "raise_if_failed", None)
        unaware = loader is not None and not hasattr(loader, "save_failure_checker")
        if check_saves is not None and unaware:
            loader.save_failure_checker = check_saves

    return introducing
