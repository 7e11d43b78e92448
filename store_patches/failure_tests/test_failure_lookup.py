"""What the scheduler's question for cached tokens does when it fails, over real ZMQ sockets.

One side of each test is the tree's own, the other is a bare socket that does the wrong thing; a
few tests join both. Where vllm is mocked, JSON stands for its message encoding and a function of
this module for its making of sockets; where vllm is there, both are vllm's own.
"""

from __future__ import annotations

import faulthandler
import importlib
import inspect
import json
import os
import select
import shutil
import signal
import socket as plain_sockets
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.ut.distributed.ascend_store.failure_support import (
    STORE,
    Endless,
    defect,
    pool_scheduler,
    within,
)


def _real_zmq() -> Any:
    """The package itself, also where the folder's mocks have put something in its place."""
    if not inspect.ismodule(sys.modules.get("zmq")):
        for name in [name for name in sys.modules if name.partition(".")[0] == "zmq"]:
            del sys.modules[name]
    return pytest.importorskip("zmq")


zmq = _real_zmq()
connector = importlib.import_module(f"{STORE}.ascend_store_connector")

CLIENT_MENDED = hasattr(pool_scheduler.LookupKeyClient, "_ask")
SERVER_MENDED = hasattr(connector.LookupKeyServer, "_answer")

PATIENCE_S = 25.0
"""How long a mended side may take; it never takes that long."""
CLIENT_PATIENCE_S = PATIENCE_S if CLIENT_MENDED else 0.2
SERVER_PATIENCE_S = PATIENCE_S if SERVER_MENDED else 0.2
"""Without a mend an answer may not come at all, and is not waited for that long."""

MISS_MS = 150
"""Timeout of a client that gets no answer."""
ANSWER_MS = 20_000
"""Timeout of a client that gets one."""

MISS = (0).to_bytes(4, "big")

_left_behind: list[Any] = []
"""What a thread may still wait in must not be collected: its context would wait too."""


class _JsonEncoder:
    def encode(self, value: Any) -> list[bytes]:
        return [json.dumps(value).encode()]


class _JsonDecoder:
    def decode(self, frames: list[Any]) -> Any:
        return json.loads(bytes(frames[0]))


def _make_socket(context: Any, path: str, kind: int, bind: bool | None = None, **_: Any) -> Any:
    made = context.socket(kind)
    if bind:
        made.bind(path)
    else:
        made.connect(path)
    return made


