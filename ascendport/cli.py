"""The command line: parse, call, render. What a command does is imported when it runs."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer

import ascendport
from ascendport.errors import ExitCode, UserError

app = typer.Typer(
    name="ascendport",
    help="Ports of optimized Ascend kernels and KV-store fixes for vllm-ascend: applied, proved, "
    "measured, reverted.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

CheckoutArg = Annotated[
    Path,
    typer.Argument(
        metavar="[CHECKOUT]",
        help="A vllm-ascend tree: git clone, unpacked sdist or installed package.",
        show_default="current directory",
    ),
]
OnlyOpt = Annotated[
    list[str] | None,
    typer.Option("--only", metavar="PORT", help="Only this port; may be given again."),
]
JsonOpt = Annotated[
    str | None,
    typer.Option("--json", metavar="FILE", help="Also write the facts as JSON; - for stdout."),
]
PortsOpt = Annotated[
    list[Path] | None,
    typer.Option("--ports", metavar="DIR", help="A further folder of ports; may be given again."),
]
DebugOpt = Annotated[bool, typer.Option("--debug", help="Show a traceback on errors.")]
SocOpt = Annotated[
    list[str] | None,
    typer.Option("--soc", metavar="SOC", help="SoC to compile for; may be given again."),
]
SeedOpt = Annotated[int, typer.Option("--seed", help="Seed of the drawn inputs.")]
CaseOpt = Annotated[
    list[str] | None,
    typer.Option("--case", metavar="CASE", help="Only this case; may be given again."),
]
DryRunOpt = Annotated[bool, typer.Option("--dry-run", help="Show the diff and write nothing.")]
WaitOpt = Annotated[
    int | None,
    typer.Option(
        "--wait",
        metavar="SECONDS",
        min=0,
        help="How long to wait for another run that writes to the checkout; 0: not at all.",
        show_default="30",
    ),
]
JUnitOpt = Annotated[
    Path | None, typer.Option("--junit", metavar="FILE", help="Also write JUnit XML.")
]
TraceOpt = Annotated[
    Path | None,
    typer.Option("--trace", metavar="FILE", help="Also write a trace that Perfetto opens."),
]


def _command(body: Callable[..., ExitCode | None]) -> Callable[..., None]:
    """Maps what a command returns or raises to an exit status and, for errors, one line."""

    @wraps(body)
    def run(*args: Any, **kwargs: Any) -> None:
        from ascendport.report.sink import Sink

        try:
            _outputs(kwargs)
            code = body(*args, **kwargs) or ExitCode.OK
        except UserError as error:
            if kwargs.get("debug"):
                raise
            Sink(kwargs.get("json_to")).error(error)
            code = error.code
        except KeyboardInterrupt:
            Sink(kwargs.get("json_to")).error(UserError("interrupted"))
            raise typer.Exit(130) from None
        except Exception as error:
            if kwargs.get("debug"):
                raise
            problem = UserError(
                f"a defect of ascendport ({type(error).__name__}: {error})",
                next="run again with --debug and report the traceback",
            )
            Sink(kwargs.get("json_to")).error(problem)
            code = ExitCode.USAGE
        raise typer.Exit(int(code))

    return run


def _outputs(given: dict[str, Any]) -> None:
    """Refuses files that cannot be written before the work is done for them.

    Raises:
        UserError: naming the option.
    """
    from ascendport.report.files import check_writable
    from ascendport.report.sink import STDOUT

    json_to = given.get("json_to")
    if json_to is not None and json_to != STDOUT:
        check_writable(Path(json_to), "JSON", "--json")
    if given.get("junit") is not None:
        check_writable(given["junit"], "JUnit file", "--junit")
    if given.get("trace") is not None:
        check_writable(given["trace"], "trace", "--trace")


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"ascendport {ascendport.__version__}")
        raise typer.Exit()


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    pass


@app.command("list")
@_command
def list_(
    ports: PortsOpt = None, json_to: JsonOpt = None, debug: DebugOpt = False
) -> ExitCode | None:
    """The ports, with their upstream tasks and the releases they know."""
    from ascendport.ports.catalogue import catalogue
    from ascendport.report import facts, tables
    from ascendport.report.sink import Sink

    found = facts.ports(catalogue(ports or ()))
    Sink(json_to).result(found, tables.ports(found))
    return None


@app.command()
@_command
def fetch(
    release: Annotated[str, typer.Argument(help="A vllm-ascend release, e.g. 0.30.0rc2.")],
    dest: Annotated[Path, typer.Argument(help="Folder to make; must be absent or empty.")],
    json_to: JsonOpt = None,
    debug: DebugOpt = False,
) -> ExitCode | None:
    """Unpacks a release's sdist from the package index: a checkout to try on."""
    from ascendport.checkout.fetch import fetch as fetch_release
    from ascendport.report import facts, tables
    from ascendport.report.progress import progress
    from ascendport.report.sink import Sink

    sink = Sink(json_to)
    with progress(sink.errors) as watch:
        tree = fetch_release(release, dest, watch)
    found = {"checkout": facts.checkout(tree), "notes": list(tree.notes)}
    sink.result(found, tables.fetched(found))
    return None


