import io
from typing import Any

import pytest
from rich.console import Console, RenderableType

from ascendport.bench.rows import Row, Source, not_run
from ascendport.checks.outcome import CaseResult, CheckResult, Outcome
from ascendport.report import facts, tables

CHECKOUT = {
    "path": "/a/tree",
    "layout": "git clone",
    "release": "9.9.9",
    "commit": "0123456789abcd",
}
ENVIRONMENT = facts.environment(seed=3, socs=["A"])


def _text(parts: Any, width: int = 200) -> str:
    out = io.StringIO()
    console = Console(file=out, width=width, color_system=None)
    for part in parts:
        console.print(part)
    return out.getvalue()


def _verified(*results: CheckResult) -> dict[str, Any]:
    return {
        "checkout": CHECKOUT,
        "environment": ENVIRONMENT,
        "ports": [
            {
                "name": "p",
                "forced": False,
                "checks": [facts._check(result) for result in results],
            }
        ],
    }


def test_not_run_is_never_shown_as_passed() -> None:
    text = _text(tables.verify(_verified(CheckResult.not_run("oracle", "no [interpreter]"))))
    assert "not run" in text
    assert "no [interpreter]" in text
    assert "passed" not in text


def test_each_case_and_figure_has_its_place() -> None:
    cases = (
        CaseResult("one", Outcome.PASSED, "", {"UB": "3 KiB", "share": 0.5}),
        CaseResult("two", Outcome.FAILED, "wrong [sum]", {"UB": "9 KiB", "fits": False}),
    )
    text = _text(tables.verify(_verified(CheckResult.of("compile", cases))))
    for word in ("one", "two", "3 KiB", "9 KiB", "0.5", "wrong [sum]", "no", "2/2"):
        assert word in text


def test_the_heading_names_tree_and_environment() -> None:
    text = _text(tables.verify(_verified()))
    for word in ("9.9.9", "0123456789ab", "git clone", "/a/tree", "seed 3"):
        assert word in text


def _row(**more: Any) -> Row:
    given: dict[str, Any] = {"before": 20.0, "after": 5.0, **more}
    return Row("p", "c", "SoC", "latency", "us", Source.MEASURED, **given)


def _benched(*rows: Row) -> str:
    found = {
        "checkout": CHECKOUT,
        "environment": ENVIRONMENT,
        "rows": [row.facts() for row in rows],
    }
    return _text(tables.bench(found))


def test_a_measured_row_shows_ratio_and_spread() -> None:
    text = _benched(_row(measured_ratio=4.1, ratio_low=3.9, ratio_high=4.25))
    for word in ("20", "5", "4.10 × (3.90 … 4.25)", "measured"):
        assert word in text


def test_a_row_without_figure_says_why() -> None:
    text = _benched(not_run("p", "no NPU", quantity="latency"))
    assert "not run" in text
    assert "no NPU" in text


@pytest.mark.parametrize(
    ("before", "after", "ratio"),
    [
        pytest.param(8.0, 2.0, 4.0, id="both"),
        pytest.param(None, 2.0, None, id="no-before"),
        pytest.param(5.0, 0, None, id="after-is-none-left"),
    ],
)
def test_ratio_is_before_over_after(
    before: float | None, after: float, ratio: float | None
) -> None:
    assert _row(before=before, after=after).ratio == ratio


def test_dry_run_says_that_nothing_was_written() -> None:
    port = {
        "name": "p",
        "status": "applied",
        "variant": "v",
        "forced": False,
        "reason": "",
        "conflict": "",
        "drift": [],
    }
    found = {
        "checkout": CHECKOUT,
        "dry_run": True,
        "ports": [port],
        "changes": [{"file": "f.py", "action": "modify", "copy": None}],
    }
    text = _text(tables.plan(found, "--- a\n+++ b\n-old\n+new\n"))
    assert "nothing was written" in text
    assert "would change: f.py" in text
    assert "+new" in text


def test_a_diff_is_coloured() -> None:
    out = io.StringIO()
    shown: RenderableType = tables.diff("-old\n+new\n")
    Console(file=out, force_terminal=True, color_system="standard").print(shown)
    assert "\x1b[" in out.getvalue()
