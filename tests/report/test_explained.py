"""What simulate shows says what its facts say, and calls each latency modelled."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from ascendport.ascend.soc import soc
from ascendport.checkout.tree import Checkout, Layout
from ascendport.commands import Simulation
from ascendport.errors import ExitCode
from ascendport.explain.model import (
    Explanation,
    Found,
    Hint,
    HotLine,
    Latency,
    LaunchFacts,
    PipeUse,
    Place,
    ScalarLoop,
    SlowCall,
    UbUse,
)
from ascendport.explain.run import Problem
from ascendport.report import explained, facts

LINE = Place("vllm_ascend/own.py", 59, "bits = words[:, None] >> lane")
LATENCY = Latency(80.0, 56.3, 113.6, 0.42, "load", (("load", 60.0), ("scalar", 20.0)))
LAUNCH = LaunchFacts(
    kernel="_own_kernel",
    file="vllm_ascend/own.py",
    grid=(8, 5),
    programs=40,
    cores_used=40,
    waves=1,
    sampled=40,
    kinds=2,
    bytes_read=3_000_000,
    bytes_written=1_000_000,
    tensor_bytes=4_000_000,
    resident=True,
    findings=(),
    latency=LATENCY,
    pipes=(
        PipeUse("S", 90000, 50.0, (("wait for V", 30.0), ("barrier", 0.1))),
        PipeUse("MTE2", 9000, 5.0, ()),
    ),
    hot_lines=(
        HotLine(LINE, 60.0, 0.75, "S", "scalar", (("scalar", 60.0),), (("f", 8), ("g", 2))),
        HotLine(None, 20.0, 0.25, "V", "vector", (("vector", 17.0), ("launch", 3.0))),
    ),
    scalar_loops=(ScalarLoop(LINE, 1024, 8, ("shrsi i32",), False, False, 55.0),),
    slow_calls=(SlowCall(LINE, "arange_2d_int32_t", 1, 4096, 5.0),),
    ub=UbUse(4096, 8192, 196608, ((0.0, 0), (10.0, 2048), (20.0, 4096))),
    vector_us=12.0,
    hints=(Hint("change [this]", 55.0, LINE),),
)
FOUND = Found("out-of-bounds read", LINE, "x at element [9]", "load_gm", 3, 5, 7)
SHOWN = Explanation("a-case", "Ascend910B3", "after", (LAUNCH,))
BEFORE = Explanation(
    "a-case",
    "Ascend910B3",
    "before",
    (replace(LAUNCH, findings=(FOUND,), latency=replace(LATENCY, us=120.0, bound="lock")),),
)


def simulation(shown: Explanation = SHOWN, other: Explanation | Problem = BEFORE) -> Simulation:
    tree = Checkout(root=Path("/a/tree"), layout=Layout.SOURCE)
    return Simulation(tree, "own", "only", soc("Ascend910B3"), shown, other)


def given(shown: Explanation = SHOWN, other: Explanation | Problem = BEFORE) -> dict[str, Any]:
    environment = facts.environment(seed=0, socs=["Ascend910B3"])
    found = facts.explained(simulation(shown, other), environment, "t.json")
    # What --json writes can be read again, and says the same.
    again: dict[str, Any] = json.loads(json.dumps(found, allow_nan=False))
    return again


def text(found: dict[str, Any], width: int = 200) -> str:
    out = io.StringIO()
    console = Console(file=out, width=width, color_system=None)
    for part in explained.explained(found):
        console.print(part)
    return out.getvalue()


@pytest.mark.parametrize(
    "said",
    [
        "own, case a-case, after",
        "Ascend910B3 (A2, 40 vector cores, 1800 MHz)",
        "those of the reference",
        "80 us modelled (56.3 … 114: the model is typically off by 42 %), bound by DMA load",
        "DMA load 60 us (75 %), scalar 20 us (25 %)",
        "120 us modelled ± 42 %, bound by lock; before/after 1.50 × (modelled); 1 finding (out-",
        "_own_kernel, grid 8 × 5: 40 programs on 40 of 40 cores, 1 wave",
        "GM: 3 MB read, 1 MB written (50 GB/s modelled)",
        "are taken to be in L2 (192 MiB)",
        "peak 4 in use, 8 planned of 192 KiB",
        "0 us ▁▅█ 30 us",
        "Pipes of the core that ends last (modelled)",
        "90 000",
        "wait for V 30",
        "Hottest lines (modelled)",
        "own.py:59",
        "bits = words[:, None] >> lane",
        "scalar loop: 8 × 1024 iterations, f × 8, 1 more",
        "(no line: barriers 17, launch 3)",
        "with all loops in vector form: 12 us",
        "the compiler's loop over UB: shrsi i32",
        "4096 elements in 1 call",
        "1.  55 us  line 59: change [this]",
        "t.json (opens in https://ui.perfetto.dev)",
    ],
)
def test_it_is_shown(said: str) -> None:
    assert said in text(given())


def test_every_time_stands_beside_the_word_modelled() -> None:
    shown = text(given())
    for title in ("Pipes of", "Hottest lines", "Scalar code", "What to change"):
        assert "modelled" in next(line for line in shown.splitlines() if title in line)
    # What stands right under the latency, the axis of UB use, the list under its title.
    beside = ("goes to", "0 us", "1.")
    for line in shown.splitlines():
        if re.search(r"\d us\b", line) and not line.lstrip().startswith(beside):
            assert "modelled" in line


@pytest.mark.parametrize("width", [60, 80, 100, 240])
def test_it_fits_any_terminal(width: int) -> None:
    shown = text(given(), width)
    assert max(map(len, shown.splitlines())) <= width
    assert "own.py:59" in shown


def test_findings_are_listed_with_line_programs_and_times() -> None:
    launch = replace(LAUNCH, findings=(FOUND,))
    found = given(replace(SHOWN, launches=(launch,)))
    shown = text(found)
    assert "1: out-of-bounds read" in shown
    assert (
        "out-of-bounds read at own.py:59, programs 3 and 5, 7 times: x at element [9] (load_gm)"
    ) in shown
    assert found["outcome"] == "failed"
    assert (found["values"]["outcome"], found["findings"]) == ("passed", 1)


def test_wrong_values_are_shown_and_fail() -> None:
    wrong = replace(SHOWN, difference="out: row 0")
    assert "wrong: out: row 0" in text(given(wrong))
    assert simulation(wrong).code is ExitCode.FAILED
    assert simulation().code is ExitCode.OK


def test_each_launch_of_several_is_shown_on_its_own() -> None:
    second = replace(LAUNCH, kernel="_second_kernel", latency=replace(LATENCY, us=20.0))
    found = given(replace(SHOWN, launches=(LAUNCH, second)))
    shown = text(found)
    assert "launch 1 of 2: _own_kernel" in shown
    assert "launch 2 of 2: _second_kernel" in shown
    assert found["latency"]["us"] == 100.0
    assert "100 us modelled" in shown
    assert "20 us modelled" in shown


def test_a_launch_without_a_time_says_why_and_no_other_latency() -> None:
    stopped = replace(LAUNCH, latency=None, problem="a wait without a set", pipes=(), hot_lines=())
    found = given(replace(SHOWN, launches=(stopped,)))
    assert found["latency"] is None
    assert found["outcome"] == "failed"
    assert "ended early: a wait without a set" in text(found)


def test_a_launch_that_never_ends_says_so() -> None:
    stuck = replace(LAUNCH, stuck=True)
    assert "would wait for ever" in text(given(replace(SHOWN, launches=(stuck,))))


def test_a_case_that_launches_nothing() -> None:
    assert "the case launches nothing" in text(given(replace(SHOWN, launches=())))


def test_an_other_side_that_could_not_run_is_not_shown_as_good() -> None:
    found = given(SHOWN, Problem("before", "no [vllm]", verdict=False))
    assert found["other"] == {"side": "before", "outcome": "not_run", "reason": "no [vllm]"}
    assert "not run: no [vllm]" in text(found)


def test_a_guessed_cost_is_named() -> None:
    guessed = replace(LAUNCH, assumed=("new_call_1d",))
    assert "new_call_1d" in text(given(replace(SHOWN, launches=(guessed,))))
