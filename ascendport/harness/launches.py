"""Records what a launcher would launch: kernel, grid, specialisation, options; nothing runs.

The launch code of a case is driven with every `JITFunction.run` replaced. What is recorded is
what ``triton.runtime.jit.JITFunction.run`` of triton-ascend 3.2.0 computes before it compiles: it
calls the same binder, ``parse_options`` and ``get_attrs_descriptor``.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from ascendport.errors import UserError
from ascendport.harness.buffers import (
    Arena,
    array_of,
    light_tensors,
    uninitialised_is_poison,
)
from ascendport.harness.case import Array, Case, Workload
from ascendport.harness.driver import first_configuration, stub_driver
from ascendport.harness.inputs import draw
from ascendport.harness.light import NeedsTorch
from ascendport.harness.loading import Device, loaded
from ascendport.harness.portcode import PortCode
from ascendport.harness.workspace import Tree

Constant = int | float | bool | str | None


@dataclass(frozen=True)
class TensorArgument:
    """A tensor that a kernel was handed.

    ``tensor``: its name in the workload; empty for one that the launcher made itself.
    ``dtype``: Triton name. ``shape``/``strides``/``offset``: elements; ``offset`` counts from the
    first element of the workload's tensor.
    """

    tensor: str
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int = 0

    def to_json(self) -> dict[str, Any]:
        return {
            "tensor": self.tensor,
            "dtype": self.dtype,
            "shape": list(self.shape),
            "strides": list(self.strides),
            "offset": self.offset,
        }


@dataclass(frozen=True)
class Launch:
    """One kernel launch, as the compiler would see it.

    ``signature``: parameter → Triton type (``*bf16``, ``i32``) for all that are not constexpr, in
    order, those specialised to a constant included, as `ASTSource` wants it.
    ``constants``: constexpr parameters, integers equal to 1, and None.
    ``divisible_by_16`` / ``equal_to_1``: parameter names; pointers count by address.
    ``options``: launch options given by the launcher or the ``jit`` decorator.
    ``grid``: as given, callables resolved.
    ``note``: what a reader must know, e.g. that an autotuned kernel runs one configuration.
    ``function``: the `JITFunction`, valid in this process; not part of the JSON.
    """

    file: str
    kernel: str
    grid: tuple[int, ...]
    signature: Mapping[str, str]
    constants: Mapping[str, Any]
    divisible_by_16: tuple[str, ...]
    equal_to_1: tuple[str, ...]
    options: Mapping[str, Any]
    tensors: Mapping[str, TensorArgument]
    scalars: Mapping[str, Constant]
    note: str = ""
    function: Any = field(default=None, repr=False, compare=False)

    @property
    def programs(self) -> int:
        """Programs in the grid."""
        total = 1
        for extent in self.grid:
            total *= extent
        return total

    def parameters(self) -> list[str]:
        """Names of all parameters, in order."""
        return [parameter.name for parameter in self.function.params]

    def attrs(self) -> Any:
        """The descriptor that triton's `ASTSource` takes."""
        from triton.backends.ascend.compiler import AscendAttrsDescriptor

        index = {name: number for number, name in enumerate(self.parameters())}
        return AscendAttrsDescriptor.from_dict(
            {
                "cls": "AscendAttrsDescriptor",
                "arg_properties": {
                    "tt.divisibility": [index[name] for name in self.divisible_by_16],
                    "tt.equal_to": [index[name] for name in self.equal_to_1],
                },
            }
        )

    def program_key(self) -> str:
        """Equal for launches that run the same compiled program."""
        return repr(
            (
                self.file,
                self.kernel,
                sorted(self.signature.items()),
                sorted((name, repr(value)) for name, value in self.constants.items()),
                sorted(self.divisible_by_16),
                sorted((name, repr(value)) for name, value in self.options.items()),
            )
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "file": self.file,
            "kernel": self.kernel,
            "grid": list(self.grid),
            "signature": dict(self.signature),
            "constants": {name: _plain(value) for name, value in self.constants.items()},
            "divisible_by_16": list(self.divisible_by_16),
            "equal_to_1": list(self.equal_to_1),
            "options": {name: _plain(value) for name, value in self.options.items()},
            "tensors": {name: tensor.to_json() for name, tensor in self.tensors.items()},
            "scalars": dict(self.scalars),
            "note": self.note,
        }


