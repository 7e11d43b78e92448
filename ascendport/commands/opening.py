"""What every command begins with: the checkout, and how a command speaks while it works."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from ascendport.checkout.tree import Checkout, recognise

Note = Callable[[str], None]
Watch = Callable[[str, int, int], None]
"""Progress: of what, how much is done, of how much."""
Names = Sequence[str]
Folders = Sequence[Path]
Wait = float | None
"""How many seconds to wait for another run that writes to the checkout; None: as usual."""


def open_checkout(path: Path, note: Note, *, reading: bool = True, wait: Wait = None) -> Checkout:
    """The checkout at ``path``; what an interrupted run left behind is ended first.

    ``reading``: without waiting for a run that is under way."""
    from ascendport.patching.journal import recover

    tree = recognise(path)
    if said := recover(tree, note=note, reading=reading, wait_s=wait_seconds(wait)):
        note(said)
    return tree


def wait_seconds(wait: Wait) -> float:
    from ascendport.patching.lock import WAIT_S

    return WAIT_S if wait is None else wait
