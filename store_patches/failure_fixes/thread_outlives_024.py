"""Up to 0.25.1rc1 every thread outlives a failure, and its class keeps the books."""

from __future__ import annotations

from typing import Any

from vllm.logger import logger


class KVTransferThread:
    def _outlives(self, request_data: Any, error: BaseException) -> bool:
        """Whether the thread serves on after this failure; it does, whatever the books say."""
        try:
            self._handle_request_exception(request_data)
        except BaseException as again:
            logger.error("%s could not close a failed request: %s", self.name, again)
        return True
