"""Facts read from a finished program, by one pass over its pretty-printed text.

The text is regular: one operation a line, regions in braces, every operand named. A pass takes
a few milliseconds where parsing with xDSL takes 0.2 s and more; the tests use xDSL, on the
generic form, as the oracle for what is read here.

On A2 and A3 loops are `scf.for`/`scf.while` and each vector instruction is a library call. On A5
loops of the entry function are branches between blocks (found by their back edges), and vector
code sits in functions of the module (`*_vf_*`): there ``vector_calls`` counts calls of those
functions, scalar work inside one is not looked at, and trip counts are known where the loop
counter starts, steps and ends at constants.
"""

from __future__ import annotations

import re
from collections import Counter
from math import prod

from ascendport.ascend.diagnostics import kernel_line
from ascendport.ascend.facts import ProgramFacts, Transfer
from ascendport.ascend.loops import Loop, Op, exact_of, scalar_loop, times_of
from ascendport.ascend.program_text import (
    CALL,
    LOCK_CALLS,
    VALUE,
    VECTOR_CORE,
    Buffer,
    buffer_of_type,
    entry_lines,
    functions_with_select,
    is_read,
    is_transfer,
    locations,
)

_ATTRIBUTE = re.compile(r'dl_entry<"(\w+)", (\d+) : i32>')
_LOCATION_USE = re.compile(r"loc\((#loc\d*|.*)\)$")
_ARGUMENT = re.compile(r"(%arg\d+): (memref<.*?>>|!?[\w.]+(?:<[^>]*>)?)( \{hacc\.arg_type)?")
_RESULTS = re.compile(r"^((?:%[\w#-]+(?::\d+)?(?:, )?)+) = ")
_NAME = re.compile(r'^"?([a-z_]\w*(?:\.\w+)*)')
_CONSTANT = re.compile(r"(?:arith\.constant |llvm\.mlir\.constant\()(-?\d+|true|false)\b")
_INDEX_CAST = re.compile(
    r"(%\w+) = (?:builtin\.unrealized_conversion_cast|arith\.index_cast) (%\w+) : \w+ to \w+"
)
_STEP = re.compile(r"(%\w+) = (?:arith\.addi|llvm\.add) (%\w+), (%\w+)")
_BELOW = re.compile(r'%\w+ = (?:arith\.cmpi slt,|llvm\.icmp "slt") (%\w+), (%\w+)')
_POINTER_CAST = re.compile(r"pointer_cast\(([^)]*)\)")
_BRACKETS = re.compile(r"\[([^\]]*)\]")
_FOR = re.compile(r"scf\.for (%\w+) = (%[\w#-]+) to (%[\w#-]+) step (%[\w#-]+)")
_CARRIED = re.compile(r"(%\w+) = (%[\w#-]+)")
_FLAG = re.compile(r"\[<PIPE_(\w+)>(?:, <PIPE_(\w+)>)?")
_BLOCK = re.compile(r"^\^(bb\d+)(?:\((.*)\))?:")
_BLOCK_ARGUMENT = re.compile(r"(%\w+):")
_TARGET = re.compile(r"\^(bb\d+)(?:\(([^)]*)\))?")


