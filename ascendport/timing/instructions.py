"""What a library call issues: instructions, barriers and scalar round trips.

Counts follow the public template library of the Ascend compiler (AscendNPU-IR, folder
bishengir/lib/Template); cycles are those of `constants.toml`. A repeat is 256 bytes; an
instruction does at most 255 of them. A call whose name no rule knows counts as one instruction
with one source, and says so.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from math import ceil, log2, prod

from ascendport.simulator.layout import BLOCK
from ascendport.simulator.trace import Buffer, Call

REPEAT = 256
"""Bytes of a repeat."""

_MOST = 255
"""Repeats of one instruction."""

_PACKED_ELEMENTS = 2048
"""Packed booleans of a repeat."""


@dataclass(frozen=True)
class Vector:
    """``count`` like instructions of ``repeats`` in all. ``cost``: an entry of `vector`."""

    cost: str
    repeats: float
    count: int = 1


@dataclass(frozen=True)
class Barrier:
    """``pipe_barrier(PIPE_V)`` inside a call."""


@dataclass(frozen=True)
class RoundTrip:
    """V is emptied, S works on UB elements, V goes on. ``work``: operation → times."""

    work: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Transfer:
    """A DMA of ``bursts`` pieces of ``burst_bytes``."""

    bursts: int
    burst_bytes: int

    @property
    def bytes(self) -> int:
        """Bytes moved."""
        return self.bursts * self.burst_bytes


Step = Vector | Barrier | RoundTrip | Transfer


@dataclass(frozen=True)
class Expansion:
    """A call's steps in order. ``known``: a rule fits its name."""

    steps: tuple[Step, ...]
    known: bool = True

    @cached_property
    def instructions(self) -> int:
        """Instructions that S issues."""
        return sum(
            step.count if isinstance(step, Vector) else isinstance(step, Transfer)
            for step in self.steps
        )

    @cached_property
    def scalar_elements(self) -> int:
        """UB or GM elements that S reads or writes one by one."""
        return sum(
            times
            for step in self.steps
            if isinstance(step, RoundTrip)
            for name, times in step.work
            if name.startswith(("load", "store"))
        )


_TYPE = r"(?:u?int(?:8|16|32|64)_t|half|bfloat16_t|float|bool)"
_ELEMENTWISE = re.compile(
    rf"(vadd|vsub|vmul|vdiv|vmax|vmin|vand|vor|vxor|vnot|vabs|vrelu|vexp|vln|vsqrt|vrsqrt|vrec"
    rf"|vmod|vpow|vadds|vmuls|vmaxs|vmins|vshls|vshrs|vshl|vshr)(?:_(vs|sv))?_([123])d_({_TYPE})"
)
_COMPARE = re.compile(rf"vcmp(s?)_(eq|ne|lt|gt|ge|le)_([123])d_({_TYPE})")
_SELECT = re.compile(rf"vsel_(vv|vs|sv|ss)_([123])d_(?:(bool|int8_t)_)?({_TYPE})")
_CAST = re.compile(rf"vcast_({_TYPE})_to_({_TYPE})_([12])d_with_(mode|temp|overflow)(?:_\w+)?")
_FILL = re.compile(rf"broadcast_scalar_({_TYPE})_to_([123])d")
_BROADCAST = re.compile(rf"broadcast_(?:(1d)|(first|middle|last)_axis_\w+?_[23]d)_({_TYPE})")
_ARANGE = re.compile(rf"arange_([123])d_({_TYPE})")
_COPY = re.compile(rf"copy_ubuf_to_ubuf_([123])d_({_TYPE})")
_TRANSPOSE = re.compile(rf"transpose_([23])d_(with|without)_last_axis_({_TYPE})")
_REDUCE = re.compile(
    rf"(?:enablevcg?_)?reduce_(sum|max|min|prod|xori|ori|andi)(_with_index\w*?)?"
    rf"_(r|ar|ra|aar|ara|ra0a1)_({_TYPE})"
)
_CUMULATIVE = re.compile(rf"cum(?:sum|prod)_\w+?_({_TYPE})")
_GATHER = re.compile(rf"gather_1d_({_TYPE})")
_PICK = re.compile(rf"(?:deinterleave_\w+?|gather_mask_1d|interleave_1d|flip_1d)_({_TYPE})")
_SORT = re.compile(rf"sort_1d\w*?_({_TYPE})")
_HISTOGRAM = re.compile(rf"histogram_1d_({_TYPE})")
_MOVE = re.compile(rf"(?:load_gm_to_ubuf|store_ubuf_to_gm)_([123])d_({_TYPE})")
_LOCK = ("sync_block_lock", "sync_block_unlock", "free_lock_var")