class Wire:
    """Both ends of one address, which is the test's own."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.address = pool_scheduler.get_zmq_rpc_path_lookup(self.config())
        self.context = zmq.Context()
        self.servers: list[Any] = []
        self.clients: list[Any] = []
        self.bare_clients: list[BareClient] = []

    def config(self, timeout_ms: int = ANSWER_MS) -> Any:
        extra = {"lookup_rpc_port": 7, "lookup_rpc_timeout_ms": timeout_ms}
        return SimpleNamespace(
            parallel_config=SimpleNamespace(data_parallel_rank=0),
            kv_transfer_config=SimpleNamespace(kv_connector_extra_config=extra),
        )

    def client(self, timeout_ms: int = ANSWER_MS) -> Any:
        made = pool_scheduler.LookupKeyClient(self.config(timeout_ms))
        self.clients.append(made)
        return made

    def server(self, lookup: Callable[..., Any]) -> Any:
        worker = SimpleNamespace(lookup_scheduler=lookup)
        made = connector.LookupKeyServer(worker, self.config())
        self.servers.append(made)
        return made

    def bare_client(self, patience_s: float = PATIENCE_S) -> BareClient:
        made = BareClient(self.context, self.address, patience_s)
        self.bare_clients.append(made)
        return made

    def close(self) -> None:
        if CLIENT_MENDED:
            for client in self.clients:
                client.close()
        if SERVER_MENDED:
            for server in self.servers:
                server.close()
        for bare in self.bare_clients:
            bare.socket.close()
        self.context.term()
        _left_behind.extend((self.clients, self.servers))


class BareClient:
    """A request socket that sends what it is told."""

    def __init__(self, context: Any, address: str, patience_s: float) -> None:
        self.patience_s = patience_s
        self.socket = context.socket(zmq.REQ)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.connect(address)

    def send(self, *frames: bytes) -> None:
        self.socket.send_multipart(list(frames))

    def receive(self) -> bytes:
        if not self.socket.poll(self.patience_s * 1000):
            raise Endless("the server does not answer")
        return bytes(self.socket.recv())

    def ask(self, *frames: bytes) -> bytes:
        self.send(*frames)
        return self.receive()


class BareServer:
    """A reply socket in a thread of its own: it takes one request, which sets ``asked`` and is
    kept in ``frames``, runs ``script`` on the socket, and closes it."""

    def __init__(self, wire: Wire, script: Callable[[Any], None]) -> None:
        self.failed: list[BaseException] = []
        self.asked = threading.Event()
        self.frames: list[bytes] = []
        bound = threading.Event()

        def run() -> None:
            context = zmq.Context()
            served = context.socket(zmq.REP)
            served.setsockopt(zmq.LINGER, 2000)
            served.bind(wire.address)
            bound.set()
            try:
                self.frames = received(served)
                self.asked.set()
                script(served)
            except BaseException as error:
                self.failed.append(error)
            finally:
                served.close()
                # Only then is the address free: closing goes on in the background.
                context.term()

        self.thread = threading.Thread(target=run, daemon=True)
        self.thread.start()
        assert bound.wait(PATIENCE_S)

    def join(self) -> None:
        """Waits for the end of the script; raises what it raised."""
        self.thread.join(PATIENCE_S)
        assert not self.thread.is_alive()
        if self.failed:
            raise self.failed[0]


def received(served: Any) -> list[bytes]:
    """The frames of the next request."""
    if not served.poll(PATIENCE_S * 1000):
        raise Endless("no request comes")
    return [bytes(frame) for frame in served.recv_multipart()]


def count(tokens: int) -> bytes:
    return tokens.to_bytes(max(4, (tokens.bit_length() + 7) // 8), "big")


def request(tokens: int = 64, hashes: int = 4, groups: Any = (0,)) -> list[bytes]:
    """The frames of a well-formed request, made with the tree's own encoder."""
    encoder = pool_scheduler.MsgpackEncoder()
    names = [bytes([index]).hex() * 32 for index in range(hashes)]
    parts = [*encoder.encode(list(groups)), count(0), *encoder.encode(names)]
    return [count(tokens), *map(bytes, parts)]


def lookup(client: Any, *arguments: Any, **named: Any) -> int:
    """What the client answers; it has to answer."""
    return bounded(lambda: client.lookup(*arguments, **named), CLIENT_PATIENCE_S, "lookup")


def patiently(client: Any, *arguments: Any, **named: Any) -> int:
    """What the client answers where an answer is under way."""
    return bounded(lambda: client.lookup(*arguments, **named), PATIENCE_S, "lookup")


def bounded(work: Callable[[], Any], seconds: float, name: str) -> Any:
    """What ``work`` returns or raises, from a thread that may be left behind."""
    outcome: list[Any] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            outcome.append(work())
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        raise Endless(f"{name} does not come back")
    if failed:
        raise failed[0]
    return outcome[0]


def missed_until(client: Any, asked: threading.Event) -> int:
    """The sum of all answers until a request has arrived: a slow machine may give up before."""
    found = lookup(client, 64, [b"a"])
    while not asked.is_set():
        found += lookup(client, 64, [b"a"])
    return found


def answer_until(over: threading.Event, served: Any, tokens: int) -> None:
    """Answers every further request the same."""
    while not over.is_set():
        if served.poll(10):
            served.recv_multipart()
            served.send(count(tokens))


