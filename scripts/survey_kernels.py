"""The Triton kernels of a tree, and arguments for them that are guessed from their text.

Kernels are taken out of their files alone, with the constants beside them: nothing of vllm, of
torch_npu or of the tree's launchers is imported. Lines keep their numbers.
"""

from __future__ import annotations

import ast
import importlib.util
import random
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import MagicMock

FOLDERS = ("vllm_ascend/ops/triton", "vllm_ascend/worker/v2")


@dataclass(frozen=True)
class Found:
    """A kernel of a tree. ``helper``: it is called by kernels and is none itself."""

    file: str
    name: str
    helper: bool

    @property
    def key(self) -> str:
        """How it is called in reports: file and name."""
        return f"{self.file}:{self.name}"


def find(tree: Path, folders: Sequence[str] = FOLDERS) -> list[Found]:
    """All functions below ``folders`` that triton.jit decorates."""
    found: list[Found] = []
    for folder in folders:
        for path in sorted((tree / folder).rglob("*.py")):
            text = path.read_text()
            if "triton.jit" not in text:
                continue
            for node in ast.parse(text).body:
                if isinstance(node, ast.FunctionDef) and _decorator(node):
                    file = path.relative_to(tree).as_posix()
                    found.append(Found(file, node.name, _is_helper(node)))
    return found


def _decorator(node: ast.FunctionDef) -> str:
    """The text of its jit decorator, or nothing."""
    texts = [ast.unparse(item) for item in node.decorator_list]
    return next((text for text in texts if "jit" in text), "")


def _is_helper(node: ast.FunctionDef) -> bool:
    """It returns a value, or touches neither memory nor program ids."""
    returns = any(isinstance(item, ast.Return) and item.value for item in ast.walk(node))
    text = ast.unparse(node)
    return returns or not re.search(r"tl\.(program_id|store|load|atomic)", text)


class Kernels:
    """Loads kernels of a tree. ``scratch``: an empty directory of ours for their sources."""

    def __init__(self, tree: Path, scratch: Path) -> None:
        self.tree = tree
        self.scratch = scratch
        self._modules: dict[Path, ModuleType] = {}

    def get(self, found: Found) -> Any:
        """The triton.JITFunction (or its interpreted form, where TRITON_INTERPRET is set)."""
        return getattr(self._module(self.tree / found.file), found.name)

    def _module(self, path: Path) -> ModuleType:
        if path in self._modules:
            return self._modules[path]
        text = path.read_text()
        lines = text.split("\n")
        kept = [""] * len(lines)
        names: dict[str, Any] = {}
        for node in ast.parse(text).body:
            if isinstance(node, ast.Import | ast.ImportFrom):
                names.update(self._imported(node, path))
            elif isinstance(node, ast.FunctionDef) and (decorator := _decorator(node)):
                start, end = node.lineno - 1, node.end_lineno or node.lineno
                kept[start:end] = lines[start:end]
                first = min(item.lineno for item in node.decorator_list) - 1
                kept[first] = f"@{decorator}"
            elif isinstance(node, ast.Assign | ast.AnnAssign | ast.If | ast.Try):
                # One line, so that what follows keeps its number.
                kept[node.lineno - 1] = f"with _quiet: exec({ast.unparse(node)!r})"
        names["_quiet"] = _Quiet()
        target = self.scratch / path.relative_to(self.tree).as_posix().replace("/", "__")
        target.write_text("\n".join(kept))
        name = "surveyed_" + re.sub(r"\W", "_", target.stem)
        spec = importlib.util.spec_from_file_location(name, target)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        module.__dict__.update(names)
        sys.modules[name] = module
        spec.loader.exec_module(module)
        self._modules[path] = module
        return module

    def _imported(self, node: ast.Import | ast.ImportFrom, path: Path) -> dict[str, Any]:
        """What an import statement makes known: of Triton and the library, and of the tree."""
        if isinstance(node, ast.Import):
            return _executed(node)
        module = node.module or ""
        known = {alias.asname or alias.name: alias.name for alias in node.names}
        if module == "vllm.triton_utils":
            return {name: _triton_name(source) for name, source in known.items()}
        if module.partition(".")[0] in ("triton", "typing", "math", "functools", "collections"):
            return _executed(node)
        if module.endswith("triton_utils"):
            import triton.language as tl

            return {name: getattr(tl, source, MagicMock()) for name, source in known.items()}
        base = path.parents[node.level - 1] if node.level else self.tree
        file = base / (module.replace(".", "/") + ".py")
        if not file.is_file():
            return {name: MagicMock() for name in known}
        try:
            values = self._module(file).__dict__
        except Exception:  # whatever a file of the tree raises when its kernels are made
            values = {}
        return {name: values.get(source, MagicMock()) for name, source in known.items()}


