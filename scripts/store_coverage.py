"""How much of a checkout's ascend_store its own tests run, and how much with the failure tests.

    python scripts/store_coverage.py TREE [--port failure_tests] [--json FILE]

Prints a Markdown table: lines run, by file and for the functions that the failure tests are about,
on the tree as it is: with the tests that it has, and with those that the port brings. Needs the
extras `store` and `dev`.

Exit status: 0 done, 1 some tests did not run to their end, 2 wrong usage.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ascendport.checkout.tree import recognise
from ascendport.errors import UserError
from ascendport.patching.images import images
from ascendport.ports.catalogue import catalogue, select
from ascendport.store.loading import FOLDER
from ascendport.store.upstream import TESTS, missing, running

NAMED = (
    "KVTransferThread.run",
    "KVPoolWorker._alloc_gvas_for_save",
    "KVPoolWorker._prepare_load_gvas",
    "LookupKeyClient.lookup",
    "LookupKeyClient.close",
    "LookupKeyServer.__init__",
    "LookupKeyServer.__init__.process_request",
    "LookupKeyServer.close",
    "KVCacheStoreRecvingThread._handle_request",
    "KVCacheStoreKeyLayerSendingThread._handle_request",
    "KVCacheStoreKeyLayerRecvingThread._handle_request",
    "KVCacheStoreLayerSendingThread._handle_request",
    "KVCacheStoreLayerRecvingThread._handle_request",
)
TIMEOUT_S = 900.0


@dataclass(frozen=True)
class Lines:
    """Lines of a file or a function that can run, and those of them that ran."""

    there: int
    ran: int

    def __str__(self) -> str:
        return f"{self.ran} of {self.there} ({100 * self.ran / max(self.there, 1):.0f} %)"


Coverage = dict[str, Lines]
"""By file name, and by function as ``Class.method``."""


def measured(root: Path, files: Mapping[str, bytes], left_out: Sequence[str] = ()) -> Coverage:
    """Runs all tests of the store but ``left_out`` on a copy of the tree with ``files`` in it.

    Raises:
        UserError: they did not run to their end.
    """
    with tempfile.TemporaryDirectory() as directory:
        report = Path(directory) / "coverage.json"
        more: tuple[str, ...] = (
            f"--cov={FOLDER}",
            f"--cov-report=json:{report}",
            "-p",
            "pytest_cov",
        )
        more += tuple(f"--ignore={file}" for file in left_out)
        with running(root, files, TIMEOUT_S, (TESTS,), more) as started:
            outcomes = started.outcomes()
        if outcomes.problem or not report.exists():
            said = outcomes.problem or "no coverage was written"
            raise UserError(f"the tests did not run to their end ({said})", where=root)
        return read(json.loads(report.read_text("utf-8")))


def read(report: Any) -> Coverage:
    """What coverage's JSON says of files and functions."""
    found: Coverage = {}
    for path, file in report["files"].items():
        found[path.partition(f"{FOLDER}/")[2] or path] = _lines(file["summary"])
        for name, function in file["functions"].items():
            if name in NAMED:
                found[name] = _lines(function["summary"])
    return found


def _lines(summary: Mapping[str, int]) -> Lines:
    return Lines(summary["num_statements"], summary["covered_lines"])


def table(before: Coverage, after: Coverage) -> str:
    """Markdown: files first, then all of them, then functions."""
    rows = ["| | the tree's tests | with the failure tests |", "|---|---|---|"]
    files = sorted(name for name in after if name.endswith(".py") and after[name].there)
    for name in files:
        rows.append(f"| `{name}` | {before.get(name, '–')} | {after[name]} |")
    rows.append(f"| all files | {_whole(before)} | {_whole(after)} |")
    for name in (name for name in NAMED if name in after):
        rows.append(f"| `{name}` | {before.get(name, '–')} | {after[name]} |")
    return "\n".join(rows)


def _whole(found: Coverage) -> Lines:
    files = [lines for name, lines in found.items() if name.endswith(".py")]
    return Lines(sum(lines.there for lines in files), sum(lines.ran for lines in files))


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the script; returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("tree", type=Path)
    parser.add_argument("--port", default="failure_tests")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args(argv)
    try:
        checkout = recognise(args.tree)
        reason = missing(checkout.root)
        if reason:
            raise UserError(reason, where=checkout.root)
        (port,) = select(catalogue(), [args.port])
        made = images(checkout, port)
        # The port may be in the tree already.
        before = measured(checkout.root, made.before, tuple(made.after))
        after = measured(checkout.root, made.after)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(table(before, after))
    if args.json:
        both = {"before": before, "after": after}
        data = {
            side: {name: vars(lines) for name, lines in found.items()}
            for side, found in both.items()
        }
        args.json.write_text(json.dumps(data, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
