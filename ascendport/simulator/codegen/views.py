"""Views of memory: how operations change base, offset, sizes and strides."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from ascendport.simulator.codegen.emit import Emitter, View, Word, is_number, known
from ascendport.simulator.errors import UnsupportedError
from ascendport.simulator.ir import Index, MemRef, Op, Scalar
from ascendport.simulator.layout import BLOCK, Signal, Use
from ascendport.simulator.sites import AccessSite


class Views(Emitter):
    """Operations that make a view from another."""

    def pointer_cast(self, op: Op) -> None:
        kind = op.types[0]
        if not isinstance(kind, MemRef) or kind.space not in ("ub", "gm"):
            raise self.unsupported("hivm.hir.pointer_cast to another memory")
        address = self.word(op.operands[0])
        if kind.space == "gm":
            self.use(address, Use.ADDRESS)
            sizes = op.attributes["sizes"]
            assert isinstance(sizes, list)
            self.values[op.results[0]] = self.dense(
                kind, self.pointer(self.to_bits(address)), sizes
            )
            return
        if None in kind.shape:
            raise self.unsupported("hivm.hir.pointer_cast of a size that is not known")
        if not is_number(address.text):
            raise self.unsupported("hivm.hir.pointer_cast of a computed address")
        if int(address.text) % BLOCK:
            location = self.location
            number = self.site(lambda number: AccessSite(number, op.name, location))
            self.signal(Signal.MISALIGNED, number, address.text, "0")
        self.values[op.results[0]] = self.as_declared(kind, address.text)

    def pointer(self, address: str) -> str:
        """An address that is data, as the tensor and byte that lie there."""
        return self.let(f"call i64 @as_pointer(ptr %m, i64 {address})")

    def dense(self, kind: MemRef, base: str, dynamic: Sequence[Index]) -> View:
        """A view without gaps; ``dynamic``: its sizes that the type does not say."""
        given = iter(dynamic)
        lengths = [self.index(next(given)) if size is None else str(size) for size in kind.shape]
        strides: list[str] = []
        step = "1"
        for length in reversed(lengths):
            strides.insert(0, step)
            step = self.multiply(step, length)
        return View(kind, base, "0", tuple(lengths), tuple(strides))

    def pointer_kind(self, op: Op) -> None:
        """`builtin.unrealized_conversion_cast` between an address and a view, or two views."""
        source, kind = self.values[op.operands[0]], op.types[1]
        if isinstance(source, View) and isinstance(kind, MemRef):
            if len(kind.shape) != len(source.sizes) or kind.bits != source.type.bits:
                raise self.unsupported(f"{op.name} of this form")
            self.memref_cast(op)
        elif isinstance(source, View) and isinstance(kind, Scalar) and kind.bits == 64:
            address = self.address(source, ["0"] * len(source.strides))
            self.values[op.results[0]] = Word(address, kind.name)
        elif isinstance(source, Word) and isinstance(kind, Scalar) and kind.bits == 64:
            self.values[op.results[0]] = Word(self.to_bits(source), kind.name, source.undefined)
        elif isinstance(source, Word) and isinstance(kind, MemRef) and kind.space == "gm":
            self.use(source, Use.ADDRESS)
            base = self.pointer(self.to_bits(source))
            # Only the address matters: what is accessed is cut out of this view.
            self.values[op.results[0]] = self.as_declared(kind, base)
        else:
            raise self.unsupported(f"{op.name} of this form")

    def as_declared(self, kind: MemRef, base: str) -> View:
        return View(
            kind,
            base,
            known(kind.offset, "0"),
            tuple(known(size, "0") for size in kind.shape),
            tuple(known(stride, "1") for stride in kind.strides),
        )

    def memref_cast(self, op: Op) -> None:
        source = self.view(op.operands[0])
        kind = op.types[1]
        assert isinstance(kind, MemRef)
        self.values[op.results[0]] = View(
            kind, source.base, source.offset, source.sizes, source.strides
        )

    def bitcast(self, op: Op) -> None:
        source = self.view(op.operands[0])
        kind = op.types[1]
        if not isinstance(kind, MemRef) or kind.bits != source.type.bits:
            raise self.unsupported("hivm.hir.bitcast to another width")
        self.values[op.results[0]] = View(
            kind, source.base, source.offset, source.sizes, source.strides
        )

    def reinterpret(self, op: Op) -> None:
        source = self.view(op.operands[0])
        kind = op.types[1]
        sizes, strides, offset = (op.attributes[key] for key in ("sizes", "strides", "offset"))
        assert isinstance(kind, MemRef) and isinstance(sizes, list) and isinstance(strides, list)
        assert isinstance(offset, int | str)
        self.values[op.results[0]] = View(
            kind,
            source.base,
            self.index(offset),
            tuple(self.index(size) for size in sizes),
            tuple(self.index(stride) for stride in strides),
        )

    def subview(self, op: Op) -> None:
        source = self.view(op.operands[0])
        kind = op.types[1]
        offsets, sizes, strides = (op.attributes[key] for key in ("offsets", "sizes", "strides"))
        assert isinstance(kind, MemRef) and isinstance(offsets, list)
        assert isinstance(sizes, list) and isinstance(strides, list)
        offset = source.offset
        for shift, stride in zip(offsets, source.strides, strict=True):
            offset = self.add(offset, self.multiply(self.index(shift), stride))
        lengths = [self.index(size) for size in sizes]
        steps = [
            self.multiply(self.index(step), stride)
            for step, stride in zip(strides, source.strides, strict=True)
        ]
        kept = _kept_axes(sizes, kind, steps)
        self.values[op.results[0]] = View(
            kind,
            source.base,
            offset,
            tuple(lengths[axis] for axis in kept),
            tuple(steps[axis] for axis in kept),
        )

    def collapse(self, op: Op) -> None:
        source = self.view(op.operands[0])
        kind, groups = op.types[1], op.attributes["groups"]
        assert isinstance(kind, MemRef) and isinstance(groups, list)
        sizes: list[str] = []
        strides: list[str] = []
        for group, declared in zip(groups, kind.strides, strict=True):
            size = "1"
            for axis in group:
                size = self.multiply(size, source.sizes[axis])
            sizes.append(size)
            # Axes of size 1 have no say in the stride of the group.
            telling = [axis for axis in group if source.sizes[axis] != "1"]
            stride = source.strides[telling[-1] if telling else group[-1]]
            strides.append(stride if declared is None else str(declared))
        self.values[op.results[0]] = View(
            kind, source.base, source.offset, tuple(sizes), tuple(strides)
        )

    def expand(self, op: Op) -> None:
        source = self.view(op.operands[0])
        kind, groups, shape = op.types[1], op.attributes["groups"], op.attributes["shape"]
        assert isinstance(kind, MemRef) and isinstance(groups, list) and isinstance(shape, list)
        sizes = [self.index(size) for size in shape]
        strides = [""] * len(sizes)
        for group, stride in zip(groups, source.strides, strict=True):
            step = stride
            for axis in reversed(group):
                strides[axis] = step
                step = self.multiply(step, sizes[axis])
        self.values[op.results[0]] = View(
            kind, source.base, source.offset, tuple(sizes), tuple(strides)
        )

    def view_op(self, op: Op) -> None:
        source, shift = self.view(op.operands[0]), self.word(op.operands[1])
        kind, sizes = op.types[1], op.attributes["sizes"]
        assert isinstance(kind, MemRef) and isinstance(sizes, list)
        self.use(shift, Use.ADDRESS)
        base = self.add(source.base, shift.text)
        self.values[op.results[0]] = self.dense(kind, base, sizes)

    def metadata(self, op: Op) -> None:
        source = self.view(op.operands[0])
        kind = op.types[1]
        assert isinstance(kind, MemRef)
        base, offset, *rest = op.results
        self.values[base] = View(kind, source.base, "0", (), ())
        self.values[offset] = Word(source.offset, "index")
        for name, text in zip(rest, (*source.sizes, *source.strides), strict=True):
            self.values[name] = Word(text, "index")

    def address(self, view: View, indices: Sequence[str]) -> str:
        """Byte address of an element (its bit address where booleans are packed)."""
        offset = view.offset
        for index, stride in zip(indices, view.strides, strict=True):
            offset = self.add(offset, self.multiply(index, stride))
        if view.type.bits == 1:
            return self.add(self.multiply(view.base, "8"), offset)
        return self.add(view.base, self.multiply(offset, str(view.type.bits // 8)))


def _kept_axes(sizes: list[Index], kind: MemRef, steps: list[str]) -> tuple[int, ...]:
    """Axes that a subview keeps: a result of lower rank drops axes of size 1.

    Which of several such axes go is told by the sizes and strides of the result's type.
    """
    for kept in combinations(range(len(sizes)), len(kind.shape)):
        dropped_ones = all(sizes[axis] == 1 for axis in range(len(sizes)) if axis not in kept)
        fits = all(
            (size is None or size == sizes[axis])
            and (stride is None or not is_number(steps[axis]) or int(steps[axis]) == stride)
            for axis, size, stride in zip(kept, kind.shape, kind.strides, strict=True)
        )
        if dropped_ones and fits:
            return kept
    raise UnsupportedError("memref.subview whose result does not fit its type")
