"""What one Python file says about names: a compact summary of its syntax tree.

A summary is a small JSON object of packed strings, so that a few thousand of them load in a
fraction of a second and can be searched with ``str.find``. Packed means ``" name:12 other:40 "``:
name and the line where it is first met, each framed by spaces.

*Late* code runs when a function is called; *early* code runs once, when the file is imported.
A patch that rebinds a name after the import reaches late reads only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypedDict

ANALYSIS_VERSION = 4
"""Raise it whenever the content of summaries changes: cached ones are then made anew."""

ROOTS = ("vllm", "vllm_ascend")
"""The packages whose names are of interest."""


class ClassSummary(TypedDict):
    """A class: dotted bases as far as the file tells, own attributes, what methods set."""

    line: int
    bases: list[str]
    attrs: str
    """Packed: bound in the class body."""
    inst: str
    """Packed: set on ``self`` or ``cls`` in methods."""


class ModuleSummary(TypedDict):
    """One file."""

    binds: dict[str, str]
    """Module-level name → ``"f:12"`` function, ``"c:12"`` class, ``"v:12"`` other value,
    ``"m:12:a.b"`` module a.b, ``"n:12:a.b:c"`` name c taken from a.b. Later bindings win,
    except that a binding in an except clause does not replace one in its try body."""
    stars: list[str]
    """Modules of ``from m import *``."""
    lazy: bool
    """Defines a module-level ``__getattr__``."""
    lazy_names: dict[str, str]
    """Names that tables of strings map to modules: ``{"Name": "a.b"}``, for lazy imports."""
    exports: list[str] | None
    """``__all__`` where it is a plain list of strings."""
    loads: list[str]
    """Modules that importing this file surely imports at once: those under a condition are left
    out. ``from m import n`` gives both m and m.n, whether n is a module or not."""
    late: str
    """Packed: globals read by late code."""
    early: str
    """Packed: globals read by early code."""
    annotated: str
    """Packed: names in annotations."""
    takes: str
    """Packed ``module|name``: ``from module import name`` in late code."""
    chains: str
    """Packed dotted names under vllm or vllm_ascend that late code reads as attributes."""
    chains_early: str
    attrs: str
    """Packed: attribute names that late code loads from anything."""
    attrs_early: str
    strings: str
    """Packed: string constants that look like names or dotted vllm paths."""
    classes: dict[str, ClassSummary]
    """By qualified name inside the file."""


def pack(names: Mapping[str, int]) -> str:
    """``{"a": 3, "b": 5}`` → ``" a:3 b:5 "``; empty → ``" "``."""
    return " " + "".join(f"{name}:{line} " for name, line in names.items())


def line_of(packed: str, name: str) -> int | None:
    """The line that ``packed`` gives for ``name``, or None."""
    at = packed.find(f" {name}:")
    if at < 0:
        return None
    start = at + len(name) + 2
    return int(packed[start : packed.index(" ", start)])


def names_in(packed: str) -> Iterator[str]:
    """The names of a packed string."""
    for part in packed.split():
        yield part.rpartition(":")[0]


def module_name(path: str) -> tuple[str, bool]:
    """``"vllm/a/__init__.py"`` → ``("vllm.a", True)``; ``"vllm/b.py"`` → ``("vllm.b", False)``."""
    dotted = path.removesuffix(".py").replace("/", ".")
    if dotted.endswith(".__init__"):
        return dotted.removesuffix(".__init__"), True
    return dotted, False


def absolute(module: str, is_package: bool, target: str | None, level: int) -> str:
    """The module that ``from <dots><target> import …`` in ``module`` names."""
    if level == 0:
        return target or ""
    parts = module.split(".")
    keep = len(parts) - level + (1 if is_package else 0)
    base = ".".join(parts[: max(keep, 0)])
    return f"{base}.{target}" if target and base else (target or base)
