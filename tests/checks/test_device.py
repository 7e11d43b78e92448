"""The device check's judgement, with Triton's interpreter on the CPU in the place of a device.

No device is needed and nothing is said of one: docs/device.md has the runs on a GPU.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from ascendport.checks import device
from ascendport.checks.outcome import CaseResult, CheckResult, Figure, Outcome
from ascendport.checks.subject import Options, Subject
from ascendport.harness.detect import Found
from tests.evil import texts
from tests.evil.build import BASELINE, subject
from tests.harness.fake_device import Interpreter


def options(*cases: str, repeats: int = 3, timeout_s: float = 120.0) -> Options:
    return Options(cases=cases, timeout_s=timeout_s, repeats=repeats)


def reasons(result: CheckResult) -> dict[str, str]:
    return {case.case: case.reason for case in result.cases if case.outcome is Outcome.FAILED}


def test_without_a_device_it_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "detect", lambda asked: Found(reason="no Ascend NPU; no CUDA GPU"))
    result = device.run(subject(tmp_path, texts.RIGHT))
    assert (result.outcome, result.reason) == (Outcome.NOT_RUN, "no Ascend NPU; no CUDA GPU")
    assert not result.cases


@pytest.mark.ascend
def test_a_right_kernel_passes(tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    given = subject(tmp_path, texts.RIGHT, options=options())
    given = Subject(**{**vars(given), "progress": lambda _, n, of: told.append((n, of))})
    result = device.examine(given, Interpreter)
    assert result.outcome is Outcome.PASSED, result.reason
    assert "interpreter: 3 runs of each case, bit for bit the same" in result.reason
    # Large cases too: a device is quick.
    assert [case.case for case in result.cases] == ["rows-3", "rows-5", "no-rows", "rows-60"]
    assert all(case.figures["repeats"] == 3 for case in result.cases)
    assert all(case.figures["reference"] == "same" for case in result.cases)
    assert {case.figures["vllm_core"] for case in result.cases} == {
        "the port's manifest names no baseline"
    }
    assert told == [(1, 4), (2, 4), (3, 4), (4, 4)]


WAYS = {
    "right": ("", "", None),
    "wrong": ("        factor = 0.0\n", "", "out: row 0, column 0: got 0"),
    "idle": ("        return\n", "", "out: row 0, column 0: left untouched"),
    "past-the-row": ("", "out.as_strided((1,), (1,), out.storage_offset() + 300)[0] = 1", "300 (1"),
    "before-the-rows": (
        "",
        "out.as_strided((1,), (1,), out.storage_offset() - 3)[0] = 1",
        "run 1 of 3: out: 3 before the first element changed",
    ),
    "its-input": ("", "x[0, 1] = 9.0", "run 1 of 3: x: row 0, column 1, an input, changed"),
    "raises": ("        raise ValueError('no\\nthanks')\n", "", "run 1: ValueError: no thanks"),
    # Right twice, and in the last bits not the third time.
    "changes": (
        "        calls.append(1)\n        factor += 1e-6 if len(calls) == 3 else 0.0\n",
        "",
        "run 3 of 3: not what the first run gave: out: row 0, column 0: got ",
    ),
    "tampers": (
        "        import numpy, torch\n"
        "        from ascendport.harness import compare, on_device\n"
        "        torch.equal = numpy.array_equal = lambda *args, **kwargs: True\n"
        "        compare.compare_all = compare.compare = lambda *args, **kwargs: None\n"
        "        calls.append(1)\n        factor = 0.0 if len(calls) < 3 else 1.0\n",
        "",
        "not what the first run gave",
    ),
    "tampers-with-the-judge": (
        "        import numpy\n"
        "        from ascendport.checks import device\n"
        "        numpy.any = numpy.count_nonzero = lambda *args, **kwargs: 0\n"
        "        device.judge = device.compare_all = lambda *args, **kwargs: None\n"
        "        factor = 0.0\n",
        "",
        "row 0, column 0: got",
    ),
}
"""Name of a case → what the launcher does before and after its launch on that many rows, and what
the check must say: all of them in one kernel file, so that few processes are started."""

_BEGIN = "    rows, columns = x.shape\n"
_NAMES = list(WAYS)


def _evil(text: str) -> str:
    head = tail = ""
    for rows, (before, after, _) in enumerate(WAYS.values(), 1):
        head += f"    if rows == {rows}:\n        pass\n{before}"
        tail += f"    if rows == {rows}:\n        pass\n        {after}\n"
    text = texts.changed("def scale", "calls = []\n\n\ndef scale", text)
    return texts.changed(_BEGIN, _BEGIN + head, text) + tail


_LISTED = texts.CASES[texts.CASES.index("    Case(") : texts.CASES.index(")\n\n\ndef workload")]
EVIL_CASES = texts.changed(
    _LISTED,
    "".join(
        f'    Case("{name}", {{"rows": {rows}, "columns": 300, "dtype": "fp32"}}),\n'
        for rows, name in enumerate(WAYS, 1)
    ),
    texts.CASES,
)


@pytest.mark.ascend
def test_what_a_kernel_may_not_do_is_caught(tmp_path: Path) -> None:
    given = subject(tmp_path, _evil(texts.RIGHT), cases=EVIL_CASES, options=options())
    result = device.examine(given, Interpreter)
    assert result.outcome is Outcome.FAILED
    found = reasons(result)
    assert set(found) == set(WAYS) - {"right"}
    for name, (_, _, says) in WAYS.items():
        if says is not None:
            assert says in found[name]
            assert f"replay with --check device --seed 0 --case {name}" in found[name]


@pytest.mark.ascend
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("exits", "the child process died"),
        ("crashes", "the child process died"),
        ("hangs", "no answer in 25 s"),
    ],
)
def test_a_lost_process_does_not_hold_up_the_other_cases(
    tmp_path: Path, name: str, says: str
) -> None:
    kernel = texts.EVIL[name].replace("    import os\n", "    import os\n    if rows == 5:\n    ")
    chosen = options("rows-5", "rows-3", timeout_s=25.0)
    result = device.examine(subject(tmp_path, kernel, options=chosen), Interpreter)
    assert says in reasons(result)["rows-5"]
    assert [case.outcome for case in result.cases if case.case == "rows-3"] == [Outcome.PASSED]


@pytest.mark.ascend
def test_a_case_without_room_is_not_run(tmp_path: Path) -> None:
    small = partial(Interpreter, free=1000)
    result = device.examine(subject(tmp_path, texts.RIGHT, options=options("rows-3")), small)
    assert result.outcome is Outcome.NOT_RUN
    assert "0.0 GiB are free" in result.reason


@pytest.mark.ascend
def test_vllm_cores_kernel_on_the_same_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Alike; vllm-core's differs; both round otherwise than the reference, as on a device whose
    division is not exact; only ours does; vllm-core's does not run."""
    names = ["alike", "core-differs", "both-differ", "only-ours", "core-fails"]
    cases = EVIL_CASES
    for old, new in zip(_NAMES, names, strict=False):
        cases = texts.changed(f'Case("{old}"', f'Case("{new}"', cases)
    both = "    factor = factor * 1.0001 if rows == 3 else factor\n"
    ours = "    factor = factor * 1.0001 if rows == 4 else factor\n"
    cores = "    factor = 0.0 if rows == 2 else factor\n    assert rows != 5\n"
    file = "vllm/v1/scaling.py"
    text = texts.changed(_BEGIN, _BEGIN + both + cores).replace(
        "from vllm_ascend.ops.triton.triton_utils import cores", "def cores():\n    return 7"
    )
    monkeypatch.setattr(device, "core_files", lambda *_: ({file: text.encode()}, "ours"))
    kernel = texts.changed(_BEGIN, _BEGIN + both + ours, texts.RIGHT)
    given = subject(
        tmp_path, kernel, cases=cases, baseline=BASELINE, options=options(*names, repeats=1)
    )
    result = device.examine(given, Interpreter)
    assert set(reasons(result)) == {"core-differs", "only-ours"}
    assert all("by vllm-core on the device" in said for said in reasons(result).values())
    figures = {case.case: case.figures for case in result.cases}
    assert figures["alike"]["vllm_core"] == figures["alike"]["reference"] == "same"
    assert figures["both-differ"]["vllm_core"] == "same"
    assert "row 0, column 0: got" in str(figures["both-differ"]["reference"])
    assert str(figures["core-fails"]["vllm_core"]).startswith("did not run: run 1: AssertionError")


def test_the_summary_says_what_was_compared_and_what_stood_in() -> None:
    def passed(reference: str, core: str) -> CaseResult:
        figures: dict[str, Figure] = {"repeats": 20, "reference": reference, "vllm_core": core}
        return CaseResult("a", Outcome.PASSED, "", figures)

    cases = (passed("same", "same"), passed("x: got 1", "same"), passed("same", "did not run: y"))
    said = device._summary(CheckResult("device", Outcome.PASSED, "", cases), ["G", "G"], ["f", "g"])
    assert said == (
        "G: 20 runs of each case, bit for bit the same; the same as vllm-core's kernel there in "
        "2 of 3; 1 of them not what the reference has, for both alike; with stand-ins for "
        "triton-ascend's f, g"
    )