class _Quiet:
    """A constant that cannot be computed without the rest of the file is left out."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, *error: object) -> bool:
        return True


def _executed(node: ast.Import | ast.ImportFrom) -> dict[str, Any]:
    names: dict[str, Any] = {}
    try:
        exec(ast.unparse(node), names)
    except Exception:  # a module that is not installed, or a part of a newer triton
        for alias in node.names:
            names[(alias.asname or alias.name).partition(".")[0]] = MagicMock()
    names.pop("__builtins__", None)
    return names


def _triton_name(name: str) -> Any:
    import triton
    import triton.language as tl

    constants = {"tl": tl, "triton": triton, "HAS_TRITON": True}
    constants |= {"LOG2E": 1.4426950408889634, "LOGE2": 0.6931471805599453}
    if name == "tldevice":
        return importlib.import_module("triton.language.extra.libdevice")
    return constants.get(name, MagicMock())


# --- what a kernel's text says about its arguments ------------------------------------------

_MEMORY = re.compile(r"^(tl|triton\.language)\.(load|store|atomic_\w+|make_block_ptr)$")
_INTEGERS = (ast.FloorDiv, ast.Mod, ast.BitAnd, ast.BitOr, ast.LShift, ast.RShift)


@dataclass
class Uses:
    """What becomes of the names of a function."""

    pointers: set[str]
    """Parameters that addresses are made from."""
    integers: set[str]
    """Parameters that are, or lead to, parts of addresses, bounds of loops, operands of bits."""
    sources: Mapping[str, set[str]]
    """Local name → parameters that went into it."""


class _Reader(ast.NodeVisitor):
    def __init__(self, node: ast.FunctionDef, helpers: Mapping[str, Any]) -> None:
        self.parameters = [item.arg for item in node.args.args]
        self.assigned: dict[str, list[ast.expr]] = {}
        self.pointers: set[str] = set()
        self.integers: set[str] = set()
        self.helpers = helpers
        for item in ast.walk(node):
            if isinstance(item, ast.Assign):
                for target in item.targets:
                    if isinstance(target, ast.Name):
                        self.assigned.setdefault(target.id, []).append(item.value)
            elif isinstance(item, ast.AugAssign) and isinstance(item.target, ast.Name):
                self.assigned.setdefault(item.target.id, []).append(item.value)
        self.visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        name = ast.unparse(node.func)
        first = node.args[0] if node.args else None
        if _MEMORY.match(name) and first is not None:
            root = self.root(first, set())
            if root is not None:
                self.pointers.add(root)
            self.integers |= self.closure(first) - {root}
        elif name in ("range", "tl.range", "tl.static_range", "tl.arange"):
            for argument in node.args:
                self.integers |= self.closure(argument)
        elif isinstance(node.func, ast.Name) and node.func.id in self.helpers:
            inner = self.helpers[node.func.id]
            given = dict(zip(inner.order, node.args, strict=False))
            given |= {item.arg: item.value for item in node.keywords if item.arg}
            for parameter, value in given.items():
                if parameter in inner.uses.pointers:
                    root = self.root(value, set())
                    if root is not None:
                        self.pointers.add(root)
                elif parameter in inner.uses.integers:
                    self.integers |= self.closure(value)
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if isinstance(node.op, _INTEGERS):
            self.integers |= self.closure(node)
        self.generic_visit(node)

    def root(self, node: ast.expr, seen: set[str]) -> str | None:
        """The parameter that an address starts from."""
        if isinstance(node, ast.Name):
            if node.id in self.parameters:
                return node.id
            if node.id in seen:
                return None
            for value in self.assigned.get(node.id, []):
                found = self.root(value, seen | {node.id})
                if found:
                    return found
            return None
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
            left = self.root(node.left, seen)
            right = self.root(node.right, seen) if left is None or left in self.integers else None
            return right or left
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Attribute) and node.func.attr == "to":
                return self.root(node.func.value, seen)
            if _MEMORY.match(ast.unparse(node.func)):
                return None
            return self.root(node.args[0], seen) if node.args else None
        return None

    def closure(self, node: ast.AST, seen: frozenset[str] = frozenset()) -> set[str]:
        """Parameters that go into an expression, through local names and through memory."""
        found: set[str] = set()
        for item in ast.walk(node):
            if not isinstance(item, ast.Name) or item.id in seen:
                continue
            if item.id in self.parameters:
                found.add(item.id)
            for value in self.assigned.get(item.id, []):
                found |= self.closure(value, seen | {item.id})
        return found


@dataclass(frozen=True)
class Text:
    """A jitted function's text. ``helpers``: functions that it can call."""

    node: ast.FunctionDef
    helpers: Mapping[str, Text]

    @classmethod
    def of(cls, kernel: Any, depth: int = 3) -> Text:
        """Of a triton.JITFunction."""
        node = ast.parse(kernel.src).body[0]
        assert isinstance(node, ast.FunctionDef)
        helpers = {}
        if depth:
            names = {item.id for item in ast.walk(node) if isinstance(item, ast.Name)}
            for name in sorted(names & kernel.fn.__globals__.keys()):
                value = kernel.fn.__globals__[name]
                if isinstance(getattr(value, "src", None), str) and hasattr(value, "params"):
                    helpers[name] = cls.of(value, depth - 1)
        return cls(node, helpers)

    @property
    def order(self) -> list[str]:
        """Names of the parameters."""
        return [item.arg for item in self.node.args.args]

    @cached_property
    def uses(self) -> Uses:
        """What becomes of the parameters."""
        reader = _Reader(self.node, self.helpers)
        sources = {
            name: set().union(*(reader.closure(value) for value in values))
            for name, values in reader.assigned.items()
        }
        return Uses(reader.pointers, reader.integers, sources)

    def on_line(self, line: int) -> list[str]:
        """Parameters that the statement of this line (counted from the ``def``) depends on."""
        inner = [
            item
            for item in ast.walk(self.node)
            if isinstance(item, ast.stmt) and item.lineno <= line <= (item.end_lineno or line)
        ]
        if not inner:
            return []
        statement = min(inner, key=lambda item: (item.end_lineno or line) - item.lineno)
        reader = _Reader(self.node, self.helpers)
        return sorted(reader.closure(statement))