@app.command()
@_command
def status(
    checkout: CheckoutArg = Path(),
    only: OnlyOpt = None,
    ports: PortsOpt = None,
    json_to: JsonOpt = None,
    debug: DebugOpt = False,
) -> ExitCode | None:
    """For each port: applied, applicable, superseded, drifted, missing or modified."""
    from ascendport import commands
    from ascendport.report import facts, tables
    from ascendport.report.sink import Sink

    sink = Sink(json_to)
    tree, states = commands.status(checkout, only or (), ports or (), sink.note)
    found = facts.status(tree, states)
    sink.result(found, tables.status(found))
    return None


@app.command()
@_command
def apply(
    checkout: CheckoutArg = Path(),
    only: OnlyOpt = None,
    dry_run: DryRunOpt = False,
    force: Annotated[
        bool, typer.Option("--force", help="Also onto unknown originals whose signatures fit.")
    ] = False,
    wait: WaitOpt = None,
    ports: PortsOpt = None,
    json_to: JsonOpt = None,
    debug: DebugOpt = False,
) -> ExitCode | None:
    """Installs the ports into the checkout: all of them or, where one cannot be, none."""
    from ascendport import commands

    return _planned(
        commands.apply, checkout, only, ports, json_to, dry_run=dry_run, force=force, wait=wait
    )


@app.command()
@_command
def revert(
    checkout: CheckoutArg = Path(),
    only: OnlyOpt = None,
    dry_run: DryRunOpt = False,
    theirs: Annotated[
        bool,
        typer.Option(
            "--theirs",
            help="Where you edited what a port changes: upstream's text, a copy of yours is kept.",
        ),
    ] = False,
    keep: Annotated[
        bool,
        typer.Option("--keep", help="Where you edited what a port changes: leave the file so."),
    ] = False,
    wait: WaitOpt = None,
    ports: PortsOpt = None,
    json_to: JsonOpt = None,
    debug: DebugOpt = False,
) -> ExitCode | None:
    """Takes the ports out of the checkout again, byte for byte. Edits made since stay."""
    from ascendport import commands

    return _planned(
        commands.revert,
        checkout,
        only,
        ports,
        json_to,
        dry_run=dry_run,
        theirs=theirs,
        keep=keep,
        wait=wait,
    )


def _planned(
    action: Callable[..., Any],
    checkout: Path,
    only: list[str] | None,
    ports: list[Path] | None,
    json_to: str | None,
    *,
    dry_run: bool,
    **how: bool | int | None,
) -> ExitCode:
    from ascendport import commands
    from ascendport.patching.plan import diff
    from ascendport.report import facts, tables
    from ascendport.report.sink import Sink

    sink = Sink(json_to)
    plan = action(checkout, only or (), ports or (), sink.note, dry_run=dry_run, **how)
    drifts = commands.drifts(plan, sink.note)
    found = facts.plan(plan, dry_run=dry_run, drifts=drifts)
    difference = diff(plan) if dry_run else ""
    if dry_run:
        found["diff"] = difference
    sink.result(found, tables.plan(found, difference))
    return ExitCode.FAILED if plan.refused else ExitCode.OK