class _Reader:
    """One pass over the entry function; what it found is in its attributes."""

    def __init__(self, text: str) -> None:
        self.lines_of = locations(text)
        self.constants: dict[str, int] = {}
        self.buffers: dict[str, Buffer] = {}
        self.defined: dict[str, int] = {}
        self.loops: list[Loop] = []
        self.ops: list[Op] = []
        self.peak = 0
        self.calls: list[tuple[str, tuple[str, ...], Op]] = []
        self.reads: list[Transfer] = []
        self.writes: list[Transfer] = []
        self.rewrites: list[Transfer] = []
        self.loaded: list[tuple[Buffer, Buffer, Loop | None]] = []
        self.selected: list[tuple[str, frozenset[str]]] = []
        self.module_selects = functions_with_select(text)
        body = entry_lines(text)
        self.name = body[0].partition("@")[2].partition("(")[0]
        self.vector_core = VECTOR_CORE in body[0]
        self._signature(body[0])
        self._blocks(body[1:])
        self._body(body[1:])

    def _signature(self, line: str) -> None:
        visible = 0
        for match in _ARGUMENT.finditer(line.partition(" attributes ")[0]):
            hidden = match[3] is not None
            if match[2].startswith("memref"):
                number = None if hidden else visible
                buffer = buffer_of_type(match[2], match[1], number)
                if buffer:
                    self.buffers[match[1]] = buffer
            visible += not hidden

    # A5: loops as branches.

    def _blocks(self, body: list[str]) -> None:
        """Finds loops among blocks: a branch to a block that stands earlier closes a loop."""
        self.block_loops: list[tuple[int, int, Loop]] = []
        starts: dict[str, tuple[int, list[str]]] = {}
        branches: list[tuple[int, str, list[str]]] = []
        steps: dict[str, tuple[str, str]] = {}
        bounds: dict[str, str] = {}
        for number, raw in enumerate(body):
            line = raw.strip()
            if block := _BLOCK.match(line):
                starts[block[1]] = (number, _BLOCK_ARGUMENT.findall(block[2] or ""))
            elif line.startswith("cf."):
                for to, given in _TARGET.findall(line):
                    branches.append((number, to, VALUE.findall(given.partition(":")[0])))
            elif constant := _CONSTANT.search(line):
                self._constant(line.partition(" = ")[0], constant[1])
            elif cast := _INDEX_CAST.match(line):
                if cast[2] in self.constants:
                    self.constants[cast[1]] = self.constants[cast[2]]
            elif step_of := _STEP.match(line):
                steps[step_of[1]] = (step_of[2], step_of[3])
            elif below := _BELOW.match(line):
                bounds.setdefault(below[1], below[2])
        backs = [
            (starts[target][0], number, target, values)
            for number, target, values in branches
            if target in starts and starts[target][0] <= number
        ]
        # Outer loops first: they start earlier, or end later.
        for start, end, target, last_values in sorted(backs, key=lambda back: (back[0], -back[1])):
            arguments = starts[target][1]
            inits = next(
                (given for number, to, given in branches if to == target and number < start), []
            )
            trips = None
            for argument, init, last in zip(arguments, inits, last_values, strict=False):
                step = steps.get(last)
                if step and argument in bounds and step[0] == argument:
                    trips = self._trips(init, bounds[argument], step[1])
            around = [known for known in self.block_loops if known[0] <= start and end <= known[1]]
            parent = around[-1][2] if around else None
            loop = Loop(parent, set(arguments), trips)
            self.block_loops.append((start, end, loop))
            self.loops.append(loop)

    def _constant(self, name: str, value: str) -> None:
        self.constants[name] = int(value == "true") if value.isalpha() else int(value)

    def _trips(self, low: str, high: str, step: str) -> int | None:
        bounds = [self.constants.get(value) for value in (low, high, step)]
        if None in bounds or not bounds[2]:
            return None
        first, last, stride = (int(bound or 0) for bound in bounds)
        return max(0, -(-(last - first) // stride))

    def _body(self, body: list[str]) -> None:
        regions: list[Loop | None] = []
        for number, raw in enumerate(body):
            line = raw.strip()
            if line.startswith("}"):
                self._close(line, regions)
                continue
            if line.startswith("^") or not line:
                continue
            loop = next((region for region in reversed(regions) if region), None)
            if loop is None:
                inside = [found for found in self.block_loops if found[0] <= number <= found[1]]
                loop = inside[-1][2] if inside else None
            op = self._op(line, number, loop)
            if line.endswith("{"):
                regions.append(self._open(op, loop))

    def _close(self, line: str, regions: list[Loop | None]) -> None:
        # `} else {` and `} do {` end one region and open one of the same loop.
        if line.endswith("{"):
            return
        regions.pop()

    def _open(self, op: Op, parent: Loop | None) -> Loop | None:
        if op.name not in ("scf.for", "scf.while"):
            return None
        counters = set()
        trips = None
        if bounds := _FOR.search(op.text):
            counters.add(bounds[1])
            trips = self._trips(*bounds.group(2, 3, 4))
            carried = op.text[bounds.end() :]
        else:
            carried = op.text
        inits = _CARRIED.findall(carried.partition("->")[0])
        for position, (name, init) in enumerate(inits):
            counters.add(name)
            if init in self.buffers:
                self.buffers[name] = self.buffers[init]
                for result in op.results:
                    key = f"{result}#{position}" if len(inits) > 1 else result
                    self.buffers[key] = self.buffers[init]
        loop = Loop(parent, counters, trips)
        self.loops.append(loop)
        return loop

    def _op(self, line: str, number: int, loop: Loop | None) -> Op:
        where = _LOCATION_USE.search(line)
        source = None
        if where:
            alias = where[1]
            source = self.lines_of.get(alias) if alias.startswith("#") else kernel_line(alias)
            line = line[: where.start()].rstrip()
        results: tuple[str, ...] = ()
        if found := _RESULTS.match(line):
            results = tuple(part.partition(":")[0] for part in found[1].split(", "))
            line = line[found.end() :]
        name = _NAME.match(line)
        op = Op(name[1] if name else "", line, results, source, loop)
        for result in results:
            self.defined[result] = number
        self.ops.append(op)
        if loop:
            loop.own.append(op)
        if constant := _CONSTANT.match(line):
            self._constant(results[0], constant[1])
        elif op.name.startswith(("memref.", "hivm.hir.pointer_cast", "builtin.", "arith.select")):
            self._memory(op, number)
        elif call := CALL.match(line):
            op.name = "call"
            self._call(call[1], tuple(VALUE.findall(call[2])), op)
        return op

    def _memory(self, op: Op, number: int) -> None:
        operands = VALUE.findall(op.text)
        source = self.buffers.get(operands[0]) if operands else None
        match op.name:
            case "hivm.hir.pointer_cast":
                self._planned(op)
            case "memref.load" | "memref.store":
                self._element(op, operands)
            case "arith.select":
                chosen = [self.buffers[value] for value in operands[1:] if value in self.buffers]
                if chosen and op.results:
                    first = chosen[0]
                    self.buffers[op.results[0]] = Buffer(
                        first.space,
                        f"{op.results[0]}@{number}",
                        first.bits,
                        first.elements,
                        first.at_most,
                        first.argument if len({item.argument for item in chosen}) == 1 else None,
                    )
            case "memref.subview" if source and op.results:
                sizes = _BRACKETS.findall(op.text)[1]
                self.buffers[op.results[0]] = self._resized(source, sizes, source.root)
            case "memref.reinterpret_cast" if source and op.results:
                offset, sizes = _BRACKETS.findall(op.text)[:2]
                named = self.defined.get(offset, "")
                root = source.root if offset == "0" else f"{source.root}+{offset}@{named}"
                self.buffers[op.results[0]] = self._resized(source, sizes, root)
            case _ if source and op.results:
                # cast, collapse_shape, expand_shape, view, extract_strided_metadata, …
                self.buffers[op.results[0]] = source
            case "builtin.unrealized_conversion_cast" if op.results:
                buffer = buffer_of_type(op.text.rpartition(" to ")[2], f"{op.results[0]}@{number}")
                if buffer:
                    self.buffers[op.results[0]] = buffer

    def _resized(self, source: Buffer, sizes: str, root: str) -> Buffer:
        numbers = [size.strip() for size in sizes.split(",") if size.strip()]
        if all(size.isdigit() for size in numbers):
            elements = prod(map(int, numbers))
            return Buffer(source.space, root, source.bits, elements, elements, source.argument)
        return Buffer(source.space, root, source.bits, None, source.at_most, source.argument)

    def _planned(self, op: Op) -> None:
        addresses = _POINTER_CAST.search(op.text)
        names = VALUE.findall(addresses[1]) if addresses else []
        starts = [self.constants[name] for name in names if name in self.constants]
        root = "ub" + ",".join(map(str, starts)) if len(starts) == len(names) else op.results[0]
        buffer = buffer_of_type(op.text, root)
        if buffer is None:
            return
        self.buffers[op.results[0]] = buffer
        size = buffer.size(buffer.elements)
        if buffer.space == "ub":
            if len(starts) < len(names) or size is None:
                raise ValueError(f"a buffer without a planned place: {op.text}")
            self.peak = max([self.peak, *(start + size for start in starts)])

    def _element(self, op: Op, operands: list[str]) -> None:
        store = op.name == "memref.store"
        place = self.buffers.get(operands[1 if store else 0])
        known = buffer_of_type(op.text, "")
        space = known.space if known else ""
        if space == "ub":
            op.kind = "store" if store else "load"
            op.index = tuple(VALUE.findall(_BRACKETS.findall(op.text)[0]))
        elif space == "gm" and known:
            size = known.bits // 8
            argument = place.argument if place else None
            moved = Transfer(
                op.name, size, size, argument, op.line, times_of(op.loop), exact_of(op.loop)
            )
            (self.writes if store else self.reads).append(moved)

    def _call(self, function: str, operands: tuple[str, ...], op: Op) -> None:
        self.calls.append((function, operands, op))
        buffers = [buffer for value in operands if (buffer := self.buffers.get(value))]
        if not is_transfer(function):
            roots = [buffer.root for buffer in buffers]
            if function.startswith("vsel_") or function in self.module_selects:
                self.selected += [(root, frozenset(roots)) for root in roots]
            return
        read = is_read(function)
        far = next((buffer for buffer in buffers if buffer.space == "gm"), None)
        near = next((buffer for buffer in buffers if buffer.space != "gm"), None)
        bounds = [
            size
            for buffer in (far, near)
            if buffer and (size := buffer.size(buffer.at_most)) is not None
        ]
        atomic = not read and len(operands) > 2 and self.constants.get(operands[2], 0) != 0
        moved = Transfer(
            function,
            far.size(far.elements) if far else None,
            min(bounds, default=None),
            far.argument if far else None,
            op.line,
            times_of(op.loop),
            exact_of(op.loop),
            atomic,
        )
        (self.reads if read else self.writes).append(moved)
        if far is None or near is None:
            return
        if read:
            self.loaded.append((far, near, op.loop))
        elif moved.bytes is not None and self._rewrites(far, near, op.loop):
            self.rewrites.append(moved)

    def _rewrites(self, far: Buffer, near: Buffer, loop: Loop | None) -> bool:
        """Whether what goes to ``far`` is a select over a tile loaded from ``far``."""
        tiles = {
            tile.root
            for place, tile, where in self.loaded
            if place.root == far.root and where is loop
        }
        return any(root == near.root and tiles & inputs for root, inputs in self.selected)


def read(text: str) -> ProgramFacts:
    """The facts of one finished program. A few milliseconds.

    Raises:
        ValueError: the text is no finished program, or a UB buffer in it has no address.
    """
    reader = _Reader(text)
    attributes = {name: int(value) for name, value in _ATTRIBUTE.findall(text)}
    calls: Counter[str] = Counter()
    weighted: Counter[str] = Counter()
    for function, _, op in reader.calls:
        if not is_transfer(function) and not function.startswith(LOCK_CALLS):
            calls[function] += 1
            weighted[function] += times_of(op.loop)
    barriers: Counter[str] = Counter()
    events: Counter[str] = Counter()
    for op in reader.ops:
        if op.name == "hivm.hir.pipe_barrier" and (pipe := _FLAG.search(op.text)):
            barriers[pipe[1]] += 1
        elif op.name == "hivm.hir.set_flag" and (pipes := _FLAG.search(op.text)):
            events[f"{pipes[1]}->{pipes[2]}"] += 1
    found = (scalar_loop(loop) for loop in reader.loops)
    return ProgramFacts(
        name=reader.name,
        vector_core=reader.vector_core,
        ub_peak_bytes=reader.peak,
        ub_capacity_bytes=attributes["UB_SIZE"] // 8,
        vector_cores=attributes["VECTOR_CORE_COUNT"],
        vector_calls=dict(calls),
        weighted_vector_calls=dict(weighted),
        trips_exact=all(loop.trips is not None for loop in reader.loops),
        scalar_loops=tuple(loop for loop in found if loop),
        locks=sum(function == "sync_block_lock" for function, _, _ in reader.calls),
        gm_reads=tuple(reader.reads),
        gm_writes=tuple(reader.writes),
        tile_rewrites=tuple(reader.rewrites),
        barriers=dict(barriers),
        events=dict(events),
    )
