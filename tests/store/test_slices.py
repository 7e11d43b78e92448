"""The port's table of slices against the plain formula, slice by slice."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.store.conftest import port


def _table() -> Any:
    names: dict[str, Any] = {}
    exec(compile(port().read("slices.py"), "slices.py", "exec"), names)
    return names["_TpMismatchSlices"]


SLICES = _table()

entries = st.lists(
    st.tuples(st.integers(1, 4), st.integers(0, 64)),  # bytes a token and sub-key, padding
    min_size=1,
    max_size=4,
)


@given(
    entries=entries,
    block_size=st.sampled_from([1, 4, 16]),
    sub_keys=st.sampled_from([1, 2, 4]),
    tokens=st.integers(1, 16),
    keys=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 3)), min_size=1, max_size=3),
)
def test_slices_cover_what_the_plain_formula_covers(
    entries: list[tuple[int, int]],
    block_size: int,
    sub_keys: int,
    tokens: int,
    keys: list[tuple[int, int]],
) -> None:
    tokens = min(tokens, block_size)
    keys = [(block, sub % sub_keys) for block, sub in keys]
    lengths = [head * sub_keys * block_size for head, _ in entries]
    strides = [length + gap for length, (_, gap) in zip(lengths, entries, strict=True)]
    bases = [1 << 20]
    for stride in strides[:-1]:
        bases.append(bases[-1] + 10 * stride)
    table = SLICES(bases, lengths, strides, block_size, sub_keys)
    addresses, sizes = table.of(tokens, *zip(*keys, strict=True))
    for row, (block, sub) in zip(addresses.tolist(), keys, strict=True):
        got = [at + offset for at, size in zip(row, sizes, strict=True) for offset in range(size)]
        wanted = [
            base + block * stride + token * head * sub_keys + sub * head + offset
            for base, stride, (head, _) in zip(bases, strides, entries, strict=True)
            for token in range(tokens)
            for offset in range(head)
        ]
        assert got == wanted
    most = len(entries) * (1 if sub_keys == 1 else tokens)
    assert len(sizes) <= most


def test_entries_that_touch_in_every_block_are_one_slice() -> None:
    # K and V of a layer side by side in one block, then the next layer elsewhere.
    table = SLICES([1000, 1064, 9000], [64, 64, 64], [128, 128, 128], 4, 1)
    addresses, sizes = table.of(4, np.array([3]), np.array([0]))
    assert addresses.tolist() == [[1000 + 3 * 128, 9000 + 3 * 128]]
    assert sizes == [128, 64]
    # Of a partial block they do not touch.
    addresses, sizes = table.of(3, np.array([0]), np.array([0]))
    assert addresses.tolist() == [[1000, 1064, 9000]]
    assert sizes == [48, 48, 48]


def test_neighbours_with_other_strides_stay_apart() -> None:
    table = SLICES([1000, 1064], [64, 64], [128, 256], 4, 1)
    addresses, sizes = table.of(4, np.array([1]), np.array([0]))
    assert addresses.tolist() == [[1128, 1320]]
    assert sizes == [64, 64]


def test_caches_registered_again_are_another_layout() -> None:
    bases, lengths, strides = [1], [4], [4]
    table = SLICES(bases, lengths, strides, 4, 1)
    assert table.describes(bases, lengths, strides, 4, 1)
    assert not table.describes([1], lengths, strides, 4, 1)
    assert not table.describes(bases, lengths, strides, 4, 2)
