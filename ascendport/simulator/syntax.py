"""Pretty-printed MLIR, one operation at a time: text to operands, types and attributes.

Each reader takes what stands after the operation's name, location removed. The language is the
one that bishengir-compile of ascendnpu-ir 1.2.0 prints for A2 and A3.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache

from ascendport.simulator.affine import split
from ascendport.simulator.ir import BITS, Index, Jump, MemRef, Scalar, Type


class SyntaxUnknownError(ValueError):
    """Text of a form that no reader knows."""


@dataclass
class Parts:
    """What an operation's text says."""

    operands: list[str] = field(default_factory=list)
    types: list[Type] = field(default_factory=list)
    attributes: dict[str, object] = field(default_factory=dict)


_VALUE = re.compile(r"%[\w-]+(?:#\d+)?")
_SPACE = re.compile(r"#hivm\.address_space<(\w+)>")
_ATTRIBUTES = re.compile(r" *\{[^{}]*\}(?= :|$)")


@lru_cache(maxsize=4096)
def type_of(text: str) -> Type:
    """The type that ``text`` spells.

    Raises:
        SyntaxUnknownError: none that programs for vector cores use.
    """
    text = text.strip()
    if text in BITS:
        return Scalar(text)
    if text == "!llvm.ptr":
        return Scalar("i64")
    if not (text.startswith("memref<") and text.endswith(">")):
        raise SyntaxUnknownError(f"type {text}")
    parts = split(text[len("memref<") : -1])
    *sizes, element = parts[0].split("x")
    if element not in BITS or not all(size == "?" or size.isdigit() for size in sizes):
        raise SyntaxUnknownError(f"type {text}")
    shape = tuple(None if size == "?" else int(size) for size in sizes)
    strides: tuple[int | None, ...] | None = None
    offset: int | None = 0
    space = ""
    for part in parts[1:]:
        if match := _SPACE.fullmatch(part):
            space = match[1]
        elif part.startswith("strided<") and part.endswith(">"):
            strides, offset = _layout(part[len("strided<") : -1])
        else:
            raise SyntaxUnknownError(f"type {text}")
    return MemRef(shape, element, _dense(shape) if strides is None else strides, offset, space)


def _layout(text: str) -> tuple[tuple[int | None, ...], int | None]:
    inner, _, rest = text.partition("]")
    strides = tuple(_maybe(part) for part in split(inner.lstrip("[")))
    offset = rest.partition("offset:")[2].strip()
    return strides, _maybe(offset) if offset else 0


def _maybe(text: str) -> int | None:
    return None if text == "?" else int(text)


