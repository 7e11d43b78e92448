from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ascendport.store.memory import NOT_FOUND, WRONG_SIZE, GoneError, MemoryStore, OutsideError
from ascendport.store.scenario import Array, Fault


class Buffer:
    def __init__(self, size: int = 4096) -> None:
        self.bytes: Array = np.arange(size, dtype=np.int64).astype(np.uint8)
        self.at = self.bytes.ctypes.data


def _store(buffer: Buffer, **how: bool) -> MemoryStore:
    store = MemoryStore(**how)  # type: ignore[arg-type]
    store.register_buffer(buffer.at, buffer.bytes.nbytes)
    return store


def test_a_put_gathers_and_a_get_scatters() -> None:
    buffer = Buffer()
    store = _store(buffer)
    assert store.batch_put_from_multi_buffers(["k"], [[buffer.at + 8, buffer.at]], [[4, 2]]) == [0]
    assert store.objects["k"] == bytes([8, 9, 10, 11, 0, 1])
    got = store.batch_get_into_multi_buffers(["k"], [[buffer.at + 100, buffer.at + 200]], [[2, 4]])
    assert got == [6]
    assert buffer.bytes[100:102].tolist() == [8, 9]
    assert buffer.bytes[200:204].tolist() == [10, 11, 0, 1]
    assert buffer.bytes[102] == 102


@pytest.mark.parametrize(
    ("overwrites", "kept"), [(False, 0), (True, 7)], ids=["keeps", "overwrites"]
)
def test_put_of_a_present_key(overwrites: bool, kept: int) -> None:
    buffer = Buffer()
    store = _store(buffer, overwrites=overwrites)
    store.batch_put_from_multi_buffers(["k"], [[buffer.at]], [[1]])
    assert store.batch_put_from_multi_buffers(["k"], [[buffer.at + 7]], [[1]]) == [0]
    assert store.objects["k"] == bytes([kept])


def test_answers_of_a_get_that_fails() -> None:
    buffer = Buffer()
    store = _store(buffer)
    store.objects["k"] = b"ab"
    assert store.batch_get_into_multi_buffers(["no"], [[buffer.at]], [[2]]) == [NOT_FOUND]
    assert store.batch_get_into_multi_buffers(["k"], [[buffer.at]], [[3]]) == [WRONG_SIZE]
    assert buffer.bytes[:3].tolist() == [0, 1, 2]


@pytest.mark.parametrize("offset", [-1, 4095], ids=["before", "past-the-end"])
def test_an_address_outside_is_refused_untouched(offset: int) -> None:
    buffer = Buffer()
    store = _store(buffer)
    with pytest.raises(OutsideError):
        store.batch_put_from_multi_buffers(["k"], [[buffer.at + offset]], [[2]])
    store.objects["k"] = b"ab"
    with pytest.raises(OutsideError):
        store.batch_get_into_multi_buffers(["k"], [[buffer.at + offset]], [[2]])
    assert len(store.outside) == 2


def test_faults() -> None:
    buffer = Buffer()
    store = _store(buffer)
    store.block_of = lambda key: (int(key[0]), int(key[1]))
    keys = ["00", "01", "10", "11"]
    places, sizes = [[buffer.at]] * 4, [[1]] * 4
    store.order(Fault("put", code=-800, blocks=(1,), ranks=(1,)))
    assert store.batch_put_from_multi_buffers(keys, places, sizes) == [0, 0, 0, -800]
    assert set(store.objects) == {"00", "01", "10"}
    store.mend()
    store.order(Fault("exists", "short"))
    assert store.batch_is_exist(keys) == [1, 1, 1]
    store.mend()
    store.order(Fault("get", "raises", times=1))
    with pytest.raises(GoneError):
        store.batch_get_into_multi_buffers(keys, places, sizes)
    assert store.batch_get_into_multi_buffers(keys, places, sizes) == [1, 1, 1, NOT_FOUND]


@given(
    rows=st.integers(64, 90),
    length=st.sampled_from([2, 8, 24]),
    seed=st.integers(0, 99),
    shift=st.sampled_from([0, 2]),
)
def test_many_slices_are_moved_as_few_are(rows: int, length: int, seed: int, shift: int) -> None:
    """The shortcut for equal slices against one slice after another."""
    rng = np.random.default_rng(seed)
    buffer = Buffer(length * 128 + 8)
    store = _store(buffer)
    places = [int(at) * length + buffer.at + shift for at in rng.permutation(120)[:rows]]
    data = store.read(places, [length] * rows)
    assert data == b"".join(store.read([place], [length]) for place in places)
    target = Buffer(length * 128 + 8)
    store.register_buffer(target.at, target.bytes.nbytes)
    moved = [place - buffer.at + target.at for place in places]
    assert store.write(moved, [length] * rows, data) == len(data)
    wanted = np.arange(target.bytes.size).astype(np.uint8)
    for at, place in enumerate(moved):
        start = place - target.at
        part = np.frombuffer(data[at * length : (at + 1) * length], np.uint8)
        wanted[start : start + length] = part
    assert np.array_equal(target.bytes, wanted)