# --- guesses --------------------------------------------------------------------------------

_INDEX = re.compile(
    r"idx|index|indice|mapping|ids?(_|$)|len|loc|cu_|slot|table|token|num|count|offset|pos"
    r"|start|map|mask|step|accepted|sched"
)
_VALUES = re.compile(
    r"logit|weight|hidden|query|key|value|output_ptr$|state|cache|cos|sin|prob|scale"
)
_FLOAT_SCALAR = re.compile(r"eps|scale|temperature|softcap|theta|momentum|alpha|beta|limit")
_FLAG = re.compile(
    r"^(is_|use_|has_|store_|output_|save_|do_|with_|enable|causal|apply|need|return)"
)

POINTERS = ("*fp32", "*i32", "*bf16", "*i64", "*i1", "*i8", "*fp16")
NUMBER = 33
STRIDE = 96


@dataclass(frozen=True)
class Style:
    """One way to guess: pointers to values and to indices, and the size of tiles."""

    values: str
    tile: int
    indices: str

    @property
    def label(self) -> str:
        """Short text."""
        return f"{self.values[1:]}_{self.tile}_{self.indices[1:]}"


STYLES = (
    Style("*fp32", 64, "*i32"),
    Style("*bf16", 128, "*i32"),
    Style("*fp32", 32, "*i64"),
    Style("*fp32", 16, "*i32"),
    Style("*i32", 64, "*i32"),
    Style("*fp16", 1024, "*i64"),
)


def guess(kernel: Any, text: Text, style: Style) -> dict[str, Any]:
    """Arguments as the compiler sees them: ``*bf16`` for a tensor, numbers, constants."""
    return {
        parameter.name: _constant(parameter, style)
        if parameter.is_constexpr
        else _argument(parameter, text, style)
        for parameter in kernel.params
    }


def _constant(parameter: Any, style: Style) -> Any:
    import triton.language as tl

    if parameter.has_default and parameter.default is not None:
        return parameter.default
    name = parameter.name.lower()
    for pattern, value in (
        (_FLAG, True),
        (r"dtype|type$", tl.float32),
        (r"eps", 1e-6),
        (r"scale|thresh|beta|alpha|limit", 1.0),
        (r"block|^b[a-z]$|tile|size|dim|^bd$|hidden|vocab|stride|^[kvdt]$", style.tile),
        (r"num|heads?|^h[kvqg]?$|count|groups?|top|steps?|width", 8),
    ):
        if re.search(pattern, name):
            return value
    return 16


def _argument(parameter: Any, text: Text, style: Style) -> Any:
    name, low = parameter.name, parameter.name.lower()
    if parameter.annotation_type:
        return NUMBER
    if name in text.uses.pointers or "ptr" in low:
        index = name in text.uses.integers or (_INDEX.search(low) and not _VALUES.search(low))
        return style.indices if index else style.values
    if _FLOAT_SCALAR.search(low) and name not in text.uses.integers:
        return 0.5
    return STRIDE if "stride" in low else NUMBER


def repairs(
    kernel: Any, text: Text, arguments: Mapping[str, Any], line: int | None, seed: int
) -> Iterator[dict[str, Any]]:
    """Endless other guesses near ``arguments``; ``line``: where the compiler stumbled."""
    rng = random.Random(seed)
    every = [parameter.name for parameter in kernel.params]
    likely = (text.on_line(line) if line else []) or every
    while True:
        changed = dict(arguments)
        for _ in range(rng.choice((1, 1, 1, 2))):
            name = rng.choice(likely if rng.random() < 0.8 else every)
            parameter = next(item for item in kernel.params if item.name == name)
            changed[name] = rng.choice(_others(parameter, changed[name]))
        yield changed


def _others(parameter: Any, value: Any) -> list[Any]:
    import triton.language as tl

    if parameter.is_constexpr:
        # No large ones: loops over constants are unrolled.
        choices = [True, False, 1, 2, 4, 8, 16, 32, tl.float32, "ieee", 0.5, None]
    else:
        choices = [NUMBER, 0.5] if parameter.annotation_type else [*POINTERS, NUMBER, 0.5]
    return [choice for choice in choices if type(choice) is not type(value) or choice != value]