def _dense(shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
    strides: list[int | None] = []
    step: int | None = 1
    for size in reversed(shape):
        strides.insert(0, step)
        step = None if step is None or size is None else step * size
    return tuple(strides)


def types_of(text: str) -> list[Type]:
    """Types between commas; a pair of brackets around them is dropped."""
    text = text.strip()
    if text.startswith("(") and text.endswith(")"):
        text = text[1:-1]
    return [type_of(part) for part in split(text)]


def values_of(text: str) -> list[str]:
    """The names of values in ``text``, in order."""
    return _VALUE.findall(text)


def index_list(text: str) -> list[Index]:
    """``[%a, 3]`` as names and constants."""
    inner = text.strip().removeprefix("[").removesuffix("]")
    return [part if part.startswith("%") else int(part) for part in split(inner)]


# --- readers ------------------------------------------------------------------------------

Reader = Callable[[str], Parts]


def _colon(text: str) -> tuple[str, str]:
    """What stands before and after the colon that introduces the types."""
    before, _, after = text.rpartition(" : ")
    return (before, after) if before or after else (text, "")


def _plain(text: str) -> Parts:
    """``%a, %b : type``; flags such as ``overflow<nsw>`` change no value."""
    before, after = _colon(_ATTRIBUTES.sub("", text))
    return Parts(values_of(before), types_of(after) if after else [])


def _cast(text: str) -> Parts:
    """``%a : type to type``."""
    before, after = _colon(_ATTRIBUTES.sub("", text))
    source, _, target = after.partition(" to ")
    return Parts(values_of(before), [type_of(source), type_of(target)])


def _select(text: str) -> Parts:
    """``%c, %a, %b : type``; the condition's type is not written."""
    return _plain(text)


def _compare(text: str) -> Parts:
    """``slt, %a, %b : type``."""
    predicate, _, rest = text.strip().partition(",")
    parts = _plain(rest)
    parts.attributes["predicate"] = predicate
    return parts


def _constant(text: str) -> Parts:
    """``0xFF80 : bf16``, ``true``."""
    text = text.strip()
    if text in ("true", "false"):
        return Parts(types=[Scalar("i1")], attributes={"value": text})
    value, _, kind = text.rpartition(" : ")
    return Parts(types=[type_of(kind)], attributes={"value": value.strip()})


def _load(text: str) -> Parts:
    """``%m[%i, %j] {…} : memref``: operands are the memref and the indices."""
    return _plain(text)


def _pointer_cast(text: str) -> Parts:
    """``(%address) [%size, …] : memref``; several addresses have no reader."""
    before, after = _colon(_ATTRIBUTES.sub("", text))
    match = re.fullmatch(r"\((%[\w#-]+)\)(?: (\[.*\]))?", before.strip())
    if not match:
        raise SyntaxUnknownError("hivm.hir.pointer_cast with several operands")
    sizes = index_list(match[2]) if match[2] else []
    return Parts([match[1]], [type_of(after)], {"sizes": sizes})


def _reinterpret(text: str) -> Parts:
    """``%m to offset: [o], sizes: [s], strides: [t] : memref to memref``."""
    match = re.match(
        r"\s*(%[\w#-]+) to offset: (\[.*?\]), sizes: (\[.*?\]), strides: (\[.*?\])(?: \{.*?\})? :"
        r" (.*)$",
        text,
    )
    if not match:
        raise SyntaxUnknownError("memref.reinterpret_cast of this form")
    source, _, target = match[5].partition(" to ")
    return Parts(
        [match[1]],
        [type_of(source), type_of(target)],
        {
            "offset": index_list(match[2])[0],
            "sizes": index_list(match[3]),
            "strides": index_list(match[4]),
        },
    )


def _subview(text: str) -> Parts:
    """``%m[offsets] [sizes] [strides] : memref to memref``."""
    match = re.match(
        r"\s*(%[\w#-]+)(\[.*?\]) (\[.*?\]) (\[.*?\])(?: \{.*?\})? : (.*)$",
        text,
    )
    if not match:
        raise SyntaxUnknownError("memref.subview of this form")
    source, _, target = match[5].partition(" to ")
    return Parts(
        [match[1]],
        [type_of(source), type_of(target)],
        {
            "offsets": index_list(match[2]),
            "sizes": index_list(match[3]),
            "strides": index_list(match[4]),
        },
    )


def _groups(text: str) -> list[list[int]]:
    return [[int(part) for part in split(group)] for group in re.findall(r"\[([\d, ]*)\]", text)]


def _collapse(text: str) -> Parts:
    """``%m [[0, 1], [2]] : memref into memref``."""
    match = re.match(r"\s*(%[\w#-]+) (\[.*\])(?: \{.*?\})? : (.*)$", text)
    if not match:
        raise SyntaxUnknownError("memref.collapse_shape of this form")
    source, _, target = match[3].partition(" into ")
    return Parts([match[1]], [type_of(source), type_of(target)], {"groups": _groups(match[2])})


def _expand(text: str) -> Parts:
    """``%m [[0, 1]] output_shape [1, 32] : memref into memref``."""
    match = re.match(r"\s*(%[\w#-]+) (\[.*\]) output_shape (\[.*?\])(?: \{.*?\})? : (.*)$", text)
    if not match:
        raise SyntaxUnknownError("memref.expand_shape of this form")
    source, _, target = match[4].partition(" into ")
    return Parts(
        [match[1]],
        [type_of(source), type_of(target)],
        {"groups": _groups(match[2]), "shape": index_list(match[3])},
    )


def _view(text: str) -> Parts:
    """``%m[%byte_shift][sizes] : memref to memref``."""
    match = re.match(r"\s*(%[\w#-]+)\[(%[\w#-]+)\](\[.*?\]) : (.*)$", text)
    if not match:
        raise SyntaxUnknownError("memref.view of this form")
    source, _, target = match[4].partition(" to ")
    return Parts(
        [match[1], match[2]],
        [type_of(source), type_of(target)],
        {"sizes": index_list(match[3])},
    )


def _metadata(text: str) -> Parts:
    """``%m : memref -> memref, index, …``."""
    before, after = _colon(text)
    source, _, rest = after.partition(" -> ")
    return Parts(values_of(before), [type_of(source), *types_of(rest)])


def _bitcast(text: str) -> Parts:
    """``%m : memref -> memref``."""
    before, after = _colon(text)
    source, _, target = after.partition(" -> ")
    return Parts(values_of(before), [type_of(source), type_of(target)])


def _affine(text: str) -> Parts:
    """``#map(%d)[%s]``: dimensions, then symbols."""
    match = re.match(r"\s*(#map\d*|affine_map<.*?>)\((.*?)\)(?:\[(.*?)\])?$", text.strip())
    if not match:
        raise SyntaxUnknownError("affine operation of this form")
    operands = values_of(match[2]) + values_of(match[3] or "")
    return Parts(operands, [], {"map": match[1]})


def _call(text: str) -> Parts:
    """``@name(%a, %b) : (types) -> types``."""
    match = re.match(r"\s*@([\w$.]+)\((.*?)\)(?: \{.*?\})? : \((.*)\) -> (.*)$", text)
    if not match:
        raise SyntaxUnknownError("call of this form")
    return Parts(
        values_of(match[2]),
        types_of(match[3]),
        {"callee": match[1], "returns": match[4].strip()},
    )


_FLAG = re.compile(r"\[<PIPE_(\w+)>, <PIPE_(\w+)>, (?:<EVENT_ID(\d+)>|(%[\w#-]+))\]")


def _flag(text: str) -> Parts:
    """``[<PIPE_A>, <PIPE_B>, <EVENT_ID0>]``, or a value for the event."""
    match = _FLAG.search(text)
    if not match:
        raise SyntaxUnknownError("flag of this form")
    event: Index = int(match[3]) if match[3] else match[4]
    operands = [] if match[3] else [match[4]]
    return Parts(operands, [], {"from": match[1], "to": match[2], "event": event})


def _barrier(text: str) -> Parts:
    match = re.search(r"\[<PIPE_(\w+)>\]", text)
    if not match:
        raise SyntaxUnknownError("barrier of this form")
    return Parts(attributes={"pipe": match[1]})


def _to_type(text: str) -> Parts:
    """``-> i64``."""
    return Parts(types=[type_of(text.partition("->")[2])])


def _jumps(text: str) -> list[Jump]:
    """``^bb1(%a, %b : i32, index), ^bb2``."""
    found = re.findall(r"\^(bb\d+)(?:\(([^:()]*) : [^()]*\))?", text)
    return [Jump(label, tuple(values_of(values))) for label, values in found]


def _branch(text: str) -> Parts:
    """``^bb1(%a : i32)``; behind a condition ``%c, ^bb1, ^bb2``."""
    condition, _, _ = text.partition("^")
    return Parts(values_of(condition), [], {"jumps": _jumps(text)})


def _llvm_constant(text: str) -> Parts:
    """``(4 : i64) : i64``."""
    match = re.match(r"\((\S+) : (\w+)\) : \w+$", text.strip())
    if not match:
        raise SyntaxUnknownError("llvm.mlir.constant of this form")
    return Parts(types=[type_of(match[2])], attributes={"value": match[1]})


def _address_of(text: str) -> Parts:
    """``@name : !llvm.ptr``."""
    return Parts(types=[Scalar("i64")], attributes={"name": text.strip().lstrip("@").split(" ")[0]})


def _element_pointer(text: str) -> Parts:
    """``%p[0, 0] : (!llvm.ptr) -> !llvm.ptr, !llvm.array<4 x i8>``: the start of a text."""
    match = re.match(r"\s*(%[\w#-]+)\[0, 0\] :", text)
    if not match:
        raise SyntaxUnknownError("llvm.getelementptr of this form")
    return Parts([match[1]])


def _nothing(text: str) -> Parts:
    return Parts()


def _yield(text: str) -> Parts:
    return _plain(text) if "%" in text else Parts()


def _condition(text: str) -> Parts:
    """``(%c) %a, %b : types``."""
    before, after = _colon(text) if " : " in text else (text, "")
    return Parts(values_of(before), types_of(after) if after else [])


BINARY = (
    *("addi", "subi", "muli", "divsi", "divui", "remsi", "remui", "andi", "ori", "xori"),
    *("shli", "shrsi", "shrui", "minsi", "maxsi", "minui", "maxui", "ceildivsi", "floordivsi"),
    *("ceildivui", "addf", "subf", "mulf", "divf", "remf", "maximumf", "minimumf", "maxnumf"),
    "minnumf",
)
CONVERSIONS = (
    *("index_cast", "index_castui", "extsi", "extui", "trunci", "extf", "truncf", "sitofp"),
    *("uitofp", "fptosi", "fptoui", "bitcast"),
)
UNARY = ("absf", "absi", "sqrt", "rsqrt", "exp", "exp2", "log", "log2", "floor", "ceil", "sin")
UNARY_MATH = (*UNARY, "cos", "tanh", "erf", "roundeven", "trunc", "round")

READERS: dict[str, Reader] = {
    **{f"arith.{name}": _plain for name in BINARY},
    **{f"arith.{name}": _cast for name in CONVERSIONS},
    **{f"math.{name}": _plain for name in UNARY_MATH},
    "arith.negf": _plain,
    "arith.mulsi_extended": _plain,
    "arith.mului_extended": _plain,
    "arith.constant": _constant,
    "arith.cmpi": _compare,
    "arith.cmpf": _compare,
    "arith.select": _select,
    "affine.apply": _affine,
    "affine.min": _affine,
    "affine.max": _affine,
    "memref.load": _load,
    "memref.store": _load,
    "memref.cast": _cast,
    "memref.memory_space_cast": _cast,
    "memref.reinterpret_cast": _reinterpret,
    "memref.subview": _subview,
    "memref.collapse_shape": _collapse,
    "memref.expand_shape": _expand,
    "memref.view": _view,
    "memref.extract_strided_metadata": _metadata,
    "call": _call,
    "func.call": _call,
    "return": _yield,
    "func.return": _yield,
    "scf.yield": _yield,
    "scf.condition": _condition,
    "builtin.unrealized_conversion_cast": _cast,
    "cf.br": _branch,
    "cf.cond_br": _branch,
    "llvm.mlir.constant": _llvm_constant,
    "llvm.mlir.addressof": _address_of,
    "llvm.getelementptr": _element_pointer,
    "hivm.hir.pointer_cast": _pointer_cast,
    "hivm.hir.bitcast": _bitcast,
    "hivm.hir.get_block_idx": _to_type,
    "hivm.hir.get_sub_block_idx": _to_type,
    "hivm.hir.get_block_num": _to_type,
    "hivm.hir.get_sub_block_num": _to_type,
    "hivm.hir.set_flag": _flag,
    "hivm.hir.wait_flag": _flag,
    "hivm.hir.pipe_barrier": _barrier,
    "hivm.hir.set_mask_norm": _nothing,
    "hivm.hir.set_ctrl": _nothing,
    "hivm.hir.set_ffts_base_addr": _nothing,
    "annotation.mark": _nothing,
}
