from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ascendport.ascend.diagnostics import Kind, Refusal, Stage, explain, kernel_line, one_line

OVERFLOW = (
    'loc("k.py":3:0): error: Failed to run BiShengHIR pipeline\n\n'
    'loc("k.py":3:0): error: ub overflow, requires 4194304 bits while 1572864 bits available!\n'
    'loc("k.py":3:0): error: ub overflow, requires 2113536 bits while 1572864 bits available!\n'
)


def test_overflow_in_kib_of_the_last_attempt() -> None:
    found = explain(Stage.BISHENGIR, OVERFLOW, 1)
    assert found.kind is Kind.OVERFLOW
    assert found.reason == "Unified Buffer overflow: needs 258 KiB of 192 KiB"
    assert found.kernel_line == 3
    assert found.detail == OVERFLOW


def test_other_buffers_by_name() -> None:
    said = "error: cbuf overflow, requires 8388608 bits while 4194304 bits available!"
    assert (
        explain(Stage.BISHENGIR, said, 1).reason == "L1 buffer overflow: needs 1024 KiB of 512 KiB"
    )


@pytest.mark.parametrize(
    ("said", "kind", "reason", "line"),
    [
        pytest.param(
            'loc("k.py":2:0): error: Failed to run X pipeline\n'
            "loc(\"k.py\":9:4): error: 'hivm.hir.vsort' op failed to verify that it sorts floats",
            Kind.UNSUPPORTED_OPERATION,
            "hivm.hir.vsort at line 9: it sorts floats",
            9,
            id="operation",
        ),
        pytest.param(
            "loc(\"k.py\":7:1): error: failed to legalize operation 'linalg.reduce' (illegal)",
            Kind.UNSUPPORTED_OPERATION,
            "no lowering for linalg.reduce at line 7",
            7,
            id="legalize",
        ),
        pytest.param(
            'loc("k.py":5:1): error: strides do not fit',
            Kind.LOWERING,
            "strides do not fit",
            5,
            id="lowering",
        ),
        pytest.param(
            'loc("k.py":5:1): error: Failed to run X pipeline',
            Kind.LOWERING,
            "Failed to run X pipeline, no reason given",
            5,
            id="no-reason",
        ),
        pytest.param("what?", Kind.LOWERING, "ended with exit status 1: what?", None, id="odd"),
        pytest.param("", Kind.LOWERING, "exit status 1: no message", None, id="silent"),
        pytest.param("Assertion `x' failed", Kind.CRASH, "crashed", None, id="assertion"),
    ],
)
def test_kinds(said: str, kind: Kind, reason: str, line: int | None) -> None:
    found = explain(Stage.BISHENGIR, said, 1)
    assert found.kind is kind
    assert reason in found.reason
    assert found.kernel_line == line


def test_signal_is_a_crash_whatever_was_said() -> None:
    found = explain(Stage.ADAPTER, OVERFLOW, -11)
    assert found.kind is Kind.CRASH
    assert found.reason == "triton-adapter-opt crashed (SIGSEGV)"


def test_signal_without_a_name() -> None:
    assert "signal 200" in explain(Stage.ADAPTER, "", -200).reason


@pytest.mark.parametrize(
    ("place", "line"),
    [
        ('"k.py":7:16', 7),
        ('fused["/x/triton/language/standard.py":9:1, "k.py":8:2]', 8),
        ('callsite("/x/triton/language/core.py":1:1 at "k.py":12:3)', 12),
        ('"internal":0:0', None),
        ("unknown", None),
    ],
)
def test_line_is_the_kernels(place: str, line: int | None) -> None:
    assert kernel_line(place) == line


def test_only_an_old_toolchain_is_no_verdict() -> None:
    verdicts = {kind: Refusal(Stage.LOAD, kind, "").is_verdict for kind in Kind}
    assert [kind for kind, is_one in verdicts.items() if not is_one] == [Kind.UNSUPPORTED_TOOLCHAIN]


@given(st.text(), st.integers(-70, 255))
def test_any_message_gives_one_line(said: str, status: int) -> None:
    found = explain(Stage.BISHENGIR, said, status)
    assert found.reason
    assert found.reason == one_line(found.reason)
    assert len(found.reason.splitlines()) == 1


Compiled = Callable[..., object]


@pytest.mark.ascend
@pytest.mark.parametrize(
    ("kernel", "part", "element", "block", "stage", "kind", "reason", "text"),
    [
        pytest.param(
            "stream", "A2", "fp32", 65536, Stage.BISHENGIR, Kind.OVERFLOW,
            "Unified Buffer overflow: needs 256 KiB of 192 KiB", "def stream(", id="overflow-A2",
        ),
        pytest.param(
            "stream", "A5", "fp32", 65536, Stage.BISHENGIR, Kind.OVERFLOW,
            "Unified Buffer overflow: needs 256 KiB of 248 KiB", "def stream(", id="overflow-A5",
        ),
        pytest.param(
            "repeated_square", "A3", "fp64", 64, Stage.BISHENGIR, Kind.UNSUPPORTED_OPERATION,
            "hivm.hir.", "x = x * x + left", id="operation-A3",
        ),
        pytest.param(
            "repeated_square", "A5", "fp64", 64, Stage.BISHENGIR, Kind.UNSUPPORTED_OPERATION,
            "hivm.hir.load", "tl.load(x_ptr", id="operation-A5",
        ),
        pytest.param(
            "first_maximum", "A5", "i64", 64, Stage.BISHENGIR, Kind.UNSUPPORTED_OPERATION,
            "no lowering for linalg.reduce", "tl.argmax", id="legalize-A5",
        ),
        pytest.param(
            "matrix_square", "A5", "fp32", 64, Stage.BISHENGIR, Kind.LOWERING,
            "no reason given", "def matrix_square(", id="no-reason-A5",
        ),
        pytest.param(
            "unknown_name", "A2", "fp32", 64, Stage.TRITON, Kind.KERNEL,
            "missing is not defined", "missing)", id="kernel",
        ),
        pytest.param(
            "newer_function", "A2", "fp32", 64, Stage.TRITON, Kind.UNSUPPORTED_TOOLCHAIN,
            "has no triton.language.not_in_this_version", "tl.not_in", id="newer-function",
        ),
        pytest.param(
            "newer_argument", "A2", "i32", 64, Stage.TRITON, Kind.UNSUPPORTED_TOOLCHAIN,
            "histogram has no argument mask", "mask=offsets < n)", id="newer-argument",
        ),
    ],
)  # fmt: skip
def test_real_messages(
    compiled: Compiled,
    kernel: str,
    part: str,
    element: str,
    block: int,
    stage: Stage,
    kind: Kind,
    reason: str,
    text: str,
) -> None:
    from pathlib import Path

    refused = compiled(kernel, part, element, block)
    assert isinstance(refused, Refusal)
    assert (refused.stage, refused.kind) == (stage, kind)
    assert reason in refused.reason
    source = Path(__file__).with_name("kernels.py").read_text().splitlines()
    assert refused.kernel_line is not None
    assert text in source[refused.kernel_line - 1]
