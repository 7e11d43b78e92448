"""The one place that prints: tables on stdout, JSON where it is asked for, errors on stderr."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable
from pathlib import Path

from rich.console import Console, RenderableType
from rich.markup import escape

from ascendport.errors import UserError
from ascendport.report import facts as f
from ascendport.report.files import write_whole

STDOUT = "-"


class Sink:
    """Where a command's result goes.

    Args:
        json_to: a file for the JSON, ``-`` for stdout (then nothing else is written there), or
            None.
    """

    def __init__(self, json_to: str | None = None) -> None:
        self.json_to = json_to
        self.errors = Console(stderr=True, highlight=False, soft_wrap=True)
        self._tables = Console(
            file=sys.stderr if json_to == STDOUT else sys.stdout,
            quiet=json_to == STDOUT,
            highlight=False,
        )
        if not self._tables.is_terminal and "COLUMNS" not in os.environ:
            # Nobody resizes a file: as wide as a table needs, so that no line is cut.
            self._tables.width = 240

    @property
    def terminal(self) -> bool:
        """Whether a person watches stderr, where progress goes."""
        return self.errors.is_terminal

    def result(self, facts: f.Facts, shown: Iterable[RenderableType]) -> None:
        """A command's result, as facts and as what a person reads.

        Raises:
            UserError: the JSON file cannot be written.
        """
        for part in shown:
            self._tables.print(part)
        self._json(facts)

    def error(self, problem: UserError) -> None:
        """One line on stderr, and the error object under --json."""
        self.errors.print(f"[bold red]error:[/] {escape(str(problem))}")
        try:
            self._json(f.error(problem))
        except UserError as second:
            if second.where != problem.where:
                self.errors.print(f"[bold red]error:[/] {escape(str(second))}")

    def note(self, line: str) -> None:
        """One line beside the result, on stderr."""
        self.errors.print(f"[dim]{escape(line)}[/]")

    def _json(self, facts: f.Facts) -> None:
        if self.json_to is None:
            return
        text = json.dumps(facts, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
        if self.json_to == STDOUT:
            sys.stdout.write(text)
            sys.stdout.flush()
            return
        write_whole(Path(self.json_to), text.encode(), "JSON", "--json")
