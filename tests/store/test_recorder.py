from __future__ import annotations

import tracemalloc

import pytest

from ascendport.store.recorder import Recorder, totals


def test_calls_keys_slices_and_bytes_by_method() -> None:
    recorder = Recorder()
    with recorder.call("exists", ["a", "b"]) as answer:
        answer.append([1, 0])
    with recorder.call("put", ["b"], [[4, 4, 2]]) as answer:
        answer.append([0])
    with recorder.call("put", ["c"], [[4]]) as answer:
        answer.append(None)
    calls = recorder.take()
    assert recorder.take() == []
    assert [call.codes for call in calls] == [(1, 0), (0,), None]
    found = totals(calls)
    assert (found["exists"].calls, found["exists"].keys, found["exists"].slices) == (1, 2, 0)
    assert (found["put"].calls, found["put"].slices, found["put"].bytes) == (2, 4, 14)
    assert found["put"].seconds >= 0


def test_a_call_that_raises_is_recorded_and_raises() -> None:
    recorder = Recorder()
    with pytest.raises(ConnectionError), recorder.call("get", ["a"], [[1]]):
        raise ConnectionError("gone")
    assert recorder.take()[0].raised == "ConnectionError"


def test_without_detail_names_and_bytes_are_left_out() -> None:
    recorder = Recorder(detail=False)
    with recorder.call("put", ["a", "b"], [[4], [4]]):
        pass
    call = recorder.take()[0]
    assert (call.keys, call.slices, call.bytes) == (("", ""), 2, 0)


def test_what_is_held_before_a_call_is_weighed_where_memory_is_traced() -> None:
    recorder = Recorder(detail=False)
    with recorder.call("put", ["a"], [[4]]):
        pass
    tracemalloc.start()
    try:
        kept = bytearray(1 << 20)
        recorder.begin()
        del kept
        passing = bytearray(3 << 20)
        del passing
        with recorder.call("put", ["a"], [[4]]) as answer:
            answer.append(bytearray(5 << 20))
    finally:
        tracemalloc.stop()
    plain, weighed = recorder.take()
    assert plain.held == 0
    # What passed counts at its highest, with what was there at first gone; what the call makes
    # is not the caller's.
    assert 2 << 20 <= weighed.held < 3 << 20


def test_recording_takes_time_of_its_own_which_is_told() -> None:
    recorder = Recorder()
    recorder.begin()
    with recorder.call("put", ["a"] * 1000, [[4] * 1000] * 1000):
        pass
    assert recorder.own_seconds > 0
    recorder.begin()
    assert recorder.own_seconds == 0