def first_hit(client: Any, tokens: int = 64) -> int:
    """Asks until the answer is not a miss: a slow machine may miss a short timeout."""
    ends = time.monotonic() + PATIENCE_S
    while time.monotonic() < ends:
        found = lookup(client, tokens, [b"a"])
        if found:
            return found
    raise Endless("nothing but misses")


def apart(work: Callable[[], Any], seconds: float) -> Any:
    """What ``work`` returns, from a process of its own: an abort or a hang stays there."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        faulthandler.disable()
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        try:
            said = json.dumps({"said": work()})
        except BaseException as error:
            said = json.dumps({"failed": f"{type(error).__name__}: {error}"})
        os.write(writer, said.encode())
        os._exit(0)
    os.close(writer)
    waiting = select.poll()
    waiting.register(reader)
    try:
        heard = b""
        while waiting.poll(seconds * 1000):
            part = os.read(reader, 65536)
            if not part:
                break
            heard += part
        else:
            raise Endless("a process of its own does not end")
    finally:
        os.close(reader)
        os.kill(child, signal.SIGKILL)
        status = os.waitpid(child, 0)[1]
    assert heard, f"the process ended with status {status}"
    answer = json.loads(heard)
    assert "failed" not in answer, answer["failed"]
    return answer["said"]


@pytest.fixture()
def wire(monkeypatch: pytest.MonkeyPatch) -> Iterator[Wire]:
    folder = tempfile.mkdtemp(prefix="lk")
    monkeypatch.setattr(pool_scheduler, "envs", SimpleNamespace(VLLM_RPC_BASE_PATH=folder))
    for module in (pool_scheduler, connector):
        monkeypatch.setattr(module, "zmq", zmq)
    if not inspect.isfunction(pool_scheduler.make_zmq_socket):
        monkeypatch.setattr(pool_scheduler, "make_zmq_socket", _make_socket)
        monkeypatch.setattr(connector, "make_zmq_socket", _make_socket)
        monkeypatch.setattr(pool_scheduler, "MsgpackEncoder", _JsonEncoder)
        monkeypatch.setattr(connector, "MsgpackDecoder", _JsonDecoder)
    made = Wire(folder)
    yield made
    made.close()
    shutil.rmtree(folder, ignore_errors=True)


class TestClientWithoutAnswer:
    """Whatever keeps the answer away, the scheduler goes on with a miss."""

    @defect("c1", mended=CLIENT_MENDED)
    @within()
    def test_no_server(self, wire: Wire) -> None:
        client = wire.client(MISS_MS)
        assert lookup(client, 64, [b"a"]) == 0

    @defect("c1", mended=CLIENT_MENDED)
    @within()
    def test_silent_server(self, wire: Wire) -> None:
        over = threading.Event()
        server = BareServer(wire, lambda served: over.wait(PATIENCE_S) and None)
        client = wire.client(MISS_MS)
        assert missed_until(client, server.asked) == 0
        assert lookup(client, 64, [b"a"]) == 0
        over.set()
        server.join()

    @defect("c1", mended=CLIENT_MENDED)
    @within()
    def test_server_dies_in_mid_request(self, wire: Wire) -> None:
        server = BareServer(wire, lambda served: None)
        client = wire.client(MISS_MS)
        assert missed_until(client, server.asked) == 0
        server.join()
        assert lookup(client, 64, [b"a"]) == 0

    @defect("c1", mended=CLIENT_MENDED)
    @within()
    def test_restarted_server_is_found(self, wire: Wire) -> None:
        dying = BareServer(wire, lambda served: None)
        client = wire.client(MISS_MS)
        assert missed_until(client, dying.asked) == 0
        dying.join()
        over = threading.Event()

        def answering(served: Any) -> None:
            served.send(count(48))
            answer_until(over, served, 48)

        server = BareServer(wire, answering)
        try:
            assert first_hit(client) == 48
        finally:
            over.set()
        server.join()

    @defect("c1", mended=CLIENT_MENDED)
    @within()
    def test_late_answer_is_not_the_next_one(self, wire: Wire) -> None:
        gave_up, over = threading.Event(), threading.Event()

        def late(served: Any) -> None:
            gave_up.wait(PATIENCE_S)
            served.send(count(48))
            answer_until(over, served, 16)

        server = BareServer(wire, late)
        client = wire.client(MISS_MS)
        try:
            assert missed_until(client, server.asked) == 0
            gave_up.set()
            assert first_hit(client) == 16
        finally:
            gave_up.set()
            over.set()
        server.join()

    @within()
    def test_server_restarts_between_requests(self, wire: Wire) -> None:
        def once(served: Any) -> None:
            served.send(count(32))
            again.wait(PATIENCE_S)

        again = threading.Event()
        first = BareServer(wire, once)
        client = wire.client()
        assert patiently(client, 64, [b"a"]) == 32
        again.set()
        first.join()
        second = BareServer(wire, once)
        assert patiently(client, 64, [b"a"]) == 32
        second.join()

    @pytest.mark.parametrize("timeout", [0, -1, "soon", None, True], ids=repr)
    @defect("c1", mended=CLIENT_MENDED)
    @within()
    def test_timeout_must_be_positive(self, wire: Wire, timeout: Any) -> None:
        with pytest.raises(ValueError, match="lookup_rpc_timeout_ms"):
            wire.client(timeout)


class TestClientWithWrongAnswer:
    """An answer that no count of the prompt's tokens can be is a miss."""

    @pytest.mark.parametrize(
        "answer",
        [[b"\xff" * 4], [b"\xff" * 4096], [count(65)], [count(16), b"more"]],
        ids=["all-ones", "4-kib", "beyond-the-prompt", "two-frames"],
    )
    @defect("c8", mended=CLIENT_MENDED)
    @within()
    def test_is_a_miss_and_the_next_one_counts(self, wire: Wire, answer: list[bytes]) -> None:
        done = threading.Event()

        def wrong_then_right(served: Any) -> None:
            served.send_multipart(answer)
            received(served)
            served.send(count(48))
            done.wait(PATIENCE_S)

        server = BareServer(wire, wrong_then_right)
        client = wire.client()
        try:
            assert lookup(client, 64, [b"a"]) == 0
            assert lookup(client, 64, [b"a"]) == 48
        finally:
            done.set()
        server.join()

    @within()
    def test_plain_answers(self, wire: Wire) -> None:
        done = threading.Event()

        def script(served: Any) -> None:
            served.send(b"")
            for tokens in (0, 16, 64):
                received(served)
                served.send(count(tokens))
            done.wait(PATIENCE_S)

        server = BareServer(wire, script)
        client = wire.client()
        assert [patiently(client, 64, [b"a"]) for _ in range(4)] == [0, 0, 16, 64]
        done.set()
        server.join()


