"""Progress: a bar on a terminal, a plain line now and then elsewhere. Always on stderr."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape

Progress = Callable[[str, int, int], None]
"""Called with (what, done, total); total 0: not known."""

_QUIET_S = 5.0


@contextmanager
def progress(console: Console) -> Iterator[Progress]:
    """A progress callback for the time of the block."""
    if console.is_terminal:
        with _bars(console) as callback:
            yield callback
    else:
        yield _lines(console)


@contextmanager
def _bars(console: Console) -> Iterator[Progress]:
    from rich import progress as bars

    columns = (
        bars.SpinnerColumn(),
        bars.TextColumn("{task.description}"),
        bars.BarColumn(bar_width=30),
        bars.TaskProgressColumn(),
        bars.TimeElapsedColumn(),
    )
    with bars.Progress(*columns, console=console, transient=True) as shown:
        tasks: dict[str, bars.TaskID] = {}

        def update(what: str, done: int, total: int) -> None:
            if what not in tasks:
                for old in tasks.values():
                    shown.update(old, visible=False)
                tasks[what] = shown.add_task(escape(what), total=total or None)
            shown.update(tasks[what], completed=done, total=total or None, visible=True)

        yield update


def _lines(console: Console, clock: Callable[[], float] = time.monotonic) -> Progress:
    last_said: dict[str, float] = {}

    def update(what: str, done: int, total: int) -> None:
        now = clock()
        first = what not in last_said
        last = total > 0 and done >= total
        if not first and not last and now - last_said[what] < _QUIET_S:
            return
        if last and not first and last_said[what] == float("inf"):
            return
        amount = f" {_amount(done, total)}" if total else ""
        console.print(f"{escape(what)}{amount}", highlight=False)
        last_said[what] = float("inf") if last else now

    return update


def _amount(done: int, total: int) -> str:
    if total >= 1 << 20:
        return f"{done / 2**20:.1f}/{total / 2**20:.1f} MiB"
    return f"{done}/{total}"
