"""A real Mooncake store on this machine: its master as a child process, its client over TCP.

Everything listens on loopback and on ports that were free. The master dies with the process that
started it, however that ends (`orphans`), and a context manager stops it where the block ends.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ascendport.errors import UserError
from ascendport.orphans import die_with

PACKAGE = "mooncake-transfer-engine-non-cuda"
LIBRARIES = "libibverbs1 libnl-3-200 libnl-route-3-200"
"""Debian packages that its client is linked against."""
SEGMENT_BYTES = 1 << 30
SMALL_SEGMENT_BYTES = 64 << 20
LEASE_MS = 5000
START_S = 20.0
_COUNTER = re.compile(r"^(\w+)(?:\{[^}]*\})?\s+([0-9.eE+-]+)$", re.MULTILINE)


def missing() -> str:
    """What is missing for a real Mooncake, with the remedy; empty where nothing is."""
    if importlib.util.find_spec("mooncake") is None or _master() is None:
        return f"needs {PACKAGE}; pip install 'ascendport[store]'"
    try:
        import mooncake.store  # noqa: F401
    except ImportError as error:
        said = str(error).partition("\n")[0]
        return f"Mooncake cannot be imported ({said}); install {LIBRARIES}"
    return ""


def quiet() -> None:
    """For a child process of its own: what Mooncake writes to stderr there goes nowhere. Its log
    level has no say before its logging is set up."""
    os.environ.setdefault("GLOG_minloglevel", "3")
    sink = os.open(os.devnull, os.O_WRONLY)
    os.dup2(sink, 2)
    os.close(sink)


def version() -> str:
    """The installed Mooncake's version."""
    from importlib import metadata

    return metadata.version(PACKAGE)


@dataclass(frozen=True)
class Address:
    """Where a master listens."""

    rpc: str
    metrics: str


@contextmanager
def master(log: Path) -> Iterator[Address]:
    """A Mooncake master for the time of the block; its output goes to ``log``.

    Raises:
        UserError: it does not start.
    """
    program = _master()
    if program is None:
        raise UserError("no mooncake_master", next="pip install 'ascendport[store]'")
    rpc, metrics = _free_ports(2)
    command = [
        program,
        "--rpc_address=127.0.0.1",
        f"--rpc_port={rpc}",
        "--metrics_host=127.0.0.1",
        f"--metrics_port={metrics}",
        f"--default_kv_lease_ttl={LEASE_MS}",
        "--enable_metric_reporting=false",
        "--rpc_thread_num=2",
    ]
    with log.open("wb") as out:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
            preexec_fn=partial(die_with, os.getpid()),
        )
    try:
        address = Address(f"127.0.0.1:{rpc}", f"127.0.0.1:{metrics}")
        _wait_for(process, address, log)
        yield address
    finally:
        _stop(process)


def client(address: Address, *, segment_bytes: int = SEGMENT_BYTES) -> Any:
    """A client in this process. ``segment_bytes``: memory that it gives to the pool; 0: none.

    Raises:
        UserError: it cannot connect.
    """
    from mooncake.store import MooncakeDistributedStore

    os.environ.setdefault("MC_TCP_BIND_ADDRESS", "127.0.0.1")
    store = MooncakeDistributedStore()
    code = store.setup("127.0.0.1", "P2PHANDSHAKE", segment_bytes, 64 << 20, "tcp", "", address.rpc)
    if code:
        raise UserError(
            f"Mooncake's client cannot be set up (code {code})",
            where=address.rpc,
            next="look at the master's log",
        )
    return store


class RealStore:
    """A client as the harness drives it: its calls, and what is in the store."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self.outside: list[str] = []
        self._put: dict[str, None] = {}

    def register_buffer(self, address: int, length: int) -> int:
        code: int = self.client.register_buffer(address, length)
        return code

    def batch_is_exist(self, keys: Any) -> Any:
        return self.client.batch_is_exist(keys)

    def batch_put_from_multi_buffers(self, keys: Any, *rest: Any) -> Any:
        self._put.update(dict.fromkeys(keys))
        return self.client.batch_put_from_multi_buffers(keys, *rest)

    def batch_get_into_multi_buffers(self, *given: Any) -> Any:
        return self.client.batch_get_into_multi_buffers(*given)

    @property
    def objects(self) -> dict[str, bytes]:
        """The keys that are there, of those that were put through this client, with their bytes."""
        names = list(self._put)
        there = self.client.batch_is_exist(names) if names else []
        return {
            name: bytes(self.client.get(name))
            for name, found in zip(names, there, strict=True)
            if found == 1
        }

    def remove(self, key: str) -> None:
        """Raises RuntimeError where the store keeps it."""
        code = self.client.remove(key, True)
        if code:
            raise RuntimeError(f"remove answered {code}")


def counters(address: Address) -> dict[str, float]:
    """The master's own counters, by name; those with labels are added up."""
    with urllib.request.urlopen(f"http://{address.metrics}/metrics", timeout=5) as reply:
        text = reply.read().decode()
    found: dict[str, float] = {}
    for name, value in _COUNTER.findall(text):
        found[name] = found.get(name, 0.0) + float(value)
    return found


def _master() -> str | None:
    beside = Path(sys.executable).with_name("mooncake_master")
    return str(beside) if beside.is_file() else shutil.which("mooncake_master")


def _free_ports(count: int) -> list[int]:
    """Ports that nobody listens on, all different."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]


def _wait_for(process: subprocess.Popen[bytes], address: Address, log: Path) -> None:
    host, _, port = address.rpc.partition(":")
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection((host, int(port)), 0.5):
            return
        time.sleep(0.02)
    lines = log.read_text("utf-8", "replace").strip().splitlines()
    raise UserError(
        "Mooncake's master does not start" + (f" ({lines[-1][:200]})" if lines else ""),
        where=log,
        next="look at its log",
    )


def _stop(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(3)
        except subprocess.TimeoutExpired:
            process.kill()
    process.wait()
