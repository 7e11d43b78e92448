from __future__ import annotations

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
