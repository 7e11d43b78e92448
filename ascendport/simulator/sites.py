"""Places in a program that records and findings point to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from ascendport.simulator.ir import Location, MemRef, Scalar
from ascendport.simulator.layout import Pipe


@dataclass(frozen=True)
class Operand:
    """An argument of a library call.

    ``role``: ``read``, ``write``, ``update`` (both), ``scratch`` for UB; ``gm-read``,
    ``gm-write``, ``gm-lock`` for GM; ``scalar``. ``word``: where its words start in the call's
    record.
    """

    role: str
    type: MemRef | Scalar
    word: int

    @cached_property
    def rank(self) -> int:
        """Axes; 0 for a scalar."""
        return len(self.type.shape) if isinstance(self.type, MemRef) else 0

    @cached_property
    def end(self) -> int:
        """The word after its words."""
        return self.word + 1 + 2 * self.rank


@dataclass(frozen=True)
class CallSite:
    """A library call. Its record: the site, flags, then the operands' words.

    A memory operand takes an address (bytes; bits for packed booleans), its sizes and its
    strides; a scalar one word of bits, sign-extended for integers.
    """

    number: int
    callee: str
    pipe: Pipe
    operands: tuple[Operand, ...]
    words: int
    location: Location | None


@dataclass(frozen=True)
class EventSite:
    """`set_flag`, `wait_flag` or `pipe_barrier`. Its record: the site and, of flags, the event.

    ``source`` and ``target``: the pipes; for a barrier ``source`` is the pipe, None for all.
    """

    number: int
    kind: str
    source: Pipe | None
    target: Pipe | None
    location: Location | None


@dataclass(frozen=True)
class WorkSite:
    """Scalar work between two other records. Its record: the site and how often it ran.

    ``counts``: (operation, place) → times a run. Operations are those of the text, except that
    loads and stores carry their memory: ``load.ub``, ``store.gm``.
    """

    number: int
    counts: Mapping[tuple[str, Location | None], int]


@dataclass(frozen=True)
class AccessSite:
    """A scalar load or store, or a use of a value, that findings can point to; no record."""

    number: int
    operation: str
    location: Location | None


Site = CallSite | EventSite | WorkSite | AccessSite
