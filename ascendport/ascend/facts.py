"""What a finished program shows, as data. `program.read` fills it in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Transfer:
    """One statement that moves data between GM and UB (a DMA call), or one scalar GM access."""

    call: str
    """Library function, or ``memref.load`` / ``memref.store``."""
    bytes: int | None
    """Bytes each time it runs; None where the size is computed (a masked tail)."""
    at_most: int | None
    """Upper bound of ``bytes``: what the buffer holds; None where that is not known either."""
    argument: int | None
    """Which of the kernel's run-time arguments (constants left out) points there, from 0."""
    line: int | None
    """Line in the kernel's file."""
    times: int
    """Product of the constant trip counts around it; unknown ones count as 1."""
    exact: bool
    """Every trip count around it is constant."""
    atomic: bool = False
    """A store that adds, or the like, in GM instead of overwriting."""


@dataclass(frozen=True)
class ScalarLoop:
    """A loop that reads or writes UB one element an iteration: tile work without vector form."""

    line: int | None
    """Line in the kernel's file of the first element access."""
    trips: int | None
    """Iterations of the loop, perfect nests multiplied out; None where not constant."""
    loads: int
    """UB elements read an iteration at an index that the loop moves."""
    stores: int
    """UB elements written an iteration at an index that the loop moves."""
    operations: tuple[str, ...]
    """Scalar arithmetic of the body on values (not on indices), e.g. ``shrsi``."""
    transfers: int
    """DMA calls an iteration."""
    vector_calls: int
    """Vector calls an iteration: more than 0 where the loop also does vector work."""
    times: int
    """How often the loop is entered: product of the constant trip counts around it."""


@dataclass(frozen=True)
class Total:
    """Bytes, and whether every size and trip count that went in was constant."""

    bytes: int
    exact: bool


@dataclass(frozen=True)
class ProgramFacts:
    """What a program shows.

    Static: one for each statement. Weighted: multiplied by the constant trip counts around it.
    Both branches of a conditional count.
    """

    name: str
    vector_core: bool
    """Whether this is a vector core's program; a cube core's has no UB and no vector calls."""
    ub_peak_bytes: int
    """End of the highest planned UB buffer."""
    ub_capacity_bytes: int
    """UB_SIZE of the module."""
    vector_cores: int
    """VECTOR_CORE_COUNT of the module."""
    vector_calls: Mapping[str, int]
    """Library (A5: module) function → statements that call it; DMA and locks left out."""
    weighted_vector_calls: Mapping[str, int]
    trips_exact: bool
    """Every loop of the entry function has a constant trip count."""
    scalar_loops: tuple[ScalarLoop, ...]
    locks: int
    """Statements that take the lock that all programs share (`sync_block_lock`)."""
    gm_reads: tuple[Transfer, ...]
    gm_writes: tuple[Transfer, ...]
    tile_rewrites: tuple[Transfer, ...]
    """Stores of a whole tile that was loaded from the same place and went through a select: a
    masked store with holes. They write lanes that the mask excludes."""
    barriers: Mapping[str, int]
    """Pipe → `pipe_barrier` statements."""
    events: Mapping[str, int]
    """``A->B`` → `set_flag` statements by which pipe A releases pipe B."""

    @property
    def atomics(self) -> int:
        """Stores that combine with what GM holds."""
        return sum(transfer.atomic for transfer in self.gm_writes)

    @property
    def scalar_iterations(self) -> int:
        """Iterations of scalar loops in one program, known trip counts only."""
        return sum((loop.trips or 1) * loop.times for loop in self.scalar_loops)

    @property
    def bytes_in(self) -> Total:
        """GM bytes that one program reads; see `total`."""
        return total(self.gm_reads)

    @property
    def bytes_out(self) -> Total:
        """GM bytes that one program writes; see `total`."""
        return total(self.gm_writes)


def total(transfers: tuple[Transfer, ...]) -> Total:
    """Bytes × times, summed over the statements.

    A computed size counts as its upper bound (0 where that is unknown), an unknown trip count
    as 1, a conditional as taken; ``exact`` is False as soon as a size or trip count is not
    constant. So an inexact total is that of one round of each unknown loop over full tiles.
    """
    moved = sum((transfer.at_most or 0) * transfer.times for transfer in transfers)
    return Total(moved, all(item.exact and item.bytes is not None for item in transfers))
