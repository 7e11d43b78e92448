"""Tries to hurt apply and revert, and prints the table of docs/reliability.md.

Usage: python scripts/reliability.py [--release RELEASE] [--port PORT ...] [--kills N]
       [--stride N] [--seed N] [--write]

Each port goes into the files of a release that it needs, and out again. Each call that this makes
on the tree is broken off or fails in turn, and the next command must leave the tree as it was
before or as it is after. Exits with 1 at the first that does not. ``--stride 5`` tries every fifth
call. With ``--write`` the table takes the place of the one in docs/reliability.md.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from ascendport.checkout.fetch import fetch  # noqa: E402
from ascendport.ports import catalogue as ports_at_hand  # noqa: E402
from ascendport.ports.catalogue import catalogue, select  # noqa: E402
from ascendport.ports.manifest import Port  # noqa: E402
from tests.patching.campaign import (  # noqa: E402
    Job,
    Trial,
    interrupted_recoveries,
    jobs,
    kills,
    trials,
)
from tests.patching.conftest import our_files, quick_load  # noqa: E402
from tests.patching.faults import How, changes  # noqa: E402

DOCS = ROOT / "docs" / "reliability.md"
BEGIN, END = "<!-- table: scripts/reliability.py --write -->", "<!-- end of table -->"

FAULTS: tuple[tuple[How, str], ...] = (
    ("die", "the process dies in front of the call"),
    ("tear", "it dies with half of the data written"),
    ("fail", "the call fails (EIO)"),
    ("full", "the disk is full from the call on (ENOSPC)"),
    ("interrupt", "Ctrl-C at the call"),
)


@dataclass(frozen=True)
class Row:
    """One kind of fault in one command."""

    port: str
    command: str
    fault: str
    tried: int
    said_done: int
    before: int
    after: int


def row(job: Job, fault: str, found: list[Trial]) -> Row:
    trees = Counter(trial.tree for trial in found)
    done = sum(trial.ended == "done" for trial in found)
    return Row(job.port.name, job.name, fault, len(found), done, trees["before"], trees["after"])


def needed(release: str, port: Port, dest: Path) -> None:
    """The files of a release that recognising it and the port ask for."""
    with tempfile.TemporaryDirectory() as folder:
        tree = fetch(release, Path(folder, "tree"), lambda what, done, total: None)
        for file in our_files(release, [port]):
            target = dest / file
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(tree.path(file), target)


def rows(found: list[Job], scratch: Path, stride: int, runs: int, seed: int) -> Iterator[Row]:
    def every(calls: list[str]) -> range:
        return range(0, len(calls), stride)

    for job in found:
        for how, what in FAULTS:
            yield row(job, what, list(trials(job, scratch, [how], every)))
        broken = interrupted_recoveries(
            job, scratch, lambda calls: range(0, len(calls), len(calls) * stride // 10), changes
        )
        yield row(job, "it dies, and the next command dies too", list(broken))
        what = "kill -9 from outside at a random moment"
        yield row(job, what, list(kills(job, scratch, runs // len(found), seed)))


def table(made: list[Row], release: str, stride: int) -> str:
    lines = [
        f"Release {release}, {platform.system()} {platform.machine()}, Python "
        f"{platform.python_version()}; every {f'{stride}th ' if stride > 1 else ''}call.",
        "",
        "| port | command | fault | tried | it said done | tree before | tree after | any other |",
        "|---|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {r.port} | {r.command} | {r.fault} | {r.tried} | {r.said_done} | {r.before} | "
        f"{r.after} | {r.tried - r.before - r.after} |"
        for r in made
    ]
    total = sum(r.tried for r in made)
    return "\n".join([*lines, "", f"{total} faults in all."]) + "\n"


def write(text: str) -> None:
    old = DOCS.read_text("utf-8")
    new, count = re.subn(
        f"(?s){re.escape(BEGIN)}.*?{re.escape(END)}", lambda _: f"{BEGIN}\n\n{text}\n{END}", old
    )
    if count != 1:
        raise SystemExit(f"{DOCS}: no place for the table")
    DOCS.write_text(new, "utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--release", default="0.30.0rc2")
    parser.add_argument("--port", action="append")
    parser.add_argument("--kills", type=int, default=500)
    parser.add_argument("--stride", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    # Processes end here, not the machine: waiting for the disk would prove nothing.
    os.fsync = lambda fd: None
    vars(ports_at_hand)["load"] = quick_load
    memory = Path("/dev/shm")
    made = []
    for port in select(catalogue(), given.port or ["grammar_bitmask", "tp_mismatch"]):
        with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
            scratch = Path(folder)
            pristine = scratch / "pristine"
            needed(given.release, port, pristine)
            found = jobs(scratch, partial(shutil.copytree, pristine), port)
            for one in rows(found, scratch, given.stride, given.kills, given.seed):
                print(one, file=sys.stderr)
                made.append(one)
    text = table(made, given.release, given.stride)
    print(text)
    if given.write:
        write(text)


if __name__ == "__main__":
    main()
