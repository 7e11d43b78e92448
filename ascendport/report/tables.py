"""Tables made from facts. A table says what the JSON says, and nothing that it does not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich import box
from rich.console import RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from ascendport.report.facts import Facts

_COLOURS = {
    "passed": "green",
    "applied": "green",
    "already applied": "green",
    "applicable": "cyan",
    "reverted": "green",
    "upgraded": "green",
    "not applied": "dim",
    "failed": "bold red",
    "refused": "bold red",
    "drifted": "yellow",
    "modified": "yellow",
    "superseded": "magenta",
    "missing": "dim",
    "not run": "yellow",
}


def _outcome(value: str) -> Text:
    word = value.replace("_", " ")
    return Text(word, style=_COLOURS.get(word, ""))


def table_of(*columns: str, title: str | None = None) -> Table:
    """A table without rows; a column that ends in ``>`` is set to the right."""
    table = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", title_style="bold")
    for column in columns:
        right = column.endswith(">")
        table.add_column(
            column.rstrip(">"),
            justify="right" if right else "left",
            overflow="fold",
            # What a row is about is read first, and typed again.
            no_wrap=column in ("port", "case", "check", "target", "line"),
        )
    return table


def heading(facts: Facts) -> Text:
    """The checkout, in one line."""
    tree = facts["checkout"]
    release = f"vllm-ascend {tree['release'] or '(no version of its own)'}"
    commit = f", commit {tree['commit'][:12]}" if tree["commit"] else ""
    return Text.assemble((release, "bold"), f"{commit}, {tree['layout']}: ", (tree["path"], "cyan"))


def ports(facts: Facts) -> Iterator[RenderableType]:
    table = table_of("port", "kind", "what it does", "releases", "task")
    for port in facts["ports"]:
        variants = "\n".join(
            f"{variant['name']}: {', '.join(variant['releases'])}" for variant in port["variants"]
        )
        table.add_row(port["name"], port["kind"], escape(port["summary"]), variants, port["task"])
    yield table


def status(facts: Facts) -> Iterator[RenderableType]:
    yield heading(facts)
    table = table_of("port", "kind", "status", "variant", "reason")
    for port in facts["ports"]:
        table.add_row(
            port["name"],
            port["kind"],
            _outcome(port["status"]),
            port["variant"] or "",
            escape(port["reason"]),
        )
    yield table
    for port in facts["ports"]:
        if port["difference"]:
            yield Text(f"{port['name']}: difference", style="bold")
            yield diff(port["difference"])


def diff(text: str) -> RenderableType:
    """A unified diff, coloured."""
    from rich.syntax import Syntax  # Pygments: only where a diff is shown

    return Syntax(text.rstrip("\n"), "diff", theme="ansi_dark", background_color="default")


def plan(facts: Facts, difference: str = "") -> Iterator[RenderableType]:
    yield heading(facts)
    if facts["dry_run"]:
        yield Text("Dry run: nothing was written.", style="yellow")
    table = table_of("port", "outcome", "variant", "reason")
    for port in facts["ports"]:
        forced = "forced; " if port["forced"] and port["reason"] else ""
        forced = forced or ("forced" if port["forced"] else "")
        table.add_row(
            port["name"],
            _outcome(port["status"]),
            port["variant"] or "",
            escape(forced + port["reason"]),
        )
    yield table
    verb = "would change" if facts["dry_run"] else "changed"
    for change in facts["changes"]:
        yield Text(f"  {verb}: {change['file']} ({change['action']})")
        if change["copy"]:
            keeps = "would be kept" if facts["dry_run"] else "is kept"
            yield Text(f"    the text with your edits {keeps} in {change['copy']}", style="yellow")
    for port in facts["ports"]:
        if port["conflict"]:
            yield Text(f"{port['name']}: both changed these lines", style="bold")
            yield Text(port["conflict"].rstrip("\n"))
        for drift in port["drift"]:
            yield from _drift(port["name"], drift)
    if difference:
        yield diff(difference)


def _drift(port: str, drift: Facts) -> Iterator[RenderableType]:
    """The known text, upstream's and the port's, as two differences from the first."""
    where = f"{port}: {drift['symbol']} in {drift['file']}"
    for key, what in (("upstream_diff", "what upstream changed"), ("port_diff", "the port")):
        if drift[key]:
            yield Text(f"{where}: {what}, from {drift['release']}", style="bold")
            yield diff(drift[key])
    if drift["theirs"] and not drift["base"]:
        yield Text(f"{where}: no known text could be had to compare with", style="yellow")


def exported(facts: Facts, use: str) -> Iterator[RenderableType]:
    """``use``: the command that takes the series."""
    yield heading(facts)
    table = table_of("port", "commit", "files")
    for commit in facts["commits"]:
        table.add_row(commit["port"], escape(commit["subject"]), "\n".join(commit["files"]))
    yield table
    yield Text(f"  written: {facts['where']}")
    yield Text(f"  {use}")


def fetched(facts: Facts) -> Iterator[RenderableType]:
    yield heading(facts)
    for note in facts.get("notes", ()):
        yield Text(f"  {note}")


def verify(facts: Facts) -> Iterator[RenderableType]:
    yield heading(facts)
    yield environment(facts["environment"])
    summary = table_of("port", "check", "outcome", "cases>", "reason")
    for port in facts["ports"]:
        for check in port["checks"]:
            ran = sum(case["outcome"] != "not_run" for case in check["cases"])
            cases = f"{ran}/{len(check['cases'])}" if check["cases"] else ""
            summary.add_row(
                port["name"],
                check["check"],
                _outcome(check["outcome"]),
                cases,
                escape(check["reason"]),
            )
    for port in facts["ports"]:
        for check in port["checks"]:
            if check["cases"]:
                yield _cases(port["name"], check)
    yield summary
    for port in facts["ports"]:
        if port["forced"]:
            said = "is in by --force, over an original that it does not know"
            yield Text(f"{port['name']} {said}", style="yellow")


def _cases(port: str, check: Facts) -> RenderableType:
    """One row a case; a column for each figure that any case has."""
    keys: dict[str, None] = {}
    for case in check["cases"]:
        keys.update(dict.fromkeys(case["figures"]))
    same = {key: value for key in keys if (value := _shared(check["cases"], key)) is not None}
    for key in same:
        del keys[key]
    reasons = any(case["reason"] for case in check["cases"])
    columns = ["case", "outcome", *keys, *(["reason"] if reasons else [])]
    common = ", ".join(f"{key} {_figure(value)}" for key, value in same.items())
    title = f"{port}: {check['check']}" + (f" ({common})" if common else "")
    table = table_of(*columns, title=title)
    for case in check["cases"]:
        row: list[RenderableType] = [escape(case["case"]), _outcome(case["outcome"])]
        row += [_figure(case["figures"].get(key)) for key in keys]
        row += [escape(case["reason"])] if reasons else []
        table.add_row(*row)
    return table


def _shared(cases: list[Facts], key: str) -> Any:
    """The value of a figure that all cases that ran have in common; None if they differ."""
    values = [case["figures"].get(key) for case in cases if case["outcome"] != "not_run"]
    return values[0] if len(values) > 1 and all(v == values[0] for v in values) else None


def _figure(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    return escape(str(value))


def environment(facts: Facts) -> RenderableType:
    """What a result depends on, in one line."""
    packages = ", ".join(f"{name} {version}" for name, version in facts["packages"].items())
    rest = ", ".join(
        f"{key} {_listed(value)}"
        for key, value in facts.items()
        if key not in ("packages", "ascendport") and value not in (None, [], ())
    )
    return Text(f"ascendport {facts['ascendport']}; {packages or 'no extras'}; {rest}", style="dim")


def _listed(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def bench(facts: Facts) -> Iterator[RenderableType]:
    yield heading(facts)
    yield environment(facts["environment"])
    table = table_of(
        "port", "case", "target", "quantity", "unit", "before>", "after>", "before/after>", "source"
    )
    port = ""
    for row in facts["rows"]:
        if port and row["port"] != port:
            table.add_section()
        port = row["port"]
        values: tuple[RenderableType, ...]
        if row.get("outcome") == "not_run":
            values = (Text("not run", style="yellow"), "", "", escape(row["reason"]))
        else:
            values = (
                _figure(row["before"]),
                _figure(row["after"]),
                _ratio(row),
                Text(row["source"] + (f", {row['reason']}" if row.get("reason") else "")),
            )
        table.add_row(
            port, escape(row["case"]), row["target"], row["quantity"], row["unit"], *values
        )
    yield table


def _ratio(row: Facts) -> str:
    if row["ratio"] is None:
        return ""
    spread = ""
    if row["ratio_low"] is not None:
        spread = f" ({row['ratio_low']:.2f} … {row['ratio_high']:.2f})"
    return f"{row['ratio']:.2f} ×{spread}"
