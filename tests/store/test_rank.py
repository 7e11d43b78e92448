from __future__ import annotations

from pathlib import Path

import torch

from ascendport.store.rank import Caches
from ascendport.store.scenario import Shape


def _resident() -> int:
    """Bytes of this process that lie in memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


def test_caches_take_memory_only_where_they_are_touched() -> None:
    # 128k tokens of one layer, as the sweep has them 32 times over.
    shape = Shape(layers=1, heads=8, key_dim=128, value_dim=128, block_size=128, blocks=1025)
    before = _resident()
    caches = Caches(shape, 8)
    key, value = caches.layers["model.layers.0.self_attn.attn"]
    key[700] = 7
    assert caches.buffer.nbytes == 1025 * 2 * 128 * 8 * 128 * 2
    assert _resident() - before < caches.buffer.nbytes / 4
    assert bool((key[700] == 7).all())
    assert not torch.any(value[700])
