from __future__ import annotations

import numpy as np
import pytest

from ascendport.store.scenario import Request, Scenario, Shape, content, noise

SHARING = Scenario(
    "x", 2, 4, (), (Request("a", 70), Request("b", 48, like="a", shared=32), Request("c", 16))
)


def test_a_shared_prefix_has_the_same_hashes_and_nothing_else_has() -> None:
    a, b, c = (SHARING.hashes(request) for request in SHARING.requests)
    assert (len(a), len(b), len(c)) == (5, 3, 1)
    assert a[:2] == b[:2]
    assert len({*a, *b, *c}) == 5 + 1 + 1


def test_the_last_block_may_be_partial() -> None:
    request = SHARING.requests[0]
    assert [SHARING.chunk(request, at) for at in range(5)] == [16, 16, 16, 16, 6]


def test_blocks_are_placed_once_and_never_at_0() -> None:
    placed = SHARING.placement("prefill")
    every = [block for blocks in placed.values() for block in blocks]
    assert len(set(every)) == len(every) == 9
    assert 0 not in every
    assert placed != SHARING.placement("decode")


def test_too_many_blocks_are_refused() -> None:
    with pytest.raises(ValueError, match="blocks wanted"):
        Scenario("x", 2, 4, (), (Request("a", 10_000),)).placement("prefill")


def test_content_follows_from_the_hash() -> None:
    shape = Shape(layers=1)
    one, same, other = (content(shape, seed, 0) for seed in (b"a" * 32, b"a" * 32, b"b" * 32))
    assert np.array_equal(one[0][0], same[0][0])
    assert not np.array_equal(one[0][0], other[0][0])
    assert not np.array_equal(one[0][0], one[0][1])
    assert noise(shape, 4, 0)[0][0].shape == (16, 16, 4, 8)