Steps = Iterator[Step]
Rule = Callable[[Call, "re.Match[str]"], Steps]


def expand(call: Call) -> Expansion:
    """What ``call`` issues."""
    if call.callee in _LOCK:
        return Expansion(())
    for pattern, rule in _RULES:
        if match := pattern.fullmatch(call.callee):
            return Expansion(tuple(rule(call, match)))
    return Expansion(tuple(_instructions("one_source", call.repeats)), known=False)


# --- operands ----------------------------------------------------------------------------------


def _of_role(call: Call, *roles: str) -> list[Buffer]:
    return [buffer for buffer in call.buffers if buffer.role in roles]


def _result(call: Call) -> Buffer:
    found = _of_role(call, "write", "update") or list(call.buffers)
    return found[-1]


def _sources(call: Call) -> list[Buffer]:
    return _of_role(call, "read", "update") or [_result(call)]


def _in_ub(call: Call) -> list[Buffer]:
    return [buffer for buffer in call.buffers if buffer.space == "ub" and buffer.role != "scratch"]


def _widest(call: Call) -> int:
    """Bytes of the widest element among the operands that are no booleans."""
    return max((buffer.bits for buffer in _in_ub(call)), default=8) // 8 or 1


def _crooked(call: Call) -> bool:
    """Operands that vector instructions cannot take: the library works element by element."""
    for buffer in _in_ub(call):
        if buffer.elements <= 1:
            continue
        if buffer.bits >= 8 and buffer.address % BLOCK:
            return True
        if buffer.strides and buffer.strides[-1] != 1 and buffer.sizes[-1] > 1:
            return True
    return False


def _element_by_element(call: Call) -> Steps:
    count = _result(call).elements
    sources = len(_sources(call))
    yield RoundTrip(
        (("load.ub", sources * count), ("arith", count), ("store.ub", count), ("scf.for", count))
    )


# --- shapes ------------------------------------------------------------------------------------


def _instructions(cost: str, repeats: float) -> Steps:
    yield Vector(cost, max(1.0, repeats), max(1, ceil(repeats / _MOST)))


