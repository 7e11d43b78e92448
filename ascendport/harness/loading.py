"""Imports modules of a tree without vllm, without torch_npu, and without running ``__init__``.

Packages are stubs with a search path and nothing else. The few names of vllm that kernels need
at import come from `STAND_INS`; any other vllm module is refused by name, so that a result never
rests on a guess. The tree's own ``triton_utils`` is real, with its device properties set.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from ascendport.harness.light import LightTorch
from ascendport.harness.workspace import Tree


@dataclass(frozen=True)
class Device:
    """What a launcher asks of the device.

    ``vector_cores``: cores that kernels without matrix products run on; ``ub_bytes``: Unified
    Buffer of one core, bytes. The default is Ascend 910B3 (40 cores, 192 KiB).
    """

    vector_cores: int = 40
    ub_bytes: int = 192 * 1024

    @property
    def cube_cores(self) -> int:
        """One cube core serves two vector cores on every SoC with separate cores."""
        return max(1, self.vector_cores // 2)

    def properties(self) -> dict[str, int]:
        """As triton-ascend's driver answers."""
        return {
            "num_aicore": self.cube_cores,
            "num_vectorcore": self.vector_cores,
            "ub_size": self.ub_bytes,
        }


class UnavailableError(ImportError):
    """A module that the harness does not provide; the message names it and its importer."""


def _triton_utils(module: ModuleType) -> None:
    import triton
    import triton.language as tl

    module.triton = triton  # type: ignore[attr-defined]
    module.tl = tl  # type: ignore[attr-defined]
    module.HAS_TRITON = True  # type: ignore[attr-defined]
    module.LOG2E = 1.4426950408889634  # type: ignore[attr-defined]
    module.LOGE2 = 0.6931471805599453  # type: ignore[attr-defined]
    libdevice = importlib.import_module("triton.language.extra.libdevice")
    module.tldevice = libdevice  # type: ignore[attr-defined]


def _math_utils(module: ModuleType) -> None:
    def cdiv(a: int, b: int) -> int:
        return -(a // -b)

    def next_power_of_2(n: int) -> int:
        return 1 if n < 1 else 1 << (n - 1).bit_length()

    module.cdiv = cdiv  # type: ignore[attr-defined]
    module.next_power_of_2 = next_power_of_2  # type: ignore[attr-defined]


class _Logger(logging.Logger):
    def _once(self, message: str, *args: object, **kwargs: object) -> None:
        self.debug(message, *args)

    info_once = warning_once = debug_once = _once


def _logger(module: ModuleType) -> None:
    module.logger = _Logger("vllm")  # type: ignore[attr-defined]
    module.init_logger = _Logger  # type: ignore[attr-defined]


def _outputs(module: ModuleType) -> None:
    from typing import NamedTuple

    class LogprobsTensors(NamedTuple):
        """The fields by which vllm's kernels hand back log-probabilities."""

        logprob_token_ids: Any
        logprobs: Any
        selected_token_ranks: Any
        cu_num_generated_tokens: Any = None
        cu_num_generated_tokens_tensor: Any = None

    module.LogprobsTensors = LogprobsTensors  # type: ignore[attr-defined]


STAND_INS: dict[str, Callable[[ModuleType], None]] = {
    "vllm.triton_utils": _triton_utils,
    "vllm.utils.math_utils": _math_utils,
    "vllm.logger": _logger,
    "vllm.v1.outputs": _outputs,
}
"""vllm modules that kernel files import, and who fills in our own small version of them."""

ROOTS = ("vllm", "vllm_ascend", "torch_npu")
"""Top-level names that the finder answers for while a tree is loaded."""


class _StubLoader(importlib.abc.Loader):
    """A package that executes nothing, or one of the stand-ins."""

    def __init__(self, fill: Callable[[ModuleType], None] | None = None) -> None:
        self.fill = fill

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        if self.fill is not None:
            self.fill(module)


class _TreeLoader(importlib.machinery.SourceFileLoader):
    """A source file of the tree. Never reads or writes byte code: the checkout is the user's."""

    def __init__(self, name: str, path: str, device: Device) -> None:
        super().__init__(name, path)
        self.device = device

    def get_code(self, fullname: str) -> Any:
        return self.source_to_code(self.get_data(self.path), self.path)

    def exec_module(self, module: ModuleType) -> None:
        super().exec_module(module)
        preset(module, self.device)


def preset(module: ModuleType, device: Device) -> None:
    """Sets the device properties that a tree's ``triton_utils`` keeps in module globals.

    With these set, its initialiser returns before it asks the driver.
    """
    for name, value in {
        "_NUM_AICORE": device.cube_cores,
        "_NUM_VECTORCORE": device.vector_cores,
        "_UB_SIZE_BYTES": device.ub_bytes,
    }.items():
        if hasattr(module, name):
            setattr(module, name, value)


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, tree: Tree, device: Device) -> None:
        self.tree = tree
        self.device = device

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname.partition(".")[0] not in ROOTS:
            return None
        relative = fullname.replace(".", "/")
        if fullname in STAND_INS:
            return self._stub(fullname, [], STAND_INS[fullname])
        if any(name.startswith(fullname + ".") for name in STAND_INS):
            return self._stub(fullname, [str(d) for d in self.tree.directories(relative)])
        file = self.tree.file(relative + ".py")
        if file is not None:
            loader = _TreeLoader(fullname, str(file), self.device)
            return importlib.util.spec_from_file_location(fullname, file, loader=loader)
        directories = self.tree.directories(relative)
        if directories:
            return self._stub(fullname, [str(directory) for directory in directories])
        if fullname.startswith("vllm_ascend"):
            return None
        raise UnavailableError(f"needs {fullname}, for which there is no stand-in", name=fullname)

    @staticmethod
    def _stub(
        name: str, path: list[str], fill: Callable[[ModuleType], None] | None = None
    ) -> importlib.machinery.ModuleSpec:
        spec = importlib.machinery.ModuleSpec(name, _StubLoader(fill), is_package=True)
        spec.submodule_search_locations = path
        return spec


