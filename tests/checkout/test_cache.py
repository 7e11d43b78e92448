"""The cache: whole files or none, damage noticed, two processes."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ascendport.checkout.cache import Cache, HashMismatchError, directory
from ascendport.errors import UserError

DATA = b"twelve bytes"
SHA = hashlib.sha256(DATA).hexdigest()


def writes(data: bytes, calls: list[int] | None = None) -> Callable[[BinaryIO], None]:
    def produce(file: BinaryIO) -> None:
        if calls is not None:
            calls.append(1)
        file.write(data)

    return produce


def left_over(cache: Cache) -> list[Path]:
    return [path for path in cache.root.rglob("*") if path.is_file() and path.suffix != ".lock"]


def test_produced_once(cache: Cache) -> None:
    calls: list[int] = []
    assert cache.get(SHA, "a.bin") is None
    first = cache.obtain(SHA, "a.bin", writes(DATA, calls))
    assert first.read_bytes() == DATA
    assert cache.obtain(SHA, "a.bin", writes(DATA, calls)) == first == cache.get(SHA, "a.bin")
    assert len(calls) == 1


@pytest.mark.parametrize("damage", [b"", DATA[:-1], DATA + b"!", b"other  bytes"])
def test_damage_is_noticed_and_mended(cache: Cache, damage: bytes) -> None:
    path = cache.obtain(SHA, "a.bin", writes(DATA))
    path.write_bytes(damage)
    assert cache.get(SHA, "a.bin") is None
    calls: list[int] = []
    assert cache.obtain(SHA, "a.bin", writes(DATA, calls)).read_bytes() == DATA
    assert calls


def test_wrong_contents_are_refused_and_leave_nothing(cache: Cache) -> None:
    with pytest.raises(HashMismatchError) as caught:
        cache.obtain(SHA, "a.bin", writes(b"other"))
    assert caught.value.expected == SHA
    assert left_over(cache) == []


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_interrupted_production_leaves_nothing(cache: Cache, error: type[BaseException]) -> None:
    def produce(file: BinaryIO) -> None:
        file.write(DATA[:5])
        file.flush()
        raise error

    with pytest.raises(error):
        cache.obtain(SHA, "a.bin", produce)
    assert left_over(cache) == []
    assert cache.get(SHA, "a.bin") is None


def test_without_a_hash_it_is_produced_every_time(cache: Cache) -> None:
    calls: list[int] = []
    first = cache.obtain(None, "a.bin", writes(DATA, calls))
    assert cache.obtain(None, "a.bin", writes(DATA, calls)) == first
    assert len(calls) == 2
    assert cache.get(SHA, "a.bin") == first


def test_name_cannot_lead_out_of_the_cache(cache: Cache) -> None:
    path = cache.obtain(SHA, "../../evil", writes(DATA))
    assert path.is_relative_to(cache.root / "files" / SHA)


def test_leftovers_of_killed_processes_go(cache: Cache) -> None:
    old = cache.root / "tmp" / "old"
    old.parent.mkdir(parents=True)
    old.write_bytes(b"x")
    os.utime(old, (0, 0))
    fresh = old.with_name("fresh")
    fresh.write_bytes(b"x")
    cache.add_object(DATA)
    assert not old.exists()
    assert fresh.exists()


def test_two_processes_produce_once(cache: Cache, tmp_path: Path) -> None:
    code = """
import sys, time
from pathlib import Path
from ascendport.checkout.cache import Cache
def produce(file):
    with open(sys.argv[2], "a") as log:
        log.write("x")
    time.sleep(0.3)
    file.write(b"twelve bytes")
print(Cache(Path(sys.argv[1])).obtain(sys.argv[3], "a.bin", produce).read_bytes().decode())
"""
    log = tmp_path / "log"
    command = [sys.executable, "-c", code, str(cache.root), str(log), SHA]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    outputs = [process.communicate(timeout=60)[0].strip() for process in processes]
    assert outputs == [DATA.decode()] * 3
    assert log.read_text() == "x"


@given(data=st.binary(max_size=200))
@settings(max_examples=20, deadline=None)
def test_objects(data: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    cache = Cache(tmp_path_factory.mktemp("objects"))
    sha = cache.add_object(data)
    assert cache.read_object(sha) == data
    (cache.root / "objects" / sha).write_bytes(data + b"!")
    assert cache.read_object(sha) is None


def test_facts(cache: Cache) -> None:
    assert cache.fact("k") is None
    cache.learn("k", {"a": "ü"})
    assert cache.fact("k") == {"a": "ü"}
    (path,) = (cache.root / "facts").iterdir()
    path.write_text('{"key": "other", "value": {}}')
    assert cache.fact("k") is None
    path.write_bytes(b'{"key": "k", "val')
    assert cache.fact("k") is None
    cache.learn("k", {"a": 1})
    cache.forget("k")
    assert cache.fact("k") is None


def test_place_that_cannot_be_written(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(UserError, match="cannot write to the cache") as caught:
        Cache(file / "below").obtain(SHA, "a", writes(DATA))
    assert "ASCENDPORT_CACHE" in caught.value.next


def test_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ASCENDPORT_CACHE", str(tmp_path / "here"))
    assert directory() == tmp_path / "here"
    monkeypatch.delenv("ASCENDPORT_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    if sys.platform == "linux":
        assert directory() == tmp_path / "xdg" / "ascendport"