def _flat(cost: str, elements: int, size: int) -> Steps:
    """One instruction in counter mode."""
    yield Vector(cost, max(1, -(-elements * size // REPEAT)))


def _rows(cost: str, rows: int, columns: int, size: int) -> Steps:
    """A block (rows, columns) whose rows are apart: the longer axis is repeated over."""
    lanes = REPEAT // size
    whole, tail = divmod(columns, lanes)
    if whole:
        loops, repeats = (whole, rows) if rows >= whole else (rows, whole)
        yield Vector(cost, loops * repeats, loops * ceil(repeats / _MOST))
    if tail:
        yield Vector(cost, rows, ceil(rows / _MOST))


def _over(cost: str, buffer: Buffer, size: int) -> Steps:
    """``cost`` over all of ``buffer``, by its number of axes."""
    sizes = [extent for extent in buffer.sizes if extent]
    if len(buffer.sizes) <= 1:
        yield from _flat(cost, buffer.elements, size)
    elif len(sizes) == len(buffer.sizes):
        outer = prod(sizes[:-2])
        for step in _rows(cost, sizes[-2], sizes[-1], size):
            assert isinstance(step, Vector)
            yield Vector(cost, step.repeats * outer, step.count * outer)


def _fill_scalar(size: int) -> Steps:
    yield Vector("fill", 1)
    yield Barrier()


# --- rules -------------------------------------------------------------------------------------

_TWO_SOURCES = {
    "vadd": "add",
    "vsub": "add",
    "vmul": "mul",
    "vmax": "max",
    "vmin": "max",
    "vand": "logic",
    "vor": "logic",
    "vdiv": "div",
}
_HALF = ("half", "bfloat16_t")


def _elementwise(call: Call, match: re.Match[str]) -> Steps:
    name, scalar, _, element = match.groups()
    result = _result(call)
    if element == "bool":
        cost = _TWO_SOURCES.get(name, "one_source")
        yield Vector(cost, max(1, -(-result.elements // _PACKED_ELEMENTS)))
        return
    if _crooked(call):
        yield from _element_by_element(call)
        return
    size = result.bits // 8
    half = "_f16" if element in _HALF else ""
    if name == "vxor":
        for cost in ("logic", "one_source", "logic"):
            yield from _over(cost, result, size)
            yield Barrier()
        yield from _over("logic", result, size)
        return
    if scalar and name in ("vsub", "vdiv"):
        yield from _fill_scalar(size)
    elif any(source.elements == 1 < result.elements for source in _sources(call)):
        yield RoundTrip((("load.ub", 1),))
        yield from _fill_scalar(size)
    elif result.sizes[-1] != 1 and any(source.sizes[-1] == 1 for source in _sources(call)):
        # A source of one column: its elements become blocks, eight rows an instruction.
        rows = prod(result.sizes[:-1])
        yield Vector("fill", ceil(rows / 8), ceil(rows / 8 / _MOST))
        yield Barrier()
    yield from _over(_cost(name, bool(scalar), half), result, size)


def _cost(name: str, scalar: bool, half: str) -> str:
    if name == "vdiv":
        return "div" + half
    if name in _TWO_SOURCES:
        return "one_source" if scalar and name != "vsub" else _TWO_SOURCES[name]
    if name in ("vexp", "vsqrt", "vrsqrt", "vrec", "vpow"):
        return "exp" + half
    if name == "vln":
        return "ln" + half
    return "div" if name == "vmod" else "one_source"


def _compare(call: Call, match: re.Match[str]) -> Steps:
    scalar, kind, _, element = match.groups()
    if _crooked(call):
        yield from _element_by_element(call)
        return
    source = _sources(call)[0]
    size = max(1, source.bits // 8)
    if scalar:
        cost = "compare_scalar"
    else:
        cost = "compare_gt" if kind in ("gt", "lt") else "compare"
    yield from _instructions(cost, -(-source.elements * size // REPEAT))
    if kind == "ne" and element == "int32_t":
        yield Barrier()
        yield Vector("one_source", max(1, -(-source.elements // _PACKED_ELEMENTS)))


def _select(call: Call, match: re.Match[str]) -> Steps:
    kind, _, condition, element = match.groups()
    if _crooked(call) or (element == "int64_t" and kind != "vv"):
        yield from _element_by_element(call)
        return
    result = _result(call)
    size = max(1, result.bits // 8)
    scalars = kind.count("s")
    if condition == "int8_t":
        yield from _flat("cast", result.elements, 2)
        yield Barrier()
        yield from _flat("compare_scalar", result.elements, 2)
        yield Barrier()
    for _ in range(scalars):
        yield from _flat("fill", 1 if scalars == 1 else result.elements, size)
    yield RoundTrip((("store.ub", 1),))
    yield Barrier()
    yield from _over("select_scalar" if scalars else "select", result, size)


def _cast(call: Call, match: re.Match[str]) -> Steps:
    source, target, _, mode = match.groups()
    if _crooked(call):
        yield from _element_by_element(call)
        return
    result = _result(call)
    size = _widest(call)
    if source == "bool":
        yield from _flat("fill", result.elements, size)
        yield RoundTrip((("store.ub", 1),))
        yield Barrier()
        yield from _over("select_scalar", result, size)
    elif mode == "overflow" and target in ("int8_t", "uint8_t"):
        # Bytes are split off by transposes: there and back, a copy between.
        repeats = max(1, -(-result.elements * size // REPEAT))
        for cost in ("transpose", "copy", "transpose"):
            yield from _instructions(cost, repeats)
            yield Barrier()
    else:
        cost = "cast_to_int" if "int" in target and "int" not in source else "cast"
        yield from _over(cost, result, size)


def _fill(call: Call, match: re.Match[str]) -> Steps:
    element = match[1]
    result = _result(call)
    if element != "bool" and _crooked(call):
        yield RoundTrip((("store.ub", result.elements), ("scf.for", result.elements)))
        return
    if element == "bool":
        yield Vector("fill", max(1, -(-result.elements // _PACKED_ELEMENTS)))
        return
    size = result.bits // 8
    if size == 8:
        # The two halves of each element are filled on their own.
        repeats = max(1, -(-result.elements * 8 // REPEAT))
        yield Vector("fill", 2 * repeats, 2 * ceil(repeats / _MOST))
    elif len(result.sizes) <= 1 or size == 1:
        yield from _flat("fill", result.elements, size)
    else:
        rows, columns = prod(result.sizes[:-1]), result.sizes[-1]
        if columns * size <= REPEAT:
            yield Vector("fill", rows, ceil(rows / _MOST))
        else:
            yield Vector("fill", rows * -(-columns * size // REPEAT), rows)


def _broadcast(call: Call, match: re.Match[str]) -> Steps:
    result = _result(call)
    size = max(1, result.bits // 8)
    axis = match[2] or "1d"
    repeats = max(1, -(-result.elements * size // REPEAT))
    if axis == "last":
        rows = prod(result.sizes[:-1])
        yield Vector("fill", ceil(rows / 8), ceil(rows / 8 / _MOST))
        yield Barrier()
        if result.sizes[-1] * size != BLOCK or rows % 8:
            yield Barrier()
            yield from _instructions("copy", max(rows, repeats))
    elif axis == "1d":
        yield RoundTrip((("load.ub", 1),))
        yield from _instructions("fill", repeats)
    else:
        yield from _instructions("copy", repeats)


def _arange(call: Call, match: re.Match[str]) -> Steps:
    axes = int(match[1])
    result = _result(call)
    size = max(1, result.bits // 8)
    block = BLOCK // size
    count = result.elements
    if axes > 1 or size == 8:
        yield RoundTrip((("store.ub", count), ("scf.for", count), ("arith", count)))
        return
    yield RoundTrip((("store.ub", min(block, count)), ("arith", min(block, count))))
    done = block
    while done < count:
        step = min(done, count - done)
        yield from _flat("one_source", step, size)
        yield Barrier()
        done += step


def _copy(call: Call, match: re.Match[str]) -> Steps:
    if _crooked(call):
        yield from _element_by_element(call)
        return
    result = _result(call)
    yield from _instructions("copy", -(-result.bytes // REPEAT))


def _transpose(call: Call, match: re.Match[str]) -> Steps:
    result = _result(call)
    cost = "transpose" if match[2] == "with" else "copy"
    yield from _instructions(cost, -(-result.bytes // REPEAT))


def _halvings(cost: str, rows: int, columns: int, down_to: int, size: int) -> Steps:
    """Folds each of ``rows`` in half until ``down_to`` columns are left."""
    power = 1 << int(log2(columns))
    tail = columns - power
    width = power
    while width > down_to:
        width //= 2
        yield Barrier()
        yield from _rows(cost, rows, width, size) if rows > 1 else _flat(cost, width, size)
        if tail:
            yield Barrier()
            part = min(tail, width)
            yield from _rows(cost, rows, part, size) if rows > 1 else _flat(cost, part, size)
            tail = 0


def _reduce(call: Call, match: re.Match[str]) -> Steps:
    kind, index, axes, element = match.groups()
    source, result = _sources(call)[0], _result(call)
    size = max(1, source.bits // 8)
    if _crooked(call) and not (source.address % BLOCK == 0 and axes in ("ra", "ra0a1", "ara")):
        yield from _element_by_element(call)
        return
    cost = {"sum": "add", "max": "max", "min": "max", "prod": "mul"}.get(kind, "logic")
    lanes = REPEAT // size
    if axes in ("ra", "ra0a1", "ara"):
        yield from _fold_rows(cost, source, result, size)
    else:
        rows = result.elements if axes != "r" else 1
        columns = source.elements // max(1, rows)
        whole = element in ("float", "half") and kind in ("sum", "max", "min")
        if whole:
            yield from _reduce_whole(cost, kind, axes, rows, columns, lanes, size)
        else:
            yield from _reduce_by_parts(cost, rows, columns, lanes, size)
    if index:
        yield Barrier()
        yield from _flat("compare", source.elements, size)
        yield Barrier()
        yield Vector("max_whole", 1)


def _fold_rows(cost: str, source: Buffer, result: Buffer, size: int) -> Steps:
    """Adds rows to rows: as many elements as go away, a barrier a halving."""
    left = source.elements
    while left > result.elements:
        half = max(result.elements, left // 2)
        yield Barrier()
        yield from _flat(cost, left - half, size)
        left = half


def _reduce_whole(
    cost: str, kind: str, axes: str, rows: int, columns: int, lanes: int, size: int
) -> Steps:
    """Down to one repeat by elementwise instructions, then one that works across it."""
    across = "sum_whole" if kind == "sum" else "max_whole"
    if columns > lanes:
        if axes == "r" and kind != "sum":
            yield Vector("fill", 1)
            for first in range(0, columns // lanes, _MOST):
                yield Barrier()
                yield Vector(cost, min(_MOST, columns // lanes - first))
            if columns % lanes:
                yield Barrier()
                yield Vector(cost, 1)
        else:
            yield from _halvings(cost, rows, columns, lanes, size)
    yield Barrier()
    yield Vector(across, rows, ceil(rows / _MOST))
    if axes == "r":
        yield RoundTrip((("store.ub", 1),))


def _reduce_by_parts(cost: str, rows: int, columns: int, lanes: int, size: int) -> Steps:
    """No instruction works across a repeat: fold to a block, then within it."""
    block = BLOCK // size
    yield Vector("fill", max(1, rows))
    yield Barrier()
    if columns > lanes:
        yield Vector(cost, rows * (columns // lanes), ceil(rows * (columns // lanes) / _MOST))
        if columns % lanes:
            yield Barrier()
            yield Vector(cost, rows)
    yield from _halvings(cost, max(2, rows), min(columns, lanes) or 1, block, size)
    for _ in range(int(log2(block))):
        yield Barrier()
        yield Vector(cost, max(1, rows))
    yield RoundTrip((("load.ub", block * rows), ("store.ub", block * rows)))


def _cumulative(call: Call, match: re.Match[str]) -> Steps:
    source = _sources(call)[0]
    size = max(1, source.bits // 8)
    rows = source.sizes[0] if source.sizes else 1
    for _ in range(max(1, rows - 1)):
        yield Barrier()
        yield from _flat("add", source.elements // max(1, rows), size)


def _gather(call: Call, match: re.Match[str]) -> Steps:
    result = _result(call)
    if _crooked(call):
        yield from _element_by_element(call)
        return
    size = max(1, result.bits // 8)
    yield from _flat("one_source", result.elements, 4)
    yield Barrier()
    yield from _flat("one_source", result.elements, 4)
    yield Barrier()
    yield from _flat("gather_f16" if size == 2 else "gather_f32", result.elements, size)


def _pick(call: Call, match: re.Match[str]) -> Steps:
    yield from _instructions("pick", call.repeats)


def _sort(call: Call, match: re.Match[str]) -> Steps:
    repeats = call.repeats
    for _ in range(max(1, ceil(log2(max(2, repeats))))):
        yield Barrier()
        yield from _instructions("sort", repeats)


def _histogram(call: Call, match: re.Match[str]) -> Steps:
    count = _sources(call)[0].elements
    yield RoundTrip(
        (("load.ub", 2 * count), ("arith", 2 * count), ("store.ub", count), ("scf.for", count))
    )


def _move(call: Call, match: re.Match[str]) -> Steps:
    load = call.callee.startswith("load")
    outside = _of_role(call, "gm-read" if load else "gm-write")[0]
    inside = _in_ub(call)[0]
    count = outside.elements
    if count == 0:
        return
    size = max(1, outside.bits // 8)
    if count > 1 and not _by_dma(outside, inside, size):
        here, there = ("load.gm", "store.ub") if load else ("load.ub", "store.gm")
        yield RoundTrip(((here, count), (there, count), ("scf.for", count)))
        return
    if len(outside.sizes) > 1 and outside.sizes[-1] == 1 and count > 1:
        yield Transfer(count, size)
    else:
        yield Transfer(
            prod(outside.sizes[:-1]), outside.sizes[-1] * size if outside.sizes else size
        )


def _by_dma(outside: Buffer, inside: Buffer, size: int) -> bool:
    """Whether DMA can do it: UB rows start at blocks, and both last axes are dense."""
    if inside.address % BLOCK and inside.elements > 1:
        return False
    dense = [
        buffer.sizes[-1] == 1 or buffer.strides[-1] == 1 or buffer.strides[-1] * size % BLOCK == 0
        for buffer in (inside,)
    ]
    rows = all(
        extent == 1 or stride * size % BLOCK == 0 or stride == 1
        for extent, stride in zip(inside.sizes[:-1], inside.strides[:-1], strict=True)
    )
    apart = outside.sizes[-1] > 1 and outside.strides[-1] != 1 and inside.strides[-1] == 1
    return all(dense) and rows and not apart


_RULES: tuple[tuple[re.Pattern[str], Rule], ...] = (
    (_MOVE, _move),
    (_ELEMENTWISE, _elementwise),
    (_COMPARE, _compare),
    (_SELECT, _select),
    (_CAST, _cast),
    (_FILL, _fill),
    (_BROADCAST, _broadcast),
    (_ARANGE, _arange),
    (_COPY, _copy),
    (_TRANSPOSE, _transpose),
    (_REDUCE, _reduce),
    (_CUMULATIVE, _cumulative),
    (_GATHER, _gather),
    (_PICK, _pick),
    (_SORT, _sort),
    (_HISTOGRAM, _histogram),
)