class TestClientValues:
    """What the request can carry."""

    @pytest.mark.parametrize("tokens", [0, 1, 2**31, 2**32 - 1])
    @within()
    def test_counts_of_four_bytes(self, wire: Wire, tokens: int) -> None:
        assert self._sent(wire, tokens, tokens) == [tokens, tokens]

    @pytest.mark.parametrize("tokens", [2**32, 2**40 + 5])
    @pytest.mark.parametrize("where", ["prompt", "computed"])
    @defect("c6", mended=CLIENT_MENDED)
    @within()
    def test_counts_of_more_bytes(self, wire: Wire, tokens: int, where: str) -> None:
        computed = tokens if where == "computed" else 0
        assert self._sent(wire, tokens, computed) == [tokens, computed]

    def _sent(self, wire: Wire, tokens: int, computed: int) -> list[int]:
        server = BareServer(wire, lambda served: served.send(count(tokens)))
        client = wire.client()
        assert patiently(client, tokens, [b"a"], hbm_hit_tokens=computed) == tokens
        server.join()
        return [int.from_bytes(server.frames[0], "big"), int.from_bytes(server.frames[2], "big")]

    @pytest.mark.parametrize(
        "arguments",
        [(-1, [b"a"]), (64, [None]), (64, [b"a"], [0], -1)],
        ids=["negative-prompt", "no-hash", "negative-computed"],
    )
    @defect("c6", mended=CLIENT_MENDED)
    @within()
    def test_what_cannot_be_sent_is_a_miss(self, wire: Wire, arguments: tuple[Any, ...]) -> None:
        def script(served: Any) -> None:
            served.send(count(32))
            done.wait(PATIENCE_S)

        done = threading.Event()
        server = BareServer(wire, script)
        client = wire.client()
        try:
            assert lookup(client, *arguments) == 0
            assert lookup(client, 64, [b"a"]) == 32
        finally:
            done.set()
        server.join()
        assert server.frames[0] == count(64)

    @within()
    def test_a_million_hashes(self, wire: Wire) -> None:
        hashes = [index.to_bytes(8, "big") for index in range(1_000_000)]
        server = BareServer(wire, lambda served: served.send(count(16_000_000)))
        client = wire.client()
        assert patiently(client, 16_000_000, hashes) == 16_000_000
        server.join()
        assert sum(map(len, server.frames[3:])) > 16_000_000


