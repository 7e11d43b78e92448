"""One vector core and the global memory before it: runs programs, answers generated code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from ascendport.simulator.engine import CALLBACK
from ascendport.simulator.ir import MemRef
from ascendport.simulator.layout import OUT_OF_UB, Signal, Slot
from ascendport.simulator.library import lookup
from ascendport.simulator.library.base import Run, Words
from ascendport.simulator.memory import GmTensor
from ascendport.simulator.signals import Signals
from ascendport.simulator.sites import CallSite, Site
from ascendport.simulator.state import StopProgramError


class VectorCore(Signals):
    """Runs library calls and gathers findings; `library.base.Core` for library functions."""

    def __init__(self, sites: Sequence[Site], ub_bytes: int, tensors: Sequence[GmTensor]) -> None:
        super().__init__(sites, ub_bytes, tensors)
        self.calls: Counter[int] = Counter()
        self.error: BaseException | None = None
        self.kept: list[NDArray[np.int64]] = []
        """Pieces of the trace of the program that runs."""
        self._sizes = {
            site.number: tuple(_dynamic_sizes(site)) for site in sites if isinstance(site, CallSite)
        }
        self._ends = {site.number: site.words for site in sites if isinstance(site, CallSite)}
        self._runs: dict[int, Run] = {
            site.number: self._make(site) for site in sites if isinstance(site, CallSite)
        }
        self.callback = CALLBACK(self._called)
        self._handlers: dict[int, Callable[[int, int, int], None]] = {
            Signal.HAZARD: self.hazard,
            Signal.UB_RANGE: self.ub_range,
            Signal.GM_RANGE: self.gm_range,
            Signal.UNDEFINED: self.undefined_use,
            Signal.EVENT_TWICE: self.event_twice,
            Signal.EVENT_MISSING: self.event_missing,
            Signal.BUFFER_FULL: self._buffer_full,
            Signal.LOG_FULL: self._log_full,
            Signal.FUEL_OUT: self.fuel_out,
            Signal.MISALIGNED: self.misaligned,
        }

    def _make(self, site: CallSite) -> Run:
        types = [operand.type for operand in site.operands]
        return lookup(site.callee, types, site.location).make(site, self)

    def _call(self, number: int) -> CallSite:
        site = self.sites[number]
        assert isinstance(site, CallSite)
        return site

    def start(self, program: int, *, trace: bool, fuel: int) -> None:
        """Makes the core ready for a program."""
        self.program = program
        self.arrays.reset(program)
        self.kept = []
        self.arrays.state[Slot.TRACE] = -1 if trace else 0
        self.arrays.state[Slot.FUEL] = fuel

    def end(self) -> NDArray[np.int64]:
        """Closes a program: its events, its accesses. Returns its trace, if it was kept."""
        if self.arrays.state[Slot.TRACE]:
            self._buffer_full(0, 0, 0)
        self._log_full(0, 0, 0)
        if self.arrays.events[..., 0].any():
            self.events_left()
        self.accesses.close(self.program)
        return np.concatenate(self.kept) if self.kept else np.zeros(0, np.int64)

    def _called(self, signal: int, site: int, first: int, second: int) -> int:
        try:
            if signal == Signal.CALL:
                words: Words = self.buffer[first : first + self._ends[site]].tolist()
                if words[1] & OUT_OF_UB:
                    return 0
                self.calls[site] += 1
                for at in self._sizes[site]:
                    if words[at] < 0:
                        self.negative_size(self._call(site), words)
                        return 0
                self._runs[site](words)
                return 0
            self._handlers[signal](site, first, second)
            return 0
        except StopProgramError as stop:
            self.error = stop
            return 1
        except (ValueError, IndexError) as error:
            # NumPy's word for operands whose shapes do not fit, or that lead out of a buffer.
            if signal != Signal.CALL:
                self.error = error
                return 1
            self.misfit(self._call(site), words, str(error))
            return 0
        except BaseException as error:  # nothing may pass through generated code
            self.error = error
            return 1

    def _buffer_full(self, number: int, first: int, second: int) -> None:
        state = self.arrays.state
        self.kept.append(self.buffer[: int(state[Slot.CURSOR])].copy())
        state[Slot.CURSOR] = 0

    def _log_full(self, number: int, first: int, second: int) -> None:
        state = self.arrays.state
        count = int(state[Slot.LOG_COUNT])
        if not count:
            return
        log = self.arrays.log[:count].copy()
        state[Slot.LOG_COUNT] = 0
        read, written = self.accesses.scalars(log)
        self.bytes_read += read
        self.bytes_written += written


def _dynamic_sizes(site: CallSite) -> Iterator[int]:
    """Words of a call's record that hold sizes which only the run tells."""
    for operand in site.operands:
        if isinstance(operand.type, MemRef):
            for axis, size in enumerate(operand.type.shape):
                if size is None:
                    yield operand.word + 1 + axis
