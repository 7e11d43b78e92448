"""What simulate shows. Every time in it is modelled, and says so."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from ascendport.report.facts import Facts
from ascendport.report.tables import environment, heading, table_of

_BARS = "▁▂▃▄▅▆▇█"
_SOURCE = 72
"""Characters of a source line."""

_WAITS = 3
_FUNCTIONS = 2
_CAUSES: dict[str, str] = {"load": "DMA load", "store": "DMA store"}
_WORK = {"S": "scalar", "V": "vector", "MTE2": "GM to UB", "MTE3": "UB to GM"}


def explained(facts: Facts) -> Iterator[RenderableType]:
    """All of it, in the order in which one reads: verdict, time, why, what to change."""
    yield heading(facts)
    yield environment(facts["environment"])
    soc = facts["soc"]
    yield Text()
    yield Text.assemble(
        (f"{facts['port']}, case {facts['case']}, {facts['side']}", "bold"),
        f", on {soc['name']} ({soc['family']}, {soc['vector_cores']} vector cores,"
        f" {soc['mhz']} MHz)",
    )
    yield _summary(facts)
    launches = facts["launches"]
    for number, launch in enumerate(launches):
        place = f"launch {number + 1} of {len(launches)}: " if len(launches) > 1 else ""
        yield from _launch(launch, place, facts, alone=len(launches) == 1)
    if facts["trace"]:
        yield Text(f"trace: {facts['trace']} (opens in https://ui.perfetto.dev)", style="dim")


# --- the summary -------------------------------------------------------------------------------


def _summary(facts: Facts) -> RenderableType:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    values = facts["values"]
    wrong = Text(f"wrong: {values['difference']}", style="bold red")
    grid.add_row("  values", wrong if values["difference"] else "those of the reference")
    grid.add_row("  findings", _counted([f for one in facts["launches"] for f in one["findings"]]))
    if not facts["launches"]:
        grid.add_row("  latency", "the case launches nothing")
    elif facts["latency"]:
        grid.add_row("  latency", _latency(facts["latency"]))
        grid.add_row("  goes to", _causes(facts["latency"]))
    grid.add_row(f"  {facts['other']['side']}", _compared(facts["latency"], facts["other"]))
    return grid


def _counted(findings: Sequence[Facts]) -> Text:
    if not findings:
        return Text("none", style="green")
    kinds = ", ".join(dict.fromkeys(finding["kind"] for finding in findings))
    return Text(f"{len(findings)}: {kinds}", style="bold red")


def _latency(latency: Facts) -> Text:
    bound: str = latency["bound"]
    return Text.assemble(
        (f"{_us(latency['us'])} us modelled", "bold"),
        f" ({_us(latency['low'])} … {_us(latency['high'])}: the model is typically off by"
        f" {100 * latency['error']:.0f} %), bound by ",
        (_CAUSES.get(bound, bound), "bold"),
    )


def _causes(latency: Facts) -> str:
    whole = latency["us"]
    return ", ".join(
        f"{_CAUSES.get(cause, cause)} {_us(us)} us ({_percent(us / whole)})"
        for cause, us in latency["causes"]
    )


def _compared(latency: Facts | None, other: Facts) -> str:
    if other["outcome"] == "not_run":
        return escape(f"not run: {other['reason']}")
    said = []
    theirs = other["latency"]
    if theirs:
        error = f"± {100 * theirs['error']:.0f} %"
        bound = _CAUSES.get(theirs["bound"], theirs["bound"])
        said.append(f"{_us(theirs['us'])} us modelled {error}, bound by {bound}")
    if theirs and latency:
        old, new = (theirs, latency) if other["side"] == "before" else (latency, theirs)
        said.append(f"before/after {old['us'] / new['us']:.2f} × (modelled)")
    found = _several(other["findings"], "finding")
    kinds = f" ({', '.join(other['kinds'])})" if other["kinds"] else ""
    said.append(f"{found}{kinds}" if other["findings"] else "no findings")
    if other["difference"]:
        said.append("wrong values")
    return escape("; ".join(said))


# --- one launch --------------------------------------------------------------------------------


def _launch(launch: Facts, place: str, facts: Facts, *, alone: bool) -> Iterator[RenderableType]:
    yield Text()
    yield Text.assemble((f"{place}{launch['kernel']}", "bold"), f", {_grid(launch, facts['soc'])}")
    if launch["note"]:
        yield Text(f"  {launch['note']}")
    if launch["problem"]:
        yield Text(f"  ended early: {launch['problem']}", style="bold red")
    if launch["latency"] and not alone:
        yield Text("  ").append(_latency(launch["latency"]))
        yield Text(f"  {_causes(launch['latency'])}")
    yield Text(f"  {_memory(launch, facts['soc'])}")
    if launch["ub"]:
        yield Text(f"  {_ub(launch['ub'])}")
    if launch["assumed"]:
        yield Text(f"  assumed is the cost of: {', '.join(launch['assumed'])}", style="yellow")
    if launch["findings"]:
        yield _findings(launch["findings"])
    if launch["stuck"]:
        yield Text(
            "  On the hardware this launch would wait for ever. The time is that of one that gets"
            " past the lock.",
            style="bold red",
        )
    if launch["pipes"]:
        yield Text()
        yield _pipes(launch)
    if launch["hot_lines"]:
        yield _hot(launch)
    if launch["scalar_loops"] or launch["slow_calls"]:
        yield _scalar(launch)
    if launch["hints"]:
        yield from _hints(launch["hints"])


def _grid(launch: Facts, soc: Facts) -> str:
    grid = " × ".join(map(str, launch["grid"]))
    waves = _several(launch["waves"], "wave")
    said = f"grid {grid}: {_several(launch['programs'], 'program')}"
    if launch["latency"]:
        said += f" on {launch['cores_used']} of {soc['vector_cores']} cores, {waves}"
    if launch["sampled"] < launch["programs"]:
        said += f"; {launch['sampled']} of them timed, the others as their neighbours"
    return said


def _memory(launch: Facts, soc: Facts) -> str:
    read, written, whole = (
        launch[key] / 1e6 for key in ("bytes_read", "bytes_written", "tensor_bytes")
    )
    said = f"GM: {read:.3g} MB read, {written:.3g} MB written"
    if launch["latency"]:
        said += f" ({(read + written) / launch['latency']['us'] * 1e3:.3g} GB/s modelled)"
    where = "are taken to be in L2" if launch["resident"] else "do not fit L2"
    return f"{said}; tensors of {whole:.3g} MB {where} ({soc['l2_mib']} MiB)"


def _ub(ub: Facts) -> str:
    said = (
        f"UB: peak {_kib(ub['peak'])} in use, {_kib(ub['planned'])} planned"
        f" of {_kib(ub['capacity'])} KiB"
    )
    curve = ub["curve"]
    if not curve or not ub["peak"]:
        return said
    bars = "".join(_BARS[round((len(_BARS) - 1) * used / ub["peak"])] for _, used in curve)
    end = curve[-1][0] + (curve[-1][0] - curve[-2][0] if len(curve) > 1 else 0.0)
    return f"{said}; in the longest program:\n  0 us {bars} {_us(end)} us"


def _findings(findings: Sequence[Facts]) -> RenderableType:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for number, one in enumerate(findings, 1):
        line, source = _line(one["place"])
        who = f"program {one['program']}"
        if one["other_program"] is not None:
            who = f"programs {one['program']} and {one['other_program']}"
        times = f", {one['times']} times" if one["times"] > 1 else ""
        grid.add_row(
            f"  {number}.",
            Text.assemble(
                (one["kind"], "bold red"),
                f" at {line or 'no line'}, {who}{times}: {one['message']} ({one['operation']})",
                (f"\n{source}" if source else "", "dim"),
            ),
        )
    return Group(Text(), Text("Findings", style="bold"), grid)


def _pipes(launch: Facts) -> RenderableType:
    table = table_of(
        *("pipe", "does", "busy cycles>", "busy us>", "share>", "stands still for, us"),
        title="Pipes of the core that ends last (modelled)",
    )
    whole = launch["latency"]["us"]
    for use in launch["pipes"]:
        waits = ", ".join(
            f"{why} {_us(us)}" for why, us in use["waits"][:_WAITS] if us >= whole / 100
        )
        table.add_row(
            use["pipe"],
            _WORK[use["pipe"]],
            f"{use['cycles']:,}".replace(",", " "),
            _us(use["us"]),
            _percent(use["us"] / whole),
            waits,
        )
    return table


def _hot(launch: Facts) -> RenderableType:
    table = table_of(
        *("line", "source, and what it runs as (calls a program)", "us>", "share>", "pipe"),
        "mostly",
        title="Hottest lines (modelled)",
    )
    loops = {
        (loop["place"]["file"], loop["place"]["line"]): f"scalar loop: {_trips(loop)}"
        for loop in launch["scalar_loops"]
        if loop["place"]
    }
    slow = {call["function"] for call in launch["slow_calls"]}
    for line in launch["hot_lines"]:
        key = line["place"] and (line["place"]["file"], line["place"]["line"])
        functions = [loops[key]] if key in loops else []
        calls = sorted(line["runs_as"], key=lambda call: call[0] not in slow)
        functions += [f"{name} × {times}" for name, times in calls]
        more = len(functions) - _FUNCTIONS
        shown = ", ".join(functions[:_FUNCTIONS]) + (f", {more} more" if more > 0 else "")
        place, source = _line(line["place"]) if line["place"] else ("", _rest(line))
        table.add_row(
            place,
            Text.assemble(source, (f"\n{shown}" if shown else "", "dim")),
            _us(line["us"]),
            _percent(line["share"]),
            line["pipe"],
            _CAUSES.get(line["cause"], line["cause"]),
        )
    return table


def _rest(line: Facts) -> str:
    """What belongs to no line: of the vector pipe these are barriers."""
    parts = ", ".join(
        f"{'barriers' if cause == 'vector' else cause} {_us(us)}"
        for cause, us in line["causes"]
        if us >= line["us"] / 20
    )
    return f"(no line: {parts})"


def _scalar(launch: Facts) -> RenderableType:
    vector = ""
    if launch["vector_us"] is not None:
        vector = f"; with all loops in vector form: {_us(launch['vector_us'])} us"
    table = table_of(
        *("line", "source", "element by element", "a program", "us>"),
        title=f"Scalar code in place of vector code (modelled{vector})",
    )
    for loop in launch["scalar_loops"]:
        what = ", ".join(loop["operations"]) or "moves"
        where = "GM" if loop["outside"] else "UB"
        whose = "written" if loop["written"] else "the compiler's"
        table.add_row(
            *map(Text, _line(loop["place"])),
            f"{whose} loop over {where}: {what}",
            _trips(loop),
            _us(loop["us"]),
        )
    for call in launch["slow_calls"]:
        table.add_row(
            *map(Text, _line(call["place"])),
            call["function"],
            f"{call['elements']} elements in {_several(call['calls'], 'call')}",
            _us(call["us"]),
        )
    return table


def _hints(hints: Sequence[Facts]) -> Iterator[RenderableType]:
    yield Text("What to change (modelled time at stake)", style="bold")
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column(justify="right", no_wrap=True)
    grid.add_column(overflow="fold")
    for number, hint in enumerate(hints, 1):
        place = hint["place"]
        line = f"line {place['line']}: " if place else ""
        grid.add_row(f"  {number}.", f"{_us(hint['us'])} us", escape(f"{line}{hint['text']}"))
    yield grid


# --- words -------------------------------------------------------------------------------------


def _line(place: Facts | None) -> tuple[str, str]:
    """``file.py:7`` and what stands there."""
    if not place:
        return "", ""
    text = place["text"]
    shown = text if len(text) <= _SOURCE else text[: _SOURCE - 1] + "…"
    return f"{place['file'].rpartition('/')[2]}:{place['line']}", shown


def _trips(loop: Facts) -> str:
    times = f"{loop['times']} × " if loop["times"] > 1 else ""
    return f"{times}{loop['trips']} iterations"


def _several(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _us(us: float) -> str:
    return f"{us:.0f}" if us >= 1000 else f"{us:.3g}"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %" if share >= 0.01 else "<1 %"


def _kib(size: int) -> str:
    return f"{size / 1024:.4g}"