@app.command()
@_command
def export(
    checkout: CheckoutArg = Path(),
    only: OnlyOpt = None,
    form: Annotated[
        str, typer.Option("--format", metavar="FORMAT", help="patch (for git am) or branch.")
    ] = "patch",
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="The patch. Default: ascendport.patch."),
    ] = None,
    name: Annotated[
        str, typer.Option("--branch", metavar="NAME", help="The branch to make.")
    ] = "ascendport",
    ports: PortsOpt = None,
    json_to: JsonOpt = None,
    debug: DebugOpt = False,
) -> ExitCode | None:
    """Writes what apply would do as commits, one a port: for a pull request upstream."""
    from ascendport import commands
    from ascendport.report import facts, tables
    from ascendport.report.sink import Sink

    if form not in ("patch", "branch"):
        raise UserError("no such format", where=form, next="choose patch or branch")
    as_branch = form == "branch"
    if as_branch and out is not None:
        raise UserError("--out is for --format patch", next="name the branch with --branch")
    sink = Sink(json_to)
    branch = name if as_branch else None
    made = commands.export(checkout, only or (), ports or (), sink.note, out=out, branch=branch)
    found = facts.exported(made)
    use = f"git switch {name}" if as_branch else f"git am {made.where}"
    sink.result(found, tables.exported(found, use))
    return None


@app.command()
@_command
def verify(
    checkout: CheckoutArg = Path(),
    only: OnlyOpt = None,
    check: Annotated[
        list[str] | None,
        typer.Option("--check", metavar="CHECK", help="Only this check; may be given again."),
    ] = None,
    require: Annotated[
        list[str] | None,
        typer.Option(
            "--require",
            metavar="CHECK",
            help="Exit with 3 if this check could not run on a port that it is about; 'all': those "
            "that need no device; may be given again.",
        ),
    ] = None,
    soc: SocOpt = None,
    case: CaseOpt = None,
    large: Annotated[
        bool, typer.Option("--large", help="Also the large cases under the interpreter.")
    ] = False,
    repeats: Annotated[
        int, typer.Option("--repeats", metavar="N", min=1, help="Runs of a case on a device.")
    ] = 20,
    minutes: Annotated[
        float, typer.Option("--minutes", metavar="N", min=0.01, help="Length of the check soak.")
    ] = 1.0,
    seed: SeedOpt = 0,
    junit: JUnitOpt = None,
    ports: PortsOpt = None,
    json_to: JsonOpt = None,
    debug: DebugOpt = False,
) -> ExitCode | None:
    """Proves the ports on this checkout, applied or not: before and after are made in memory."""
    from ascendport import commands
    from ascendport.report import facts, tables
    from ascendport.report import junit as junit_file
    from ascendport.report.progress import progress
    from ascendport.report.sink import Sink

    gc.enable()
    sink = Sink(json_to)
    options = replace(
        commands.options(soc or (), case or (), seed, large), repeats=repeats, minutes=minutes
    )
    with progress(sink.errors) as watch:
        verdict = commands.verify(
            checkout, only or (), ports or (), check or (), require or (), options, sink.note, watch
        )
    found = facts.verify(
        verdict.tree,
        verdict.results,
        facts.environment(seed=seed, socs=list(options.socs)),
        verdict.forced,
    )
    if junit:
        junit_file.write(found, junit)
    sink.result(found, tables.verify(found))
    return verdict.code


