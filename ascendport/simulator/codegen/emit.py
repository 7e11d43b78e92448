"""What all kinds of operations need: lines, names, values, sites, and the count of scalar work.

A value that can stem from unwritten UB is accompanied by an i1 that says so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from ascendport.simulator import native
from ascendport.simulator.errors import UnsupportedError
from ascendport.simulator.ir import Block, Index, Location, MemRef, Op
from ascendport.simulator.layout import Signal, Slot, Use
from ascendport.simulator.sites import AccessSite, Site, WorkSite

LLVM = {
    "i1": "i1",
    "i8": "i8",
    "i16": "i16",
    "i32": "i32",
    "i64": "i64",
    "index": "i64",
    "f16": "i16",
    "bf16": "i16",
    "f32": "float",
}
"""Element type → LLVM's: fp16 and bf16 live in i16 words."""

FLOATS = ("f16", "bf16", "f32")


@dataclass(frozen=True)
class Word:
    """A scalar value. ``undefined``: an i1 value, or None where it is certainly defined."""

    text: str
    kind: str
    undefined: str | None = None


@dataclass(frozen=True)
class View:
    """A view of memory: base in bytes, the rest in elements."""

    type: MemRef
    base: str
    offset: str
    sizes: tuple[str, ...]
    strides: tuple[str, ...]


Value = Word | View


@dataclass
class _Work:
    """Scalar work of the straight-line code being emitted."""

    counts: Counter[tuple[str, Location | None]] = field(default_factory=Counter)


