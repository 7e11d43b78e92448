"""What generated code calls back about: findings, in words."""

from __future__ import annotations

import numpy as np

from ascendport.simulator.findings import line_of, operation
from ascendport.simulator.ir import MemRef
from ascendport.simulator.layout import BLOCK, Pipe, Use
from ascendport.simulator.library.base import Words
from ascendport.simulator.memory import tensor_of
from ascendport.simulator.result import Kind
from ascendport.simulator.sites import AccessSite, CallSite, EventSite, Operand, Site
from ascendport.simulator.state import StopProgramError
from ascendport.simulator.transfers import Transfers


class Signals(Transfers):
    """Turns signals of generated code into findings."""

    def where(self, site: Site, operand: int, word: int) -> tuple[int, int]:
        """(first byte, end) in UB of a call's operand, or of a scalar access at ``word``."""
        if operand < 0 or not isinstance(site, CallSite):
            return word, word + 1
        item = site.operands[operand]
        assert isinstance(item.type, MemRef)
        record = self.buffer[word : word + 1 + 2 * item.rank].tolist()
        sizes, strides = record[1 : 1 + item.rank], record[1 + item.rank :]
        span = sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True)) + 1
        if item.type.bits == 1:
            return record[0] // 8, (record[0] + span + 7) // 8
        return record[0], record[0] + span * item.type.bits // 8

    def hazard(self, number: int, info: int, word: int) -> None:
        site = self.sites[number]
        operand, mask = info >> 16, info & 0xFF
        first, end = self.where(site, operand, word)
        pipe = site.pipe if isinstance(site, CallSite) else Pipe.S
        knows = self.arrays.clocks[pipe]
        blocks = slice(first // BLOCK, -(-end // BLOCK))
        writing = isinstance(site, AccessSite) and site.operation.startswith("store")
        if isinstance(site, CallSite):
            writing = site.operands[operand].role not in ("read",)
        for other in Pipe:
            for bit, clocks, places, done in (
                (0, self.arrays.writes, self.arrays.write_site, "written"),
                (4, self.arrays.reads, self.arrays.read_site[:, other], "read"),
            ):
                if not mask >> (bit + other) & 1:
                    continue
                late = np.flatnonzero(clocks[blocks, other] > knows[other])
                if not late.size:
                    continue
                block = blocks.start + int(late[0])
                before = self.sites[int(places[block])]
                name, line = operation(before), line_of(before)
                act = "writes" if writing else "reads"
                how = "pipe_barrier" if other == pipe else "set_flag/wait_flag"
                self.findings.add(
                    Kind.RACE,
                    f"{pipe.name} {act} UB bytes {first}..{end} {done} on {other.name} by"
                    f" {name}{line}, no {how} between",
                    site,
                    self.program,
                    offset=max(first, block * BLOCK),
                    detail=(other, done, int(places[block])),
                )

    def ub_range(self, number: int, operand: int, word: int) -> None:
        site = self.sites[number]
        first, end = self.where(site, operand, word)
        self.outside_ub(site, first, end)

    def gm_range(self, number: int, address: int, info: int) -> None:
        site = self.sites[number]
        tensor_number, byte = tensor_of(address & ((1 << 64) - 1))
        size, write = info & 0xFFFFFFFF, bool(info >> 32)
        tensor = self.tensors.get(tensor_number)
        if tensor is None:
            self.no_tensor(site, write)
            return
        starts = np.array([byte], np.int64)
        self.out_of_bounds(site, tensor, starts, np.zeros(1, bool), size, write=write)

    def undefined_use(self, number: int, use: int, second: int) -> None:
        what = {
            Use.BRANCH: "it decides a branch or the bounds of a loop",
            Use.ADDRESS: "it is part of an address or a size",
            Use.GM_STORE: "it is stored to GM",
        }[Use(use)]
        self.findings.add(
            Kind.UNDEFINED,
            f"a value that stems from UB that was never written, or from outside a tensor: {what}",
            self.sites[number],
            self.program,
        )

    def finding_gather(self, site: CallSite, words: Words, operand: Operand) -> None:
        self.findings.add(
            Kind.GATHER, "an index leads out of the gathered buffer", site, self.program
        )

    def say(self, text: int, values: str) -> None:
        self.printed.append(f"program {self.program}:{self.strings[text]}{values}")

    def assertion(self, site: CallSite, text: int, first: int, count: int) -> None:
        self.findings.add(
            Kind.ASSERTION,
            f"«{self.strings[text]}» does not hold for element {first} ({count} such elements)",
            site,
            self.program,
        )
        raise StopProgramError(f"an assertion of program {self.program} does not hold")

    def misfit(self, site: CallSite, words: Words, why: str) -> None:
        """Operands that the library function cannot take; the call is left out."""
        shapes = ", ".join(
            "x".join(str(size) for size in words[item.word + 1 : item.word + 1 + item.rank])
            for item in site.operands
            if item.rank and item.role != "scratch"
        )
        self.findings.add(Kind.MISFIT, f"operands of {shapes} elements: {why}", site, self.program)

    def negative_size(self, site: CallSite, words: Words) -> None:
        self.misfit(site, words, "a negative size, which the hardware takes for a large one")

    def event_twice(self, number: int, event: int, key: int) -> None:
        site = self.sites[number]
        assert isinstance(site, EventSite)
        self.findings.add(
            Kind.EVENT_TWICE, f"{_event(site, event)} is set already", site, self.program
        )

    def event_missing(self, number: int, event: int, key: int) -> None:
        site = self.sites[number]
        assert isinstance(site, EventSite)
        self.findings.add(
            Kind.EVENT_MISSING,
            f"{_event(site, event)} is not set: the pipe waits for ever",
            site,
            self.program,
        )
        raise StopProgramError(f"program {self.program} waits for an event that nothing sets")

    def events_left(self) -> None:
        for source, target, event in np.argwhere(self.arrays.events[..., 0]):
            entry = self.arrays.events[source, target, event]
            site = self.sites[int(entry[1])]
            assert isinstance(site, EventSite)
            self.findings.add(
                Kind.EVENT_LEFT,
                f"{_event(site, int(event))} is still set at the end",
                site,
                self.program,
                detail=(int(event),),
            )

    def misaligned(self, number: int, address: int, second: int) -> None:
        self.findings.add(
            Kind.MISALIGNED,
            f"a buffer at UB byte {address}: vector instructions and DMA take whole blocks of"
            f" {BLOCK} bytes",
            self.sites[number],
            self.program,
            offset=address,
        )

    def fuel_out(self, number: int, first: int, second: int) -> None:
        self.findings.add(
            Kind.ENDLESS, "it ran out of iterations", self.sites[number], self.program
        )
        raise StopProgramError(f"program {self.program} does not come to an end")


def _event(site: EventSite, event: int) -> str:
    assert site.source is not None and site.target is not None
    return f"event {event} from {site.source.name} to {site.target.name}"
