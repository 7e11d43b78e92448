"""A store that fails at random: every kind of failure, and never a lie."""

from __future__ import annotations

import contextlib
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ascendport.store.chaos import Chaos
from ascendport.store.memory import GoneError, MemoryStore

LENGTH = 8
KEYS = [f"key {at}" for at in range(6)]


def places(buffer: np.ndarray) -> tuple[list[list[int]], list[list[int]]]:
    """Each key's two slices of the buffer: addresses and sizes."""
    base = buffer.ctypes.data
    starts = [[base + 2 * LENGTH * at, base + 2 * LENGTH * at + LENGTH] for at in range(len(KEYS))]
    return starts, [[LENGTH, LENGTH]] * len(KEYS)


def buffers() -> tuple[MemoryStore, np.ndarray, np.ndarray]:
    """A store, what is saved, and where it is loaded to."""
    store = MemoryStore()
    source = np.arange(2 * LENGTH * len(KEYS), dtype=np.uint8)
    target = np.full_like(source, 0xEE)
    for buffer in (source, target):
        store.register_buffer(buffer.ctypes.data, buffer.nbytes)
    return store, source, target


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 1 << 30))
def test_it_never_says_that_all_is_well_where_it_is_not(seed: int) -> None:
    store, source, target = buffers()
    chaos = Chaos(store, seed, rate=0.7)
    addresses, sizes = places(source)
    stored: list[int] = []
    with contextlib.suppress(GoneError):
        stored = chaos.batch_put_from_multi_buffers(KEYS, addresses, sizes)
    for key, code in zip(KEYS, stored, strict=False):
        assert code != 0 or key in store.objects
    try:
        there = chaos.batch_is_exist(KEYS)
    except GoneError:
        there = []
    for key, code in zip(KEYS, there, strict=False):
        assert code < 0 or code == (key in store.objects)
    addresses, sizes = places(target)
    try:
        loaded = chaos.batch_get_into_multi_buffers(KEYS, addresses, sizes)
    except GoneError:
        loaded = []
    for at, code in zip(range(len(KEYS)), loaded, strict=False):
        own = slice(2 * LENGTH * at, 2 * LENGTH * (at + 1))
        assert code < 0 or bool((target[own] == source[own]).all())


def test_every_kind_of_failure_comes_about() -> None:
    store, source, _ = buffers()
    chaos = Chaos(store, 1, rate=1.0, breaks=True)
    addresses, sizes = places(source)
    refused: Counter[str] = Counter()
    for _ in range(200):
        for call in (
            lambda: chaos.batch_is_exist(KEYS),
            lambda: chaos.batch_put_from_multi_buffers(KEYS, addresses, sizes),
            lambda: chaos.batch_get_into_multi_buffers(KEYS, addresses, sizes),
            lambda: chaos.enter("get"),
        ):
            try:
                answer = call()
                refused["short" if answer is not None and len(answer) < len(KEYS) else "other"] += 1
            except GoneError:
                refused["raised"] += 1
    assert set(chaos.injected) == {
        *(f"exists {kind}" for kind in ("raises", "codes", "short")),
        *(f"put {kind}" for kind in ("raises", "raises-late", "codes", "short")),
        *(f"get {kind}" for kind in ("raises", "codes", "short", "breaks")),
    }
    assert refused["short"] and refused["raised"]


def test_without_failures_it_is_the_store() -> None:
    store, source, target = buffers()
    chaos = Chaos(store, 0, rate=0.0, breaks=True)
    addresses, sizes = places(source)
    assert chaos.batch_put_from_multi_buffers(KEYS, addresses, sizes) == [0] * len(KEYS)
    chaos.enter("get")
    assert chaos.batch_is_exist([*KEYS, "other"]) == [1] * len(KEYS) + [0]
    addresses, sizes = places(target)
    chaos.batch_get_into_multi_buffers(KEYS, addresses, sizes)
    assert bool((target == source).all())
    assert not chaos.injected


def test_a_late_failure_of_put_has_stored() -> None:
    for seed in range(50):
        store, source, _ = buffers()
        chaos = Chaos(store, seed, rate=1.0)
        addresses, sizes = places(source)
        try:
            chaos.batch_put_from_multi_buffers(KEYS, addresses, sizes)
        except GoneError as error:
            late = "raises-late" in str(error)
            assert late == (len(store.objects) == len(KEYS))
            if late:
                return
    pytest.fail("no late failure in 50 seeds")
