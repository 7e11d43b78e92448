"""Branches and loops."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ascendport.simulator.codegen.emit import (
    LLVM,
    Emitter,
    Value,
    View,
    Word,
    is_number,
    known,
)
from ascendport.simulator.ir import Block, Op, Scalar, Type
from ascendport.simulator.layout import Signal, Slot, Use
from ascendport.simulator.sites import AccessSite

RECORDED = {"call", "hivm.hir.set_flag", "hivm.hir.wait_flag", "hivm.hir.pipe_barrier"}
"""Operations that leave a record: a loop without them is counted as a whole."""


class Control(Emitter):
    """Structured control flow."""

    def components(self, value: Value) -> list[tuple[str, str]]:
        """(LLVM type, text) of everything that makes up a value."""
        if isinstance(value, Word):
            return [(LLVM[value.kind], value.text), ("i1", value.undefined or "false")]
        return [("i64", text) for text in (value.base, value.offset, *value.sizes, *value.strides)]

    def rebuild(self, kind: Type, names: Iterator[str]) -> Value:
        if isinstance(kind, Scalar):
            return Word(next(names), kind.name, next(names))
        rank = len(kind.shape)
        base, offset = next(names), next(names)
        sizes = [next(names) for _ in range(rank)]
        strides = [next(names) for _ in range(rank)]
        # What the type says is known; the others differ by path.
        return View(
            kind,
            base,
            known(kind.offset, offset),
            tuple(known(size, name) for size, name in zip(kind.shape, sizes, strict=True)),
            tuple(known(step, name) for step, name in zip(kind.strides, strides, strict=True)),
        )

    def merge(
        self, kinds: Sequence[Type], paths: Sequence[tuple[str, Sequence[Value]]]
    ) -> list[Value]:
        """Values at a place that several blocks lead to: (block, values there)."""
        merged: list[Value] = []
        for number, kind in enumerate(kinds):
            columns = [
                [(block, *pair) for pair in self.components(values[number])]
                for block, values in paths
            ]
            names: list[str] = []
            for row in zip(*columns, strict=True):
                pairs = ", ".join(f"[ {text}, %{block} ]" for block, _, text in row)
                names.append(self.let(f"phi {row[0][1]} {pairs}"))
            merged.append(self.rebuild(kind, iter(names)))
        return merged

    def if_op(self, op: Op) -> None:
        condition = self.word(op.operands[0])
        self.use(condition, Use.BRANCH)
        self.count_work("scf.if")
        self.flush_work()
        labels = [self.label() for _ in op.regions]
        end = self.label()
        other = labels[1] if len(labels) > 1 else end
        self.emit(f"br i1 {condition.text}, label %{labels[0]}, label %{other}")
        paths: list[tuple[str, list[Value]]] = []
        for label, region in zip(labels, op.regions, strict=True):
            self.start(label)
            last = self.block_of(region)
            values = [self.values[name] for name in last.operands] if last else []
            self.flush_work()
            paths.append((self.block, values))
            self.emit(f"br label %{end}")
        self.start(end)
        for name, value in zip(op.results, self.merge(op.types, paths), strict=True):
            self.values[name] = value

    def loop_scope(self, op: Op) -> list[tuple[int, str]] | None:
        """Starts counting work where this is the outermost loop without records."""
        if self.pure is None and not _has_records(op):
            self.pure = []
            return self.pure
        return None

    def loop_scope_end(self, scope: list[tuple[int, str]] | None) -> None:
        if scope is None:
            return
        self.pure = None
        for site, counter in scope:
            total = self.let(f"load i64, ptr {counter}")
            self.emit(f"store i64 0, ptr {counter}")
            self.runtime(f"as_work(ptr %m, ptr %cb, i64 {site}, i64 {total})")

    def for_op(self, op: Op) -> None:
        lower, upper, step = (self.word(name) for name in op.operands[:3])
        for word in (lower, upper, step):
            self.use(word, Use.BRANCH)
        initial = [self.values[name] for name in op.operands[3:]]
        kind = LLVM[lower.kind]
        self.flush_work()
        self.burn_all(lower, upper, step)
        scope = self.loop_scope(op)
        before, head, body, end = self.block, self.label(), self.label(), self.label()
        self.emit(f"br label %{head}")
        self.start(head)
        counter = self.fresh()
        place = len(self.lines)
        # Names for what the loop carries; the phis follow once the body is known.
        carried: list[Value] = []
        phis: list[list[tuple[str, str]]] = []
        for declared, value in zip(op.types[1:], initial, strict=True):
            rows = [(kind_of, self.fresh()) for kind_of, _ in self.components(value)]
            phis.append(rows)
            carried.append(self.rebuild(declared, iter([name for _, name in rows])))
        more = self.let(f"icmp slt {kind} {counter}, {upper.text}")
        self.emit(f"br i1 {more}, label %{body}, label %{end}")
        self.start(body)
        arguments = op.regions[0].arguments
        self.values[arguments[0][0]] = Word(counter, lower.kind)
        for (name, _), value in zip(arguments[1:], carried, strict=True):
            self.values[name] = value
        location = self.location
        last = self.block_of(op.regions[0])
        self.location = location
        self.count_work("scf.for")
        self.flush_work()
        following = self.let(f"add {kind} {counter}, {step.text}")
        latch = self.block
        self.emit(f"br label %{head}")
        latest = [self.values[name] for name in last.operands] if last else []
        lines = [f"  {counter} = phi {kind} [ {lower.text}, %{before} ], [ {following}, %{latch} ]"]
        for rows, first, final in zip(phis, initial, latest, strict=True):
            pairs = zip(rows, self.components(first), self.components(final), strict=True)
            for (kind_of, name), (_, a), (_, b) in pairs:
                lines.append(f"  {name} = phi {kind_of} [ {a}, %{before} ], [ {b}, %{latch} ]")
        self.lines[place:place] = lines
        self.start(end)
        self.loop_scope_end(scope)
        for name, value in zip(op.results, carried, strict=True):
            self.values[name] = value

    def while_op(self, op: Op) -> None:
        initial = [self.values[name] for name in op.operands]
        first, second = op.regions
        self.flush_work()
        scope = self.loop_scope(op)
        before, head, body, end = self.block, self.label(), self.label(), self.label()
        self.emit(f"br label %{head}")
        self.start(head)
        place = len(self.lines)
        carried: list[Value] = []
        phis: list[list[tuple[str, str]]] = []
        for (name, declared), value in zip(first.arguments, initial, strict=True):
            rows = [(kind_of, self.fresh()) for kind_of, _ in self.components(value)]
            phis.append(rows)
            carried.append(self.rebuild(declared, iter([text for _, text in rows])))
            self.values[name] = carried[-1]
        self.burn("scf.while")
        last = self.block_of(first)
        if last is None or last.name != "scf.condition":
            raise self.unsupported("scf.while without a condition")
        condition = self.word(last.operands[0])
        self.use(condition, Use.BRANCH)
        self.count_work("scf.while")
        self.flush_work()
        passed = [self.values[name] for name in last.operands[1:]]
        self.emit(f"br i1 {condition.text}, label %{body}, label %{end}")
        self.start(body)
        for (name, _), value in zip(second.arguments, passed, strict=True):
            self.values[name] = value
        yielded = self.block_of(second)
        self.flush_work()
        latch = self.block
        self.emit(f"br label %{head}")
        latest = [self.values[name] for name in yielded.operands] if yielded else []
        lines: list[str] = []
        for rows, start, final in zip(phis, initial, latest, strict=True):
            pairs = zip(rows, self.components(start), self.components(final), strict=True)
            for (kind_of, text), (_, a), (_, b) in pairs:
                lines.append(f"  {text} = phi {kind_of} [ {a}, %{before} ], [ {b}, %{latch} ]")
        self.lines[place:place] = lines
        self.start(end)
        self.loop_scope_end(scope)
        for name, value in zip(op.results, passed, strict=True):
            self.values[name] = value

    def burn(self, name: str, rounds: str = "1", wrong: str = "false") -> None:
        """Counts ``rounds`` (i64) of a loop; ends the program where there are too many.

        ``wrong``: an i1 that says that the loop has no end at all.
        """
        location = self.location
        place = self.let(f"getelementptr i64, ptr %m, i64 {int(Slot.FUEL)}")
        left = self.let(f"sub i64 {self.let(f'load i64, ptr {place}')}, {rounds}")
        self.emit(f"store i64 {left}, ptr {place}")
        short = self.let(f"icmp slt i64 {left}, 0")
        out, dry, go = self.let(f"or i1 {short}, {wrong}"), self.label(), self.label()
        self.emit(f"br i1 {out}, label %{dry}, label %{go}")
        self.start(dry)
        number = self.site(lambda number: AccessSite(number, name, location))
        self.signal(Signal.FUEL_OUT, number, "0", "0")
        self.emit("br label %stopped")
        self.start(go)

    def burn_all(self, lower: Word, upper: Word, step: Word) -> None:
        """Counts all rounds of a loop whose bounds are known where it starts."""
        texts = [word.text for word in (lower, upper, step)]
        if all(map(is_number, texts)) and int(texts[2]) > 0:
            return
        kind = LLVM[lower.kind]
        wide = texts if kind == "i64" else [self.let(f"sext {kind} {t} to i64") for t in texts]
        forward = self.let(f"icmp slt i64 {wide[0]}, {wide[1]}")
        stuck = self.let(f"icmp sle i64 {wide[2]}, 0")
        wrong = self.let(f"and i1 {forward}, {stuck}")
        safe = self.let(f"select i1 {stuck}, i64 1, i64 {wide[2]}")
        rounds = self.let(f"udiv i64 {self.let(f'sub i64 {wide[1]}, {wide[0]}')}, {safe}")
        # A distance beyond 2^63 is one too many in any case.
        least = self.let(f"call i64 @llvm.umin.i64(i64 {rounds}, i64 {(1 << 62)})")
        counted = self.let(f"select i1 {forward}, i64 {least}, i64 0")
        self.burn("scf.for", counted, wrong)

    def graph(self, first: Block, others: Sequence[tuple[str, Block]]) -> None:
        """A function that branches between blocks; others than the first are labelled."""
        labels = {label: f"{label}.x" for label, _ in others}
        arguments = {label: block.arguments for label, block in others}
        phis: dict[str, tuple[int, list[list[tuple[str, str]]]]] = {}
        arrivals: dict[str, list[tuple[str, list[Value]]]] = {label: [] for label in labels}

        def leave(block: Block) -> None:
            last = self.block_of(block)
            if last is None:
                self.flush_work()
                self.emit("ret i32 0")
                return
            jumps = last.attributes.get("jumps")
            if not isinstance(jumps, list) or any(jump.label not in labels for jump in jumps):
                raise self.unsupported(f"{last.name} out of the function")
            self.count_work(last.name)
            if last.operands:
                self.use(self.word(last.operands[0]), Use.BRANCH)
            self.flush_work()
            if any(jump.label in phis for jump in jumps):
                self.burn(last.name)
            if last.operands:
                # A block of its own for each way: both may lead to one place with other values.
                ways = [self.label() for _ in jumps]
                where = ", ".join(f"label %{way}" for way in ways)
                self.emit(f"br i1 {self.word(last.operands[0]).text}, {where}")
            for number, jump in enumerate(jumps):
                if last.operands:
                    self.start(ways[number])
                values = [self.values[name] for name in jump.operands]
                arrivals[jump.label].append((self.block, values))
                self.emit(f"br label %{labels[jump.label]}")

        leave(first)
        for label, block in others:
            self.start(labels[label])
            rows_of: list[list[tuple[str, str]]] = []
            for name, declared in arguments[label]:
                rows = [(kind, self.fresh()) for kind, _ in self.components(_blank(declared))]
                rows_of.append(rows)
                self.values[name] = self.rebuild(declared, iter([text for _, text in rows]))
            phis[label] = (len(self.lines), rows_of)
            leave(block)
        for label, (place, rows_of) in sorted(phis.items(), key=lambda item: -item[1][0]):
            lines: list[str] = []
            for number, rows in enumerate(rows_of):
                columns = [self.components(values[number]) for _, values in arrivals[label]]
                for row, (kind, text) in enumerate(rows):
                    pairs = ", ".join(
                        f"[ {column[row][1]}, %{block} ]"
                        for (block, _), column in zip(arrivals[label], columns, strict=True)
                    )
                    lines.append(f"  {text} = phi {kind} {pairs}")
            self.lines[place:place] = lines


def _blank(kind: Type) -> Value:
    """Some value of a type."""
    if isinstance(kind, Scalar):
        return Word("0", kind.name)
    zeros = ("0",) * len(kind.shape)
    return View(kind, "0", "0", zeros, zeros)


def _has_records(op: Op) -> bool:
    return any(
        inner.name in RECORDED or (inner.regions and _has_records(inner))
        for block in op.regions
        for inner in block.operations
    )
