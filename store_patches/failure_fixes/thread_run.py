"""A transfer thread is ready or says why not; what ends it is never lost."""

from __future__ import annotations

import threading

from vllm.logger import logger


class KVTransferThread(threading.Thread):
    def start(self) -> None:
        """Start the thread, and raise here what keeps it from its device."""
        super().start()
        self.ready_event.wait()
        error = getattr(self, "_start_error", None)
        if error is not None:
            raise RuntimeError(f"{self.name} did not get its device") from error

    def run(self):
        """Handle requests until one of them ends the thread."""
        self._set_os_thread_name()
        try:
            self.m_store.set_device()
        except BaseException as error:
            self._start_error = self._fatal_error = error
            logger.error(
                "%s ends: set_device failed. type=%s, error=%s",
                self.name,
                type(error).__name__,
                error,
            )
            return
        finally:
            # Whoever waits for the thread must not wait for ever.
            self.ready_event.set()
        while True:
            request_data = self.request_queue.get()
            if request_data is None:
                logger.warning(
                    "%s got no request: the queue is shut down, or the request invalid.", self.name
                )
                self.request_queue.task_done()
                continue
            try:
                self._handle_request(request_data)
            except BaseException as error:
                logger.error(
                    "%s could not handle a request. type=%s, error=%s",
                    self.name,
                    type(error).__name__,
                    error,
                )
                if not self._outlives(request_data, error):
                    self._fatal_error = error
                    return
