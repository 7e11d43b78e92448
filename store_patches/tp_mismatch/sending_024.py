"""0.24.0rc1: a save under TP mismatch ends in the thread's books, and a failed one ends too."""

from __future__ import annotations


class KVCacheStoreSendingThread:
    def _handle_request(self, req_meta: ReqMeta):
        """One queued save. Whatever happens, the request's count goes down by one, and at zero it
        is reported finished: until then the scheduler keeps its blocks."""
        req_id = req_meta.req_id
        mismatch = self.worker is not None and getattr(self.worker, "tp_mismatch", False)
        counted = mismatch or self.is_stored_request(req_id)
        try:
            if mismatch:
                self.worker._store_kv_tp_mismatch(req_meta)
            elif counted:
                self._handle_stored_request(req_meta)
        except Exception:
            logger.exception("The save of request %s failed", req_id)
        finally:
            if mismatch:
                # The worker has counted down.
                left = self.get_stored_request_count(req_id)
            else:
                left = self.dec_stored_request(req_id) if counted else None
            if left == 0:
                self.delete_finished_stored_request(req_id)
                self.set_finished_request(req_id)
            if req_meta.event_id is not None:
                with self.completed_events_lock:
                    self.completed_events[req_meta.event_id] = 1
            self.request_queue.task_done()
