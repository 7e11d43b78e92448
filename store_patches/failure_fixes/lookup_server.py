"""The lookup server answers every request, and its thread alone handles the socket."""

from __future__ import annotations

import operator
import threading

import zmq
from vllm.logger import logger
from vllm.utils.network_utils import make_zmq_socket
from vllm.v1.serial_utils import MsgpackDecoder

# The server looks this often whether it is being closed.
LOOKUP_SERVER_POLL_MS = 100
# Closing waits this long for a lookup that is under way in the store.
LOOKUP_SERVER_CLOSE_TIMEOUT_S = 5


class LookupKeyServer:
    def __init__(
        self,
        pool_worker: KVPoolWorker,
        vllm_config: VllmConfig,
    ):
        self.decoder = MsgpackDecoder()
        self.ctx = zmq.Context()  # type: ignore[attr-defined]
        self.socket = make_zmq_socket(
            self.ctx,
            get_zmq_rpc_path_lookup(vllm_config),
            zmq.REP,  # type: ignore[attr-defined]
            bind=True,
        )
        self.pool_worker = pool_worker
        self.running = True
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()

    def _serve(self) -> None:
        try:
            while self.running:
                if self.socket.poll(LOOKUP_SERVER_POLL_MS):
                    frames = self.socket.recv_multipart(copy=False)
                    self.socket.send(self._answer(frames))
        except Exception:
            logger.exception("KV pool lookup server ends; lookups count as misses from here on.")
        finally:
            # A socket must not be closed while another thread is in it.
            self.socket.close(linger=0)
            self.ctx.term()

    def _answer(self, frames: list) -> bytes:
        """Return the reply to one request; without a usable result that is a miss."""
        hit_tokens = 0
        try:
            token_len = self._count(frames[0])
            kv_group_ids = self.decoder.decode([frames[1]])
            hbm_hit_tokens = self._count(frames[2])
            result = operator.index(
                self.pool_worker.lookup_scheduler(
                    token_len,
                    self._block_hashes(frames[3:]),
                    kv_group_ids,
                    use_layerwise=False,
                    hbm_hit_tokens=hbm_hit_tokens,
                )
            )
            if not 0 <= result <= token_len:
                raise ValueError(f"{result} tokens found of a prompt of {token_len}")
            hit_tokens = result
            logger.debug("Lookup in groups %s: %d of %d tokens", kv_group_ids, result, token_len)
        except BaseException as e:  # the thread serves every later request too
            logger.error(
                "KV pool lookup of %d frames failed and is answered as a miss. type=%s, error=%s",
                len(frames),
                type(e).__name__,
                e,
            )
        return hit_tokens.to_bytes(max(4, (hit_tokens.bit_length() + 7) // 8), "big")

    @staticmethod
    def _count(frame) -> int:
        if len(frame) > 8:
            raise ValueError(f"count of {len(frame)} bytes")
        return int.from_bytes(frame, byteorder="big")

    def close(self):
        self.running = False
        if self.thread is not threading.current_thread():
            self.thread.join(LOOKUP_SERVER_CLOSE_TIMEOUT_S)
            if self.thread.is_alive():
                logger.warning("KV pool lookup server is still in the store; it ends after that.")
