"""A real Mooncake: what its put of a present key does, and that nothing of it outlives us."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ascendport.checks.subject import Subject
from ascendport.store import mooncake
from ascendport.store.bench import ADDRESSES, MEMORY, Plan, rows
from ascendport.store.drive import Facts
from ascendport.store.judge import judge
from ascendport.store.pairs import pairs_on_mooncake
from ascendport.store.portcode import scenarios
from tests.conftest import ReleaseTree
from tests.processes import ends

pytestmark = pytest.mark.skipif(bool(mooncake.missing()), reason=mooncake.missing() or "-")


class Store:
    """A master, a client and a registered buffer."""

    def __init__(self, address: mooncake.Address) -> None:
        self.address = address
        self.client: Any = mooncake.client(address, segment_bytes=mooncake.SMALL_SEGMENT_BYTES)
        self.buffer = np.zeros(1 << 16, np.uint8)
        self.at = self.buffer.ctypes.data
        assert self.client.register_buffer(self.at, self.buffer.nbytes) == 0

    def put(self, keys: list[str], values: list[int]) -> list[int]:
        """Puts each key with 64 bytes of its value."""
        places = []
        for at, value in enumerate(values):
            self.buffer[at * 64 : at * 64 + 64] = value
            places.append([self.at + at * 64])
        answer: list[int] = self.client.batch_put_from_multi_buffers(
            keys, places, [[64]] * len(keys)
        )
        return answer

    def value(self, key: str) -> bytes:
        return bytes(self.client.get(key))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with mooncake.master(tmp_path_factory.mktemp("mooncake") / "log") as address:
        made = Store(address)
        yield made
        made.client.close()


def test_put_of_a_present_key_keeps_the_bytes_and_moves_no_data(store: Store) -> None:
    assert store.put(["present"], [1]) == [0]
    before = mooncake.counters(store.address)
    assert store.put(["present"], [2]) == [0]
    after = mooncake.counters(store.address)
    assert store.value("present") == bytes([1]) * 64

    def grown(name: str) -> float:
        return after.get(name, 0.0) - before.get(name, 0.0)

    # The master asks whether the key is there inside put; nothing is written or closed.
    assert grown("master_batch_put_start_items_total") == 1
    assert grown("master_batch_put_start_failed_items_total") == 1
    assert grown("master_batch_put_end_items_total") == 0


def test_of_two_puts_of_a_key_in_one_batch_the_first_wins(store: Store) -> None:
    assert store.put(["twice", "twice"], [3, 4]) == [0, 0]
    assert store.value("twice") == bytes([3]) * 64


def test_exists_takes_a_lease(store: Store) -> None:
    store.put(["leased"], [5])
    assert store.client.batch_is_exist(["leased", "absent"]) == [1, 0]
    assert store.client.remove("leased") != 0
    assert store.client.remove("leased", True) == 0


def test_the_query_inside_put_is_seen_in_the_counters(store: Store) -> None:
    before = mooncake.counters(store.address)["master_batch_put_start_items_total"]
    store.put([f"counted{at}" for at in range(7)], list(range(7)))
    assert mooncake.counters(store.address)["master_batch_put_start_items_total"] - before == 7


def test_its_client_takes_views_of_an_array_for_addresses(store: Store) -> None:
    store.buffer[:64] = np.arange(64)
    places = (store.at + np.array([[32, 0], [8, 16]])).astype(np.uint64)
    sizes = [[32, 32], [8, 8]]
    assert store.client.batch_put_from_multi_buffers(
        ["view0", "view1"], [memoryview(row) for row in places], sizes
    ) == [0, 0]
    assert store.value("view0") == bytes([*range(32, 64), *range(32)])
    assert store.value("view1") == bytes([*range(8, 16), *range(16, 24)])


def test_a_full_store_says_so(store: Store) -> None:
    big = np.zeros(mooncake.SMALL_SEGMENT_BYTES + (1 << 20), np.uint8)
    store.client.register_buffer(big.ctypes.data, big.nbytes)
    answer = store.client.batch_put_from_multi_buffers(["big"], [[big.ctypes.data]], [[big.nbytes]])
    assert answer[0] < 0
    store.client.unregister_buffer(big.ctypes.data)


SCRIPT = """
import sys, time
from pathlib import Path
from ascendport.store import mooncake
with mooncake.master(Path(sys.argv[1])) as address:
    print(address.rpc, flush=True)
    time.sleep(60)
