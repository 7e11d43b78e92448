"""Scalar arithmetic, comparisons, conversions and affine operations."""

from __future__ import annotations

import struct

from ascendport.simulator.affine import AffineMap, Expression
from ascendport.simulator.codegen.emit import FLOATS, LLVM, Emitter, View, Word, is_number
from ascendport.simulator.ir import MemRef, Op, Scalar
from ascendport.simulator.layout import Slot, Use

_INTEGER = {
    "addi": "add",
    "subi": "sub",
    "muli": "mul",
    "andi": "and",
    "ori": "or",
    "xori": "xor",
}

_DIVISION = {"divsi": "sdiv", "divui": "udiv", "remsi": "srem", "remui": "urem"}

_SHIFT = {"shli": "shl", "shrsi": "ashr", "shrui": "lshr"}

_MINMAX = {"minsi": "smin", "maxsi": "smax", "minui": "umin", "maxui": "umax"}

_FLOAT_BINARY = {"addf": "fadd", "subf": "fsub", "mulf": "fmul", "divf": "fdiv", "remf": "frem"}

_FLOAT_CALL = {
    "maximumf": "llvm.maximum.f32",
    "minimumf": "llvm.minimum.f32",
    "maxnumf": "llvm.maxnum.f32",
    "minnumf": "llvm.minnum.f32",
    "absf": "llvm.fabs.f32",
    "sqrt": "llvm.sqrt.f32",
    "floor": "llvm.floor.f32",
    "ceil": "llvm.ceil.f32",
    "trunc": "llvm.trunc.f32",
    "round": "llvm.round.f32",
    "roundeven": "llvm.roundeven.f32",
    "exp": "llvm.exp.f32",
    "exp2": "llvm.exp2.f32",
    "log": "llvm.log.f32",
    "log2": "llvm.log2.f32",
    "sin": "llvm.sin.f32",
    "cos": "llvm.cos.f32",
    "tanh": "tanhf",
    "erf": "erff",
}

_CONVERSIONS = {
    *("index_cast", "index_castui", "extsi", "extui", "trunci", "extf", "truncf", "sitofp"),
    *("uitofp", "fptosi", "fptoui", "bitcast"),
}

_WIDTHS = ("i1", "i8", "i16", "i32", "i64")

DECLARATIONS = (
    *(
        f"declare {width} @llvm.{name}.{width}({width}, {width})"
        for width in _WIDTHS
        for name in ("smin", "smax", "umin", "umax")
    ),
    *(f"declare {width} @llvm.abs.{width}({width}, i1)" for width in _WIDTHS),
    *(
        f"declare {width} @llvm.{name}.sat.{width}.f32(float)"
        for width in _WIDTHS
        for name in ("fptosi", "fptoui")
    ),
    *(
        f"declare float @{name}(float, float)"
        for name in sorted({*_FLOAT_CALL.values()})
        if name.startswith(("llvm.max", "llvm.min"))
    ),
    *(
        f"declare float @{name}(float)"
        for name in sorted({*_FLOAT_CALL.values()})
        if not name.startswith(("llvm.max", "llvm.min"))
    ),
)
"""LLVM functions that arithmetic calls."""