class TestClientClose:
    """A closing client lets go of whoever waits in it."""

    @defect("c7", mended=CLIENT_MENDED)
    @within()
    def test_close_while_waiting(self, wire: Wire) -> None:
        address = wire.address

        def work() -> int:
            # Sockets of the parent are not used in this process.
            context = zmq.Context()
            served = context.socket(zmq.REP)
            served.bind(address)
            client = pool_scheduler.LookupKeyClient(wire.config())
            found: list[int] = []
            asking = threading.Thread(
                target=lambda: found.append(client.lookup(64, [b"a"])), daemon=True
            )
            asking.start()
            received(served)
            client.close()
            asking.join(CLIENT_PATIENCE_S)
            return found[0] if found else -1

        assert apart(work, 2 * CLIENT_PATIENCE_S) == 0

    @defect("c7", mended=CLIENT_MENDED)
    @within()
    def test_lookup_after_close_is_a_miss(self, wire: Wire) -> None:
        client = wire.client()
        client.close()
        client.close()
        assert lookup(client, 64, [b"a"]) == 0


GARBAGE = b"\xc1\xff{\x00"
"""Neither JSON nor MessagePack."""

BAD_REQUESTS: dict[str, list[bytes]] = {
    "one-frame": [count(64)],
    "two-frames": [count(64), b"[0]"],
    "three-frames": [count(64), b"[0]", count(0)],
    "one-empty-frame": [b""],
    "four-empty-frames": [b""] * 4,
    "garbage-groups": [count(64), GARBAGE, count(0), GARBAGE],
    "garbage-everywhere": [GARBAGE] * 4,
    "many-garbage-frames": [GARBAGE] * 500,
    "many-megabytes": [count(64), GARBAGE, count(0), b"\xc1" * (16 << 20)],
}


def hit_of(tokens: int) -> Callable[..., Any]:
    """A worker that finds ``tokens`` tokens whatever it is asked."""
    return lambda *arguments, **named: tokens


