"""The lookup server and its clients over real sockets, disturbed at random.

The scheduler asks a worker how many leading tokens of a prompt the store has. Here several clients
ask one server at a time, while frames that are none reach it and it is closed and made anew.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from ascendport.store.loading import Loaded

CLIENTS = 3
TIMEOUT = {"lookup_rpc_timeout_ms": 1000}
"""What the connector's configuration allows an answer to take, where it can be told."""


class Lookups:
    """A server over ``worker``, and what is done to it."""

    def __init__(self, modules: Loaded, worker: Any, folder: Path, seed: int) -> None:
        import zmq

        self.zmq = zmq
        self.scheduler = modules.module("pool_scheduler")
        self.connector = modules.module("ascend_store_connector")
        self.worker = worker
        self.counts: Counter[str] = Counter()
        self.injected: Counter[str] = Counter()
        self.config = SimpleNamespace(
            parallel_config=SimpleNamespace(data_parallel_rank=0),
            kv_transfer_config=SimpleNamespace(
                kv_connector_extra_config={
                    "lookup_rpc_port": seed % 10000,
                    **TIMEOUT,
                }
            ),
        )
        self.path = f"ipc://{folder}/lookup"
        for module in (self.scheduler, self.connector):
            vars(module)["get_zmq_rpc_path_lookup"] = lambda config: self.path
        self.context = zmq.Context()
        self.clients: list[Client] = []
        self.server = self._made()

    def disturb(self, rng: np.random.Generator) -> None:
        """One disturbance, or none for a moment."""
        draw = rng.random()
        if draw < 0.02:
            self.injected["server restarted"] += 1
            self.server.close()
            time.sleep(float(rng.random()) * 0.05)
            self.server = self._made()
        elif draw < 0.5:
            self.injected["garbage frames"] += 1
            self._garbage(rng)
        time.sleep(0.01)

    def client(self) -> Client:
        made = Client(self)
        self.clients.append(made)
        return made

    def close(self) -> None:
        """Closes what is open; nobody may be using it."""
        for client in self.clients:
            client.close()
        self.clients.clear()
        self.server.close()
        self.context.destroy(linger=0)

    def _made(self) -> Any:
        return self.connector.LookupKeyServer(self.worker, self.config)

    def _garbage(self, rng: np.random.Generator) -> None:
        """One to six frames of noise, as a client of no known kind would send them."""
        socket = self.context.socket(self.zmq.REQ)
        try:
            socket.connect(self.path)
            frames = [rng.bytes(int(rng.integers(0, 40))) for _ in range(int(rng.integers(1, 7)))]
            socket.send_multipart(frames, self.zmq.NOBLOCK)
            socket.poll(20)
        except self.zmq.ZMQError:
            pass
        finally:
            socket.close(linger=0)


class Client:
    """A scheduler's client."""

    def __init__(self, lookups: Lookups) -> None:
        self.lookups = lookups
        self.own = lookups.scheduler.LookupKeyClient(lookups.config)

    def ask(self, tokens: int, hashes: Sequence[bytes]) -> None:
        """Asks once; the answer is one that may be.

        Raises:
            ValueError: it is not.
        """
        found = self.own.lookup(tokens, list(hashes))
        if not isinstance(found, int) or not 0 <= found <= tokens:
            raise ValueError(f"a lookup of {tokens} tokens answers {found!r}")
        self.lookups.counts["lookups with a hit" if found else "lookups without"] += 1

    def close(self) -> None:
        self.own.close()
