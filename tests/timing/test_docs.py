"""The pages of the docs that hold the fit hold the same one."""

from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
BEGIN, END = "<!-- fit: written by scripts/fit_table.py -->\n", "<!-- end of the fit -->\n"


def test_the_summary_is_that_of_the_table() -> None:
    summary = (DOCS / "simulator.md").read_text("utf-8").partition(BEGIN)[2].partition(END)[0]
    assert summary.startswith("| kernel | median error |")
    assert "| log_softmax |" in summary
    assert (DOCS / "time-model.md").read_text("utf-8").endswith(summary)
