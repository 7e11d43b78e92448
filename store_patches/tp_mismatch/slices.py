"""Shared by all variants: where the bytes of a key lie, without a loop over tokens."""

from __future__ import annotations

import numpy as np


class _TpMismatchSlices:
    """The slices of a key in this rank's caches, computed once a layout.

    A key holds the heads of one sub-key in one block: entry after entry (K and V of each layer),
    token after token. Each entry has its own block length and stride, so each has its own bytes a
    token; a sub-key owns the same share of them in every entry. Where it owns all of them, the
    tokens of an entry follow one another and are one slice, and so are entries that touch.
    """

    def __init__(self, bases, lengths, strides, block_size, sub_keys):
        self.layout = (bases, lengths, strides, block_size, sub_keys)
        self._bases = np.asarray(bases, dtype=np.int64)
        self._strides = np.asarray(strides, dtype=np.int64)
        self._token_bytes = np.asarray(lengths, dtype=np.int64) // block_size
        self._head_bytes = self._token_bytes // sub_keys
        self._full = self._table(block_size)

    def describes(self, bases, lengths, strides, block_size, sub_keys) -> bool:
        """Whether this is the layout: caches that are registered again come in new lists."""
        mine = self.layout
        same_lists = mine[0] is bases and mine[1] is lengths and mine[2] is strides
        return same_lists and mine[3:] == (block_size, sub_keys)

    def _table(self, tokens):
        """For a chunk of ``tokens``: addresses in block 0 (sub-key, slice), the stride from block
        to block of each slice (or the one that all share), and the slices' sizes."""
        sub_keys = self.layout[4]
        if sub_keys == 1:
            sizes = tokens * self._token_bytes
            touching = (self._bases[1:] == self._bases[:-1] + sizes[:-1]) & (
                self._strides[1:] == self._strides[:-1]
            )
            first = np.flatnonzero(np.concatenate(([True], ~touching)))
            starts = self._bases[first][None, :]
            strides = self._shared(self._strides[first])
            return starts, strides, np.add.reduceat(sizes, first).tolist()
        steps = np.arange(tokens, dtype=np.int64)
        rows = self._bases[:, None] + steps[None, :] * self._token_bytes[:, None]
        subs = np.arange(sub_keys, dtype=np.int64)
        starts = rows[None, :, :] + (subs[:, None] * self._head_bytes[None, :])[:, :, None]
        strides = self._shared(np.repeat(self._strides, tokens))
        sizes = [size for size in self._head_bytes.tolist() for _ in range(tokens)]
        return starts.reshape(sub_keys, -1), strides, sizes

    @staticmethod
    def _shared(strides):
        """The one stride that all have, where they have one."""
        return strides[:1] if (strides == strides[0]).all() else strides

    def of(self, tokens, blocks, subs):
        """(addresses, sizes) of keys over chunks of ``tokens``: ``blocks`` and ``subs`` hold the
        block id and the sub-key of each. Addresses are (key, slice); the sizes of every key are
        the same."""
        starts, strides, sizes = self._full if tokens == self.layout[3] else self._table(tokens)
        offsets = np.multiply.outer(np.asarray(blocks, dtype=np.int64), strides)
        if len(starts) == 1:
            return starts + offsets, sizes
        addresses = starts.take(subs, axis=0)
        addresses += offsets
        return addresses, sizes
