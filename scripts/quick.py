"""How quick the commands are: medians over whole processes on a real release, beside the goals.

Usage: python scripts/quick.py [--runs N] [--release RELEASE] [--skip-compile]

Figures depend on the machine and on what else runs there; no test asserts on them.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from ascendport.checkout.fetch import fetch


@dataclass(frozen=True)
class Timed:
    """Seconds of wall time of whole processes, and the goal on two idle cores."""

    what: str
    goal_s: float
    seconds: tuple[float, ...]


def _run(*words: str | Path) -> float:
    command = [sys.executable, "-m", "ascendport", *map(str, words)]
    start = time.perf_counter()
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False)
    seconds = time.perf_counter() - start
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}: {done.stderr!r}")
    return seconds


def measure(tree: Path, runs: int, compile_too: bool) -> list[Timed]:
    """Runs each command ``runs`` times after one that is not counted."""

    def repeated(what: str, goal_s: float, call: Callable[[], float]) -> Timed:
        call()
        return Timed(what, goal_s, tuple(call() for _ in range(runs)))

    def around(first: Sequence[str | Path], timed: Sequence[str | Path]) -> Callable[[], float]:
        def call() -> float:
            _run(*first)
            return _run(*timed)

        return call

    found = [
        repeated("--help", 0.5, lambda: _run("--help")),
        repeated("list", 0.5, lambda: _run("list")),
        repeated("status", 0.5, lambda: _run("status", tree)),
        repeated("apply, every port", 2.0, around(("revert", tree), ("apply", tree))),
        repeated("revert, every port", 2.0, around(("apply", tree), ("revert", tree))),
    ]
    if compile_too:
        words = ("verify", tree, "--only", "grammar_bitmask", "--check", "compile")
        title = "compile check, two kernels (before, after) × 3 SoCs × 3 dtypes"
        found.append(repeated(title, 10.0, lambda: _run(*words)))
    return found


def table(found: Sequence[Timed]) -> Table:
    shown = Table("command", "median s", "fastest … slowest s", "goal s", "met")
    for timed in found:
        median = statistics.median(timed.seconds)
        shown.add_row(
            timed.what,
            f"{median:.2f}",
            f"{min(timed.seconds):.2f} … {max(timed.seconds):.2f}",
            f"{timed.goal_s:g}",
            "yes" if median <= timed.goal_s else "[red]no[/]",
        )
    return shown


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--release", default="0.30.0rc2")
    parser.add_argument("--skip-compile", action="store_true")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder, "tree")
        fetch(asked.release, tree, lambda what, done, total: None)
        Console().print(table(measure(tree, asked.runs, not asked.skip_compile)))


if __name__ == "__main__":
    main()
