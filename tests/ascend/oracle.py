"""The counts of `program.read`, taken another way: xDSL over the generic form.

Slow (0.3 s a program) and independent: it shares no code with what it checks.
"""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ascendport.ascend.toolchain import binary


@dataclass
class Counts:
    """Of the entry function."""

    calls: Counter[str] = field(default_factory=Counter)
    weighted: Counter[str] = field(default_factory=Counter)
    """Times the constant trip counts of the `scf.for` loops around."""
    barriers: int = 0
    flags: int = 0
    ub_elements: int = 0
    """Scalar loads and stores in UB."""
    gm_elements: int = 0
    """Scalar loads and stores in GM."""
    peak: int = 0
    loops: int = 0
    """`scf.for`, `scf.while`, and branches back to an earlier block."""


def count(text: str, folder: Path, *, a5: bool) -> Counts:
    """Parses a program and counts.

    Args:
        text: the program.
        folder: an empty folder to work in.
        a5: whether it comes from the Ascend 950 compiler.
    """
    from xdsl.context import Context
    from xdsl.dialects import affine, arith, builtin, func, memref, scf
    from xdsl.parser import Parser

    (folder / "program.mlir").write_text(text)
    tool = binary("bishengir-opt").with_name("bishengir-opt-a5" if a5 else "bishengir-opt")
    line = [str(tool), "--mlir-print-op-generic", str(folder / "program.mlir")]
    generic = subprocess.run(line, capture_output=True, text=True, check=True).stdout
    context = Context(allow_unregistered=True)
    for dialect in (builtin.Builtin, func.Func, arith.Arith, scf.Scf, memref.MemRef, affine.Affine):
        context.load_dialect(dialect)
    module = Parser(context, generic).parse_module()
    entry = next(
        op
        for op in module.walk()
        if op.name == "func.func" and "hacc.entry" in {**op.attributes, **op.properties}
    )
    counts = Counts()
    for op, times in _walk(entry, 1):
        _count(op, times, counts)
    return counts


def _walk(op: Any, times: int) -> Iterator[tuple[Any, int]]:
    for region in op.regions:
        for block in region.blocks:
            for inner in block.ops:
                yield inner, times
                trips = _trips(inner) if inner.name == "scf.for" else 1
                yield from _walk(inner, times * trips)


def _name(op: Any) -> str:
    name = str(getattr(op, "name", "(block)"))
    return str(op.op_name.data) if name == "builtin.unregistered" else name


def _integer(value: Any) -> int | None:
    """The constant that defines a value, seen through a cast to index."""
    owner = value.owner
    if _name(owner) == "builtin.unrealized_conversion_cast":
        owner = owner.operands[0].owner
    if _name(owner) not in ("arith.constant", "llvm.mlir.constant"):
        return None
    held = {**owner.attributes, **owner.properties}["value"]
    return held.value.data if hasattr(held.value, "data") else None


def _trips(loop: Any) -> int:
    low, high, step = (_integer(value) for value in loop.operands[:3])
    if low is None or high is None or not step:
        return 1
    return max(0, (high - low + step - 1) // step)


def _count(op: Any, times: int, counts: Counts) -> None:
    name = _name(op)
    if name == "func.call":
        callee = {**op.attributes, **op.properties}["callee"].string_value()
        counts.calls[callee] += 1
        counts.weighted[callee] += times
    elif name == "hivm.hir.pipe_barrier":
        counts.barriers += 1
    elif name == "hivm.hir.set_flag":
        counts.flags += 1
    elif name in ("memref.load", "memref.store"):
        memory = str(op.operands[1 if name == "memref.store" else 0].type)
        counts.ub_elements += "<ub>" in memory
        counts.gm_elements += "<gm>" in memory
    elif name == "hivm.hir.pointer_cast":
        counts.peak = max(counts.peak, _end(op))
    elif name in ("scf.for", "scf.while"):
        counts.loops += 1
    counts.loops += sum(_earlier(op, target) for target in op.successors)


def _end(op: Any) -> int:
    kind = op.results[0].type
    if "<ub>" not in str(kind):
        return 0
    elements = 1
    for size in kind.get_shape():
        elements *= size
    element = str(kind.element_type)
    bits = 64 if element == "index" else int(re.sub(r"\D", "", element) or 0)
    start = max(_integer(address) or 0 for address in op.operands)
    return start + -(-elements * (16 if element == "bf16" else bits) // 8)


def _earlier(op: Any, target: Any) -> bool:
    block = op.parent_block()
    blocks = list(block.parent_region().blocks)
    return blocks.index(target) <= blocks.index(block)
