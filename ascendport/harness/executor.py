"""Runs kernels under Triton's interpreter, closer to a real launch than the interpreter alone.

Differences from ``triton.runtime.interpreter.GridExecutor`` of triton-ascend 3.2.0, each of which
makes the tree's kernels run or the result more faithful:

* launch options of the Ascend backend (``multibuffer`` …) are dropped; unknown ones are refused,
  as at a real launch;
* parameters annotated in text, or as ``tl.constexpr`` under ``from __future__ import
  annotations``, are constexpr as they are for the compiler;
* tensors need no ``cpu()`` and are not copied back onto themselves;
* a kernel's module may hold triton builtins under names of its own;
* a grid that an NPU refuses is refused;
* programs can run in reverse order, so that a kernel whose result depends on the order shows it.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from typing import Any

_GPU_OPTIONS = frozenset(
    ["num_warps", "num_stages", "num_ctas", "enable_fp_fusion", "maxnreg", "debug", "stream"]
)


MAX_PROGRAMS = 65535
"""Most programs of one launch, from ``JITFunction.run`` of triton-ascend 3.2.0. CANN refuses a
launch of none."""


@dataclass(frozen=True)
class Rules:
    """How launches run. ``reverse``: programs last to first. ``npu``: its limits on the grid hold;
    vllm-core's own kernels are launched for a GPU and have none."""

    reverse: bool = False
    npu: bool = True


@dataclass(frozen=True)
class Ran:
    """One launch that ran: the kernel's name and its grid."""

    kernel: str
    grid: tuple[int, ...]


@dataclass
class Log:
    """What ran, in order, and notes."""

    launches: list[Ran] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def known_options() -> frozenset[str]:
    """Names of launch options that a real launch accepts."""
    try:
        from triton.backends.ascend.compiler import NPUOptions
    except ImportError:
        return _GPU_OPTIONS
    return _GPU_OPTIONS | frozenset(NPUOptions.__dataclass_fields__)


def _constexprs(function: Any) -> set[str]:
    from triton.runtime.jit import _normalize_ty

    return {
        name
        for name, annotation in function.__annotations__.items()
        if "constexpr" in _normalize_ty(annotation)
    }


def _bind_builtins(function: Any) -> None:
    """Gives the builtins that a kernel's module holds by name the interpreter's builder."""
    from triton.language import core
    from triton.runtime.interpreter import interpreter_builder

    for name, value in list(function.__globals__.items()):
        if inspect.isfunction(value) and core.is_builtin(value):
            function.__globals__[name] = partial(value, _builder=interpreter_builder)


def _execute(kernel: Any, grid: Any, log: Log, rules: Rules, args: Any, kwargs: Any) -> None:
    from triton.runtime import interpreter
    from triton.runtime.errors import InterpreterError

    names = set(kernel.arg_names)
    options = known_options()
    strange = [name for name in kwargs if name not in names and name not in options]
    if strange:
        raise KeyError(f"{kernel.__name__} was launched with unknown options: {strange}")
    function = kernel.rewrite()
    _bind_builtins(function)
    interpreter._patch_lang(function)
    passed = {name: value for name, value in kwargs.items() if name in names}
    bound = inspect.getcallargs(kernel.fn, *args, **passed)
    shape = grid(bound) if callable(grid) else grid
    shape = tuple(int(extent) for extent in shape)
    log.launches.append(Ran(kernel.fn.__qualname__, shape))
    if rules.npu and not 0 < math.prod(shape) <= MAX_PROGRAMS:
        raise RuntimeError(
            f"{kernel.__name__} is launched with {math.prod(shape)} programs; "
            f"an NPU takes 1 to {MAX_PROGRAMS}"
        )
    constexprs = _constexprs(kernel.fn)
    values = {
        name: value if name in constexprs else interpreter._implicit_cvt(value)
        for name, value in bound.items()
    }
    x, y, z = shape + (1,) * (3 - len(shape))
    builder = interpreter.interpreter_builder
    builder.set_grid_dim(x, y, z)
    programs: Any = product(range(x), range(y), range(z))
    if rules.reverse:
        programs = reversed(list(programs))
    for index in programs:
        builder.set_grid_idx(*index)
        try:
            function(**values)
        except Exception as error:
            raise InterpreterError(f"program {index}: {_reason(error)}") from error


def _reason(error: BaseException) -> str:
    """The cause at the bottom: a device function's error arrives wrapped."""
    while error.__cause__ is not None:
        error = error.__cause__
    return f"{type(error).__name__}: {error}"


@contextmanager
def interpreting(log: Log, rules: Rules | None = None) -> Iterator[None]:
    """Kernels launched inside the block run here, under the interpreter.

    triton must have been imported with TRITON_INTERPRET=1 in the environment.
    """
    from triton.runtime.interpreter import InterpretedFunction

    rules = Rules() if rules is None else rules
    kept_getitem, kept_init = InterpretedFunction.__getitem__, InterpretedFunction.__init__

    def getitem(self: Any, grid: Any) -> Any:
        return lambda *args, **kwargs: self.run(*args, grid=grid, **kwargs)

    def run(self: Any, *args: Any, grid: Any, warmup: bool = False, **kwargs: Any) -> None:
        if not warmup:
            _execute(self, grid, log, rules, args, kwargs)

    def init(self: Any, fn: Any, **kwargs: Any) -> None:
        kept_init(self, fn, **kwargs)
        self.run = partial(run, self)

    InterpretedFunction.__getitem__ = getitem
    InterpretedFunction.__init__ = init
    try:
        yield
    finally:
        InterpretedFunction.__getitem__ = kept_getitem
        InterpretedFunction.__init__ = kept_init