@app.command()
@_command
def bench(
    checkout: CheckoutArg = Path(),
    only: OnlyOpt = None,
    soc: SocOpt = None,
    case: CaseOpt = None,
    device: Annotated[
        str, typer.Option(help="auto, sim, cuda or npu: where latency is taken from.")
    ] = "auto",
    seed: SeedOpt = 0,
    tp_mismatch: Annotated[
        bool,
        typer.Option("--tp-mismatch", help="Time the KV-pool store instead, under TP mismatch."),
    ] = False,
    tp: Annotated[
        list[str] | None,
        typer.Option(
            "--tp",
            metavar="P:D",
            help="With --tp-mismatch: TP sizes of prefill and decode; may be given again.",
            show_default="2:4 and 4:2",
        ),
    ] = None,
    layers: Annotated[int, typer.Option(help="With --tp-mismatch: layers of the model.")] = 32,
    blocks: Annotated[
        list[int] | None,
        typer.Option(
            metavar="N",
            help="With --tp-mismatch: blocks of a prompt; may be given again.",
            show_default="8",
        ),
    ] = None,
    backend: Annotated[
        str,
        typer.Option(
            metavar="STORE",
            help="With --tp-mismatch: mooncake or memory.",
            show_default="mooncake where it is installed",
        ),
    ] = "",
    ranks: Annotated[
        int, typer.Option(help="With --tp-mismatch: rank processes at work at one time.")
    ] = 1,
    sweep: Annotated[
        bool,
        typer.Option("--sweep", help="With --tp-mismatch: also prompts of up to 128k tokens."),
    ] = False,
    ports: PortsOpt = None,
    json_to: JsonOpt = None,
    debug: DebugOpt = False,
) -> ExitCode | None:
    """Before against after: the compiler's figures for each SoC, and latency on a device; with
    --tp-mismatch, saves and loads on a real store."""
    from ascendport import commands
    from ascendport.report import facts, tables
    from ascendport.report.progress import progress
    from ascendport.report.sink import Sink

    gc.enable()
    sink = Sink(json_to)
    options = commands.options(soc or (), case or (), seed, large=True)
    with progress(sink.errors) as watch:
        if tp_mismatch:
            tree, rows, code = commands.bench_store(
                checkout,
                only or (),
                ports or (),
                commands.store_plan(tp or (), blocks or (), layers, backend, ranks, sweep=sweep),
                options,
                sink.note,
                watch,
            )
        else:
            tree, rows, code = commands.bench(
                checkout, only or (), ports or (), options, device, sink.note, watch
            )
    found = {
        "checkout": facts.checkout(tree),
        "environment": facts.environment(seed=seed, socs=list(options.socs), device=device),
        "rows": [row.facts() for row in rows],
    }
    sink.result(found, tables.bench(found))
    return code


@app.command()
@_command
def simulate(
    port: Annotated[str, typer.Argument(metavar="PORT", help="A kernel port.")],
    checkout: Annotated[
        Path,
        typer.Option(
            "--checkout",
            metavar="CHECKOUT",
            help="A vllm-ascend tree: git clone, unpacked sdist or installed package.",
            show_default="current directory",
        ),
    ] = Path(),
    case: Annotated[
        str | None,
        typer.Option("--case", metavar="CASE", help="Default: the first that bench times."),
    ] = None,
    soc: Annotated[
        str, typer.Option("--soc", metavar="SOC", help="A part of A2 or A3 to simulate.")
    ] = "A2",
    before: Annotated[
        bool, typer.Option("--before", help="Show upstream's kernel, not the port's.")
    ] = False,
    trace: TraceOpt = None,
    seed: SeedOpt = 0,
    ports: PortsOpt = None,
    json_to: JsonOpt = None,
    debug: DebugOpt = False,
) -> ExitCode | None:
    """Runs one case's programs on the simulator: findings, modelled time, and what it goes to."""
    from ascendport import commands
    from ascendport.report import explained, facts
    from ascendport.report.files import write_whole
    from ascendport.report.progress import progress
    from ascendport.report.sink import Sink

    gc.enable()
    sink = Sink(json_to)
    part = commands.one_soc(soc)
    with progress(sink.errors) as watch:
        simulation = commands.simulate(
            checkout,
            port,
            ports or (),
            case,
            part,
            "before" if before else "after",
            seed,
            sink.note,
            watch,
            trace=trace is not None,
        )
    if trace is not None and simulation.trace is not None:
        write_whole(trace, simulation.trace, "trace", "--trace")
    found = facts.explained(
        simulation,
        facts.environment(seed=seed, socs=[part.name]),
        None if trace is None else str(trace),
    )
    sink.result(found, explained.explained(found))
    return simulation.code


def main() -> None:
    """Entry point of the console script."""
    # A sixth of the time of status went to collecting garbage while modules load. Commands that
    # go on for long switch it on again.
    gc.disable()
    # pydantic looks through every installed package for plugins, which takes 0.1 s; we use none.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "1")
    for stream in (sys.stdout, sys.stderr):
        # A table drawn into a file or a pipe of an ASCII locale must not end in a traceback.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    app()


if __name__ == "__main__":
    main()
