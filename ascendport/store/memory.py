"""An exact store in memory, with the calls of Mooncake's client and failures on order.

Puts and gets copy bytes between its dictionary and the callers' own memory, at the addresses that
they give. An address outside the registered buffers is refused before it is touched: the store
answers that with `OutsideError`, and keeps the place for the judge.
"""

from __future__ import annotations

import bisect
import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from ascendport.store.scenario import Array, Fault

NOT_FOUND = -704
"""Mooncake's code for a key that is not there (ErrorCode::OBJECT_NOT_FOUND)."""
WRONG_SIZE = -600
"""Mooncake's code for buffers that do not fit the object (ErrorCode::INVALID_PARAMS)."""


class OutsideError(Exception):
    """A slice that lies outside of every registered buffer."""


class GoneError(ConnectionError):
    """The store's answer when it is told to fail by raising."""


@dataclass
class MemoryStore:
    """Keys and their bytes.

    ``overwrites``: put of a present key replaces its bytes; otherwise it answers 0 and keeps
    them, as Mooncake does. ``block_of``: the judge's (rank, block index) of a key, for faults.
    """

    overwrites: bool = False
    block_of: Callable[[str], tuple[int, int]] = lambda key: (-1, -1)
    objects: dict[str, bytes] = field(default_factory=dict)
    outside: list[str] = field(default_factory=list)
    faults: list[list[object]] = field(default_factory=list)
    _starts: list[int] = field(default_factory=list)
    _ends: list[int] = field(default_factory=list)

    # --- Mooncake's client ---

    def register_buffer(self, address: int, length: int) -> int:
        at = bisect.bisect(self._starts, address)
        self._starts.insert(at, address)
        self._ends.insert(at, address + length)
        return 0

    def batch_is_exist(self, keys: Sequence[str]) -> list[int]:
        fault = self._fault("exists")
        codes = [int(key in self.objects) for key in keys]
        return self._spoiled(fault, keys, codes)

    def batch_put_from_multi_buffers(
        self,
        keys: Sequence[str],
        addresses: Sequence[Sequence[int]],
        sizes: Sequence[Sequence[int]],
        config: object = None,
    ) -> list[int]:
        fault = self._fault("put")
        codes = []
        for key, places, lengths in zip(keys, addresses, sizes, strict=True):
            code = self._code(fault, key)
            if code == 0 and (self.overwrites or key not in self.objects):
                self.objects[key] = self.read(places, lengths)
            codes.append(code)
        return self._spoiled(fault, keys, codes)

    def batch_get_into_multi_buffers(
        self,
        keys: Sequence[str],
        addresses: Sequence[Sequence[int]],
        sizes: Sequence[Sequence[int]],
    ) -> list[int]:
        fault = self._fault("get")
        codes = []
        for key, places, lengths in zip(keys, addresses, sizes, strict=True):
            code = self._code(fault, key)
            found = self.objects.get(key)
            if code == 0 and found is None:
                code = NOT_FOUND
            elif code == 0 and found is not None:
                code = self.write(places, lengths, found)
            codes.append(code)
        return self._spoiled(fault, keys, codes)

    # --- the harness ---

    def enter(self, operation: str) -> None:
        """Called by the backend before it does anything.

        Raises:
            GoneError: it was told to break.
        """
        if any(
            isinstance(fault, Fault) and fault.operation == operation and fault.kind == "breaks"
            for fault, _ in self.faults
        ):
            raise GoneError(f"{operation}: the backend breaks")

    def remove(self, key: str) -> None:
        del self.objects[key]

    def order(self, fault: Fault) -> None:
        self.faults.append([fault, fault.times])

    def mend(self) -> None:
        self.faults.clear()

    def read(self, places: Sequence[int], lengths: Sequence[int]) -> bytes:
        """The bytes at these places, one after the other."""
        record = self._records(places, lengths)
        if record is not None:
            view, index = record
            return view[index].tobytes()
        self._check(places, lengths)
        return b"".join(
            ctypes.string_at(int(place), int(length))
            for place, length in zip(places, lengths, strict=True)
        )

    def write(self, places: Sequence[int], lengths: Sequence[int], data: bytes) -> int:
        """Spreads ``data`` over these places; the number of bytes, or a negative code."""
        if sum(lengths) != len(data):
            return WRONG_SIZE
        record = self._records(places, lengths)
        if record is not None:
            view, index = record
            view[index] = np.frombuffer(data, view.dtype)
            return len(data)
        self._check(places, lengths)
        at = 0
        for place, length in zip(places, lengths, strict=True):
            ctypes.memmove(int(place), data[at : at + length], int(length))
            at += length
        return len(data)

    def _records(self, places: Sequence[int], lengths: Sequence[int]) -> tuple[Array, Array] | None:
        """Many slices of one length in one buffer, at multiples of it, as rows of an array: a
        loop over each would take longer than everything that is timed."""
        if len(places) < 64:
            return None
        length = int(lengths[0])
        addresses = np.fromiter(places, np.int64, len(places))
        at = bisect.bisect(self._starts, int(addresses.min())) - 1
        if at < 0 or int(addresses.max()) + length > self._ends[at]:
            return None
        offsets = addresses - self._starts[at]
        if any(other != length for other in lengths) or (offsets % length).any():
            return None
        count = (self._ends[at] - self._starts[at]) // length
        raw = (ctypes.c_char * (count * length)).from_address(self._starts[at])
        view: Array = np.frombuffer(memoryview(raw).cast("B"), np.dtype((np.void, length)))
        return view, offsets // length

    def _check(self, places: Sequence[int], lengths: Sequence[int]) -> None:
        for place, length in zip(places, lengths, strict=True):
            at = bisect.bisect(self._starts, int(place)) - 1
            if at < 0 or int(place) + int(length) > self._ends[at]:
                said = f"{int(length)} bytes at {int(place):#x} are in no registered buffer"
                self.outside.append(said)
                raise OutsideError(said)

    def _fault(self, operation: str) -> Fault | None:
        for entry in self.faults:
            fault, left = entry
            assert isinstance(fault, Fault) and isinstance(left, int)
            if fault.operation != operation:
                continue
            if fault.times:
                if left == 0:
                    continue
                entry[1] = left - 1
            if fault.kind == "raises":
                raise GoneError(f"{operation}: the store is gone")
            return fault
        return None

    def _code(self, fault: Fault | None, key: str) -> int:
        if fault is None or fault.kind != "answer":
            return 0
        rank, block = self.block_of(key)
        hit = (not fault.blocks or block in fault.blocks) and (
            not fault.ranks or rank in fault.ranks
        )
        return fault.code if hit else 0

    @staticmethod
    def _spoiled(fault: Fault | None, keys: Sequence[str], codes: list[int]) -> list[int]:
        return codes[:-1] if fault is not None and fault.kind == "short" else codes
