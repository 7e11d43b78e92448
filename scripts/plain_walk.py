"""Walks a compiled program operation by operation, and says how much faster the simulator is.

Usage: python scripts/plain_walk.py TREE [--kernel TEXT]... [--programs N]

For each chosen kernel of the checkout TREE (default: a few with scalar loops and a few with vector
code), compiled with arguments guessed from its text: seconds of a walk in plain Python, seconds of
the simulator with all its checks, the ratio, and whether both leave the same in every tensor. The
walk shares the library functions with the simulator and nothing else: no generated code, no
definedness, no clocks; what lies outside a tensor reads as 0. Needs the extra `ascend`.
"""

from __future__ import annotations

import argparse
import operator
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ascendport.simulator import Simulator, UnsupportedError
from ascendport.simulator.affine import AffineMap, Expression
from ascendport.simulator.core import VectorCore
from ascendport.simulator.ir import Block, MemRef, Op, Program, Scalar
from ascendport.simulator.library import lookup
from ascendport.simulator.library.base import DTYPES, Run
from ascendport.simulator.memory import tensor_of
from ascendport.simulator.sites import CallSite, Operand


@dataclass(frozen=True)
class View:
    """A view of memory: base in bytes, the rest in elements."""

    kind: MemRef
    base: int
    offset: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]

    def address(self, indices: Iterable[int] = ()) -> int:
        """Of an element, in bytes; in bits where booleans are packed."""
        place: int = self.offset + sum(map(operator.mul, indices, self.strides))
        if self.kind.bits == 1:
            return self.base * 8 + place
        return self.base + place * (self.kind.bits // 8)


class _Return(Exception):  # noqa: N818 - no error
    """The program ends."""


def _signed(value: int, bits: int) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if bits > 1 and value >> (bits - 1) else value


def _unsigned(value: int, bits: int) -> int:
    return value & ((1 << bits) - 1)


def _rounded(value: Any, kind: str) -> Any:
    """A float as ``kind`` holds it."""
    return np.asarray(np.float32(value)).astype(DTYPES[kind])[()]


def _bits(value: Any, kind: str) -> int:
    """The bits of a number of that kind."""
    number = value if kind[0] == "i" else _rounded(value, kind)
    return int.from_bytes(np.asarray(number, DTYPES[kind]).tobytes(), "little")


def _quotient(a: int, b: int) -> int:
    sign = 1 if (a < 0) == (b < 0) else -1
    return abs(a) // abs(b) * sign if b else a


def _rest(a: int, b: int) -> int:
    return a - _quotient(a, b) * b if b else 0


_INTEGERS: Mapping[str, Callable[[int, int, int], int]] = {
    "addi": lambda a, b, bits: a + b,
    "subi": lambda a, b, bits: a - b,
    "muli": lambda a, b, bits: a * b,
    "andi": lambda a, b, bits: a & b,
    "ori": lambda a, b, bits: a | b,
    "xori": lambda a, b, bits: a ^ b,
    "divsi": lambda a, b, bits: _quotient(a, b),
    "remsi": lambda a, b, bits: _rest(a, b),
    "divui": lambda a, b, bits: _quotient(_unsigned(a, bits), _unsigned(b, bits)),
    "remui": lambda a, b, bits: _rest(_unsigned(a, bits), _unsigned(b, bits)),
    "minsi": lambda a, b, bits: min(a, b),
    "maxsi": lambda a, b, bits: max(a, b),
    "minui": lambda a, b, bits: min(_unsigned(a, bits), _unsigned(b, bits)),
    "maxui": lambda a, b, bits: max(_unsigned(a, bits), _unsigned(b, bits)),
    "shli": lambda a, b, bits: a << b if 0 <= b < bits else 0,
    "shrui": lambda a, b, bits: _unsigned(a, bits) >> b if 0 <= b < bits else 0,
    "shrsi": lambda a, b, bits: a >> (b if 0 <= b < bits else bits - 1),
    "floordivsi": lambda a, b, bits: a // b if b else 0,
    "ceildivsi": lambda a, b, bits: -(-a // b) if b else 0,
}
_FLOATS: Mapping[str, Callable[..., Any]] = {
    "addf": np.add,
    "subf": np.subtract,
    "mulf": np.multiply,
    "divf": np.divide,
    "remf": np.fmod,
    "maximumf": np.maximum,
    "minimumf": np.minimum,
    "maxnumf": np.fmax,
    "minnumf": np.fmin,
    "negf": np.negative,
    "absf": np.abs,
    "sqrt": np.sqrt,
    "rsqrt": lambda value: np.float32(1) / np.sqrt(value),
    "floor": np.floor,
    "ceil": np.ceil,
    "exp": np.exp,
    "log": np.log,
}
_ORDER: Mapping[str, Callable[[Any, Any], bool]] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
}


class Walk:
    """One launch. Arguments as for `Simulator.run`; ``simulator`` lends its launch."""

    def __init__(self, simulator: Simulator, arguments: Sequence[Any], grid: Sequence[int]) -> None:
        self.program: Program = simulator.program
        launch = simulator.launch(arguments, grid)
        self.words = launch.words.tolist()
        self.core = VectorCore((), self.program.ub_bytes, launch.tensors)
        self.core.past_locks = True
        self.values: dict[str, Any] = {}
        self.index = 0
        self.calls: dict[int, tuple[CallSite, Run]] = {}

    def run(self, programs: Iterable[int]) -> None:
        """Runs the programs of these flat ids."""
        with np.errstate(all="ignore"):
            for index in programs:
                self.index = index
                self.core.start(index, trace=False, fuel=0)
                self.values.clear()
                for parameter, word in zip(self.program.parameters, self.words, strict=True):
                    kind = parameter.type
                    self.values[parameter.name] = (
                        View(kind, word, 0, (0,), (1,))
                        if isinstance(kind, MemRef)
                        else self.scalar(word, kind.name)
                    )
                with suppress(_Return):
                    self.block(self.program.body)

    def scalar(self, bits: int, kind: str) -> Any:
        """A number from its bits."""
        dtype = DTYPES.get(kind)
        if dtype is None or dtype.kind in "iu":
            return _signed(bits, Scalar(kind).bits)
        raw = _unsigned(bits, Scalar(kind).bits).to_bytes(dtype.itemsize, "little")
        return np.frombuffer(raw, dtype)[0]

    def block(self, block: Block) -> Op | None:
        """Runs a block; returns its terminator."""
        for op in block.operations:
            if op.name in ("scf.yield", "scf.condition"):
                return op
            self.operation(op)
        return None

    def operation(self, op: Op) -> None:
        """One operation."""
        name = op.name.rpartition(".")[2]
        handler = getattr(self, "do_" + name, None)
        if handler is not None and op.name != "arith.bitcast":
            handler(op)
        elif op.name.startswith(("arith.", "math.")):
            self.arithmetic(op, name)
        elif name not in _SKIPPED:
            raise UnsupportedError(op.name, op.location)

    def operands(self, op: Op) -> list[Any]:
        return [self.values[name] for name in op.operands]

    def size(self, entry: int | str) -> int:
        return entry if isinstance(entry, int) else int(self.values[entry])

    def set(self, op: Op, value: Any) -> None:
        self.values[op.results[0]] = value

    # --- numbers

    def arithmetic(self, op: Op, name: str) -> None:
        values = self.operands(op)
        kind = op.types[0]
        assert isinstance(kind, Scalar)
        if name in _INTEGERS:
            bits = kind.bits
            self.set(op, _signed(_INTEGERS[name](values[0], values[1], bits), bits))
        elif name in _FLOATS:
            wide = _FLOATS[name](*(np.float32(value) for value in values))
            self.set(op, _rounded(wide, kind.name))
        else:
            self.conversion(op, name, values[0])

    def conversion(self, op: Op, name: str, value: Any) -> None:
        source, target = op.types
        assert isinstance(source, Scalar) and isinstance(target, Scalar)
        if name == "bitcast":
            self.set(op, self.scalar(_bits(value, source.name), target.name))
        elif name in ("extf", "truncf"):
            self.set(op, _rounded(value, target.name))
        elif name in ("sitofp", "uitofp"):
            number = value if name == "sitofp" else _unsigned(value, source.bits)
            self.set(op, _rounded(number, target.name))
        elif name in ("fptosi", "fptoui"):
            limits = np.iinfo(("i" if name == "fptosi" else "u") + str(target.bits // 8))
            number = 0 if np.isnan(value) else float(value)
            whole = int(min(max(number, float(limits.min)), float(limits.max)))
            self.set(op, _signed(min(max(whole, int(limits.min)), int(limits.max)), target.bits))
        elif name in ("extui", "index_castui"):
            self.set(op, _signed(_unsigned(value, source.bits), target.bits))
        elif name in ("extsi", "trunci", "index_cast"):
            # A boolean is 0 or 1; extended with its sign it is 0 or -1.
            number = -value if source.bits == 1 and name == "extsi" else value
            self.set(op, _signed(number, target.bits))
        else:
            raise UnsupportedError(op.name, op.location)

    def do_constant(self, op: Op) -> None:
        (kind,) = op.types
        assert isinstance(kind, Scalar)
        text = str(op.attributes["value"])
        if kind.name == "i1":
            self.set(op, int(text in ("true", "1", "-1")))
        elif kind.name[0] == "i":
            self.set(op, _signed(int(text, 0), kind.bits))
        elif text.startswith("0x"):
            self.set(op, self.scalar(int(text, 16), kind.name))
        else:
            self.set(op, _rounded(float(text), kind.name))

    def do_cmpi(self, op: Op) -> None:
        a, b = self.operands(op)
        predicate = str(op.attributes["predicate"])
        if predicate[0] == "u":
            (kind,) = op.types
            a, b = _unsigned(a, kind.bits), _unsigned(b, kind.bits)
        self.set(op, int(_ORDER[predicate if predicate in _ORDER else predicate[1:]](a, b)))

    def do_cmpf(self, op: Op) -> None:
        a, b = (np.float32(value) for value in self.operands(op))
        predicate = str(op.attributes["predicate"])
        if np.isnan(a) or np.isnan(b):
            self.set(op, int(predicate[0] == "u"))
        else:
            self.set(op, int(_ORDER[predicate[1:]](a, b)) if predicate != "ord" else 1)

    def do_select(self, op: Op) -> None:
        condition, a, b = self.operands(op)
        self.set(op, a if condition else b)

    def do_mulsi_extended(self, op: Op) -> None:
        a, b = self.operands(op)
        (kind,) = op.types
        self.values[op.results[0]] = _signed(a * b, kind.bits)
        self.values[op.results[1]] = _signed(a * b >> kind.bits, kind.bits)

    def do_apply(self, op: Op) -> None:
        mapping = op.attributes["map"]
        assert isinstance(mapping, AffineMap)
        inputs = dict(zip(mapping.inputs, self.operands(op), strict=True))
        found = [_evaluate(tree, inputs) for tree in mapping.results]
        choose = {"affine.min": min, "affine.max": max}.get(op.name)
        self.set(op, choose(found) if choose else found[0])

    do_min = do_max = do_apply

    def do_get_block_idx(self, op: Op) -> None:
        self.set(op, self.index)

    def do_get_sub_block_idx(self, op: Op) -> None:
        self.set(op, 0)

    # --- memory

    def do_pointer_cast(self, op: Op) -> None:
        (kind,) = op.types
        assert isinstance(kind, MemRef)
        sizes = tuple(size or 0 for size in kind.shape)
        strides = tuple(step or 1 for step in kind.strides)
        self.set(op, View(kind, self.values[op.operands[0]], kind.offset or 0, sizes, strides))

    def do_cast(self, op: Op) -> None:
        (source,) = self.operands(op)
        kind = op.types[-1]
        assert isinstance(kind, MemRef)
        self.set(op, View(kind, source.base, source.offset, source.sizes, source.strides))

    do_bitcast = do_memory_space_cast = do_cast

    def do_reinterpret_cast(self, op: Op) -> None:
        self.set(
            op,
            View(
                op.types[1],  # type: ignore[arg-type]
                self.values[op.operands[0]].base,
                self.size(op.attributes["offset"]),  # type: ignore[arg-type]
                tuple(map(self.size, op.attributes["sizes"])),  # type: ignore[call-overload]
                tuple(map(self.size, op.attributes["strides"])),  # type: ignore[call-overload]
            ),
        )

    def do_subview(self, op: Op) -> None:
        source: View = self.values[op.operands[0]]
        kind = op.types[1]
        assert isinstance(kind, MemRef)
        entries: Any = op.attributes
        offsets, sizes, strides = (
            [self.size(entry) for entry in entries[key]] for key in ("offsets", "sizes", "strides")
        )
        offset = source.offset + sum(map(operator.mul, offsets, source.strides))
        steps = [a * b for a, b in zip(strides, source.strides, strict=True)]
        kept = list(range(len(sizes)))
        # A result of lower rank drops axes of size 1: those that its type does not name.
        for axis in reversed(range(len(sizes))):
            wanted = kind.strides[len(kind.shape) - (len(sizes) - axis) :][:1]
            if len(kept) > len(kind.shape) and entries["sizes"][axis] == 1:
                same = bool(wanted) and len(kept) - 1 - kept.index(axis) < len(kind.shape)
                if not (same and wanted[0] == steps[axis] and kind.shape[-1] == 1):
                    kept.remove(axis)
        self.set(
            op,
            View(
                kind,
                source.base,
                offset,
                tuple(sizes[axis] for axis in kept),
                tuple(steps[axis] for axis in kept),
            ),
        )

    def do_collapse_shape(self, op: Op) -> None:
        source: View = self.values[op.operands[0]]
        kind: Any = op.types[1]
        groups: Any = op.attributes["groups"]
        sizes = tuple(int(np.prod([source.sizes[axis] for axis in group])) for group in groups)
        strides = []
        for group, declared in zip(groups, kind.strides, strict=True):
            telling = [axis for axis in group if source.sizes[axis] != 1] or [group[-1]]
            strides.append(source.strides[telling[-1]] if declared is None else declared)
        self.set(op, View(kind, source.base, source.offset, sizes, tuple(strides)))

    def do_expand_shape(self, op: Op) -> None:
        source: View = self.values[op.operands[0]]
        attributes: Any = op.attributes
        sizes = [self.size(entry) for entry in attributes["shape"]]
        strides = [0] * len(sizes)
        for group, step in zip(attributes["groups"], source.strides, strict=True):
            for axis in reversed(group):
                strides[axis] = step
                step *= sizes[axis]
        kind: Any = op.types[1]
        self.set(op, View(kind, source.base, source.offset, tuple(sizes), tuple(strides)))

    def do_view(self, op: Op) -> None:
        source, shift = self.operands(op)
        kind: Any = op.types[1]
        given = iter(op.attributes["sizes"])  # type: ignore[call-overload]
        sizes = [self.size(next(given)) if size is None else size for size in kind.shape]
        strides = [int(np.prod(sizes[axis + 1 :])) for axis in range(len(sizes))]
        self.set(op, View(kind, source.base + shift, 0, tuple(sizes), tuple(strides)))

    def do_extract_strided_metadata(self, op: Op) -> None:
        source: View = self.values[op.operands[0]]
        kind: Any = op.types[1]
        parts = [View(kind, source.base, 0, (), ()), source.offset, *source.sizes, *source.strides]
        self.values.update(zip(op.results, parts, strict=True))

    def place(self, view: View, indices: Sequence[int]) -> tuple[Any, int]:
        """The memory that holds an element, as an array, and where it stands there."""
        element = "i8" if view.kind.element == "i1" else view.kind.element
        dtype = DTYPES[element]
        if view.kind.space == "gm":
            number, byte = tensor_of(view.address(indices))
            return self.core.elements(self.core.tensors[number], dtype), byte // dtype.itemsize
        address = view.address(indices) // (8 if view.kind.bits == 1 else 1)
        return self.core.arrays.ub[address : address + dtype.itemsize].view(dtype), 0

    def do_load(self, op: Op) -> None:
        view, *indices = self.operands(op)
        memory, at = self.place(view, indices)
        number = memory[at] if 0 <= at < len(memory) else memory.dtype.type(0)
        integer = view.kind.element[0] == "i"
        self.set(op, _signed(int(number), view.kind.bits) if integer else number)

    def do_store(self, op: Op) -> None:
        value, view, *indices = self.operands(op)
        memory, at = self.place(view, indices)
        if 0 <= at < len(memory):
            memory[at] = value

    def do_call(self, op: Op) -> None:
        found = self.calls.get(id(op))
        if found is None:
            found = self.calls[id(op)] = self.site(op)
        site, run = found
        words = [site.number, 0]
        for operand, value in zip(site.operands, self.operands(op), strict=True):
            if isinstance(value, View):
                words += [value.address(), *value.sizes, *value.strides]
            elif isinstance(operand.type, Scalar) and operand.type.name in ("f16", "bf16", "f32"):
                words.append(_bits(value, operand.type.name))
            else:
                words.append(int(value))
        run(words)

    def site(self, op: Op) -> tuple[CallSite, Run]:
        """What the library has for a call."""
        callee = str(op.attributes["callee"])
        entry = lookup(callee, op.types, op.location)
        operands: list[Operand] = []
        word = 2
        for role, kind in zip(entry.roles, op.types, strict=True):
            operands.append(Operand(role, kind, word))
            word = operands[-1].end
        made = CallSite(len(self.calls), callee, entry.pipe, tuple(operands), word, op.location)
        return made, entry.make(made, self.core)

    # --- control

    def do_return(self, op: Op) -> None:
        raise _Return

    def do_if(self, op: Op) -> None:
        (condition,) = self.operands(op)
        if not condition and len(op.regions) < 2:
            return
        last = self.block(op.regions[0 if condition else 1])
        if last is not None:
            self.values.update(zip(op.results, self.operands(last), strict=True))

    def do_for(self, op: Op) -> None:
        lower, upper, step, *carried = self.operands(op)
        (body,) = op.regions
        names = [name for name, _ in body.arguments]
        for counter in range(lower, upper, step):
            self.values.update(zip(names, [counter, *carried], strict=True))
            last = self.block(body)
            carried = self.operands(last) if last is not None else []
        self.values.update(zip(op.results, carried, strict=True))

    def do_while(self, op: Op) -> None:
        carried = self.operands(op)
        before, after = op.regions
        while True:
            self.values.update(zip((name for name, _ in before.arguments), carried, strict=True))
            last = self.block(before)
            assert last is not None
            condition, *passed = self.operands(last)
            if not condition:
                self.values.update(zip(op.results, passed, strict=True))
                return
            self.values.update(zip((name for name, _ in after.arguments), passed, strict=True))
            last = self.block(after)
            carried = self.operands(last) if last is not None else []


_SKIPPED = {
    *("set_flag", "wait_flag", "pipe_barrier", "set_mask_norm", "set_ctrl", "mark"),
    "set_ffts_base_addr",
}


def _evaluate(tree: Expression, inputs: Mapping[str, int]) -> int:
    if isinstance(tree, int):
        return tree
    if isinstance(tree, str):
        return inputs[tree]
    word, left, right = tree
    a, b = _evaluate(left, inputs), _evaluate(right, inputs)
    if word in "+-*":
        return {"+": a + b, "-": a - b, "*": a * b}[word]
    return {"floordiv": a // b, "ceildiv": -(-a // b), "mod": a % b}[word]


# --- the command ------------------------------------------------------------------------------

CHOSEN = (
    "bincount.py:token_bin_counts_and_mask_kernel",
    "sample/penalties.py:_penalties_kernel",
    "sample/logprob.py:_topk_log_softmax_kernel",
    "spec_decode/utils.py:prepare_inputs_padded_kernel",
    "v2/apply_grammar_bitmask.py:_apply_grammar_bitmask_kernel_impl",
    "worker/v2/structured_outputs.py:_apply_grammar_bitmask_kernel",
)


@dataclass(frozen=True)
class Compared:
    """Seconds of both, and whether all tensors are the same afterwards."""

    walk: float
    simulated: float
    same: bool


def compare(
    simulator: Simulator, tensors: Mapping[str, Any], values: Sequence[Any], grid: Sequence[int]
) -> Compared:
    """Runs a launch both ways. ``tensors``: those among ``values``, by name; they keep what the
    simulator leaves."""
    before = {name: array.copy() for name, array in tensors.items()}
    simulator.native  # noqa: B018 - compiled before the clock runs
    total = int(np.prod(grid))
    started = time.process_time()
    simulator.run(values, grid, past_locks=True)
    simulated = time.process_time() - started
    after = {name: array.copy() for name, array in tensors.items()}
    for name, array in tensors.items():
        array[...] = before[name]
    walk = Walk(simulator, values, grid)
    started = time.process_time()
    walk.run(range(total))
    walked = time.process_time() - started
    same = all(
        np.array_equal(array.view(np.uint8), after[name].view(np.uint8))
        for name, array in tensors.items()
    )
    return Compared(walked, simulated, same)


def main() -> int:
    from survey import compiled_guess
    from survey_kernels import STYLES, Kernels, find
    from survey_values import draw

    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("tree", type=Path)
    parser.add_argument("--kernel", action="append", default=[])
    parser.add_argument("--programs", type=int, default=32)
    given = parser.parse_args()
    tree = given.tree.resolve()
    wanted = given.kernel or CHOSEN
    print("| kernel | walk s | simulator s | ratio | same |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as scratch:
        kernels = Kernels(tree, Path(scratch))
        for found in find(tree):
            if found.helper or not any(text in found.key for text in wanted):
                continue
            made = compiled_guess(kernels.get(found), STYLES[0])
            if isinstance(made, str):
                print(f"| {found.key} | {made} | | | |")
                continue
            tensors = draw(made.arguments, 1)
            values = [tensors.get(name, made.arguments[name]) for name in made.order]
            used = {name: array for name, array in tensors.items() if name in made.order}
            result = compare(Simulator(made.program), used, values, (given.programs,))
            ratio = result.walk / max(result.simulated, 1e-9)
            print(
                f"| {found.key} | {result.walk:.2f} | {result.simulated:.3f} | {ratio:.0f}"
                f" | {'yes' if result.same else 'no'} |"
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
