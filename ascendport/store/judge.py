"""Whether a run of a scenario did what it should: in the parent, from facts alone.

What is right follows from the scenario: who holds which heads, what each block's bytes are, which
keys were in the store. Nothing here asks the code that is judged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ascendport.store.drive import Facts, StepFacts, name_of, own_heads, prompts, rank_seed
from ascendport.store.rank import Place, Prompt, Report
from ascendport.store.recorder import Call
from ascendport.store.scenario import (
    Array,
    Evict,
    Fault,
    Load,
    Mend,
    Preempt,
    Save,
    Scenario,
    content,
    noise,
)

Name = tuple[int, str]
"""A key as the judge names it: rank of the larger group, block hash in hexadecimal."""


@dataclass(frozen=True)
class Own:
    """A block as a rank moves it: its keys, its place in the request, tokens, physical block."""

    names: tuple[Name, ...]
    index: int
    tokens: int
    block: int


def judge(scenario: Scenario, facts: Facts, seed: int) -> list[str]:
    """What is wrong, in the order of the steps; empty: nothing."""
    judge = _Judge(scenario, facts, seed)
    return list(dict.fromkeys(judge.problems()))


def wiring_problems(scenario: Scenario, facts: Facts) -> list[str]:
    """What is wrong with how the ranks were put together, and with where saves and loads go."""
    found = []
    for wired in facts.wired:
        if wired.mismatch != scenario.mismatch:
            said = "takes" if wired.mismatch else "does not take"
            found.append(f"{wired.place.name} {said} the TP-mismatch way")
        wanted = "worker" if scenario.mismatch else "none"
        for thread, handed in wired.threads.items():
            if handed != wanted:
                found.append(f"{wired.place.name}: {thread} was handed {handed}, not {wanted}")
    for step in facts.steps:
        for report in step.reports:
            entered = bool(report.seconds)
            if entered != scenario.mismatch:
                said = "enters" if entered else "does not enter"
                found.append(f"{report.place.name} {said} the worker's TP-mismatch method")
    return found


class _Judge:
    def __init__(self, scenario: Scenario, facts: Facts, seed: int) -> None:
        self.scenario = scenario
        self.facts = facts
        self.seed = seed
        self.active: list[Fault] = []
        self.caches = {rank: self._first(rank) for rank in range(scenario.decode)}

    def problems(self) -> Iterator[str]:
        before: Mapping[str, bytes] = {}
        for number, (step, facts) in enumerate(
            zip(self.scenario.steps, self.facts.steps, strict=True), 1
        ):
            label = f"step {number}, {type(step).__name__.lower()}"
            match step:
                case Save() | Preempt():
                    found = self._save(step, facts, before)
                case Load():
                    found = self._load(step, facts)
                case Fault():
                    self.active.append(step)
                    found = iter(())
                case Mend():
                    self.active.clear()
                    found = iter(())
                case Evict():
                    found = iter(())
            yield from (f"{label}: {problem}" for problem in found)
            before = facts.objects
        yield from self._stored()
        yield from (f"outside of the caches: {said}" for said in self.facts.outside[:3])

    # --- what is right ---

    def _own(self, place: Place, prompt: Prompt) -> list[Own]:
        """The blocks of a request that a rank moves, with their keys' names."""
        scenario = self.scenario
        share = scenario.ranks // place.size if scenario.mismatch else 1
        found = []
        for at, block_hash in enumerate(prompt.hashes):
            if at * scenario.shape.block_size < prompt.cached:
                continue
            names = tuple(
                (rank, block_hash.hex())
                for rank in range(place.rank * share, (place.rank + 1) * share)
            )
            tokens = scenario.chunk(scenario.request(prompt.name), at)
            found.append(Own(names, at, tokens, prompt.blocks[at]))
        if place.pcp_size > 1:
            found = found[place.pcp_rank :: place.pcp_size]
        return found

    def _first(self, rank: int) -> list[tuple[Array, Array]]:
        shape = self.scenario.shape
        heads = shape.heads // self.scenario.decode
        return noise(shape, heads, rank_seed(self.seed, "decode", rank))

    def _bytes(self, name: Name, tokens: int) -> bytes:
        """What the store must hold under a key."""
        rank, found = name
        heads = own_heads(self.scenario, self.scenario.ranks, rank)
        parts = []
        for pair in content(self.scenario.shape, bytes.fromhex(found), self.seed):
            parts += [array[:tokens, heads].tobytes() for array in pair]
        return b"".join(parts)

    def _fault(self, operation: str, *kinds: str) -> list[Fault]:
        return [f for f in self.active if f.operation == operation and f.kind in kinds]

    # --- a save ---

    def _save(
        self, step: Save | Preempt, facts: StepFacts, before: Mapping[str, bytes]
    ) -> Iterator[str]:
        there = {name_of(key) for key in before}
        after = {name_of(key) for key in facts.objects}
        wanted = prompts(self.scenario, "prefill", step.requests)
        for report in facts.reports:
            yield from _prefixed(report.place, self._saved(step, report, wanted, there, after))
        if self.scenario.events and self.scenario.mismatch:
            yield from self._announced(facts.reports, wanted, there, after)

    def _saved(
        self,
        step: Save | Preempt,
        report: Report,
        wanted: Sequence[Prompt],
        there: set[Name],
        after: set[Name],
    ) -> Iterator[str]:
        if report.problem:
            yield report.problem
        own = {prompt.name: self._own(report.place, prompt) for prompt in wanted}
        names = [name for blocks in own.values() for block in blocks for name in block.names]
        if isinstance(step, Save):
            yield from self._calls_of_save(report, names, set(there), len(wanted))
            lost = self._unstorable(names) | self._unstored_by(report)
            missing = set(names) - after - lost
            if missing:
                yield f"{len(missing)} keys are not in the store, first {_said(min(missing))}"
            if (set(names) - after) and report.reported == 0:
                yield "keys were not stored, and no error says so"
        if report.pending:
            yield f"the thread's books still hold {', '.join(sorted(report.pending))}"
        if self.facts.tracks_finished and isinstance(step, Save):
            late = {prompt.name for prompt in wanted} - report.finished
            if late:
                yield f"never reported finished: {', '.join(sorted(late))}"

    def _unstorable(self, names: Sequence[Name]) -> set[Name]:
        """Keys that the store was told not to take."""
        if self._fault("put", "raises", "breaks"):
            return set(names)
        index = self._index()
        return {
            name
            for fault in self._fault("put", "answer")
            for name in names
            if (not fault.blocks or index[name[1]] in fault.blocks)
            and (not fault.ranks or name[0] in fault.ranks)
        }

    def _unstored_by(self, report: Report) -> set[Name]:
        """Keys of puts that raised."""
        return {name_of(key) for call in report.calls if call.raised for key in call.keys}

    def _blind(self) -> bool:
        """Whether a rank cannot learn what is there: then it puts, and announces, everything."""
        return bool(self._fault("exists", "raises", "breaks", "short"))

    def _index(self) -> dict[str, int]:
        return {
            found.hex(): at
            for request in self.scenario.requests
            for at, found in enumerate(self.scenario.hashes(request))
        }

    def _calls_of_save(
        self, report: Report, names: list[Name], there: set[Name], requests: int
    ) -> Iterator[str]:
        if not self.scenario.mismatch:
            return
        wanted = Counter(names)
        asked = Counter(_names(report.calls, "exists"))
        put = Counter(_names(report.calls, "put"))
        for method, counted in (("asked for", asked), ("put", put)):
            strange = set(counted) - set(wanted)
            if strange:
                first = _said(min(strange))
                yield f"{len(strange)} keys {method} are not this rank's, first {first}"
        # A prefix that two requests share is asked for by each of them.
        twice = [name for name, count in asked.items() if count > wanted[name]]
        if twice:
            yield f"{len(twice)} keys were asked for more than once, first {_said(min(twice))}"
        again = [name for name, count in put.items() if count > 1]
        if again and not self._fault("put", "answer", "raises", "breaks"):
            yield f"{len(again)} keys were put more than once, first {_said(min(again))}"
        for method in ("exists", "put"):
            calls = sum(call.method == method for call in report.calls)
            if calls > requests:
                yield f"{calls} calls of {method} for {requests} requests"
        present = set(put) & there
        if present and not self._blind():
            yield f"{len(present)} keys that were there were put again, first {_said(min(present))}"
        lacking = set(wanted) - there - set(put)
        if lacking:
            yield f"{len(lacking)} missing keys were not put, first {_said(min(lacking))}"
        yield from self._slices(report)

    def _slices(self, report: Report) -> Iterator[str]:
        """Whole tokens are one slice an entry; parts of tokens are one each."""
        scenario = self.scenario
        entries = 2 * scenario.shape.layers
        whole = report.place.size == scenario.ranks
        for call in report.calls:
            if call.method == "exists" or call.raised:
                continue
            most = len(call.keys) * entries * (1 if whole else scenario.shape.block_size)
            if call.slices > most:
                yield f"{call.method}: {call.slices} slices where {most} do"

    def _announced(
        self,
        reports: Sequence[Report],
        wanted: Sequence[Prompt],
        there: set[Name],
        after: set[Name],
    ) -> Iterator[str]:
        """Events: of one rank, the blocks that it completed. Where ranks share chunks out, what
        counts is what all of them name."""
        sharing = self.scenario.pcp > 1
        for report in reports:
            own = [
                (prompt, block) for prompt in wanted for block in self._own(report.place, prompt)
            ]
            new = {
                block.names[0][1]: _event(prompt, block)
                for prompt, block in own
                if not set(block.names) <= there and set(block.names) <= after
            }
            said = {event.block.hex(): event for event in report.events}
            if len(said) != len(report.events):
                yield f"{report.place.name}: a block was announced twice"
            names = {block.names[0][1]: block.names for _, block in own}
            mine = set(names)
            strange = set(said) - set(new)
            if sharing:
                strange &= mine
            if self._blind():
                strange = {found for found in strange if not set(names.get(found, ())) <= after}
            if strange:
                yield f"{report.place.name}: {len(strange)} blocks announced that it did not store"
            if set(new) - set(said):
                count = len(set(new) - set(said))
                yield f"{report.place.name}: {count} stored blocks not announced"
            for found, event in new.items():
                got = said.get(found)
                if got is not None and (got.parent, got.tokens) != event:
                    yield f"{report.place.name}: wrong parent or tokens in the event of {found[:8]}"
        if sharing:
            every = [
                {event.block.hex() for event in report.events}
                for report in reports
                if report.events
            ]
            common = set.intersection(*every) if every else set()
            hashes = {found.hex() for prompt in wanted for found in prompt.hashes}
            whole = {
                found
                for found in hashes
                if any(name[1] == found for name in after - there)
                and all((rank, found) in after for rank in range(self.scenario.ranks))
            }
            if common != whole:
                yield f"all ranks together announce {len(common)} blocks, {len(whole)} are stored"

    # --- a load ---

    def _load(self, step: Load, facts: StepFacts) -> Iterator[str]:
        wanted = prompts(self.scenario, "decode", step.requests, step.cached)
        there = {name_of(key) for key in facts.objects}
        for report, raw in zip(facts.reports, facts.caches, strict=True):
            yield from _prefixed(report.place, self._loaded(report, wanted, there, raw))

    def _loaded(
        self, report: Report, wanted: Sequence[Prompt], there: set[Name], raw: Array
    ) -> Iterator[str]:
        if report.problem:
            yield report.problem
        own = [block for prompt in wanted for block in self._own(report.place, prompt)]
        lost = {block.block for block in own if not self._loadable(block, there)}
        if report.failed_blocks != lost:
            extra, unmarked = report.failed_blocks - lost, lost - report.failed_blocks
            if unmarked:
                yield f"blocks {sorted(unmarked)} did not load and are not marked"
            if extra and not self._fault("get", "short"):
                yield f"blocks {sorted(extra)} loaded and are marked invalid"
        lost |= report.failed_blocks
        if self.scenario.mismatch:
            yield from self._calls_of_load(report, wanted)
        if self.scenario.load_async:
            late = {prompt.name for prompt in wanted} - report.finished
            if late:
                yield f"never reported finished: {', '.join(sorted(late))}"
        yield from self._compare(report.place, wanted, lost, raw)

    def _loadable(self, block: Own, there: set[Name]) -> bool:
        if self._fault("get", "raises", "breaks") or not set(block.names) <= there:
            return False
        return not any(
            (not fault.blocks or block.index in fault.blocks)
            and (not fault.ranks or bool({name[0] for name in block.names} & set(fault.ranks)))
            for fault in self._fault("get", "answer")
        )

    def _calls_of_load(self, report: Report, wanted: Sequence[Prompt]) -> Iterator[str]:
        calls = [call for call in report.calls if call.method == "get"]
        for call in report.calls:
            if call.method != "get":
                yield f"a load calls {call.method}"
        expected = [
            [name for block in self._own(report.place, prompt) for name in block.names]
            for prompt in wanted
        ]
        expected = [names for names in expected if names]
        if len(calls) != len(expected):
            yield f"{len(calls)} calls of get for {len(expected)} requests"
            return
        for call, names in zip(calls, expected, strict=True):
            turn = report.place.rank % len(names)
            got = [name_of(key) for key in call.keys]
            if sorted(got) != sorted(names):
                yield f"get of {len(got)} keys, {len(names)} are wanted, or others"
            elif got != names[turn:] + names[:turn]:
                yield "the keys of get are not turned by the rank"
        yield from self._slices(report)

    def _compare(
        self, place: Place, wanted: Sequence[Prompt], lost: set[int], raw: Array
    ) -> Iterator[str]:
        """Every byte of the caches: loaded blocks hold the content, all others what they held."""
        scenario = self.scenario
        held = self.caches[place.rank]
        heads = own_heads(scenario, place.size, place.rank)
        for prompt in wanted:
            for block in self._own(place, prompt):
                if block.block in lost:
                    continue
                source = content(scenario.shape, prompt.hashes[block.index], self.seed)
                for pair, values in zip(held, source, strict=True):
                    for array, value in zip(pair, values, strict=True):
                        array[block.block, : block.tokens] = value[: block.tokens, heads]
        got, gaps = _unpack(scenario, raw, scenario.shape.heads // place.size)
        if gaps:
            yield "bytes between blocks were written"
        for layer, (pair, now) in enumerate(zip(held, got, strict=True)):
            for kind, array, found in zip("KV", pair, now, strict=True):
                wrong = array != found
                wrong[sorted(lost)] = False
                if wrong.any():
                    at = [int(axis[0]) for axis in np.nonzero(wrong)]
                    yield (
                        f"{int(wrong.sum())} elements of {kind} of layer {layer} are wrong, first "
                        f"block {at[0]}, token {at[1]}, head {heads.start + at[2]}"
                    )
                # What failed to load may hold anything; the next step starts from there.
                array[sorted(lost)] = found[sorted(lost)]

    # --- the store ---

    def _stored(self) -> Iterator[str]:
        """Every object's bytes, after the last step."""
        tokens = {
            found.hex(): self.scenario.chunk(request, at)
            for request in self.scenario.requests
            for at, found in enumerate(self.scenario.hashes(request))
        }
        objects = self.facts.steps[-1].objects
        wrong = []
        for key, data in objects.items():
            rank, found = name_of(key)
            known = rank < self.scenario.ranks and found in tokens
            if not known or data != self._bytes((rank, found), tokens[found]):
                wrong.append(key)
        if wrong:
            yield f"{len(wrong)} of {len(objects)} objects hold other bytes, first {wrong[0]}"


def _event(prompt: Prompt, block: Own) -> tuple[bytes | None, int]:
    """A block's parent and number of tokens."""
    parent = prompt.hashes[block.index - 1] if block.index else None
    return parent, block.tokens


def _names(calls: Sequence[Call], method: str) -> list[Name]:
    return [name_of(key) for call in calls if call.method == method for key in call.keys]


def _said(name: Name) -> str:
    return f"rank {name[0]} of block {name[1][:8]}"


def _prefixed(place: Place, problems: Iterator[str]) -> Iterator[str]:
    return (f"{place.name}: {problem}" for problem in problems)


def _unpack(scenario: Scenario, raw: Array, heads: int) -> tuple[list[tuple[Array, Array]], bool]:
    """The caches in a rank's raw buffer, and whether anything stands between blocks."""
    shape = scenario.shape
    gap = shape.padding // 2
    at = 0
    found: list[tuple[Array, Array]] = []
    dirty = False
    for _ in range(shape.layers):
        pair = []
        for dim in shape.dims():
            size = shape.block_size * heads * dim
            part = raw[at : at + shape.blocks * (size + gap)].reshape(shape.blocks, size + gap)
            dirty |= bool(part[:, size:].any())
            pair.append(part[:, :size].reshape(shape.blocks, shape.block_size, heads, dim))
            at += part.size
        found.append((pair[0], pair[1]))
    return found, dirty
