"""The pretty-printed text of a finished program: its parts, types and call names."""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import prod

from ascendport.ascend.diagnostics import kernel_line

_LOCATION = re.compile(r"^(#loc\d*) = loc\((.*)\)$", re.MULTILINE)
_ALIAS = re.compile(r"#loc\d*")
_ENTRY = re.compile(r"^ *func\.func @([\w$.]+)\((?=.*\bhacc\.entry\b)")
VALUE = re.compile(r"%[\w-]+(?:#\d+)?")
CALL = re.compile(r"^(?:func\.)?call @([\w$.]+)\(([^)]*)\)")
_MEMREF = re.compile(r"memref<((?:(?:\d+|\?)x)*)(\w+)(?:<[^<>]*>)?")
_SPACE = re.compile(r"address_space<(\w+)>")
_BITS = {"bf16": 16, "index": 64}
VECTOR_CORE = "hivm.func_core_type = #hivm.func_core_type<AIV>"
LOCK_CALLS = ("sync_block_lock", "sync_block_unlock", "free_lock_var")


@dataclass(frozen=True)
class Buffer:
    """What is known of a memref value."""

    space: str
    root: str
    """Equal roots, equal places."""
    bits: int
    elements: int | None
    at_most: int | None
    argument: int | None = None

    def size(self, elements: int | None) -> int | None:
        return None if elements is None else -(-elements * self.bits // 8)


def buffer_of_type(text: str, root: str, argument: int | None = None) -> Buffer | None:
    """The buffer that the last memref type in ``text`` describes."""
    types = list(_MEMREF.finditer(text))
    if not types:
        return None
    last = types[-1]
    sizes = last[1].split("x")[:-1]
    elements = None if "?" in sizes else prod(map(int, sizes))
    space = _SPACE.search(text, last.start())
    return Buffer(space[1] if space else "", root, _bits(last[2]), elements, elements, argument)


def _bits(element: str) -> int:
    if element in _BITS:
        return _BITS[element]
    digits = re.search(r"\d+", element)
    return int(digits[0]) if digits else 0


def locations(text: str) -> dict[str, int | None]:
    """Alias → kernel line, aliases of aliases resolved."""
    raw = dict(_LOCATION.findall(text))

    def expand(body: str, depth: int = 0) -> str:
        if depth > 8:
            return body
        return _ALIAS.sub(lambda use: expand(raw.get(use[0], ""), depth + 1), body)

    return {alias: kernel_line(expand(body)) for alias, body in raw.items()}


def entry_lines(text: str) -> list[str]:
    """Lines of the vector entry function, signature first.

    Raises:
        ValueError: the text is no finished program.
    """
    lines = text.split("\n")
    starts = [
        number
        for number, line in enumerate(lines)
        if line.startswith("  func.func @") and _ENTRY.match(line)
    ]
    vector = [number for number in starts if VECTOR_CORE in lines[number]]
    if not starts:
        raise ValueError("no entry function: not a finished program")
    start = (vector or starts)[0]
    indent = len(lines[start]) - len(lines[start].lstrip())
    close = " " * indent + "}"
    end = next(number for number in range(start + 1, len(lines)) if lines[number].startswith(close))
    return lines[start:end]


def functions_with_select(text: str) -> frozenset[str]:
    """A5: vector functions of the module that select lanes."""
    found: set[str] = set()
    name = ""
    for line in text.split("\n"):
        if line.startswith("  func.func "):
            name = line.partition("@")[2].partition("(")[0]
        elif ".vsel" in line:
            found.add(name)
    return frozenset(found)


def is_read(call: str) -> bool:
    return "gm_to_" in call or call.startswith("nd2nz")


def is_transfer(call: str) -> bool:
    """DMA: between GM and UB, and for the cube core into L1 (nd2nz) and out of L0C (fixpipe)."""
    return is_read(call) or "_to_gm_" in call or call.startswith("fixpipe")
