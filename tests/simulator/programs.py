"""Small programs of our own in the compiler's language, and how to run them.

A body is MLIR, one operation a line, in short:

- ``ub<64xf32>`` and ``gm<?xf32>`` stand for memrefs of these spaces;
- ``call @f(%a, %b)`` is a call whose types are looked up;
- ``%s = slice %x[%at, 8] : f32`` takes elements of a tensor, and
  ``%s = slice %x[0, 3x5 by 9, 1] : f32`` a matrix with these strides;
- ``%s = part %u[0, 8] of 64 : f32`` takes elements of a tile.

Each line's location is its number in the body, file ``kernel.py``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ascendport.simulator import Result, Simulator

UB_BYTES = 192 * 1024

_SHORT = re.compile(r"\b(ub|gm)<((?:[^<>]|<[^<>]*>)*)>")
_CALL = re.compile(r"@(\w+)\(([^)]*)\)$")
_SLICE = re.compile(r"^(%\w+) = slice (%\w+)\[([^,]+), ([^\]]+)\] : (\w+)$")
_MATRIX = re.compile(r"^(%\w+) = slice (%\w+)\[(\d+), (\d+x\d+) by (\d+, \d+)\] : (\w+)$")
_PART = re.compile(r"^(%\w+) = part (%\w+)\[([^,]+), ([^\]]+)\] of (\d+) : (\w+)$")

NAMES = {
    "i8": "int8_t",
    "i16": "int16_t",
    "i32": "int32_t",
    "i64": "int64_t",
    "f16": "half",
    "bf16": "bfloat16_t",
    "f32": "float",
    "i1": "bool",
}
"""Element → what library function names call it."""


def expand(text: str) -> str:
    """The short forms of memrefs written out."""
    return _SHORT.sub(r"memref<\2, #hivm.address_space<\1>>", text)


def program(
    body: str, arguments: Mapping[str, str], ub_bytes: int = UB_BYTES, cores: int = 40
) -> str:
    """A module whose entry function has these arguments (name → short type) and this body."""
    types = {f"%{name}": kind for name, kind in arguments.items()}
    declared = [f"%{name}: {expand(kind)}" for name, kind in arguments.items()]
    hidden = [
        "%ffts: i64 {hacc.arg_type = #hacc.arg_type<ffts_base_address>}",
        expand("%lock: gm<?xi8> {hacc.arg_type = #hacc.arg_type<sync_block_lock>}"),
        expand("%work: gm<?xi8> {hacc.arg_type = #hacc.arg_type<workspace>}"),
    ]
    types["%lock"] = "gm<?xi8>"
    grid = ["%gx: i32", "%gy: i32", "%gz: i32"]
    lines = [
        f'module attributes {{dlti = <"VECTOR_CORE_COUNT", {cores} : i32>,'
        f' <"UB_SIZE", {ub_bytes * 8} : i32>}} {{',
        f"  func.func @kernel({', '.join([*hidden, *declared, *grid])}) attributes {{hacc.entry,"
        " hivm.func_core_type = #hivm.func_core_type<AIV>} {",
    ]
    for number, line in enumerate(body.strip("\n").split("\n"), 1):
        text = line.strip()
        if not text:
            continue
        text = _types_of_call(_macros(text), types)
        _remember(text, types)
        place = "" if text.endswith("{") else f' loc("kernel.py":{number}:1)'
        lines.append("    " + expand(text) + place)
    lines += ["    return", "  }", "}"]
    return "\n".join(lines) + "\n"


def _strided(count: str, element: str, offset: str) -> str:
    size = count if count.isdigit() else "?"
    place = offset if offset.lstrip("-").isdigit() else "?"
    return f"{size}x{element}, strided<[1]" + (">" if place == "0" else f", offset: {place}>")


def _macros(text: str) -> str:
    if match := _MATRIX.match(text):
        name, source, at, shape, steps, element = match.groups()
        sizes = shape.replace("x", ", ")
        place = "" if at == "0" else f", offset: {at}"
        return (
            f"{name} = memref.reinterpret_cast {source} to offset: [{at}], sizes: [{sizes}],"
            f" strides: [{steps}] : gm<?x{element}>"
            f" to gm<{shape}x{element}, strided<[{steps}]{place}>>"
        )
    if match := _SLICE.match(text):
        name, source, at, count, element = match.groups()
        return (
            f"{name} = memref.reinterpret_cast {source} to offset: [{at}], sizes: [{count}],"
            f" strides: [1] : gm<?x{element}> to gm<{_strided(count, element, at)}>"
        )
    if match := _PART.match(text):
        name, source, at, count, whole, element = match.groups()
        return (
            f"{name} = memref.subview {source}[{at}] [{count}] [1] : ub<{whole}x{element}>"
            f" to ub<{_strided(count, element, at)}>"
        )
    return text


def _remember(text: str, types: dict[str, str]) -> None:
    if match := re.match(r"^scf\.for (%\w+) = ", text):
        types[match[1]] = "index"
    match = re.match(r"^(%\w+) = (.*)$", text)
    if not match:
        return
    rest = match[2]
    if rest.startswith(("llvm.mlir.addressof", "llvm.getelementptr")):
        types[match[1]] = "!llvm.ptr"
        return
    start = max(rest.rfind(word) + len(word) for word in (" : ", " to ", " into ", " -> "))
    boolean = rest.startswith("arith.cmp") or rest in (
        "arith.constant true",
        "arith.constant false",
    )
    types[match[1]] = "i1" if boolean else rest[start:].strip()


def _types_of_call(text: str, types: dict[str, str]) -> str:
    match = _CALL.search(text)
    if not match or not text.startswith("call"):
        return text
    names = [name.strip() for name in match[2].split(",")]
    return f"{text} : ({', '.join(types[name] for name in names)}) -> ()"


def run(
    body: str, arguments: Mapping[str, tuple[str, Any]], grid: Sequence[int] = (1,), **options: Any
) -> Result:
    """Runs a body with (short type, value) for each argument."""
    text = program(body, {name: kind for name, (kind, _) in arguments.items()})
    simulator = Simulator(text)
    values = [value for _, value in arguments.values()]
    return simulator.run(values, grid, names=list(arguments), **options)


def kinds(result: Result) -> list[str]:
    """Names of what was found."""
    return [finding.kind.name for finding in result.findings]


def zeros(count: int, dtype: Any = np.float32) -> Any:
    return np.zeros(count, dtype)


ALL = "hivm.hir.pipe_barrier[<PIPE_ALL>]"
