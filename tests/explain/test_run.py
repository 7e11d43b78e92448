"""A case of a port explained, from the tree's text to what is shown."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from ascendport.checks.simulated import Prepared
from ascendport.checks.subject import Options
from ascendport.errors import ExitCode, UserError
from ascendport.explain.model import Explanation, without_events
from ascendport.explain.run import Explained, Problem, explain, trace_file
from ascendport.harness.case import Case
from ascendport.harness.launches import Launch
from tests.evil import texts
from tests.evil.build import subject
from tests.simulator.programs import program
from tests.timing.test_explain import check_format, lanes

pytestmark = pytest.mark.ascend

OPTIONS = Options(timeout_s=120.0)
LAUNCH = Launch("vllm_ascend/k.py", "kernel", (1,), {}, {}, (), (), {}, {}, {})
CASE = Case("rows-3", {"rows": 3, "columns": 300, "dtype": "fp32"})
UNSUPPORTED = program("call @sort_by_magic(%x)", {"x": "gm<?xf32>"})


def explained(
    folder: Path, text: str, side: str = "after", before: str = texts.VICTIM, case: str = "rows-3"
) -> Explained:
    given = subject(folder, text, options=OPTIONS, before=before)
    return explain(given, case, "Ascend910B3", side, trace=True)


def test_a_right_port_is_clean_and_told_by_its_own_lines(tmp_path: Path) -> None:
    found = explained(tmp_path, texts.RIGHT)
    shown = found.shown
    assert shown.clean
    assert (shown.case, shown.side, shown.soc) == ("rows-3", "after", "Ascend910B3")
    (launch,) = shown.launches
    assert (launch.kernel, launch.programs) == ("_scale_kernel", 3)
    places = {line.place.file: line.place for line in launch.hot_lines if line.place}
    assert set(places) == {texts.FILE}
    lines = texts.RIGHT.splitlines()
    for line in launch.hot_lines:
        if line.place:
            assert line.place.text.endswith(" ".join(lines[line.place.line - 1].split()))
    trace = json.loads(trace_file(shown))
    check_format(trace)
    told = {event["args"]["line"] for event in lanes(trace)["core 0 (modelled)", "MTE2"]}
    assert any(line.startswith(texts.FILE + ":") for line in told)
    assert without_events(shown).launches[0].events == ()
    # The other side, for comparison.
    assert isinstance(found.other, Explanation)
    assert found.other.side == "before"
    assert found.other.latency is not None


def test_before_shows_the_other_text(tmp_path: Path) -> None:
    found = explained(tmp_path, texts.RIGHT, "before", texts.EVIL["past-the-row"])
    assert not found.shown.clean
    kinds = {one.kind for one in found.shown.launches[0].findings}
    assert "out-of-bounds write" in kinds
    assert isinstance(found.other, Explanation)
    assert (found.other.side, found.other.clean) == ("after", True)


def test_wrong_values_are_told(tmp_path: Path) -> None:
    shown = explained(tmp_path, texts.EVIL["zeros"]).shown
    assert shown.findings == 0
    assert "expected" in shown.difference
    assert not shown.clean


def test_a_case_that_launches_nothing_is_clean(tmp_path: Path) -> None:
    shown = explained(tmp_path, texts.RIGHT, case="no-rows").shown
    assert (shown.launches, shown.latency, shown.clean) == ((), None, True)
    check_format(json.loads(trace_file(shown)))


def _both(one: Prepared | str) -> Callable[..., dict[str, list[Prepared] | str]]:
    def sides(*_: object) -> dict[str, list[Prepared] | str]:
        return dict.fromkeys(("before", "after"), one if isinstance(one, str) else [one])

    return sides


@pytest.mark.parametrize(
    ("prepared", "code"),
    [
        pytest.param("after: the child died", ExitCode.NOT_RUN, id="nothing-prepared"),
        pytest.param(
            Prepared("after", CASE, "Ascend910B3", problem="no Unified Buffer holds it"),
            ExitCode.FAILED,
            id="refused",
        ),
        pytest.param(
            Prepared("after", CASE, "Ascend910B3", problem="newer API", verdict=False),
            ExitCode.NOT_RUN,
            id="not-checkable",
        ),
        pytest.param(
            Prepared("after", CASE, "Ascend910B3", (LAUNCH,), (UNSUPPORTED,)),
            ExitCode.NOT_RUN,
            id="not-supported",
        ),
    ],
)
def test_what_cannot_run_is_one_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prepared: Prepared | str, code: ExitCode
) -> None:
    monkeypatch.setattr("ascendport.explain.run.prepared_sides", _both(prepared))
    with pytest.raises(UserError) as caught:
        explained(tmp_path, texts.RIGHT)
    assert caught.value.code is code
    expected = prepared if isinstance(prepared, str) else prepared.problem
    assert (expected or "not supported: sort_by_magic") in caught.value.what
    assert "rows-3" in caught.value.where


def test_a_broken_other_side_is_a_reason(tmp_path: Path) -> None:
    found = explained(tmp_path, texts.RIGHT, before=texts.OVERFLOWS)
    assert found.shown.clean
    assert isinstance(found.other, Problem)
    assert found.other.side == "before"
    assert "Unified Buffer" in found.other.reason
