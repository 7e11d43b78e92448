"""DMA between GM and UB, and the lock that orders programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ascendport.simulator.ir import MemRef
from ascendport.simulator.layout import ATOMIC, BLOCK, HAS_UNDEFINED, LOCKED, WRITE, Slot
from ascendport.simulator.library.base import DTYPES, Array, Bools, Words, scalar_value, unsigned
from ascendport.simulator.memory import GmTensor, starts_of, tensor_of
from ascendport.simulator.result import Kind
from ascendport.simulator.sites import CallSite, Operand, Site
from ascendport.simulator.state import State, StopProgramError

_ATOMICS = {1: np.add, 2: np.maximum, 3: np.minimum}
"""Kind of an atomic store → what it does with what GM holds."""
PAD_VALUE = 2
"""Padding mode of a load: with the given value."""


class Transfers(State):
    """Library functions that touch GM."""

    def load(self, site: CallSite, words: Words) -> None:
        source, target, mode, value, left = site.operands
        assert isinstance(target.type, MemRef)
        dtype = unsigned(DTYPES[target.type.element])
        rank = source.rank
        sizes = words[source.word + 1 : source.word + 1 + rank]
        if 0 in sizes:
            return
        number, byte = tensor_of(words[source.word])
        strides = words[source.word + 1 + rank :][:rank]
        fill = scalar_value(words[value.word], dtype)
        steps = words[target.word + 1 + rank :][:rank]
        padding = words[left.word]
        # The library moves as many elements as the source has, whatever the target's sizes.
        if not self.fits(site, words[target.word], sizes, steps, padding, dtype.itemsize):
            return
        data = self.gather(site, number, byte, sizes, strides, dtype)
        if padding:
            self.pad_left(words, target, padding, fill, dtype)
        self.pad_right(words, target, sizes, steps, padding, words[mode.word], fill, dtype)
        view = self.array_at(self.arrays.ub, (0, words[target.word], *sizes, *steps), rank, dtype)
        shadow = self.array_at(
            self.arrays.shadow, (0, words[target.word], *sizes, *steps), rank, dtype
        )
        view[...] = data
        # What lies outside the tensor is reported as such, and not again as undefined.
        shadow[...] = 0
        self.bytes_read += data.size * dtype.itemsize

    def fits(
        self,
        site: CallSite,
        address: int,
        sizes: Sequence[int],
        steps: Sequence[int],
        left: int,
        size: int,
    ) -> bool:
        """Whether all that a load writes lies in UB; reports it where it does not."""
        spans = [(count - 1) * step for count, step in zip(sizes, steps, strict=True)]
        first = address + size * (sum(min(span, 0) for span in spans) - left * steps[-1])
        end = address + size * (sum(max(span, 0) for span in spans) + 1)
        if left >= 0 and min(first, address) >= 0 and end <= self.ub_bytes:
            return True
        self.outside_ub(site, first, end)
        return False

    def outside_ub(self, site: Site, first: int, end: int) -> None:
        """Reports an access to UB bytes [first, end), not all of which there are."""
        self.findings.add(
            Kind.UB_RANGE,
            f"UB bytes {first}..{end}; the Unified Buffer has {self.ub_bytes} bytes",
            site,
            self.program,
            offset=first,
        )

    def pad_left(self, words: Words, target: Operand, count: int, fill: Any, dtype: Any) -> None:
        rank, size = target.rank, dtype.itemsize
        steps = words[target.word + 1 + rank :][:rank]
        sizes = [*words[target.word + 1 : target.word + rank], count]
        address = words[target.word] - count * steps[-1] * size
        key = (0, address, *sizes, *steps)
        self.array_at(self.arrays.ub, key, rank, dtype)[...] = fill
        self.array_at(self.arrays.shadow, key, rank, dtype)[...] = 0

    def pad_right(
        self,
        words: Words,
        target: Operand,
        sizes: Sequence[int],
        steps: Sequence[int],
        left: int,
        mode: int,
        fill: Any,
        dtype: Any,
    ) -> None:
        """The rest of the last block of each row, where rows are moved as blocks."""
        size = dtype.itemsize
        address = words[target.word]
        tail = -(address + sizes[-1] * size) % BLOCK // size
        first = address - left * size
        if not tail or steps[-1] != 1 or first % BLOCK:
            return
        if any(step * size % BLOCK for step in steps[:-1]):
            return
        if size == 8 and mode != PAD_VALUE:
            return
        end = address + sizes[-1] * size
        key = (0, end, *sizes[:-1], tail, *steps)
        given = mode == PAD_VALUE
        last = end + sum(
            (count - 1) * step * size for count, step in zip(sizes[:-1], steps, strict=False)
        )
        if last + tail * size > self.ub_bytes:
            return
        rank = len(sizes)
        self.array_at(self.arrays.ub, key, rank, dtype)[...] = fill if given else 0
        marks = 0 if given else (1 << 8 * size) - 1
        self.array_at(self.arrays.shadow, key, rank, dtype)[...] = dtype.type(marks)

    def gather(
        self,
        site: CallSite,
        number: int,
        byte: int,
        sizes: Sequence[int],
        strides: Sequence[int],
        dtype: Any,
    ) -> Array:
        """Elements of a tensor; 0 for those that are not its own."""
        tensor = self.tensors.get(number)
        steps = [stride * dtype.itemsize for stride in strides]
        if tensor is None:
            self.no_tensor(site, False)
            return np.zeros(sizes, dtype)
        flat = self.elements(tensor, dtype)
        run = self.run_length(sizes, strides)
        if run is not None and byte % dtype.itemsize == 0:
            length = run * dtype.itemsize
            if tensor.whole(byte, length):
                first = byte // dtype.itemsize
                self.accesses.run(number, byte, length, self.arrays.state[Slot.ACCESS], site.number)
                return flat[first : first + run].reshape(sizes)
        starts = starts_of(byte, sizes, steps)
        good = tensor.inside(starts, dtype.itemsize)
        if not good.all():
            self.out_of_bounds(site, tensor, starts, good, dtype.itemsize, write=False)
        data = np.zeros(len(starts), dtype)
        data[good] = flat[starts[good] // dtype.itemsize]
        access = int(self.arrays.state[Slot.ACCESS])
        self.accesses.many(number, starts[good], dtype.itemsize, access, site.number)
        return data.reshape(sizes)

    @staticmethod
    def run_length(sizes: Sequence[int], strides: Sequence[int]) -> int | None:
        """Elements of a view that is one dense run; None where it is none."""
        run = 1
        for size, stride in zip(reversed(sizes), reversed(strides), strict=True):
            if size != 1 and stride != run:
                return None
            run *= size
        return run

    def elements(self, tensor: GmTensor, dtype: Any) -> Array:
        key = (tensor.number, dtype)
        if key not in self.flat:
            self.flat[key] = tensor.elements(dtype)
        return self.flat[key]

    def store(self, site: CallSite, words: Words) -> None:
        source, target, atomic = site.operands[:3]
        assert isinstance(source.type, MemRef)
        kind = words[atomic.word]
        element = DTYPES[source.type.element]
        dtype = unsigned(element) if kind == 0 else element
        rank = target.rank
        sizes = words[target.word + 1 : target.word + 1 + rank]
        shape = words[source.word + 1 : source.word + 1 + rank]
        if 0 in shape or 0 in sizes:
            return
        if kind and self.dropped(site, words, source):
            return
        number, byte = tensor_of(words[target.word])
        strides = words[target.word + 1 + rank :][:rank]
        data = self.view(words, source, dtype)
        if words[1] & HAS_UNDEFINED:
            self.undefined_store(site, words, source, number, byte)
        self.scatter(site, number, byte, shape, strides, data, kind, dtype)
        self.bytes_written += data.size * dtype.itemsize

    def dropped(self, site: CallSite, words: Words, source: Operand) -> bool:
        """Whether the library drops an atomic store: it does where UB is not aligned."""
        rank = source.rank
        assert isinstance(source.type, MemRef)
        size = source.type.bits // 8
        steps = words[source.word + 1 + rank :][:rank]
        aligned = words[source.word] % BLOCK == 0 and (
            steps[-1] == 1 or steps[-1] * size % BLOCK == 0
        )
        aligned &= all(step * size % BLOCK == 0 for step in steps[:-1])
        if not aligned:
            self.findings.add(
                Kind.MISALIGNED,
                f"atomic store from UB byte {words[source.word]}: rows must start at multiples of"
                f" {BLOCK} bytes, the library drops it",
                site,
                self.program,
                offset=words[source.word],
            )
        return not aligned

    def undefined_store(
        self, site: CallSite, words: Words, source: Operand, number: int, byte: int
    ) -> None:
        marks = self.undefined(words, source).reshape(-1)
        if not marks.any():
            return
        first = int(np.argmax(marks))
        tensor = self.tensors.get(number)
        name = tensor.name if tensor else ""
        self.findings.add(
            Kind.UNDEFINED,
            f"element {first} of {marks.size} that go to {name or 'GM'} was never written in UB"
            f" ({int(marks.sum())} such elements)",
            site,
            self.program,
            tensor=name,
            offset=byte,
        )

    def scatter(
        self,
        site: CallSite,
        number: int,
        byte: int,
        sizes: Sequence[int],
        strides: Sequence[int],
        data: Array,
        kind: int,
        dtype: Any,
    ) -> None:
        tensor = self.tensors.get(number)
        if tensor is None:
            self.no_tensor(site, True)
            return
        flat = self.elements(tensor, dtype)
        flags = WRITE | int(self.arrays.state[Slot.ACCESS]) | (ATOMIC if kind else 0)
        combine = _ATOMICS.get(kind)
        run = self.run_length(sizes, strides)
        if run is not None and byte % dtype.itemsize == 0:
            length = run * dtype.itemsize
            if tensor.whole(byte, length):
                place = flat[byte // dtype.itemsize : byte // dtype.itemsize + run]
                values = data.reshape(-1)
                place[...] = values if combine is None else combine(place, values)
                self.accesses.run(number, byte, length, flags, site.number)
                return
        steps = [stride * dtype.itemsize for stride in strides]
        starts = starts_of(byte, sizes, steps)
        good = tensor.inside(starts, dtype.itemsize)
        if not good.all():
            self.out_of_bounds(site, tensor, starts, good, dtype.itemsize, write=True)
        places, values = starts[good] // dtype.itemsize, data.reshape(-1)[good]
        if combine is None:
            flat[places] = values
        else:
            combine.at(flat, places, values)
        self.accesses.many(number, starts[good], dtype.itemsize, flags, site.number)

    def lock_words(self, words: Words, site: CallSite) -> tuple[Array, int]:
        """The memory that the lock lies in, and its place there."""
        number, byte = tensor_of(words[site.operands[0].word])
        tensor = self.tensors.get(number)
        if tensor is None or not tensor.whole(byte, 8):
            raise IndexError("the lock lies outside its memory")
        return self.elements(tensor, np.dtype(np.int64)), byte // 8

    def lock(self, site: CallSite, words: Words) -> None:
        memory, place = self.lock_words(words, site)
        turn = int(memory[place])
        # Programs that this run leaves out are taken to have passed the lock on.
        while self.chosen is not None and turn < self.program and turn not in self.chosen:
            turn += 1
        if turn != self.program:
            waits = "took it before" if turn > self.program else f"waits for program {turn}"
            self.findings.add(
                Kind.LOCK, f"the program {waits}: it waits for ever", site, self.program
            )
            if not self.past_locks:
                raise StopProgramError(f"program {self.program} waits for a lock for ever")
        self.arrays.state[Slot.ACCESS] |= LOCKED

    def unlock(self, site: CallSite, words: Words) -> None:
        memory, place = self.lock_words(words, site)
        memory[place] = self.program + 1
        self.arrays.state[Slot.ACCESS] &= ~LOCKED

    def free_lock(self, site: CallSite, words: Words) -> None:
        memory, place = self.lock_words(words, site)
        if int(memory[place]) <= self.program:
            self.lock(site, words)
            self.unlock(site, words)

    def no_tensor(self, site: Site, write: bool) -> None:
        self.findings.add(
            Kind.GM_WRITE if write else Kind.GM_READ,
            "the address is in no tensor of the launch",
            site,
            self.program,
        )

    def out_of_bounds(
        self,
        site: Site,
        tensor: GmTensor,
        starts: NDArray[np.int64],
        good: Bools,
        size: int,
        *,
        write: bool,
    ) -> None:
        bad = starts[~good]
        first, extent = int(bad[0]), tensor.extent
        past = first < 0 or first + size > extent.span
        allowed = f"0..{extent.span // size}"
        if not past:
            allowed = f"rows of {extent.row // size}, {extent.distance // size} apart"
        self.findings.add(
            Kind.GM_WRITE if write else Kind.GM_READ,
            f"{tensor.name} at element {first // size}, {len(bad)} of {len(starts)} elements;"
            f" allowed: {allowed}",
            site,
            self.program,
            tensor=tensor.name,
            offset=first,
            detail=(tensor.number, past),
        )