class Emitter:
    """Lines of the function that is being generated."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.head: list[str] = []
        self.tables: list[str] = []
        self.values: dict[str, Value] = {}
        self.sites: list[Site] = []
        self.count = 0
        self.block = "body"
        self.work = _Work()
        self.pure: list[tuple[int, str]] | None = None
        """Inside a loop without records: counters of its work sites."""
        self.location: Location | None = None
        self.strings: list[str] = []
        """Names of the constants that hold texts."""

    def emit(self, line: str) -> None:
        self.lines.append("  " + line)

    def fresh(self) -> str:
        self.count += 1
        return f"%t{self.count}"

    def label(self) -> str:
        self.count += 1
        return f"b{self.count}"

    def start(self, label: str) -> None:
        self.lines.append(f"{label}:")
        self.block = label

    def let(self, text: str) -> str:
        name = self.fresh()
        self.emit(f"{name} = {text}")
        return name

    def site(self, make: Callable[[int], Site]) -> int:
        number = len(self.sites)
        self.sites.append(make(number))
        return number

    def unsupported(self, what: str) -> UnsupportedError:
        return UnsupportedError(what, self.location)

    def stop_if(self, code: str) -> None:
        """Leaves the program where the i32 ``code`` is not 0."""
        stop, go = self.let(f"icmp ne i32 {code}, 0"), self.label()
        self.emit(f"br i1 {stop}, label %stopped, label %{go}")
        self.start(go)

    def signal(self, signal: Signal, site: int, first: str, second: str) -> None:
        code = self.let(
            f"call {native.CALLBACK} %cb(i64 {int(signal)}, i64 {site}, i64 {first}, i64 {second})"
        )
        self.stop_if(code)

    def runtime(self, call: str) -> None:
        """A runtime function that can stop the program."""
        self.stop_if(self.let(f"call i32 @{call}"))

    def count_work(self, operation: str) -> None:
        self.work.counts[operation, self.location] += 1

    def flush_work(self) -> None:
        """Records the scalar work since the last record; to be called before each terminator."""
        if not self.work.counts:
            return
        counts = dict(self.work.counts)
        self.work = _Work()
        number = self.site(lambda number: WorkSite(number, counts))
        if self.pure is None:
            self.runtime(f"as_work(ptr %m, ptr %cb, i64 {number}, i64 1)")
            return
        counter = f"%w{number}"
        self.head.append(f"  {counter} = alloca i64")
        self.head.append(f"  store i64 0, ptr {counter}")
        before = self.let(f"load i64, ptr {counter}")
        after = self.let(f"add i64 {before}, 1")
        self.emit(f"store i64 {after}, ptr {counter}")
        self.pure.append((number, counter))

    def slot(self, which: Slot, kind: str = "i64") -> str:
        place = self.let(f"getelementptr i64, ptr %m, i64 {int(which)}")
        return self.let(f"load {kind}, ptr {place}")

    def word(self, name: str) -> Word:
        value = self.values[name]
        if not isinstance(value, Word):
            raise self.unsupported("a view of memory as a number")
        return value

    def view(self, name: str) -> View:
        value = self.values[name]
        if not isinstance(value, View):
            raise self.unsupported("a number as a view of memory")
        return value

    def define(self, op: Op, text: str, kind: str, *sources: Word) -> None:
        """The result of ``op``: undefined where a source is."""
        name = self.let(text)
        self.values[op.results[0]] = Word(name, kind, self.either(*sources))

    def either(self, *sources: Word) -> str | None:
        flags = list(dict.fromkeys(word.undefined for word in sources if word.undefined))
        if not flags:
            return None
        flag = flags[0]
        for other in flags[1:]:
            flag = self.let(f"or i1 {flag}, {other}")
        return flag

    def index(self, entry: Index) -> str:
        """A size, stride or offset; its definedness is checked."""
        if isinstance(entry, int):
            return str(entry)
        word = self.word(entry)
        self.use(word, Use.ADDRESS)
        return word.text

    def use(self, word: Word, use: Use) -> None:
        if word.undefined is None:
            return
        location = self.location
        number = self.site(lambda number: AccessSite(number, use.name.lower(), location))
        bad, go = self.label(), self.label()
        self.emit(f"br i1 {word.undefined}, label %{bad}, label %{go}")
        self.start(bad)
        self.signal(Signal.UNDEFINED, number, str(int(use)), "0")
        self.emit(f"br label %{go}")
        self.start(go)

    def from_bits(self, word: str, kind: str, lines: list[str] | None = None) -> str:
        """An i64 of bits as a value of ``kind``."""
        target = LLVM[kind]
        if target == "i64":
            return word
        out = self.lines if lines is None else lines
        if target == "float":
            low, name = self.fresh(), self.fresh()
            out.append(f"  {low} = trunc i64 {word} to i32")
            out.append(f"  {name} = bitcast i32 {low} to float")
            return name
        name = self.fresh()
        out.append(f"  {name} = trunc i64 {word} to {target}")
        return name

    def to_bits(self, word: Word) -> str:
        target = LLVM[word.kind]
        if target == "i64":
            return word.text
        if target == "float":
            bits = self.let(f"bitcast float {word.text} to i32")
            return self.let(f"zext i32 {bits} to i64")
        extend = "zext" if word.kind in ("i1", "f16", "bf16") else "sext"
        return self.let(f"{extend} {target} {word.text} to i64")

    def to_float(self, word: Word) -> str:
        """As an LLVM float."""
        if word.kind == "f32":
            return word.text
        return self.let(f"call float @as_{word.kind}_to_f32(i16 {word.text})")

    def of_float(self, text: str, kind: str) -> str:
        if kind == "f32":
            return text
        return self.let(f"call i16 @as_f32_to_{kind}(float {text})")

    def add(self, a: str, b: str) -> str:
        if a == "0":
            return b
        if b == "0":
            return a
        if is_number(a) and is_number(b):
            return str(int(a) + int(b))
        return self.let(f"add i64 {a}, {b}")

    def multiply(self, a: str, b: str) -> str:
        if "0" in (a, b):
            return "0"
        if a == "1":
            return b
        if b == "1":
            return a
        if is_number(a) and is_number(b):
            return str(int(a) * int(b))
        return self.let(f"mul i64 {a}, {b}")

    def block_of(self, block: Block) -> Op | None:
        """Emits the operations of a block; returns its terminator, if it has one."""
        raise NotImplementedError


def is_number(text: str) -> bool:
    return text.lstrip("-").isdigit()


def known(value: int | None, otherwise: str) -> str:
    return otherwise if value is None else str(value)
