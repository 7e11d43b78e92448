"""The Ascend toolchain in this environment, found without importing any of it."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import sys
from dataclasses import dataclass
from pathlib import Path

INSTALL = "pip install 'ascendport[ascend]'"
TRITON_ASCEND = "triton-ascend"
NPU_IR = "ascendnpu-ir"
MACHINES = {"x86_64": "x86-64", "amd64": "x86-64", "aarch64": "aarch64", "arm64": "aarch64"}
COMPILERS = ("bishengir-compile", "bishengir-compile-a5", "bishengir-opt")
NEWEST_PYTHON = (3, 11)
"""triton-ascend 3.2.0 has wheels for CPython 3.9 to 3.11."""


@dataclass(frozen=True)
class Toolchain:
    """What was found. ``missing()`` says whether it is enough."""

    triton_ascend: str | None
    """Version of triton-ascend."""
    npu_ir: str | None
    """Version of ascendnpu-ir."""
    plain_triton: str | None
    """Version of the package ``triton``, which takes the place of triton-ascend."""
    binaries: Path | None
    """Folder of the compilers."""
    adapter: Path | None
    """triton-adapter-opt."""
    machine: str
    system: str
    python: tuple[int, int]


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _package_folder(module: str) -> Path | None:
    """Folder of a top-level package; the search does not run it."""
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        return None
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parent


def find() -> Toolchain:
    """Looks at this interpreter's environment. Imports nothing, runs nothing."""
    npu_ir = _package_folder("ascendnpuir")
    triton = _package_folder("triton")
    return Toolchain(
        triton_ascend=_version(TRITON_ASCEND),
        npu_ir=_version(NPU_IR),
        plain_triton=_version("triton"),
        binaries=npu_ir / "bin" if npu_ir else None,
        adapter=triton / "backends" / "ascend" / "triton-adapter-opt" if triton else None,
        machine=platform.machine(),
        system=platform.system(),
        python=(sys.version_info[0], sys.version_info[1]),
    )


def missing(found: Toolchain | None = None) -> str | None:
    """Why nothing can be compiled here, in one line with what to do; None if all is there."""
    here = find() if found is None else found
    if here.system != "Linux" or here.machine.lower() not in MACHINES:
        return (
            f"the Ascend compiler runs on Linux, x86-64 or aarch64, not on {here.system} "
            f"{here.machine}; use such a machine or container"
        )
    if here.plain_triton is not None:
        beside = "beside" if here.triton_ascend else "instead of"
        return (
            f"the package triton {here.plain_triton} is installed {beside} triton-ascend, and "
            f"both are the module `triton`; in a fresh environment: {INSTALL}"
        )
    if here.triton_ascend is None:
        python = ".".join(map(str, here.python))
        if here.python > NEWEST_PYTHON:
            return (
                f"triton-ascend has no build for Python {python}; "
                f"in an environment with Python 3.11: {INSTALL}"
            )
        return f"triton-ascend is not installed; {INSTALL}"
    if here.npu_ir is None:
        return f"ascendnpu-ir (the compiler) is not installed; {INSTALL}"
    for program in _programs(here):
        if not os.access(program, os.X_OK):
            return f"{program} is missing or cannot be run; reinstall: {INSTALL}"
    return None


def _programs(here: Toolchain) -> list[Path]:
    folder = here.binaries or Path("ascendnpuir/bin")
    adapter = here.adapter or Path("triton-adapter-opt")
    return [adapter, *(folder / name for name in COMPILERS)]


def binary(name: str) -> Path:
    """Path of one of `COMPILERS`.

    Raises:
        FileNotFoundError: not installed; ask ``missing()`` first.
    """
    folder = find().binaries
    if folder is None or not (folder / name).is_file():
        raise FileNotFoundError(name)
    return folder / name
