"""The compiler, its programs, and kernels to feed it."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from ascendport.ascend import toolchain
from ascendport.ascend.bishengir import Program, compile_program
from ascendport.ascend.diagnostics import Refusal
from ascendport.ascend.lowering import LoweringRequest, lower
from ascendport.ascend.soc import soc

Compile = Callable[..., Program | Refusal]
FAMILIES = ("A2", "A3", "A5")


def load(path: Path, name: str) -> ModuleType:
    """A module from a file, as real code and not under the Triton interpreter."""
    before = os.environ.pop("TRITON_INTERPRET", None)
    try:
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
        return module
    finally:
        if before is not None:
            os.environ["TRITON_INTERPRET"] = before


@pytest.fixture(scope="session")
def kernels() -> Iterator[Any]:
    """The module tests/ascend/kernels.py."""
    if why := toolchain.missing():
        pytest.skip(why)
    yield load(Path(__file__).with_name("kernels.py"), "ascendport_test_kernels")
    del sys.modules["ascendport_test_kernels"]


@pytest.fixture(scope="session")
def compiled(kernels: Any) -> Compile:
    """``compiled(kernel, part, element="fp32", block=1024, **options)``; each pair made once."""

    @cache
    def one(
        kernel: str, part: str, element: str = "fp32", block: int = 1024, **options: object
    ) -> Program | Refusal:
        arguments = {"x_ptr": f"*{element}", "y_ptr": f"*{element}", "n": 1000, "BLOCK": block}
        request = LoweringRequest.of_launch(getattr(kernels, kernel), arguments, options)
        lowered = lower(request, soc(part))
        if isinstance(lowered, Refusal):
            return lowered
        return compile_program(
            lowered.text, soc(part), multibuffer=lowered.multibuffer, flags=lowered.flags
        )

    return one


@pytest.fixture(scope="session")
def program(compiled: Compile) -> Callable[..., Program]:
    """As ``compiled``, for kernels that compile."""

    def one(*arguments: Any, **options: Any) -> Program:
        made = compiled(*arguments, **options)
        assert isinstance(made, Program), made
        return made

    return one
