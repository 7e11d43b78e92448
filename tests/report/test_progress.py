import io

from rich.console import Console

from ascendport.report.progress import _lines, progress


def _console(*, terminal: bool) -> tuple[Console, io.StringIO]:
    out = io.StringIO()
    return Console(file=out, force_terminal=terminal, width=100), out


def test_elsewhere_a_line_at_the_start_and_one_at_the_end() -> None:
    console, out = _console(terminal=False)
    with progress(console) as watch:
        for done in range(11):
            watch("work", done, 10)
        watch("work", 10, 10)
    assert out.getvalue().splitlines() == ["work 0/10", "work 10/10"]


def test_elsewhere_long_work_says_so_now_and_then() -> None:
    console, out = _console(terminal=False)
    times = iter([0.0, 1.0, 6.0, 7.0])
    watch = _lines(console, lambda: next(times))
    for done in (0, 1, 2, 3):
        watch("work", done, 10)
    assert out.getvalue().splitlines() == ["work 0/10", "work 2/10"]


def test_work_of_unknown_size() -> None:
    console, out = _console(terminal=False)
    with progress(console) as watch:
        watch("looking", 0, 0)
    assert out.getvalue() == "looking\n"


def test_bytes_are_given_in_mebibytes() -> None:
    console, out = _console(terminal=False)
    with progress(console) as watch:
        watch("fetching", 0, 20 << 20)
    assert out.getvalue() == "fetching 0.0/20.0 MiB\n"


def test_names_in_brackets_are_not_taken_for_markup() -> None:
    console, out = _console(terminal=False)
    with progress(console) as watch:
        watch("[bold]x", 0, 0)
    assert out.getvalue() == "[bold]x\n"


def test_a_terminal_gets_a_bar_that_is_gone_at_the_end() -> None:
    console, out = _console(terminal=True)
    with progress(console) as watch:
        watch("work", 1, 2)
        watch("other", 1, 2)
    assert "work" in out.getvalue()
    assert "\x1b[2K" in out.getvalue()