class TestServerRequests:
    """A request that cannot be read is a miss, and the next one is served."""

    @pytest.mark.parametrize("frames", BAD_REQUESTS.values(), ids=BAD_REQUESTS)
    @defect("c3", mended=SERVER_MENDED)
    @within()
    def test_bad_frames(self, wire: Wire, frames: list[bytes]) -> None:
        server = wire.server(hit_of(32))
        client = wire.bare_client(SERVER_PATIENCE_S)
        assert client.ask(*frames) == MISS
        assert client.ask(*request()) == count(32)
        assert server.thread.is_alive()

    @pytest.mark.parametrize("frame", [0, 2])
    @defect("c3", mended=SERVER_MENDED)
    @within()
    def test_count_of_many_bytes(self, wire: Wire, frame: int) -> None:
        wire.server(hit_of(32))
        client = wire.bare_client(SERVER_PATIENCE_S)
        frames = request()
        frames[frame] = b"\xff" * 4096
        assert client.ask(*frames) == MISS
        assert client.ask(*request()) == count(32)

    @defect("c3", mended=SERVER_MENDED)
    @within()
    def test_bad_frames_of_one_are_no_harm_to_another(self, wire: Wire) -> None:
        wire.server(hit_of(32))
        good, bad = wire.bare_client(SERVER_PATIENCE_S), wire.bare_client(SERVER_PATIENCE_S)
        for _ in range(20):
            bad.send(*BAD_REQUESTS["one-frame"])
            assert good.ask(*request()) == count(32)
            assert bad.receive() == MISS

    @within()
    def test_further_frames_are_no_harm(self, wire: Wire) -> None:
        wire.server(hit_of(32))
        client = wire.bare_client()
        assert client.ask(*request(), *[b"further"] * 100) in (MISS, count(32))
        assert client.ask(*request()) == count(32)

    @within()
    def test_noise_on_the_socket_is_no_harm(self, wire: Wire) -> None:
        wire.server(hit_of(32))
        with plain_sockets.socket(plain_sockets.AF_UNIX) as noisy:
            noisy.connect(wire.address.removeprefix("ipc://"))
            noisy.sendall(GARBAGE * 64)
        assert wire.bare_client().ask(*request()) == count(32)

    @within()
    def test_client_that_goes_away_is_no_harm(self, wire: Wire) -> None:
        asked, gone = threading.Event(), threading.Event()

        def slow(*arguments: Any, **named: Any) -> int:
            if not asked.is_set():
                asked.set()
                gone.wait(PATIENCE_S)
            return 32

        wire.server(slow)
        leaving = wire.bare_client()
        leaving.send(*request())
        assert asked.wait(PATIENCE_S)
        leaving.socket.close()
        gone.set()
        assert wire.bare_client().ask(*request()) == count(32)

    @within()
    def test_what_the_worker_is_asked(self, wire: Wire) -> None:
        seen: list[Any] = []

        def remember(tokens: int, hashes: Any, groups: Any, **named: Any) -> int:
            seen.extend((tokens, len(hashes), list(groups), named["hbm_hit_tokens"]))
            return 16

        wire.server(remember)
        assert wire.bare_client().ask(*request(96, 6, (0, 2))) == count(16)
        assert seen == [96, 6, [0, 2], 0]


WRONG_ANSWERS = {
    "minus-one": -1,
    "none": None,
    "word": "16",
    "fraction": 16.0,
    "list": [16],
    "beyond-four-bytes": 2**32,
    "far-beyond": 2**70,
}


