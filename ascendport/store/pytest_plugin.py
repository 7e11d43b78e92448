"""A pytest plugin for a checkout's own store tests where vllm is not installed.

The tests bring mocks of most of vllm; this adds what those leave out: ``torch.npu``, and every
further module of vllm that the tree's files name at import, with classes for names that begin
with a capital (they serve as bases) and mocks for the rest. The tests' directory is the current
one. Not used where vllm is installed.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from unittest.mock import MagicMock

MOCKS = "tests/ut/distributed/ascend_store/_mock_deps.py"
BASES = frozenset({"vllm.v1.kv_cache_interface"})
"""Modules that the tests mock, but whose classes the tree derives from."""

BESIDE = ("vllm_ascend.spec_decode", "vllm_ascend.spec_decode.dspark_utils")
"""Parts of the tree that the store takes one function from, and that import all the rest."""


class Stub(ModuleType):
    """A module that has every name."""

    __path__: list[str] = []  # noqa: RUF012

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        value: object = type(name, (), {}) if name[:1].isupper() else MagicMock()
        setattr(self, name, value)
        return value


def imported(file: Path) -> Iterator[str]:
    """Modules below vllm that a file imports, at any depth of its code."""
    text = file.read_bytes()
    if b"vllm." not in text:  # half of the files; to parse those would take seconds
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        yield from (name for name in names if name.startswith("vllm."))


def mocked(root: Path) -> set[str]:
    """Names that the tests' own mocks mention."""
    tree = ast.parse((root / MOCKS).read_bytes())
    constants = (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant))
    return {value for value in constants if isinstance(value, str)}


def install(root: Path) -> None:
    """Puts the stubs in place for the tree at ``root``."""
    import torch

    if not hasattr(torch, "npu"):
        torch.npu = MagicMock()
    wanted: set[str] = set()
    for top in ("vllm_ascend", "tests"):
        for file in (root / top).rglob("*.py"):
            wanted.update(imported(file))
    for name in sorted(wanted - mocked(root) | BASES):
        sys.modules.setdefault(name, Stub(name))
    for name in BESIDE:
        if (root / name.replace(".", "/")).is_dir() or (
            root / f"{name.replace('.', '/')}.py"
        ).exists():
            sys.modules.setdefault(name, Stub(name))


def pytest_load_initial_conftests() -> None:
    install(Path.cwd())
