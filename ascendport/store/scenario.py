"""What happens in one run of the store, as data: shapes, requests, steps, failures.

A scenario says what the prefill ranks save and what the decode ranks load, in order. The bytes of
every block follow from its hash (`content`), so two requests that share a prefix share bytes, and
the judge knows every byte without asking the code that moved it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

ELEMENT_BYTES = 2


@dataclass(frozen=True)
class Shape:
    """KV caches of a model. Each layer has K and V, ``(blocks, block_size, heads, dim)`` of
    2-byte elements, its heads split evenly over the ranks."""

    layers: int = 2
    heads: int = 8
    key_dim: int = 8
    value_dim: int = 8
    block_size: int = 16
    blocks: int = 16
    """Physical blocks on each rank; block 0 is never used."""
    padding: int = 0
    """Bytes between one block and the next; a multiple of 2."""

    def dims(self) -> tuple[int, int]:
        """Elements of one head of K and of V."""
        return self.key_dim, self.value_dim


@dataclass(frozen=True)
class Request:
    """``tokens`` of a prompt; the first ``shared`` are those of the request ``like``."""

    name: str
    tokens: int
    like: str = ""
    shared: int = 0


@dataclass(frozen=True)
class Save:
    """Every prefill rank saves these requests in one step."""

    requests: tuple[str, ...]


@dataclass(frozen=True)
class Load:
    """Every decode rank loads these requests; ``cached`` leading tokens are there already."""

    requests: tuple[str, ...]
    cached: int = 0


@dataclass(frozen=True)
class Evict:
    """The store loses blocks of a request (by index): of every rank's key, or of ``ranks``
    (ranks of the larger group) only."""

    request: str
    blocks: tuple[int, ...]
    ranks: tuple[int, ...] = ()


@dataclass(frozen=True)
class Preempt:
    """The scheduler takes these requests off the prefill ranks after queueing their save."""

    requests: tuple[str, ...]


@dataclass(frozen=True)
class Fault:
    """From now on the store fails: ``operation`` is exists, put or get.

    ``answer``: ``code`` for the keys of ``blocks`` (indices, any request; empty: all) and, if
    given, ``ranks``; ``raises``: the store's client does; ``breaks``: the backend around it does;
    ``short``: the last answer of each call is left out.
    ``times``: calls that fail; 0: all of them until `Mend`.
    """

    operation: str
    kind: str = "answer"
    code: int = -800
    blocks: tuple[int, ...] = ()
    ranks: tuple[int, ...] = ()
    times: int = 0


@dataclass(frozen=True)
class Mend:
    """The store works again."""


Step = Save | Load | Evict | Preempt | Fault | Mend


@dataclass(frozen=True)
class Scenario:
    """One run. ``prefill`` and ``decode`` are TP sizes.

    ``sizes_as_text``: the peer's TP size stands in the configuration as a string. ``overwrites``:
    a store whose put of a present key replaces its bytes, and says nothing else about itself.
    ``variants``: names of the port's variants it applies to; empty: all.
    """

    name: str
    prefill: int
    decode: int
    steps: tuple[Step, ...]
    requests: tuple[Request, ...]
    shape: Shape = field(default_factory=Shape)
    load_async: bool = False
    events: bool = False
    pcp: int = 1
    """Prefill context parallel size, for releases that shard saves over it."""
    sizes_as_text: bool = False
    overwrites: bool = False
    tags: frozenset[str] = frozenset()
    variants: tuple[str, ...] = ()

    @property
    def ranks(self) -> int:
        """Ranks of the larger group: the names under which heads are stored."""
        return max(self.prefill, self.decode)

    @property
    def mismatch(self) -> bool:
        return self.prefill != self.decode

    def request(self, name: str) -> Request:
        return next(request for request in self.requests if request.name == name)

    def applies_to(self, variant: str) -> bool:
        return not self.variants or variant in self.variants

    def hashes(self, request: Request) -> list[bytes]:
        """The chained hash of each block, the last partial one included."""
        found: list[bytes] = []
        parent = b""
        size = self.shape.block_size
        for start in range(0, request.tokens, size):
            owner = request.like if request.like and start + size <= request.shared else ""
            label = f"{owner or request.name}:{start}"
            parent = hashlib.sha256(parent + label.encode()).digest()
            found.append(parent)
        return found

    def chunk(self, request: Request, index: int) -> int:
        """Tokens of a block: fewer than the block size in a partial last one."""
        return min(self.shape.block_size, request.tokens - index * self.shape.block_size)

    def placement(self, side: str) -> Mapping[str, list[int]]:
        """Physical blocks of each request on the ranks of ``side``, scattered."""
        order = np.random.default_rng([len(side), self.shape.blocks]).permutation(
            np.arange(1, self.shape.blocks)
        )
        placed: dict[str, list[int]] = {}
        at = 0
        for request in self.requests:
            count = -(-request.tokens // self.shape.block_size)
            placed[request.name] = [int(block) for block in order[at : at + count]]
            at += count
        if at > len(order):
            raise ValueError(f"{self.name}: {at} blocks wanted, {len(order)} there")
        return placed


def content(shape: Shape, block_hash: bytes, seed: int) -> list[tuple[Array, Array]]:
    """K and V of one block for each layer: int16 ``(block_size, heads, dim)``."""
    rng = np.random.default_rng([seed, *block_hash[:16]])
    return [
        (
            rng.integers(-32768, 32768, (shape.block_size, shape.heads, shape.key_dim), np.int16),
            rng.integers(-32768, 32768, (shape.block_size, shape.heads, shape.value_dim), np.int16),
        )
        for _ in range(shape.layers)
    ]


def noise(shape: Shape, heads: int, seed: int) -> list[tuple[Array, Array]]:
    """What a rank's caches hold at first: K and V, ``(blocks, block_size, heads, dim)``."""
    rng = np.random.default_rng(seed)
    lead = (shape.blocks, shape.block_size, heads)
    return [
        (
            rng.integers(-32768, 32768, (*lead, shape.key_dim), np.int16),
            rng.integers(-32768, 32768, (*lead, shape.value_dim), np.int16),
        )
        for _ in range(shape.layers)
    ]
