from __future__ import annotations

import importlib.metadata
import platform
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from ascendport.ascend import toolchain
from ascendport.ascend.toolchain import INSTALL, Toolchain, find, missing


@pytest.fixture
def complete(tmp_path: Path) -> Toolchain:
    """A toolchain with everything, of empty programs."""
    for name in (*toolchain.COMPILERS, "triton-adapter-opt"):
        (tmp_path / name).write_text("")
        (tmp_path / name).chmod(0o755)
    return Toolchain(
        triton_ascend="3.2.0",
        npu_ir="1.2.0",
        plain_triton=None,
        binaries=tmp_path,
        adapter=tmp_path / "triton-adapter-opt",
        machine="x86_64",
        system="Linux",
        python=(3, 11),
    )


def test_nothing_missing(complete: Toolchain) -> None:
    assert missing(complete) is None
    assert missing(replace(complete, machine="aarch64")) is None


@pytest.mark.parametrize(
    ("change", "says"),
    [
        pytest.param({"system": "Darwin", "machine": "arm64"}, "not on Darwin arm64", id="macos"),
        pytest.param({"machine": "riscv64"}, "x86-64 or aarch64", id="machine"),
        pytest.param(
            {"plain_triton": "3.6.0", "triton_ascend": None},
            "triton 3.6.0 is installed instead of triton-ascend",
            id="plain-triton",
        ),
        pytest.param(
            {"plain_triton": "3.6.0"}, "installed beside triton-ascend", id="both-tritons"
        ),
        pytest.param({"triton_ascend": None}, "triton-ascend is not installed", id="no-triton"),
        pytest.param(
            {"triton_ascend": None, "python": (3, 13)}, "no build for Python 3.13", id="python"
        ),
        pytest.param({"npu_ir": None}, "ascendnpu-ir (the compiler)", id="no-compiler"),
        pytest.param({"binaries": Path("/nowhere")}, "/nowhere/bishengir", id="no-binary"),
        pytest.param({"adapter": None}, "triton-adapter-opt is missing", id="no-adapter"),
    ],
)
def test_reason_for_what_is_missing(
    complete: Toolchain, change: dict[str, object], says: str
) -> None:
    why = missing(replace(complete, **change))  # type: ignore[arg-type]
    assert why is not None
    assert says in why
    assert "\n" not in why


def test_what_is_missing_says_how_to_install(complete: Toolchain) -> None:
    assert INSTALL in (missing(replace(complete, npu_ir=None)) or "")


def test_binary_that_cannot_be_run(complete: Toolchain) -> None:
    assert complete.binaries is not None
    (complete.binaries / "bishengir-compile").chmod(0o644)
    assert "cannot be run" in (missing(complete) or "")


def test_find_looks_at_this_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    versions = {"triton": "3.6.0", "ascendnpu-ir": "9.9"}

    def version(name: str) -> str:
        if name in versions:
            return versions[name]
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", version)
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    found = find()
    assert (found.plain_triton, found.npu_ir, found.triton_ascend) == ("3.6.0", "9.9", None)
    assert found.machine == "aarch64"
    assert found.python == sys.version_info[:2]


def test_absent_binary(monkeypatch: pytest.MonkeyPatch, complete: Toolchain) -> None:
    monkeypatch.setattr(toolchain, "find", lambda: complete)
    assert toolchain.binary("bishengir-opt").is_file()
    with pytest.raises(FileNotFoundError):
        toolchain.binary("bishengir-other")


@pytest.mark.parametrize(
    "module",
    [
        "soc",
        "toolchain",
        "diagnostics",
        "facts",
        "program_text",
        "loops",
        "program",
        "bishengir",
        "lowering",
        "canary",
    ],
)
def test_import_pulls_in_neither_triton_nor_torch(module: str) -> None:
    script = (
        f"import sys, ascendport.ascend.{module} as m; from ascendport.ascend import toolchain; "
        "toolchain.missing(); print(sorted({'triton', 'torch', 'ascendnpuir'} & set(sys.modules)))"
    )
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert said.stdout == "[]\n", said.stderr
