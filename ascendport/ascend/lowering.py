"""A Triton kernel to linalg text, with triton-ascend's front end.

triton is imported inside the functions: call them in a process meant for compiling. The front
end changes `os.environ` while it runs and is not thread-safe.

The text depends on the part only through the launch options, whose defaults differ between
A2/A3 and A5 (measured: equal for A2 and A3, and for A5 too in most kernels; `Linalg.key` tells).
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from ascendport.ascend import toolchain
from ascendport.ascend.diagnostics import Kind, Refusal, Stage, explain, one_line
from ascendport.ascend.soc import Family, Soc
from ascendport.errors import UserError

_NO_LINE_INFO = "TRITON_DISABLE_LINE_INFO"

# As triton-ascend's NPUOptions sets them where it finds an Ascend 950 beneath it
# (is_compile_on_910_95 in triton/backends/ascend/compiler.py).
_A5_DEFAULTS: Mapping[str, object] = {
    "compile_on_910_95": True,
    "enable_select_analysis": True,
    "multibuffer": False,
    "enable_auto_bind_sub_block": False,
}

# Launch option → compiler flag, as linalg_to_bin_enable_npu_compile_A2_A3 passes them.
_FLAGS = {
    "enable_auto_bind_sub_block": "--enable-auto-bind-sub-block",
    "enable_hivm_auto_cv_balance": "--enable-hivm-auto-cv-balance",
    "sync_solver": "--enable-hivm-graph-sync-solver",
    "unit_flag": "--enable-hivm-unit-flag-sync",
    "inject_barrier_all": "--enable-hivm-inject-barrier-all-sync",
    "inject_block_all": "--enable-hivm-inject-block-all-sync",
    "limit_auto_multi_buffer_only_for_local_buffer": (
        "--limit-auto-multi-buffer-only-for-local-buffer"
    ),
    "limit_auto_multi_buffer_of_local_buffer": "--limit-auto-multi-buffer-of-local-buffer",
    "set_workspace_multibuffer": "--set-workspace-multibuffer",
    "tile_mix_vector_loop": "--tile-mix-vector-loop",
    "tile_mix_cube_loop": "--tile-mix-cube-loop",
    "disable_auto_inject_block_sync": "--disable-auto-inject-block-sync",
}

_NEWER_MODULES = ("triton.language.extra.cann", "triton.experimental", "triton.extension")
_NO_ATTRIBUTE = re.compile(r"module '(triton[\w.]*)' has no attribute '(\w+)'")
_NO_KEYWORD = re.compile(r"(\w+)\(\) got an unexpected keyword argument '(\w+)'")


class AlignedPointer:
    """Stands for a tensor whose memory is 16-byte aligned, as fresh tensors are."""

    def __init__(self, signature: str) -> None:
        self.signature = signature

    def data_ptr(self) -> int:
        return 0


class LoosePointer(AlignedPointer):
    """Stands for a tensor whose memory is not 16-byte aligned, such as a slice."""

    def data_ptr(self) -> int:
        return 1


@dataclass(frozen=True)
class LoweringRequest:
    """One specialisation of one kernel. Make it with `of_launch` to get what a launch gets."""

    kernel: Any
    """The triton.JITFunction."""
    signature: Mapping[str, str]
    """Argument → type (``*fp32``, ``i32``, …), constexpr arguments left out."""
    constants: Mapping[str, object]
    """Constexpr arguments, arguments that are None, and integers that equal 1."""
    divisible: frozenset[str] = frozenset()
    """Arguments known to be multiples of 16 (addresses, for pointers)."""
    options: Mapping[str, object] = field(default_factory=dict)
    """Launch options: multibuffer, num_warps, …"""

    @classmethod
    def of_launch(
        cls,
        kernel: Any,
        arguments: Mapping[str, object],
        options: Mapping[str, object] | None = None,
    ) -> LoweringRequest:
        """What ``kernel[grid](**arguments, **options)`` would compile.

        Args:
            kernel: the triton.JITFunction.
            arguments: by name. A string such as ``*bf16`` stands for a 16-byte aligned tensor
                of that element type, `LoosePointer` for an unaligned one; tensors (anything
                with ``data_ptr()`` and ``dtype``), numbers, bools, None and constexpr values
                stand for themselves.
            options: launch options.

        Raises:
            UserError: an argument is missing, or the kernel does not take it.
        """
        values = _bound(kernel, arguments)
        signature: dict[str, str] = {}
        constants: dict[str, object] = {}
        divisible: set[str] = set()
        for parameter in kernel.params:
            name, value = parameter.name, values[parameter.name]
            if parameter.is_constexpr:
                constants[name] = value
                continue
            signature[name] = parameter.annotation_type or _type_of(value)
            if value is None:
                constants[name] = None
            if parameter.do_not_specialize:
                continue
            if isinstance(value, int) and not isinstance(value, bool) and value == 1:
                constants[name] = 1
            elif not parameter.do_not_specialize_on_alignment and _multiple_of_16(value):
                divisible.add(name)
        return cls(kernel, signature, constants, frozenset(divisible), dict(options or {}))


@dataclass(frozen=True)
class Linalg:
    """What the back end takes."""

    text: str
    kernel_name: str
    mix_mode: str
    """``aiv``: vector cores only; ``aic``: cube; ``mix``: both."""
    multibuffer: bool
    flags: tuple[str, ...]
    """Compiler flags that stand for launch options."""

    @property
    def key(self) -> str:
        """Digest of everything that decides the program: equal keys, equal programs."""
        parts = "\0".join([self.text, str(self.multibuffer), *self.flags])
        return hashlib.sha256(parts.encode()).hexdigest()[:16]


def _bound(kernel: Any, arguments: Mapping[str, object]) -> dict[str, object]:
    values = dict(arguments)
    known = {parameter.name for parameter in kernel.params}
    name = getattr(kernel, "__name__", str(kernel))
    for argument in values:
        if argument not in known:
            raise UserError(f"kernel takes no argument {argument!r}", where=name)
    for parameter in kernel.params:
        if parameter.name not in values:
            if not parameter.has_default:
                raise UserError(f"no value for argument {parameter.name!r}", where=name)
            values[parameter.name] = parameter.default
        value = values[parameter.name]
        if isinstance(value, str) and value.startswith("*") and not parameter.is_constexpr:
            values[parameter.name] = AlignedPointer(value)
    return values


def _type_of(value: object) -> str:
    """The type in a signature, as triton.runtime.jit.mangle_type gives it."""
    if value is None:
        return "*i8"
    if isinstance(value, AlignedPointer):
        return value.signature
    from triton.runtime.jit import mangle_type

    return str(mangle_type(value))


def _multiple_of_16(value: object) -> bool:
    """As AttrsDescriptor.is_divisible_by_16 has it."""
    if hasattr(value, "data_ptr"):
        return int(value.data_ptr()) % 16 == 0
    return value is None or (isinstance(value, int) and value % 16 == 0)


def lower(request: LoweringRequest, soc: Soc) -> Linalg | Refusal:
    """The kernel as linalg text, source lines kept. About 0.05 s.

    Refusals are values: `Kind.KERNEL` where the kernel's own text is wrong,
    `Kind.UNSUPPORTED_TOOLCHAIN` where it asks for what triton-ascend here does not have (a
    module, a function, a keyword, a launch option), otherwise what triton-adapter-opt says.

    Raises:
        TypeError: ``request.kernel`` is no JITFunction (TRITON_INTERPRET set at import?).
    """
    with _line_info():
        return _lower(request, soc)


def lower_all(request: LoweringRequest, socs: Sequence[Soc]) -> dict[Soc, Linalg | Refusal]:
    """`lower` for several parts, A2 and A3 sharing one run.

    The front end takes nothing of the part but the defaults of launch options, which A2 and A3
    have in common; a test compares the texts.

    Raises:
        TypeError: as `lower`.
    """
    fronts: dict[bool, Linalg | Refusal] = {}
    for soc in socs:
        if (soc.family is Family.A5) not in fronts:
            fronts[soc.family is Family.A5] = lower(request, soc)
    return {soc: fronts[soc.family is Family.A5] for soc in socs}


def _lower(request: LoweringRequest, soc: Soc) -> Linalg | Refusal:
    from triton._C.libtriton import ir
    from triton.backends.ascend import compiler
    from triton.backends.compiler import GPUTarget
    from triton.compiler.compiler import ASTSource
    from triton.errors import TritonError
    from triton.runtime.jit import JITFunction

    kernel = request.kernel
    if not isinstance(kernel, JITFunction):
        raise TypeError(f"not a triton.JITFunction: {type(kernel).__name__}")
    if unknown := sorted(set(request.options) - set(compiler.NPUOptions.__dataclass_fields__)):
        reason = f"{_version()} does not know the launch option {unknown[0]}"
        return Refusal(Stage.TRITON, Kind.UNSUPPORTED_TOOLCHAIN, reason)
    target = GPUTarget("npu", soc.name, 0)
    backend = compiler.AscendBackend(target)
    defaults = _A5_DEFAULTS if soc.family is Family.A5 else {}
    options = backend.parse_options({**defaults, **request.options})
    if options.force_simt_only:
        reason = "a SIMT-only launch has no linalg form"
        return Refusal(Stage.TRITON, Kind.UNSUPPORTED_TOOLCHAIN, reason)
    numbers = {parameter.name: parameter.num for parameter in kernel.params}
    ones = [
        name
        for name, value in request.constants.items()
        if name in request.signature and value is not None
    ]
    hints = {numbers[name]: 16 for name in request.divisible} | {numbers[name]: 1 for name in ones}
    attrs = compiler.AscendAttrsDescriptor.from_hints(hints)
    source = ASTSource(kernel, dict(request.signature), dict(request.constants), attrs)
    metadata: dict[str, Any] = {"hash": "", "target": target, **options.__dict__}
    try:
        context = ir.context()
        ir.load_dialects(context)
        backend.load_dialects(context)
        module = source.make_ir(
            options, backend.get_codegen_implementation(), backend.get_module_map(), context
        )
        module = compiler.make_ttir(module, metadata, options)
        text = compiler.ttir_to_linalg(module, metadata, options, named_ops=True)
    except TritonError as error:
        return _of_triton(error, kernel)
    except subprocess.CalledProcessError as error:
        said = (error.stderr or b"").decode("utf-8", "replace")
        return explain(Stage.ADAPTER, said, error.returncode)
    except Exception as error:  # libtriton raises RuntimeError, ValueError, IndexError, …
        return _of_python(error, Stage.TRITON)
    text, metadata = compiler._parse_linalg_metadata(text, metadata)
    flags = tuple(
        f"{flag}={metadata[option]}"
        for option, flag in _FLAGS.items()
        if metadata.get(option) is not None
    )
    return Linalg(
        text,
        str(metadata["kernel_name"]),
        str(metadata["mix_mode"]),
        bool(metadata["multibuffer"]),
        flags,
    )


def _of_triton(error: Exception, kernel: Any) -> Refusal:
    """triton's CompilationError: its line counts from the kernel's ``def``."""
    from triton.runtime.jit import get_jit_fn_file_line

    _, first = get_jit_fn_file_line(kernel)
    within = getattr(getattr(error, "node", None), "lineno", None)
    line = first + within - 1 if within else None
    said = getattr(error, "error_message", None) or repr(error.__cause__ or error)
    inner = _of_python_text(str(said), Stage.TRITON)
    at = f" (line {line})" if line else ""
    reason = one_line(f"{inner.reason}{at}")
    return replace(inner, reason=reason, kernel_line=line, detail=str(error))


def refusal_of_import(error: BaseException) -> Refusal:
    """Why the module that holds a kernel could not be imported, as a refusal.

    An ImportError of a part of triton that only newer versions have (such as
    ``triton.language.extra.cann.extension``) is `Kind.UNSUPPORTED_TOOLCHAIN`.
    """
    return _of_python(error, Stage.LOAD)


def _of_python(error: BaseException, stage: Stage) -> Refusal:
    name = getattr(error, "name", None) if isinstance(error, ImportError) else None
    if name and (name == "triton" or name.startswith("triton.")):
        reason = f"{_version()} has no {name}: {error}"
        return Refusal(stage, Kind.UNSUPPORTED_TOOLCHAIN, one_line(reason), None, repr(error))
    return _of_python_text(repr(error), stage)


def _of_python_text(said: str, stage: Stage) -> Refusal:
    if any(module in said for module in _NEWER_MODULES) and "Error" in said:
        kind, reason = Kind.UNSUPPORTED_TOOLCHAIN, f"{_version()}: {said}"
    elif found := _NO_ATTRIBUTE.search(said):
        kind = Kind.UNSUPPORTED_TOOLCHAIN
        reason = f"{_version()} has no {found[1]}.{found[2]}"
    elif found := _NO_KEYWORD.search(said):
        kind = Kind.UNSUPPORTED_TOOLCHAIN
        reason = f"{_version()}: {found[1]} has no argument {found[2]}"
    else:
        kind, reason = Kind.KERNEL, said
    return Refusal(stage, kind, one_line(reason), None, said)


def _version() -> str:
    return f"triton-ascend {toolchain.find().triton_ascend or '(version unknown)'}"


@contextmanager
def _line_info() -> Iterator[None]:
    before = os.environ.get(_NO_LINE_INFO)
    os.environ[_NO_LINE_INFO] = "0"
    try:
        yield
    finally:
        if before is None:
            del os.environ[_NO_LINE_INFO]
        else:
            os.environ[_NO_LINE_INFO] = before
