"""A pytest plugin for a checkout's own tests of its kernels, on a machine without an NPU.

Three things stand in for what is not there: Triton's interpreter for the compiled kernel, the CPU
for the device ``npu`` that the tests name, and the loader's modules for vllm and torch_npu. The
tree is the one that ``$ASCENDPORT_TREE`` describes. What the tests draw at random while they are
collected is the same in every process, so that their names can be compared.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from types import ModuleType
from typing import Any

import pytest

from ascendport.harness.upstream import LIMIT_S, TOO_LONG, TREE

_standing: ExitStack | None = None


def _on_cpu(value: Any) -> Any:
    """What a test says of the device, said of the CPU."""
    import torch

    if isinstance(value, str) and value.partition(":")[0] == "npu":
        return "cpu"
    if isinstance(value, torch.device) and value.type == "npu":
        return torch.device("cpu")
    return value


def _device_module() -> ModuleType:
    """``torch.npu``, whose work is done as soon as it is asked for."""
    module = ModuleType("torch.npu")

    def nothing(*args: object, **kwargs: object) -> None:
        return None

    for name in ("synchronize", "empty_cache", "reset_peak_memory_stats", "set_device"):
        setattr(module, name, nothing)
    module.current_device = lambda: 0  # type: ignore[attr-defined]
    module.is_available = lambda: True  # type: ignore[attr-defined]
    return module


def install(tree_json: str) -> ExitStack:
    """Puts the stand-ins in place; closing what it gives takes them away.

    triton must not have been imported before, and TRITON_INTERPRET be 1.
    """
    import torch
    from torch.overrides import TorchFunctionMode

    from ascendport.harness import repairs
    from ascendport.harness.driver import first_configuration, stub_driver
    from ascendport.harness.executor import Log, interpreting
    from ascendport.harness.loading import Device, importing
    from ascendport.harness.workspace import Tree

    class OnCpu(TorchFunctionMode):  # type: ignore[misc]
        def __torch_function__(
            self,
            function: Callable[..., Any],
            types: Any,
            args: tuple[Any, ...] = (),
            kwargs: dict[str, Any] | None = None,
        ) -> Any:
            named = {name: _on_cpu(value) for name, value in (kwargs or {}).items()}
            return function(*(_on_cpu(value) for value in args), **named)

    def unheard(note: str) -> None:
        """Nobody reads what the interpreter has to say."""

    def here(tensor: Any, *where: object) -> Any:
        """``Tensor.npu``: it is there already."""
        return tensor

    torch.utils.rename_privateuse1_backend("npu")
    torch.npu = _device_module()
    torch.Tensor.npu = here
    sys.modules["torch_npu"] = ModuleType("torch_npu")
    repairs.apply()
    device = Device()
    with ExitStack() as stack:
        stack.enter_context(stub_driver(device))
        stack.enter_context(first_configuration(unheard))
        stack.enter_context(interpreting(Log()))
        stack.enter_context(importing(Tree.from_json(json.loads(tree_json)), device))
        stack.enter_context(OnCpu())
        return stack.pop_all()


def pytest_load_initial_conftests() -> None:
    global _standing
    random.seed(0)
    _standing = install(os.environ[TREE])


def _too_long(number: int, frame: object) -> None:
    pytest.skip(TOO_LONG)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Iterator[None]:
    # CPU time, so that it does not depend on what else the machine does.
    signal.signal(signal.SIGPROF, _too_long)
    signal.setitimer(signal.ITIMER_PROF, LIMIT_S)
    try:
        return (yield)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def pytest_unconfigure() -> None:
    if _standing is not None:
        _standing.close()