class TestServerAnswers:
    """A worker that raises, or answers nonsense, has found nothing."""

    @pytest.mark.parametrize("answer", WRONG_ANSWERS.values(), ids=WRONG_ANSWERS)
    @defect("c4", mended=SERVER_MENDED)
    @within()
    def test_nonsense(self, wire: Wire, answer: Any) -> None:
        self._after(wire, lambda: answer)

    @pytest.mark.parametrize("error", [RuntimeError, MemoryError, SystemExit, KeyboardInterrupt])
    @defect("c4", mended=SERVER_MENDED)
    @within()
    def test_raises(self, wire: Wire, error: type[BaseException]) -> None:
        def fail() -> int:
            raise error("the store is gone")

        self._after(wire, fail)

    def _after(self, wire: Wire, first: Callable[[], Any]) -> None:
        answers = [first, lambda: 32]
        wire.server(lambda *arguments, **named: answers.pop(0)())
        client = wire.bare_client(SERVER_PATIENCE_S)
        assert client.ask(*request()) == MISS
        assert client.ask(*request()) == count(32)

    @defect("c4", mended=SERVER_MENDED)
    @within()
    def test_more_than_the_prompt(self, wire: Wire) -> None:
        wire.server(hit_of(65))
        assert wire.bare_client(SERVER_PATIENCE_S).ask(*request(64)) == MISS

    @defect("c4", mended=SERVER_MENDED)
    @within()
    def test_numpy_count(self, wire: Wire) -> None:
        wire.server(lambda *arguments, **named: np.int64(48))
        assert wire.bare_client(SERVER_PATIENCE_S).ask(*request(64)) == count(48)

    @pytest.mark.parametrize("tokens", [2**32, 2**40])
    @defect("c4", mended=SERVER_MENDED)
    @within()
    def test_hit_of_more_than_four_bytes(self, wire: Wire, tokens: int) -> None:
        wire.server(hit_of(tokens))
        assert wire.bare_client(SERVER_PATIENCE_S).ask(*request(tokens)) == count(tokens)

    @pytest.mark.parametrize("tokens", [0, 64])
    @within()
    def test_hit_and_miss(self, wire: Wire, tokens: int) -> None:
        wire.server(hit_of(tokens))
        assert wire.bare_client().ask(*request(64)) == count(tokens)


class Noted:
    """A server's socket that notes which thread closes it, and lets no other thread do so."""

    def __init__(self, server: Any) -> None:
        self.server = server
        self.socket = server.socket
        self.closed_by: list[str] = []
        server.socket = self

    def __getattr__(self, name: str) -> Any:
        return getattr(self.socket, name)

    def close(self, *arguments: Any, **named: Any) -> None:
        own = threading.current_thread() is self.server.thread
        self.closed_by.append("its thread" if own else "another")
        if own:
            self.socket.close(*arguments, **named)


