from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ascendport.ascend import bishengir
from ascendport.ascend.bishengir import CompileRequest, Program, compile_many, compile_program
from ascendport.ascend.diagnostics import Kind, Refusal, Stage
from ascendport.ascend.soc import soc
from tests.processes import ends

A2 = soc("A2")
FakeCompiler = Callable[[str], Path]

HAND_OVER = """
for word in "$@"; do case "$word" in --save-temps=*) temps=${word#--save-temps=};; esac; done
mkdir -p "$temps"; echo 'func.func @finished' > "$temps/any.name"
"""


@pytest.fixture
def fake(tmp_path: Path) -> FakeCompiler:
    """Writes a shell script that plays the compiler."""

    def write(body: str) -> Path:
        script = tmp_path / "fake-compiler"
        script.write_text(f"#!/bin/sh\n# A fake compiler for a test.\n{body}\n")
        script.chmod(0o755)
        return script

    return write


def _compile(compiler: Path, timeout_s: float = 30.0) -> Program | Refusal:
    return compile_program("module {}", A2, compiler=compiler, timeout_s=timeout_s)


def test_program_is_what_the_assembler_is_handed(fake: FakeCompiler) -> None:
    made = _compile(fake(HAND_OVER + 'hivmc --version && hivmc "$temps/any.name" -o out'))
    assert isinstance(made, Program), made
    assert made.text == "func.func @finished\n"
    assert made.soc is A2
    assert made.notes == ()
    assert made.seconds > 0


def test_error_of_an_attempt_that_was_given_up_is_a_note(fake: FakeCompiler) -> None:
    said = """
echo 'error: ub overflow, requires 2097152 bits while 1572864 bits available!' >&2
echo '[NOTE] multi-buffer set to false' >&2
echo '[NOTE] multi-buffer set to false' >&2
"""
    made = _compile(fake(HAND_OVER + said + 'hivmc "$temps/any.name"'))
    assert isinstance(made, Program), made
    assert made.notes == (
        "an attempt was given up: Unified Buffer overflow: needs 256 KiB of 192 KiB",
        "multi-buffer set to false",
    )


@pytest.mark.parametrize(
    ("body", "kind", "says"),
    [
        pytest.param("kill -SEGV $$", Kind.CRASH, "SIGSEGV", id="crash"),
        pytest.param("exit 0", Kind.NO_PROGRAM, "made no program", id="well-without-a-program"),
        pytest.param(
            HAND_OVER + "exit 0", Kind.NO_PROGRAM, "made no program", id="saved-but-not-handed-over"
        ),
        pytest.param(
            HAND_OVER + "echo 'error: late failure' >&2; exit 1",
            Kind.LOWERING,
            "late failure",
            id="file-and-error",
        ),
        pytest.param(
            HAND_OVER + 'hivmc "$temps/any.name"; echo "error: after the end" >&2; exit 1',
            Kind.LOWERING,
            "after the end",
            id="handed-over-and-error",
        ),
        pytest.param(
            'echo nothing > "$0.out"; hivmc "$0.out"',
            Kind.NO_PROGRAM,
            "holds no program",
            id="empty",
        ),
        pytest.param(
            "hivmc /nowhere/module.mlir", Kind.NO_PROGRAM, "holds no program", id="absent-file"
        ),
        pytest.param(
            "echo '[ERROR] Cannot find hivmc under $PATH' >&2; exit 1",
            Kind.UNSUPPORTED_TOOLCHAIN,
            "TMPDIR",
            id="stand-in-cannot-run",
        ),
        pytest.param("exit 7", Kind.LOWERING, "exit status 7", id="silent-failure"),
    ],
)
def test_verdicts(fake: FakeCompiler, body: str, kind: Kind, says: str) -> None:
    refused = _compile(fake(body))
    assert isinstance(refused, Refusal)
    assert refused.kind is kind
    assert says in refused.reason