"""


def heeds_ctrl_c() -> None:
    """For children: a run of the tests in the background ignores SIGINT, and so would they."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGKILL], ids=["ctrl-c", "killed"])
def test_the_master_ends_with_the_process_that_started_it(end: int, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(tmp_path / "log")],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment,
        text=True,
        preexec_fn=heeds_ctrl_c,
    )
    assert process.stdout is not None
    host, _, port = process.stdout.readline().strip().partition(":")
    socket.create_connection((host, int(port)), 5).close()
    process.send_signal(end)
    process.wait(20)
    process.stdout.close()
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        try:
            socket.create_connection((host, int(port)), 1).close()
        except OSError:
            return
        time.sleep(0.05)
    pytest.fail("the master still listens")


def _children(process: int) -> list[int]:
    """Of it, and theirs."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(entry.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        if parent == process:
            found += [int(entry.parent.name), *_children(int(entry.parent.name))]
    return found


def _named(processes: list[int], part: str) -> list[int]:
    """Those with that in their command line."""
    found = []
    for process in processes:
        with contextlib.suppress(OSError):
            if part in Path(f"/proc/{process}/cmdline").read_text():
                found.append(process)
    return found


@pytest.mark.network
def test_ctrl_c_stops_the_master_and_the_ranks(release_tree: ReleaseTree) -> None:
    command = [sys.executable, "-m", "ascendport", "bench", str(release_tree("0.30.0rc2"))]
    command += ["--tp-mismatch", "--backend", "mooncake", "--tp", "4:2", "--ranks", "2"]
    process = subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        start_new_session=True,
        preexec_fn=heeds_ctrl_c,
    )
    started: list[int] = []
    while process.poll() is None:
        started = _children(process.pid)
        if len(_named(started, "spawn_main")) >= 2 and _named(started, "mooncake_master"):
            break
        time.sleep(0.05)
    # As a terminal does it: to all of the foreground.
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait() == 130
    assert len(started) >= 3
    assert all(ends(one) for one in started)


@pytest.mark.network
def test_scenarios_on_it(made: Callable[[str], Subject]) -> None:
    subject = made("0.30.0rc2")
    chosen = [one for one in scenarios(subject.port, subject.variant.name) if "real" in one.tags]
    assert len(chosen) == 4
    for pair in pairs_on_mooncake(subject, chosen, "test"):
        assert isinstance(pair.after, Facts), pair.after
        assert judge(pair.scenario, pair.after, 0) == []


@pytest.mark.network
@pytest.mark.parametrize(
    ("release", "ranks"),
    [pytest.param("0.26.0rc1", 1, marks=pytest.mark.slow), ("0.30.0rc2", 2)],
    ids=["026-one-rank", "030-two-ranks"],
)
def test_the_benchmark_on_it(release: str, ranks: int, made: Callable[[str], Subject]) -> None:
    small = Plan(
        sizes=((4, 2),),
        blocks=(3,),
        layers=2,
        head_dim=8,
        block_size=16,
        rounds=2,
        backend="mooncake",
        ranks=ranks,
    )
    found = list(rows(replace(made(release)), small))
    assert {row.outcome for row in found} == {"ran"}, [row.reason for row in found]
    figures = {(row.case.partition(",")[0], row.quantity): (row.before, row.after) for row in found}
    assert figures["first save", "exists keys"] == (3, 3)
    assert figures["first save", "put keys"] == (3, 3)
    assert figures["first save", "put slices"] == (3 * 4 * 16, 3 * 4)
    assert ("save again", "put keys") not in figures
    assert figures["partly present", "put keys"] == (1, 1)
    assert figures["load", "get keys"] == (6, 6)
    # What put asks the master once more, inside.
    assert figures["first save", "exists keys at the master"] == (3, 3)
    assert figures["first save", "put keys at the master"] == (3, 3)
    assert ("save again", "put keys at the master") not in figures
    assert figures["load", "get keys at the master"] == (6, 6)
    assert {"total", "store", ADDRESSES, MEMORY} <= {row.quantity for row in found}
    assert all(row.case.endswith(", 2 ranks") == (ranks == 2) for row in found)
    assert all(
        row.ratio_low and row.ratio_low <= (row.ratio or 0) for row in found if row.unit == "ms"
    )