class Arithmetic(Emitter):
    """Operations on numbers."""

    def constant(self, op: Op) -> None:
        kind = op.types[0]
        if not isinstance(kind, Scalar):
            raise self.unsupported("a constant of this type")
        self.values[op.results[0]] = Word(
            _literal(str(op.attributes["value"]), kind.name), kind.name
        )

    def block_index(self, op: Op) -> None:
        kind = op.types[0]
        assert isinstance(kind, Scalar)
        program = self.slot(Slot.PROGRAM)
        self.values[op.results[0]] = Word(self.from_bits(program, kind.name), kind.name)

    def first_of_one(self, op: Op) -> None:
        """`get_sub_block_idx`: programs for vector cores alone have one sub-block."""
        kind = op.types[0]
        assert isinstance(kind, Scalar)
        self.values[op.results[0]] = Word("0", kind.name)

    def one_of_one(self, op: Op) -> None:
        """`get_sub_block_num`."""
        kind = op.types[0]
        assert isinstance(kind, Scalar)
        self.values[op.results[0]] = Word("1", kind.name)

    def block_number(self, op: Op) -> None:
        """`get_block_num`: how many programs the launch has."""
        kind = op.types[0]
        assert isinstance(kind, Scalar)
        self.values[op.results[0]] = Word(
            self.from_bits(self.slot(Slot.PROGRAMS), kind.name), kind.name
        )

    def text(self, op: Op) -> None:
        """The address of a text stands for the text: its number."""
        name = str(op.attributes["name"])
        if name not in self.strings:
            raise self.unsupported(f"llvm.mlir.addressof @{name}")
        self.values[op.results[0]] = Word(str(self.strings.index(name)), "i64")

    def same(self, op: Op) -> None:
        """The start of a text."""
        self.values[op.results[0]] = self.values[op.operands[0]]

    def affine(self, op: Op) -> None:
        mapping = op.attributes["map"]
        assert isinstance(mapping, AffineMap)
        words = [self.word(name) for name in op.operands]
        inputs = dict(zip(mapping.inputs, (word.text for word in words), strict=True))
        results = [self.expression(result, inputs) for result in mapping.results]
        value = results[0]
        intrinsic = {"affine.min": "smin", "affine.max": "smax"}.get(op.name)
        for other in results[1:]:
            if intrinsic is None:
                raise self.unsupported("affine.apply with several results")
            value = self.let(f"call i64 @llvm.{intrinsic}.i64(i64 {value}, i64 {other})")
        self.values[op.results[0]] = Word(value, "index", self.either(*words))

    def expression(self, tree: Expression, inputs: dict[str, str]) -> str:
        if isinstance(tree, int):
            return str(tree)
        if isinstance(tree, str):
            return inputs[tree]
        operator, left, right = tree
        a, b = self.expression(left, inputs), self.expression(right, inputs)
        if operator in ("+", "-", "*"):
            word = {"+": "add", "-": "sub", "*": "mul"}[operator]
            return self.let(f"{word} i64 {a}, {b}")
        return self.floor_division(operator, a, b)

    def floor_division(self, operator: str, a: str, b: str, target: str = "i64") -> str:
        """``floordiv``, ``ceildiv``, ``mod`` (of a positive divisor)."""
        quotient = self.let(self.division("sdiv", target, a, b))
        rest = self.let(self.division("srem", target, a, b))
        if operator == "mod":
            shifted = self.let(f"add {target} {rest}, {b}")
            below = self.let(f"icmp slt {target} {rest}, 0")
            return self.let(f"select i1 {below}, {target} {shifted}, {target} {rest}")
        inexact = self.let(f"icmp ne {target} {rest}, 0")
        signs = self.let(f"xor {target} {rest}, {b}")
        against = "slt" if operator == "floordiv" else "sge"
        away = self.let(f"icmp {against} {target} {signs}, 0")
        step = self.let(f"zext i1 {self.let(f'and i1 {inexact}, {away}')} to {target}")
        word = "sub" if operator == "floordiv" else "add"
        return self.let(f"{word} {target} {quotient}, {step}")

    def unsigned_ceiling(self, target: str, a: str, b: str) -> str:
        quotient = self.let(self.division("udiv", target, a, b))
        rest = self.let(self.division("urem", target, a, b))
        inexact = self.let(f"icmp ne {target} {rest}, 0")
        return self.let(f"add {target} {quotient}, {self.let(f'zext i1 {inexact} to {target}')}")

    def arithmetic(self, op: Op) -> None:
        name = op.name.partition(".")[2]
        if name in _CONVERSIONS:
            self.conversion(op, name)
            return
        words = [self.word(operand) for operand in op.operands]
        kind = words[0].kind
        if kind in FLOATS:
            self.float_arithmetic(op, name, words, kind)
            return
        target = LLVM[kind]
        a = words[0].text
        b = words[1].text if len(words) > 1 else ""
        if name in _INTEGER:
            self.define(op, f"{_INTEGER[name]} {target} {a}, {b}", kind, *words)
        elif name in _DIVISION:
            self.define(op, self.division(_DIVISION[name], target, a, b), kind, *words)
        elif name in _SHIFT:
            self.define(op, self.shift(_SHIFT[name], target, kind, a, b), kind, *words)
        elif name in _MINMAX:
            call = f"call {target} @llvm.{_MINMAX[name]}.{target}({target} {a}, {target} {b})"
            self.define(op, call, kind, *words)
        elif name in ("floordivsi", "ceildivsi"):
            text = self.floor_division(name.removesuffix("si"), a, b, target)
            self.values[op.results[0]] = Word(text, kind, self.either(*words))
        elif name == "ceildivui":
            text = self.unsigned_ceiling(target, a, b)
            self.values[op.results[0]] = Word(text, kind, self.either(*words))
        elif name == "absi":
            self.define(op, f"call {target} @llvm.abs.{target}({target} {a}, i1 0)", kind, *words)
        else:
            raise self.unsupported(op.name)

    def extended(self, op: Op) -> None:
        """A product in two words: the low one, then the high one."""
        words = [self.word(operand) for operand in op.operands]
        kind = words[0].kind
        narrow, bits = LLVM[kind], int(LLVM[kind][1:])
        wide = f"i{2 * bits}"
        extend = "sext" if op.name.endswith("mulsi_extended") else "zext"
        a, b = (self.let(f"{extend} {narrow} {word.text} to {wide}") for word in words)
        product = self.let(f"mul {wide} {a}, {b}")
        upper = self.let(f"lshr {wide} {product}, {bits}")
        for name, text in zip(op.results, (product, upper), strict=True):
            part = self.let(f"trunc {wide} {text} to {narrow}")
            self.values[name] = Word(part, kind, self.either(*words))

    def division(self, instruction: str, target: str, a: str, b: str) -> str:
        """Division whose undefined cases (by 0, and the lowest value by -1) do not trap."""
        if is_number(b) and int(b) > 0:
            return f"{instruction} {target} {a}, {b}"
        zero = self.let(f"icmp eq {target} {b}, 0")
        safe = self.let(f"select i1 {zero}, {target} 1, {target} {b}")
        if instruction in ("sdiv", "srem"):
            minus = self.let(f"icmp eq {target} {safe}, -1")
            plain = self.let(f"select i1 {minus}, {target} 1, {target} {safe}")
            value = self.let(f"{instruction} {target} {a}, {plain}")
            negated = self.let(f"sub {target} 0, {a}") if instruction == "sdiv" else "0"
            return f"select i1 {minus}, {target} {negated}, {target} {value}"
        return f"{instruction} {target} {a}, {safe}"

    def shift(self, instruction: str, target: str, kind: str, a: str, b: str) -> str:
        """A shift by the width or more gives what shifting step by step gives."""
        bits = int(target[1:])
        over = self.let(f"icmp uge {target} {b}, {bits}")
        if instruction == "ashr":
            most = self.let(f"select i1 {over}, {target} {bits - 1}, {target} {b}")
            return f"ashr {target} {a}, {most}"
        safe = self.let(f"select i1 {over}, {target} 0, {target} {b}")
        value = self.let(f"{instruction} {target} {a}, {safe}")
        return f"select i1 {over}, {target} 0, {target} {value}"

    def float_arithmetic(self, op: Op, name: str, words: list[Word], kind: str) -> None:
        inputs = [self.to_float(word) for word in words]
        if name in _FLOAT_BINARY:
            value = self.let(f"{_FLOAT_BINARY[name]} float {inputs[0]}, {inputs[1]}")
        elif name in _FLOAT_CALL:
            arguments = ", ".join(f"float {text}" for text in inputs)
            value = self.let(f"call float @{_FLOAT_CALL[name]}({arguments})")
        elif name == "rsqrt":
            root = self.let(f"call float @llvm.sqrt.f32(float {inputs[0]})")
            value = self.let(f"fdiv float 1.000000e+00, {root}")
        elif name == "negf":
            value = self.let(f"fneg float {inputs[0]}")
        else:
            raise self.unsupported(op.name)
        self.values[op.results[0]] = Word(self.of_float(value, kind), kind, self.either(*words))

    def conversion(self, op: Op, name: str) -> None:
        word = self.word(op.operands[0])
        target = op.types[1]
        if not isinstance(target, Scalar):
            raise self.unsupported(op.name)
        source, kind = word.kind, target.name
        if name in ("extf", "truncf"):
            value = self.of_float(self.to_float(word), kind)
        elif name in ("sitofp", "uitofp"):
            number = self.let(f"{name} {LLVM[source]} {word.text} to float")
            value = self.of_float(number, kind)
        elif name in ("fptosi", "fptoui"):
            # Out of range, the hardware saturates; so do these.
            number, to = self.to_float(word), LLVM[kind]
            value = self.let(f"call {to} @llvm.{name}.sat.{to}.f32(float {number})")
        elif name == "bitcast":
            value = self.from_bits(self.to_bits(word), kind)
        else:
            value = self.integer_cast(name, word, kind)
        self.values[op.results[0]] = Word(value, kind, word.undefined)

    def integer_cast(self, name: str, word: Word, kind: str) -> str:
        source, target = LLVM[word.kind], LLVM[kind]
        before, after = int(source[1:]), int(target[1:])
        if before == after:
            return word.text
        if after < before:
            return self.let(f"trunc {source} {word.text} to {target}")
        extend = "zext" if name in ("extui", "index_castui") else "sext"
        return self.let(f"{extend} {source} {word.text} to {target}")

    def compare(self, op: Op) -> None:
        words = [self.word(operand) for operand in op.operands]
        predicate = str(op.attributes["predicate"])
        a, b = words
        if a.kind in FLOATS:
            x, y = self.to_float(a), self.to_float(b)
            self.define(op, f"fcmp {predicate} float {x}, {y}", "i1", a, b)
        else:
            self.define(op, f"icmp {predicate} {LLVM[a.kind]} {a.text}, {b.text}", "i1", a, b)

    def select(self, op: Op) -> None:
        condition = self.word(op.operands[0])
        first, second = (self.values[name] for name in op.operands[1:])
        if isinstance(first, View) and isinstance(second, View):
            self.use(condition, Use.ADDRESS)
            kind = op.types[-1]
            assert isinstance(kind, MemRef)

            def choose(a: str, b: str) -> str:
                if a == b:
                    return a
                return self.let(f"select i1 {condition.text}, i64 {a}, i64 {b}")

            self.values[op.results[0]] = View(
                kind,
                choose(first.base, second.base),
                choose(first.offset, second.offset),
                tuple(map(choose, first.sizes, second.sizes)),
                tuple(map(choose, first.strides, second.strides)),
            )
            return
        if not (isinstance(first, Word) and isinstance(second, Word)):
            raise self.unsupported("a select between a view and a number")
        target = LLVM[first.kind]
        text = self.let(
            f"select i1 {condition.text}, {target} {first.text}, {target} {second.text}"
        )
        undefined = None
        if first.undefined or second.undefined:
            a, b = first.undefined or "false", second.undefined or "false"
            undefined = self.let(f"select i1 {condition.text}, i1 {a}, i1 {b}")
        if condition.undefined:
            undefined = self.either(condition, Word("", "i1", undefined))
        self.values[op.results[0]] = Word(text, first.kind, undefined)


def _literal(text: str, kind: str) -> str:
    """A constant of the text as LLVM spells it."""
    if kind == "i1":
        return text if text in ("true", "false") else ("true" if int(text) else "false")
    if kind not in FLOATS:
        return str(int(text, 0))
    if text.startswith("0x"):
        bits = int(text, 16)
        if kind != "f32":
            return str(bits)
        value = struct.unpack("<f", struct.pack("<I", bits))[0]
        if value != value:
            # LLVM spells a float as the double with the same value; NaN keeps its payload.
            wide = (bits >> 31) << 63 | 0x7FF << 52 | (bits & 0x7FFFFF) << 29
            return f"0x{wide:016X}"
    else:
        value = float(text)
    if kind == "f32":
        single = struct.unpack("<f", struct.pack("<f", value))[0]
        return f"0x{struct.unpack('<Q', struct.pack('<d', single))[0]:016X}"
    if kind == "f16":
        return str(struct.unpack("<H", struct.pack("<e", value))[0])
    bits = struct.unpack("<I", struct.pack("<f", value))[0]
    return str((bits + 0x7FFF + (bits >> 16 & 1)) >> 16)