class Closing:
    """A server in a process of its own, and what happens when it is closed."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self.client = BareClient(zmq.Context(), wire.address, PATIENCE_S)

    def start(self, lookup: Callable[..., Any]) -> Any:
        server = self.wire.server(lookup)
        Noted(server)
        return server

    def ended(self, server: Any) -> list[Any]:
        """Who closed the socket, and whether the thread still runs."""
        server.thread.join(SERVER_PATIENCE_S)
        return [sorted(set(server.socket.closed_by)), server.thread.is_alive()]


CLOSED = [["its thread"], False]


class TestServerClose:
    """The thread that reads a socket closes it, and ends."""

    @staticmethod
    def _apart(wire: Wire, work: Callable[[Closing], Any]) -> Any:
        return apart(lambda: work(Closing(wire)), 2 * SERVER_PATIENCE_S)

    @defect("c7", mended=SERVER_MENDED)
    @within()
    def test_idle_server(self, wire: Wire) -> None:
        def work(closing: Closing) -> Any:
            server = closing.start(hit_of(32))
            assert closing.client.ask(*request()) == count(32)
            server.close()
            return closing.ended(server)

        assert self._apart(wire, work) == CLOSED

    @defect("c7", mended=SERVER_MENDED)
    @within()
    def test_server_that_was_never_asked(self, wire: Wire) -> None:
        def work(closing: Closing) -> Any:
            server = closing.start(hit_of(32))
            server.close()
            server.close()
            return closing.ended(server)

        assert self._apart(wire, work) == CLOSED

    @defect("c7", mended=SERVER_MENDED)
    @within()
    def test_another_server_takes_the_place(self, wire: Wire) -> None:
        def work(closing: Closing) -> Any:
            said: list[Any] = []
            for tokens in (16, 32, 48):
                server = closing.start(hit_of(tokens))
                said.append(int.from_bytes(closing.client.ask(*request()), "big"))
                server.close()
                said.append(closing.ended(server))
            return said

        assert self._apart(wire, work) == [16, CLOSED, 32, CLOSED, 48, CLOSED]

    @defect("c7", mended=SERVER_MENDED)
    @within()
    def test_close_while_the_worker_is_asked(self, wire: Wire) -> None:
        def work(closing: Closing) -> Any:
            asked, go_on, back = threading.Event(), threading.Event(), threading.Event()

            def slow(*arguments: Any, **named: Any) -> int:
                asked.set()
                go_on.wait(PATIENCE_S)
                return 32

            server = closing.start(slow)
            closing.client.send(*request())
            assert asked.wait(PATIENCE_S)
            threading.Thread(target=lambda: (server.close(), back.set()), daemon=True).start()
            while server.running and not back.wait(0.001):
                pass
            go_on.set()
            return [back.wait(SERVER_PATIENCE_S), closing.ended(server)]

        assert self._apart(wire, work) == [True, CLOSED]

    @defect("c7", mended=SERVER_MENDED)
    @within()
    def test_nothing_stays_open(self, wire: Wire) -> None:
        def work(closing: Closing) -> Any:
            counts = []
            for _ in range(4):
                server = closing.start(hit_of(32))
                server.close()
                if closing.ended(server) != CLOSED:
                    return closing.ended(server)
                counts.append(
                    [len(list(Path("/proc/self/fd").iterdir())), threading.active_count()]
                )
            return counts[0] == counts[-1] or counts

        assert self._apart(wire, work) is True


class TestBothSides:
    """The tree's client and server together."""

    @within()
    def test_many_clients_at_once(self, wire: Wire) -> None:
        wire.server(lambda tokens, hashes, groups, **named: len(hashes))
        start = threading.Barrier(8)
        found: dict[int, list[int]] = {}

        def ask(number: int) -> None:
            client = wire.client()
            start.wait(PATIENCE_S)
            hashes = [bytes([number])] * number
            found[number] = [client.lookup(64, hashes) for _ in range(10)]

        threads = [threading.Thread(target=ask, args=(number,), daemon=True) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_S)
        assert found == {number: [number] * 10 for number in range(8)}

    @within()
    def test_all_hashes_arrive_in_order(self, wire: Wire) -> None:
        seen: list[Any] = []
        wire.server(lambda tokens, hashes, groups, **named: seen.append(list(hashes)) or 64)
        names = [index.to_bytes(32, "big") for index in range(20_000)]
        assert patiently(wire.client(), 64, names) == 64
        assert [_as_bytes(name) for name in seen[0]] == names

    @defect("c4", mended=CLIENT_MENDED and SERVER_MENDED)
    @within()
    def test_worker_raises(self, wire: Wire) -> None:
        answers: list[Any] = [ZeroDivisionError(), 48]

        def answer(*arguments: Any, **named: Any) -> int:
            found = answers.pop(0)
            if isinstance(found, BaseException):
                raise found
            return int(found)

        wire.server(answer)
        client = wire.client()
        assert [lookup(client, 64, [b"a"]) for _ in range(2)] == [0, 48]

    @defect("c1", mended=CLIENT_MENDED and SERVER_MENDED)
    @within()
    def test_server_comes_back(self, wire: Wire) -> None:
        def work() -> list[int]:
            server = wire.server(hit_of(16))
            client = wire.client(MISS_MS)
            said = [first_hit(client)]
            server.close()
            said.append(lookup(client, 64, [b"a"]))
            wire.server(hit_of(48))
            return [*said, first_hit(client)]

        assert apart(work, 2 * SERVER_PATIENCE_S) == [16, 0, 48]


def _as_bytes(name: Any) -> bytes:
    """A hash as the worker is given it: text, or bytes in some releases."""
    return bytes.fromhex(name) if isinstance(name, str) else bytes(name)
