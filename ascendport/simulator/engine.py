"""LLVM text to a function in this process."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any

import llvmlite.binding as llvm

from ascendport.simulator import native
from ascendport.simulator.errors import MalformedError
from ascendport.simulator.translate import ENTRY

CALLBACK = ctypes.CFUNCTYPE(
    ctypes.c_int32, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64
)
"""What generated code calls back: (signal, site, first, second) → nonzero to stop."""

_ENTRY_TYPE = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)


@cache
def _target() -> Any:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm.Target.from_default_triple()


def _machine() -> Any:
    """A new one each time: an execution engine takes it over."""
    return _target().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=1
    )


def _compile(text: str, level: int) -> Any:
    """Machine code of a module, as an execution engine."""
    machine = _machine()
    module = llvm.parse_assembly(text)
    module.verify()
    module.triple = machine.triple
    options = llvm.create_pipeline_tuning_options(speed_level=level)
    options.loop_vectorization = True
    passes = llvm.create_pass_builder(machine, options)
    passes.getModulePassManager().run(module, passes)
    engine = llvm.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    return engine


@cache
def _runtime() -> Any:
    """The runtime, made known to modules that are compiled later."""
    engine = _compile(native.RUNTIME, 1)
    for name in native.EXPORTS:
        llvm.add_symbol(name, engine.get_function_address(name))
    return engine


class Native:
    """A compiled program; the code lives as long as this does."""

    def __init__(self, text: str) -> None:
        """
        Raises:
            MalformedError: types or the order of values do not fit together.
        """
        self._runtime = _runtime()
        try:
            self._engine = _compile(text, 1)
        except RuntimeError as error:
            said = str(error).strip().splitlines()
            raise MalformedError(
                f"the program does not fit together: {said[-1] if said else error}"
            ) from error
        address = self._engine.get_function_address(ENTRY)
        self.run: Callable[[int, Any, int], int] = _ENTRY_TYPE(address)
        """(state block, callback, argument block) → nonzero where it was stopped."""
