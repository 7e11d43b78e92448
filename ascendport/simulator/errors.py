"""What can go wrong before a program runs."""

from __future__ import annotations

from ascendport.errors import UserError
from ascendport.simulator.ir import Location


class UnsupportedError(UserError):
    """The program uses something that the simulator does not have.

    ``construct`` names it: an operation, a library function, a type.
    """

    def __init__(self, construct: str, location: Location | None = None) -> None:
        super().__init__(f"not supported: {construct}", where=location or "")
        self.construct = construct
        self.location = location


class MalformedError(UserError):
    """The text is no finished program of the Ascend compiler for a vector core."""

    def __init__(self, what: str, where: object = "") -> None:
        super().__init__(what, where=where, next="compile for A2 or A3 with bishengir-compile")


class ArgumentError(UserError):
    """The arguments of a launch do not fit the program's signature."""
