"""Programs that the real compiler makes of Triton kernels."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from ascendport.ascend import toolchain
from ascendport.ascend.bishengir import Program, compile_program
from ascendport.ascend.diagnostics import Refusal
from ascendport.ascend.lowering import LoweringRequest, lower
from ascendport.ascend.soc import soc

Compile = Callable[..., str]


def compiled(kernel: Any, arguments: Mapping[str, object], part: str = "A2", **options: Any) -> str:
    """The program's text. The kernel must compile."""
    linalg = lower(LoweringRequest.of_launch(kernel, arguments, options), soc(part))
    assert not isinstance(linalg, Refusal), linalg
    program = compile_program(
        linalg.text, soc(part), multibuffer=linalg.multibuffer, flags=linalg.flags
    )
    assert isinstance(program, Program), program
    return program.text


def run_time_arguments(kernel: Any, arguments: Mapping[str, object]) -> list[str]:
    """Names of the arguments that are no constants in that specialisation, in order."""
    request = LoweringRequest.of_launch(kernel, arguments)
    return [name for name in request.signature if name not in request.constants]


@pytest.fixture(scope="session")
def compile_kernel() -> Compile:
    """`compiled`, or a skip where the toolchain is missing."""
    if why := toolchain.missing():
        pytest.skip(why)
    return compiled


@pytest.fixture
def module_of(tmp_path: Path) -> Iterator[Callable[[str], Any]]:
    """Makes a module of a kernel's source text; real code, not interpreted."""
    made: list[str] = []
    before = os.environ.pop("TRITON_INTERPRET", None)

    def make(text: str) -> Any:
        name = f"ascendport_simulated_{len(made)}_{abs(hash(tmp_path))}"
        path = tmp_path / f"{name}.py"
        path.write_text(text)
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        made.append(name)
        spec.loader.exec_module(module)
        return module

    yield make
    for name in made:
        del sys.modules[name]
    if before is not None:
        os.environ["TRITON_INTERPRET"] = before
