"""Writes docs/wiring.md: the verdicts on every patch of the known releases.

Fetches what it needs through the user's package index. ``python scripts/wiring_table.py
[DIRECTORY]``: a directory that holds trees named vllm_ascend-<release> saves their download.
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from pathlib import Path

from ascendport.checkout.fetch import fetch
from ascendport.checkout.pins import pins
from ascendport.wiring.analysis import PATCH_FOLDER, analyse_tree
from ascendport.wiring.model import Judged, Verdict, Wiring
from ascendport.wiring.sources import python_files

ROOT = Path(__file__).parent.parent
TEXT = ROOT / "docs" / "wiring.md"
MARK = "<!-- everything below is written by scripts/wiring_table.py -->\n"

COLUMNS = (
    ("live", (Verdict.LIVE,)),
    ("added", (Verdict.ADDED,)),
    ("dead", tuple(verdict for verdict in Verdict if verdict.dead)),
    ("redundant", (Verdict.REDUNDANT,)),
    ("inactive", (Verdict.INACTIVE,)),
    ("outside", (Verdict.OUTSIDE,)),
    ("unknown", (Verdict.UNKNOWN,)),
)


def quiet(what: str, done: int, total: int) -> None:
    """Progress that nobody watches."""


def wiring_of(release: str, trees: Path) -> tuple[Wiring, int]:
    root = trees / f"vllm_ascend-{release}"
    if not root.is_dir():
        fetch(release, root, quiet)
    files = python_files(root, "vllm_ascend")
    patches = sum(path.startswith(PATCH_FOLDER) for path in files)
    name = f"tree {root}"
    return analyse_tree(files, pins()[release], quiet, name=name).wiring, patches


def summary(results: dict[str, tuple[Wiring, int]]) -> list[str]:
    names = [name for name, _ in COLUMNS]
    lines = [
        "## Counts",
        "",
        "| release | vllm | files | assignments | "
        + " | ".join(names)
        + " | conditional | deferred | also held | own | run-time |",
        "|---|---|" + "---:|" * (len(names) + 7),
    ]
    for release, (wiring, files) in results.items():
        count = Counter(item.verdict for item in wiring.judged)
        cells = [str(sum(count[verdict] for verdict in verdicts)) for _, verdicts in COLUMNS]
        conditional = sum(item.assignment.conditional for item in wiring.judged)
        deferred = sum(item.assignment.deferred for item in wiring.judged)
        held = sum(bool(item.also_held) for item in wiring.judged)
        lines.append(
            f"| {release} | {wiring.vllm} | {files} | {len(wiring.judged)} | "
            + " | ".join(cells)
            + f" | {conditional} | {deferred} | {held} | {wiring.own} | {wiring.state} |"
        )
    return [*lines, ""]


def reason_of(item: Judged) -> str:
    """Its reason, without the expression whose result is not followed."""
    before, found, _ = item.reason.partition(": result of ")
    return f"{before}: the result of a call" if found else item.reason


def row(item: Judged) -> str:
    one = item.assignment
    place = one.place.removeprefix(PATCH_FOLDER)
    reason = reason_of(item).replace("|", "\\|")
    target = one.target.replace("|", "\\|")
    flags = [text for text, on in (("if", one.conditional), ("later", one.deferred)) if on]
    instead = f"`{item.instead}`" if item.instead else ""
    return f"| {place} | `{target}` | {' '.join(flags)} | {item.verdict} | {reason} | {instead} |"


HEAD = ["| file:line | target | | verdict | reason | nearest name |", "|---|---|---|---|---|---|"]


def details(release: str, wiring: Wiring) -> list[str]:
    dead = [item for item in wiring.judged if item.verdict.dead]
    unknown = [item for item in wiring.judged if item.verdict is Verdict.UNKNOWN]
    held = [item for item in wiring.judged if item.also_held and not item.verdict.dead]
    lines = [f"## {release} on vllm {wiring.vllm}", "", f"{len(dead)} dead", "", *HEAD]
    lines += [row(item) for item in dead]
    if unknown:
        lines += ["", f"{len(unknown)} unknown", "", *HEAD, *(row(item) for item in unknown)]
    failing = [
        item
        for item in wiring.judged
        if item.verdict is Verdict.INACTIVE and " fails: " in item.reason
    ]
    if failing:
        lines += ["", f"{len(failing)} never run: an import before them fails, and is caught", ""]
        lines += [*HEAD, *(row(item) for item in failing)]
    if held:
        lines += [
            "",
            f"{len(held)} live, and an unpatched copy elsewhere",
            "",
            "| file:line | target | also held by |",
            "|---|---|---|",
        ]
        for item in held:
            place = item.assignment.place.removeprefix(PATCH_FOLDER)
            holders = ", ".join(sorted(item.also_held))
            lines.append(f"| {place} | `{item.assignment.target}` | {holders} |")
    return [*lines, ""]


def main() -> None:
    given = Path(sys.argv[1]) if len(sys.argv) > 1 else None
    with tempfile.TemporaryDirectory() as scratch:
        trees = given or Path(scratch)
        results = {release: wiring_of(release, trees) for release in pins()}
    lines = summary(results)
    for release, (wiring, _) in results.items():
        lines += details(release, wiring)
    head = TEXT.read_text("utf-8").partition(MARK)[0] if TEXT.exists() else ""
    TEXT.write_text(head + MARK + "\n" + "\n".join(lines), "utf-8")


if __name__ == "__main__":
    main()
