"""The scheduler's question waits a bounded time; whatever goes wrong with it is a miss."""

from __future__ import annotations

import threading
import time

import zmq
from vllm.logger import logger
from vllm.utils.network_utils import make_zmq_socket
from vllm.v1.core.kv_cache_utils import BlockHash
from vllm.v1.serial_utils import MsgpackEncoder

# Longest wait for the workers' answer. The scheduler stands still meanwhile.
LOOKUP_RPC_TIMEOUT_MS = 5000
# A lookup looks this often whether its client is being closed.
LOOKUP_POLL_MS = 100


class LookupKeyClient:
    def __init__(self, vllm_config: VllmConfig):
        extra_config = vllm_config.kv_transfer_config.kv_connector_extra_config
        timeout_ms = extra_config.get("lookup_rpc_timeout_ms", LOOKUP_RPC_TIMEOUT_MS)
        if (
            isinstance(timeout_ms, bool)
            or not isinstance(timeout_ms, (int, float))
            or timeout_ms <= 0
        ):
            raise ValueError(
                f"Invalid lookup_rpc_timeout_ms {timeout_ms!r} in kv_connector_extra_config: "
                "it must be a positive number of milliseconds."
            )
        self.timeout_s = timeout_ms / 1000
        self.encoder = MsgpackEncoder()
        self.ctx = zmq.Context()  # type: ignore[attr-defined]
        self.socket_path = get_zmq_rpc_path_lookup(vllm_config)
        self.closed = False
        # Held by whoever uses the socket: it must not be closed under a lookup.
        self._socket_lock = threading.Lock()
        self.socket = self._connect()

    def _connect(self):
        kind = zmq.REQ  # type: ignore[attr-defined]
        return make_zmq_socket(self.ctx, self.socket_path, kind, bind=False)

    def lookup(
        self,
        token_len: int,
        block_hashes: list[BlockHash],
        kv_cache_group_ids: list[int] | None = None,
        hbm_hit_tokens: int = 0,
    ) -> int:
        """Return how many tokens of the prefix are cached.

        Without a usable answer that is none: the blocks are then computed.
        """
        with self._socket_lock:
            if self.closed:
                return 0
            try:
                hash_frames = self.encoder.encode([h.hex() for h in block_hashes])
                group_frames = self.encoder.encode(kv_cache_group_ids or [0])
                frames = [
                    self._count_frame(token_len),
                    *group_frames,
                    self._count_frame(hbm_hit_tokens),
                    *hash_frames,
                ]
                hit_tokens = self._ask(frames)
                if not 0 <= hit_tokens <= token_len:
                    raise RuntimeError(f"answer of {hit_tokens} tokens for a prompt of {token_len}")
                return hit_tokens
            except Exception as e:
                if self.closed:
                    return 0
                logger.error(
                    "KV pool lookup failed and counts as a miss. type=%s, error=%s. "
                    "Check the lookup server on worker rank 0.",
                    type(e).__name__,
                    e,
                )
                # A request socket that got no answer cannot ask again.
                self.socket.close(linger=0)
                self.socket = self._connect()
                return 0

    @staticmethod
    def _count_frame(count: int) -> bytes:
        return count.to_bytes(max(4, (count.bit_length() + 7) // 8), byteorder="big")

    def _ask(self, frames: list) -> int:
        deadline = time.monotonic() + self.timeout_s
        self.socket.send_multipart(frames, copy=False)
        while not self.closed:
            remaining_ms = (deadline - time.monotonic()) * 1000
            if remaining_ms <= 0:
                raise TimeoutError(f"no answer within {self.timeout_s:g} s")
            if self.socket.poll(min(remaining_ms, LOOKUP_POLL_MS)):
                response = self.socket.recv()
                more = self.socket.getsockopt(zmq.RCVMORE)  # type: ignore[attr-defined]
                if len(response) > 8 or more == 1:
                    raise RuntimeError(f"answer that is no count, of {len(response)} bytes")
                return int.from_bytes(response, "big")
        raise RuntimeError("the client is closed")

    def close(self):
        # Ends a lookup that is waiting; only then is the socket free to be closed.
        self.closed = True
        with self._socket_lock:
            self.socket.close(linger=0)
            self.ctx.term()
