"""The one kind of error that a user sees: what happened, where, and what to do next."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """Exit statuses of every command."""

    OK = 0
    FAILED = 1
    """A check failed, or a port could not be applied."""
    USAGE = 2
    """Wrong usage or unreadable input."""
    NOT_RUN = 3
    """A required check could not run."""


class UserError(Exception):
    """Something the user can mend.

    ``what`` happened, ``where`` (a path, a URL, a symbol) and what to do ``next``: each one
    clause without a final full stop. The command line renders it as one line, or as
    ``{"error": {"what", "where", "next"}}`` under ``--json``.
    """

    def __init__(
        self,
        what: str,
        *,
        where: object = "",
        next: str = "",
        code: ExitCode = ExitCode.USAGE,
    ) -> None:
        super().__init__(what)
        self.what = what
        self.where = str(where)
        self.next = next
        self.code = code

    def __str__(self) -> str:
        line = self.what
        if self.where:
            line += f": {self.where}"
        if self.next:
            line += f"; {self.next}"
        return line
