"""What touches memory or another pipe: scalar loads and stores, events, library calls.

Library calls write their arguments to the record buffer and call back.
"""

from __future__ import annotations

from ascendport.simulator import native
from ascendport.simulator.codegen.emit import Value, View, Word
from ascendport.simulator.codegen.views import Views
from ascendport.simulator.ir import Index, MemRef, Op
from ascendport.simulator.layout import ALL_PIPES, WRITE, Pipe, Slot, Use
from ascendport.simulator.library import lookup
from ascendport.simulator.library.base import SCALAR_FLAGS
from ascendport.simulator.sites import AccessSite, CallSite, EventSite, Operand


class Access(Views):
    """Loads, stores, flags, barriers, calls."""

    def load(self, op: Op) -> None:
        view = self.view(op.operands[0])
        location = self.location
        self.count_work(f"load.{view.type.space}")
        number = self.site(lambda number: AccessSite(number, f"load.{view.type.space}", location))
        address = self.address(view, [self.index(name) for name in op.operands[1:]])
        address, bits = self.byte_address(view, address)
        kind = view.type.element
        ok, bad, end = self.label(), self.label(), self.label()
        pointer, permitted = self.access(view, 0, number, address, bits // 8)
        self.emit(f"br i1 {permitted}, label %{ok}, label %{bad}")
        self.start(bad)
        self.emit(f"br label %{end}")
        self.start(ok)
        loaded = self.let(f"load i{bits}, ptr {pointer}, align 1")
        shadow = None
        if view.type.space == "ub":
            base = self.slot(Slot.SHADOW, "ptr")
            place = self.let(f"getelementptr i8, ptr {base}, i64 {address}")
            shadow = self.let(f"load i{bits}, ptr {place}, align 1")
        self.emit(f"br label %{end}")
        self.start(end)
        value = self.let(f"phi i{bits} [ {loaded}, %{ok} ], [ 0, %{bad} ]")
        undefined: str | None = None
        if shadow is not None:
            # An access outside is reported as such, and not again for what comes of it.
            marks = self.let(f"phi i{bits} [ {shadow}, %{ok} ], [ 0, %{bad} ]")
            undefined = self.let(f"icmp ne i{bits} {marks}, 0")
        if kind == "i1":
            value = self.let(f"trunc i8 {value} to i1")
        elif kind == "f32":
            value = self.let(f"bitcast i32 {value} to float")
        self.values[op.results[0]] = Word(value, kind, undefined)

    def store(self, op: Op) -> None:
        word, view = self.word(op.operands[0]), self.view(op.operands[1])
        location = self.location
        self.count_work(f"store.{view.type.space}")
        number = self.site(lambda number: AccessSite(number, f"store.{view.type.space}", location))
        address = self.address(view, [self.index(name) for name in op.operands[2:]])
        address, bits = self.byte_address(view, address)
        if view.type.space == "gm":
            self.use(word, Use.GM_STORE)
        text = word.text
        if word.kind == "i1":
            text = self.let(f"zext i1 {text} to i8")
        elif word.kind == "f32":
            text = self.let(f"bitcast float {text} to i32")
        ok, end = self.label(), self.label()
        pointer, permitted = self.access(view, WRITE, number, address, bits // 8)
        self.emit(f"br i1 {permitted}, label %{ok}, label %{end}")
        self.start(ok)
        self.emit(f"store i{bits} {text}, ptr {pointer}, align 1")
        if view.type.space == "ub":
            base = self.slot(Slot.SHADOW, "ptr")
            place = self.let(f"getelementptr i8, ptr {base}, i64 {address}")
            marks = "0"
            if word.undefined is not None:
                marks = self.let(f"sext i1 {word.undefined} to i{bits}")
            self.emit(f"store i{bits} {marks}, ptr {place}, align 1")
        self.emit(f"br label %{end}")
        self.start(end)

    def byte_address(self, view: View, address: str) -> tuple[str, int]:
        """Address in bytes and the bits that a scalar access moves.

        The compiler stores single booleans as bytes, into buffers of one element.
        """
        if view.type.bits != 1:
            return address, view.type.bits
        if any(size != 1 for size in view.type.shape):
            raise self.unsupported("scalar access to packed booleans")
        return self.let(f"lshr i64 {address}, 3"), 8

    def access(self, view: View, write: int, site: int, address: str, size: int) -> tuple[str, str]:
        """(pointer, i1: whether the access may be made)."""
        if view.type.space == "gm":
            pointer = self.let(
                f"call ptr @as_gm(ptr %m, ptr %cb, i64 {write}, i64 {site}, i64 {address},"
                f" i64 {size}, ptr %stop.p)"
            )
            self.stop_if(self.let("load i32, ptr %stop.p"))
            return pointer, self.let(f"icmp ne ptr {pointer}, null")
        if view.type.space != "ub":
            raise self.unsupported(f"memory space {view.type.space}")
        code = self.let(
            f"call i64 @as_scalar(ptr %m, ptr %cb, i64 {write}, i64 {site}, i64 {address},"
            f" i64 {size})"
        )
        stop, go = self.let(f"icmp slt i64 {code}, 0"), self.label()
        self.emit(f"br i1 {stop}, label %stopped, label %{go}")
        self.start(go)
        base = self.slot(Slot.UB, "ptr")
        pointer = self.let(f"getelementptr i8, ptr {base}, i64 {address}")
        return pointer, self.let(f"icmp ne i64 {code}, 0")

    def pipe(self, name: object) -> Pipe:
        try:
            return Pipe[str(name)]
        except KeyError:
            raise self.unsupported(f"pipe {name}") from None

    def flag(self, op: Op) -> None:
        kind = op.name.rpartition(".")[2]
        source, target = self.pipe(op.attributes["from"]), self.pipe(op.attributes["to"])
        event = op.attributes["event"]
        assert isinstance(event, int | str)
        number_text = self.event_number(event)
        location = self.location
        number = self.site(lambda number: EventSite(number, kind, source, target, location))
        self.flush_work()
        self.runtime(
            f"as_{kind}(ptr %m, ptr %cb, i64 {number}, i64 {int(source)}, i64 {int(target)},"
            f" i64 {number_text})"
        )

    def event_number(self, event: Index) -> str:
        if isinstance(event, int):
            return str(event)
        word = self.word(event)
        self.use(word, Use.BRANCH)
        return self.to_bits(word)

    def barrier(self, op: Op) -> None:
        name = str(op.attributes["pipe"])
        self.wait_for(None if name == "ALL" else self.pipe(name))

    def wait_for(self, pipe: Pipe | None) -> None:
        """A barrier of one pipe, or of all."""
        location = self.location
        number = self.site(lambda number: EventSite(number, "pipe_barrier", pipe, None, location))
        self.flush_work()
        which = ALL_PIPES if pipe is None else int(pipe)
        self.runtime(f"as_barrier(ptr %m, ptr %cb, i64 {number}, i64 {which})")

    def call(self, op: Op) -> None:
        callee = str(op.attributes["callee"])
        if op.results:
            raise self.unsupported(f"{callee} with results")
        entry = lookup(callee, op.types, self.location)
        if entry.barrier:
            self.wait_for(None)
        self.flush_work()
        word = 2
        operands: list[Operand] = []
        for role, kind in zip(entry.roles, op.types, strict=True):
            operands.append(Operand(role, kind, word))
            word += 1 + 2 * len(kind.shape) if isinstance(kind, MemRef) else 1
        location, total = self.location, word
        number = self.site(
            lambda number: CallSite(number, callee, entry.pipe, tuple(operands), total, location)
        )
        pointer = self.let(f"call ptr @as_record(ptr %m, i64 {number})")
        flags = "0"
        for position, (operand, name) in enumerate(zip(operands, op.operands, strict=True)):
            flags = self.argument(pointer, operand, self.values[name], flags, position)
        entries = ", ".join(
            f"i64 {native.operand_entry(item.role, item.word, item.rank, item.type.bits)}"
            for item in operands
        )
        count = len(operands)
        self.tables.append(f"@table{number} = internal constant [{count} x i64] [{entries}]")
        self.runtime(
            f"as_call(ptr %m, ptr %cb, i64 {int(entry.pipe)}, i64 {number}, ptr {pointer},"
            f" i64 {flags}, i64 {total}, ptr @table{number}, i64 {count})"
        )

    def argument(
        self, pointer: str, operand: Operand, value: Value, flags: str, position: int
    ) -> str:
        """Stores the words of an argument; returns the flags with its undefinedness."""
        if isinstance(value, Word):
            words = [self.to_bits(value)]
            if value.undefined is not None:
                bit = self.let(f"zext i1 {value.undefined} to i64")
                shifted = self.let(f"shl i64 {bit}, {SCALAR_FLAGS + position}")
                flags = self.let(f"or i64 {flags}, {shifted}")
        else:
            if value.type.space not in ("ub", "gm"):
                raise self.unsupported(f"memory space {value.type.space}")
            address = self.address(value, ["0"] * len(value.strides))
            words = [address, *value.sizes, *value.strides]
        for shift, text in enumerate(words):
            place = self.let(f"getelementptr i64, ptr {pointer}, i64 {operand.word + shift}")
            self.emit(f"store i64 {text}, ptr {place}")
        return flags