def module_name(relative: str) -> str:
    """The module name of a checkout-relative path: ``a/b/c.py`` is ``a.b.c``.

    The part in front of the top-level package is cut, so an installed tree works as well.
    """
    parts = relative.removesuffix(".py").split("/")
    for root in ROOTS:
        if root in parts:
            parts = parts[parts.index(root) :]
            break
    return ".".join(parts)


def _belongs(name: str) -> bool:
    return name.partition(".")[0] in ROOTS


@contextmanager
def importing(tree: Tree, device: Device) -> Iterator[None]:
    """Code inside the block imports the tree's modules, as `loaded` would, whichever it wants."""
    finder = _Finder(tree, device)
    sys.meta_path.insert(0, finder)
    try:
        importlib.invalidate_caches()
        yield
    finally:
        sys.meta_path.remove(finder)


@contextmanager
def loaded(
    tree: Tree, relative: str, device: Device | None = None, *, light: bool = False
) -> Iterator[ModuleType]:
    """The module at ``relative`` of ``tree``, imported; gone from `sys.modules` afterwards.

    The tree's modules can be imported inside the block, also lazily by the code that runs there.
    ``light``: the module sees a stand-in for torch instead of torch.

    Raises:
        UnavailableError: it imports a part of vllm that has no stand-in.
        NeedsTorch: with ``light``, code needed the real torch.
        Exception: whatever the module itself raises.
    """
    device = Device() if device is None else device
    kept = {name: sys.modules.pop(name) for name in list(sys.modules) if _belongs(name)}
    no_bytecode = sys.dont_write_bytecode
    torch = {
        name: sys.modules.pop(name)
        for name in list(sys.modules)
        if light and name.partition(".")[0] == "torch"
    }
    sys.dont_write_bytecode = True
    if light:
        sys.modules["torch"] = LightTorch()
    try:
        with importing(tree, device):
            yield importlib.import_module(module_name(relative))
    finally:
        sys.dont_write_bytecode = no_bytecode
        for name in [name for name in sys.modules if _belongs(name)]:
            del sys.modules[name]
        if light:
            del sys.modules["torch"]
            sys.modules.update(torch)
        sys.modules.update(kept)