def _plain(value: Any) -> Constant:
    """JSON has numbers and text; a constexpr dtype or tuple is given as text."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return str(value)


def _without(mapping: Mapping[str, Any], names: set[str]) -> dict[str, Any]:
    return {name: value for name, value in mapping.items() if name not in names}


@dataclass(frozen=True)
class Recording:
    """What launch code launched, in order.

    ``torch``: it works with tensors itself, not only with their shapes, so that the launches are
    not all that it does.
    """

    launches: tuple[Launch, ...]
    torch: bool


OnLaunch = Callable[[Launch, Mapping[str, Array]], None]
"""Called at each launch with its tensors, by parameter, as arrays over their memory."""


class _Recorder:
    """Stands where `JITFunction.run` stands."""

    def __init__(
        self,
        tree: Tree,
        describe: Callable[[Any], TensorArgument],
        on_launch: OnLaunch | None = None,
    ) -> None:
        self.tree = tree
        self.describe = describe
        self.on_launch = on_launch
        self.launches: list[Launch] = []
        self._note = ""

    def note(self, text: str) -> None:
        self._note = text

    def run(self, function: Any, *args: Any, grid: Any, warmup: bool = False, **kwargs: Any) -> Any:
        from triton.compiler import make_backend
        from triton.runtime.driver import driver

        backend = make_backend(driver.active.get_current_target())
        for hook in function.pre_run_hooks:
            hook(*args, **kwargs)
        if function.binder is None:
            function.create_binder(backend)
        if function.bishengir_option:
            kwargs.update(function.bishengir_option)
        kwargs.setdefault("debug", False)
        bound, keys, _, _, excess = function.binder(*args, **kwargs)
        known = backend.parse_options(kwargs).__dict__
        unknown = [name for name in excess if name not in known]
        if unknown:
            raise KeyError(f"{function.__name__} was launched with unknown options: {unknown}")

        parameters = function.params
        runtime = [parameter for parameter in parameters if not parameter.is_constexpr]
        types = keys[: len(runtime)]
        signature = {
            parameter.name: "*i8" if kind == "none" else kind
            for parameter, kind in zip(runtime, types, strict=True)
        }
        values = tuple(bound.values())
        attrs = backend.get_attrs_descriptor(parameters, values)
        fixed = attrs.get_constants()
        constants = {
            parameter.name: value
            for parameter, value in zip(parameters, values, strict=True)
            if parameter.is_constexpr or parameter.num in fixed or value is None
        }
        for name, value in constants.items():
            if callable(value):
                raise TypeError(f"constexpr {name} of {function.__name__} is a function")
        shape = grid(bound) if callable(grid) else grid
        names = [parameter.name for parameter in parameters]
        tensors = {
            parameter.name: self.describe(bound[parameter.name])
            for parameter in runtime
            if hasattr(bound[parameter.name], "data_ptr")
        }
        self.launches.append(
            Launch(
                file=self.tree.relative(inspect.getfile(function.fn)),
                kernel=function.fn.__qualname__,
                grid=tuple(int(extent) for extent in shape),
                signature=signature,
                constants=constants,
                divisible_by_16=tuple(names[i] for i in attrs.arg_properties["tt.divisibility"]),
                equal_to_1=tuple(names[i] for i in attrs.arg_properties["tt.equal_to"]),
                options=_without(excess, {"debug", "stream"}),
                tensors=tensors,
                scalars={
                    parameter.name: bound[parameter.name]
                    for parameter in runtime
                    if parameter.name not in tensors
                },
                note=self._note,
                function=function,
            )
        )
        self._note = ""
        if self.on_launch is not None:
            arrays = {name: array_of(bound[name]) for name in tensors}
            self.on_launch(self.launches[-1], arrays)
        return None


@contextmanager
def _recording(recorder: _Recorder) -> Iterator[None]:
    from triton.runtime.jit import JITFunction

    kept = JITFunction.run

    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        return recorder.run(self, *args, **kwargs)

    JITFunction.run = run
    try:
        yield
    finally:
        JITFunction.run = kept


def record(
    tree: Tree,
    file: str,
    entry: str,
    port: PortCode,
    case: Case,
    variant: str,
    *,
    device: Device | None = None,
    seed: int = 0,
    workload: Workload | None = None,
) -> Recording:
    """What the port's launch code would launch for ``case``, in order.

    ``file`` (checkout-relative) of ``tree`` is imported and its ``entry`` launched. Tensors are
    stand-ins; when the launcher needs more than shapes, it all starts over with torch.
    Raises:
        UserError: triton was imported for interpreting, so that nothing could be compiled.
        UnavailableError: the file needs a part of vllm that has no stand-in.
        Exception: whatever the launcher raises.
    """
    _refuse_interpreter()
    device = Device() if device is None else device
    if workload is None:
        workload = draw(port, case, variant, seed)
    tensors, describe = light_tensors(workload)
    recorder = _Recorder(tree, describe)
    try:
        _drive(recorder, file, entry, port, variant, device, tensors, workload, light=True)
        return Recording(tuple(recorder.launches), torch=False)
    except NeedsTorch:
        with Arena.anonymous(workload) as arena:
            return step(tree, file, entry, port, variant, device, workload, arena)


def step(
    tree: Tree,
    file: str,
    entry: str,
    port: PortCode,
    variant: str,
    device: Device,
    workload: Workload,
    arena: Arena,
    on_launch: OnLaunch | None = None,
) -> Recording:
    """Drives the launch code with torch tensors over ``arena``; ``on_launch`` may run each launch.

    Tensors that the launch code makes itself hold poison until somebody writes to them.
    Raises as `record`.
    """
    _refuse_interpreter()
    tensors, describe = arena.torch_tensors()
    recorder = _Recorder(tree, describe, on_launch)
    with uninitialised_is_poison():
        _drive(recorder, file, entry, port, variant, device, tensors, workload, light=False)
    return Recording(tuple(recorder.launches), torch=True)


def _refuse_interpreter() -> None:
    import triton
    from triton.runtime.jit import JITFunction

    interpreted = os.environ.get("TRITON_INTERPRET", "0") == "1"
    if interpreted or not isinstance(triton.language.standard.zeros, JITFunction):
        raise UserError(
            "kernels cannot be compiled while Triton interprets them",
            where="TRITON_INTERPRET",
            next="unset it",
        )


def _drive(
    recorder: _Recorder,
    file: str,
    entry: str,
    port: PortCode,
    variant: str,
    device: Device,
    tensors: Mapping[str, Any],
    workload: Workload,
    *,
    light: bool,
) -> None:
    with ExitStack() as stack:
        stack.enter_context(stub_driver(device))
        stack.enter_context(first_configuration(recorder.note))
        stack.enter_context(_recording(recorder))
        module = stack.enter_context(loaded(recorder.tree, file, device, light=light))
        port.launch(getattr(module, entry), tensors, dict(workload.scalars), variant)