def test_timeout_kills_the_whole_group(fake: FakeCompiler, tmp_path: Path) -> None:
    note = tmp_path / "child"
    refused = _compile(fake(f"sleep 300 & echo $! > {note}; wait"), timeout_s=0.5)
    assert isinstance(refused, Refusal)
    assert refused.kind is Kind.TIMEOUT
    assert "0.5 s" in refused.reason
    child = int(note.read_text())
    assert ends(child)


@pytest.mark.skipif(sys.platform != "linux", reason="needs prctl")
def test_the_compiler_ends_with_a_caller_that_is_killed(fake: FakeCompiler, tmp_path: Path) -> None:
    compiler = fake("echo $$; exec sleep 300")
    caller = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import subprocess, sys\n"
            "from ascendport.ascend import bishengir\n"
            "started = subprocess.Popen\n"
            "def popen(*args, **kwargs):\n"
            "    process = started(*args, **kwargs)\n"
            "    print(process.pid, flush=True)\n"
            "    return process\n"
            "bishengir.subprocess.Popen = popen\n"
            "from tests.ascend.test_bishengir import _compile\n"
            f"_compile(bishengir.Path({str(compiler)!r}), 300)\n",
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert caller.stdout is not None
    process = int(caller.stdout.readline())
    caller.kill()
    caller.wait()
    caller.stdout.close()
    assert ends(process)


def test_absent_compiler() -> None:
    with pytest.raises(FileNotFoundError):
        _compile(Path("/nowhere/compiler"))


def test_temporary_files_are_gone(fake: FakeCompiler, tmp_path: Path) -> None:
    script = fake(f'pwd > "{tmp_path}/where"; exit 1')
    _compile(script)
    assert not Path((tmp_path / "where").read_text().strip()).exists()


def test_stand_in_is_made_again_when_it_was_swept_away(fake: FakeCompiler) -> None:
    for script in bishengir._stand_in_folder().iterdir():
        script.unlink()
    assert isinstance(_compile(fake(HAND_OVER + 'hivmc "$temps/any.name"')), Program)


def test_command_of_each_family() -> None:
    here = Path("x")
    old = bishengir.command(CompileRequest("", soc("A3"), False), here, here, here)
    new = bishengir.command(
        CompileRequest("", soc("A5"), True, ("--enable-auto-bind-sub-block=False",)),
        here,
        here,
        here,
    )
    assert "--enable-hivm-compile=true" in old
    assert "--enable-hivm-compile=true" not in new
    assert "--enable-auto-multi-buffer=False" in old
    assert "--enable-auto-multi-buffer=True" in new
    assert [flag for flag in old if "sub-block" in flag] == ["--enable-auto-bind-sub-block=True"]
    assert [flag for flag in new if "sub-block" in flag] == ["--enable-auto-bind-sub-block=False"]
    assert os.fspath(here) in old


def test_many_keep_their_order_and_are_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    lock = threading.Lock()

    def compile_one(linalg: str, part: object, **options: object) -> Refusal:
        time.sleep(0.01 * (5 - len(linalg)))
        with lock:
            made.append(linalg)
        return Refusal(Stage.BISHENGIR, Kind.LOWERING, linalg)

    monkeypatch.setattr(bishengir, "compile_program", compile_one)
    texts = ["a", "bb", "ccc", "a", "bb"]
    results = compile_many([CompileRequest(text, A2) for text in texts], jobs=3)
    assert [result.reason for result in results if isinstance(result, Refusal)] == texts
    assert sorted(made) == ["a", "bb", "ccc"]


def test_none_to_make() -> None:
    assert compile_many([]) == []


@pytest.mark.ascend
@pytest.mark.parametrize("part", ["A2", "A3", "A5"])
def test_real_program(part: str, program: Callable[..., Program]) -> None:
    made = program("add_one", part)
    assert "func.func @add_one(" in made.text
    assert "kernels.py" in made.text
    assert ("_vf_" in made.text) == (part == "A5")


@pytest.mark.ascend
def test_fallback_is_noted(program: Callable[..., Program]) -> None:
    made = program("stream", "A2", "fp32", 32768, multibuffer=True)
    assert any("multi-buffer to false" in note for note in made.notes)
    assert program("stream", "A2", "fp32", 1024).notes == ()
