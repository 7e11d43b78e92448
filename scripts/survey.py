"""Which kernels of a tree compile here, which of their programs the simulator runs, and whether
they then give what Triton's interpreter gives.

Usage: python scripts/survey.py TREE [--json] [--kernel TEXT] [--styles N] [--no-values]
       [--tries N] [--timeout S] [--jobs N] [--write]

TREE: a checkout of vllm-ascend. Every kernel under vllm_ascend/ops/triton and
vllm_ascend/worker/v2 is compiled for Ascend 910B3 with arguments that are guessed from its text,
in up to three combinations of types and tile sizes (``--styles 6``: all six). ``--kernel``: only
those whose file and name hold the text; may be given several times. ``--write`` puts the table into
docs/simulator.md. Needs the extra `ascend`. A whole tree takes ten minutes to half an hour.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import cache
from itertools import islice, product
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import numpy as np
from survey_kernels import STYLES, Found, Kernels, Style, Text, find, guess, repairs
from survey_values import DTYPES, GRID, Interpreter, constants_from_json, constants_to_json, draw

from ascendport.ascend.bishengir import CompileRequest, compile_many
from ascendport.ascend.diagnostics import Refusal
from ascendport.ascend.lowering import LoweringRequest, lower
from ascendport.ascend.soc import soc
from ascendport.harness.children import Children, Failure
from ascendport.simulator import Simulator, UnsupportedError

PART = "A2"
SEED = 20260801
ITERATIONS = 100_000
"""Of `while` loops, for values that a kernel was not made for."""
CHILD_TIMEOUT_S = 300.0
KERNEL_SECONDS = 60
"""Of processor time, for all of a kernel."""
REPAIR_SECONDS = 6.0
"""Of processor time, for guesses near one that does not compile."""

PAGE = Path(__file__).parent.parent / "docs" / "simulator.md"
MARKS = ("<!-- written by scripts/survey.py -->", "<!-- end of what survey.py wrote -->")

TOLERANCE = {"fp32": 2e-5, "fp16": 4e-3, "bf16": 3.2e-2}
"""Of outputs, relative to the value or, near 0, to 1."""


@dataclass
class Program:
    """One specialisation of a kernel that compiles.

    ``refused``: what the simulator does not have. ``error``: what else kept it from running.
    ``found``: kinds of findings. ``values``: ``agree``, ``differ`` or ``not compared``, with
    ``why``.
    """

    label: str
    arguments: dict[str, Any]
    refused: str = ""
    error: str = ""
    found: list[str] = field(default_factory=list)
    functions: list[str] = field(default_factory=list)
    values: str = "not compared"
    why: str = ""

    @property
    def runs(self) -> bool:
        """It was run to its end, or to a deadlock that it has."""
        return not self.refused and not self.error


@dataclass
class Entry:
    """A kernel. ``why_not``: where nothing compiles, what the compiler said to the last guess."""

    kernel: str
    programs: list[Program] = field(default_factory=list)
    why_not: str = ""

    @property
    def verdict(self) -> str:
        """In one word or two."""
        if not self.programs:
            return "does not compile"
        if any(program.error for program in self.programs):
            return "error"
        return "runs" if any(program.runs for program in self.programs) else "refused"


@dataclass(frozen=True)
class Options:
    """``styles``: how many kinds of guesses; ``tries``: repairs of one that does not compile."""

    styles: int = 3
    tries: int = 20
    values: bool = True


# --- in a child: compile, simulate -----------------------------------------------------------


@cache
def _kernels(tree: Path) -> Kernels:
    scratch = tempfile.mkdtemp(prefix="ascendport-survey-")
    return Kernels(tree, Path(scratch))


def examine(tree: Path, found: Found, options: Options, target: Path) -> Entry:
    """Compiles and simulates a kernel. Tensors after each run are left in ``target``."""
    entry = Entry(found.key)
    _bound_processor_time()
    try:
        kernel = _kernels(tree).get(found)
        text = Text.of(kernel)
    except Exception as error:  # whatever the file raises
        entry.why_not = f"not loaded: {type(error).__name__}: {error}"[:200]
        return entry
    for label, arguments, program in _compiled(kernel, text, options, entry):
        made = Program(label, constants_to_json(arguments))
        entry.programs.append(made)
        _simulate(kernel, arguments, program, made, target)
    return entry


def _compiled(
    kernel: Any, text: Text, options: Options, entry: Entry
) -> Iterator[tuple[str, dict[str, Any], str]]:
    """Guesses that compile: (label, arguments, program)."""
    fixes: dict[str, Any] = {}
    for number, style in enumerate(STYLES[: options.styles]):
        plain = guess(kernel, text, style)
        arguments = plain | fixes
        program = _program(kernel, arguments)
        if isinstance(program, Refusal) and not fixes:
            entry.why_not = entry.why_not or program.reason
            arguments, program = _repaired(
                kernel, text, arguments, program, options.tries if number < 2 else 0
            )
            if not isinstance(program, Refusal):
                fixes = {name: value for name, value in arguments.items() if value != plain[name]}
        if not isinstance(program, Refusal):
            yield style.label, arguments, program


def _repaired(
    kernel: Any, text: Text, arguments: dict[str, Any], refusal: Refusal, tries: int
) -> tuple[dict[str, Any], str | Refusal]:
    """Walks from guess to guess, keeping each that gets further down the kernel."""
    program: str | Refusal = refusal
    first = kernel.fn.__code__.co_firstlineno
    used = 0
    limit = _processor_seconds() + REPAIR_SECONDS
    while used < tries and isinstance(program, Refusal) and _processor_seconds() < limit:
        line = program.kernel_line
        within = None if line is None else line - first
        for other in islice(repairs(kernel, text, arguments, within, used), tries - used):
            used += 1
            answer = _program(kernel, other)
            if not isinstance(answer, Refusal):
                return other, answer
            if (answer.kernel_line or 0) > (line or 0):
                arguments, program = other, answer
                break
    return arguments, program


def _processor_seconds() -> float:
    """Of this process and of those that it has waited for."""
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


def _bound_processor_time() -> None:
    """Gives this process, and each that it starts, so much more processor time.

    The front end unrolls loops over constants, and some guesses keep it busy for minutes.
    """
    own = os.times()
    most = int(own.user + own.system) + KERNEL_SECONDS
    resource.setrlimit(resource.RLIMIT_CPU, (most, resource.getrlimit(resource.RLIMIT_CPU)[1]))


def _program(kernel: Any, arguments: Mapping[str, Any]) -> str | Refusal:
    part = soc(PART)
    try:
        linalg = lower(LoweringRequest.of_launch(kernel, arguments), part)
    except Exception as error:  # constants of types that the front end does not expect
        from ascendport.ascend.lowering import refusal_of_import

        return refusal_of_import(error)
    if isinstance(linalg, Refusal):
        return linalg
    request = CompileRequest(linalg.text, part, linalg.multibuffer, linalg.flags)
    (made,) = compile_many([request], timeout_s=60)
    return made if isinstance(made, Refusal) else made.text


def _simulate(
    kernel: Any, arguments: Mapping[str, Any], program: str, made: Program, target: Path
) -> None:
    try:
        simulator = Simulator(program)
        simulator.native  # noqa: B018 - compiles
    except UnsupportedError as error:
        made.refused = error.construct
        return
    except Exception as error:
        made.error = f"{type(error).__name__}: {error}"[:200]
        return
    request = LoweringRequest.of_launch(kernel, arguments)
    order = [name for name in request.signature if name not in request.constants]
    tensors = draw(arguments, SEED)
    values = [tensors.get(name, arguments[name]) for name in order]
    try:
        result = simulator.run(
            values,
            GRID,
            names=order,
            programs=in_order(GRID),
            past_locks=True,
            max_iterations=ITERATIONS,
        )
    except Exception as error:
        made.error = f"{type(error).__name__}: {error}"[:200]
        return
    made.found = sorted({finding.kind.value for finding in result.findings})
    made.functions = sorted(result.counters.calls)
    if result.stopped:
        made.why = f"the simulated run stopped: {result.stopped}"
        return
    saved = {name: array.view(np.uint8) for name, array in tensors.items()}
    np.savez(target / f"{made.label}.npz", **saved)


@dataclass(frozen=True)
class Guessed:
    """A guess that compiles. ``order``: names of the arguments that are left at run time."""

    arguments: dict[str, Any]
    order: tuple[str, ...]
    program: str


def compiled_guess(kernel: Any, style: Style) -> Guessed | str:
    """The first guess for a kernel, or near it, that compiles; or why there is none."""
    text = Text.of(kernel)
    arguments = guess(kernel, text, style)
    program = _program(kernel, arguments)
    if isinstance(program, Refusal):
        arguments, program = _repaired(kernel, text, arguments, program, Options.tries)
    if isinstance(program, Refusal):
        return program.reason
    request = LoweringRequest.of_launch(kernel, arguments)
    order = tuple(name for name in request.signature if name not in request.constants)
    return Guessed(arguments, order, program)


def in_order(grid: Sequence[int]) -> list[int]:
    """Flat program ids in the interpreter's order: x is the outermost loop."""
    x, y, z = grid
    return [k + z * (j + y * i) for i, j, k in product(range(x), range(y), range(z))]


# --- in the parent: the interpreter, the report -----------------------------------------------


def compare(found: Found, entry: Entry, interpreter: Interpreter, target: Path) -> None:
    """Interprets what was simulated, and says whether both agree."""
    for program in entry.programs:
        path = target / f"{program.label}.npz"
        if not path.is_file():
            continue
        arguments = constants_from_json(program.arguments)
        wanted = interpreter.run(found, arguments, SEED)
        if isinstance(wanted, str):
            program.why = wanted
            continue
        with np.load(path) as saved:
            problem = difference(arguments, saved, wanted)
        program.values, program.why = ("differ", problem) if problem else ("agree", "")


def difference(arguments: Mapping[str, Any], got: Any, wanted: Mapping[str, Any]) -> str:
    """The first tensor that is not the same, or nothing."""
    for name, right in wanted.items():
        kind = arguments[name][1:]
        mine = got[name].view(DTYPES[kind])
        if kind[0] == "i":
            wrong = mine != right
        else:
            a, b = mine.astype(np.float64), right.astype(np.float64)
            with np.errstate(all="ignore"):
                near = np.abs(a - b) <= TOLERANCE[kind] * np.maximum(1, np.abs(b))
            wrong = ~((a == b) | near | (np.isnan(a) & np.isnan(b)))
        if wrong.any():
            at = int(np.argmax(wrong))
            return (
                f"{name}[{at}] is {mine[at]}, the interpreter has {right[at]};"
                f" {int(wrong.sum())} elements"
            )
    return ""


def survey(
    tree: Path, chosen: Sequence[Found], options: Options, jobs: int, timeout_s: float
) -> list[Entry]:
    """All of them, in the order given."""
    waiting: SimpleQueue[Found] = SimpleQueue()
    for found in chosen:
        waiting.put(found)
    done: dict[str, Entry] = {}

    def work() -> None:
        interpreter = Interpreter(tree, timeout_s)
        try:
            while True:
                with Children(1) as children:
                    while True:
                        found = waiting.get_nowait()
                        with tempfile.TemporaryDirectory() as folder:
                            target = Path(folder)
                            future = children.submit(examine, tree, found, options, target)
                            entry = children.result(future, CHILD_TIMEOUT_S)
                            if isinstance(entry, Failure):
                                done[found.key] = Entry(found.key, [], entry.reason)
                                break
                            if options.values:
                                compare(found, entry, interpreter, target)
                        done[found.key] = entry
                        print(f"{len(done)}/{len(chosen)} {found.key}", file=sys.stderr)
        except Empty:
            return
        finally:
            interpreter.close()

    with ThreadPoolExecutor(jobs) as pool:
        for future in [pool.submit(work) for _ in range(jobs)]:
            future.result()
    return [done[found.key] for found in chosen]


def table(entries: Sequence[Entry]) -> str:
    """Counts, as a Markdown table."""
    programs = [program for entry in entries for program in entry.programs]
    vector = [program for program in programs if not program.refused]
    refused = Counter(program.refused for program in programs if program.refused)
    values = Counter(program.values for program in vector)
    rows = [
        ("kernels", str(len(entries))),
        (
            "compile for 910B3 with some guess",
            f"{sum(bool(entry.programs) for entry in entries)} ({len(programs)} programs)",
        ),
        *(
            (f"refused by name: {name}", f"{count} programs")
            for name, count in sorted(refused.items())
        ),
        ("other programs", str(len(vector))),
        ("of these run", str(sum(program.runs for program in vector))),
        (
            "library functions among them",
            str(len({name for program in vector for name in program.functions})),
        ),
        ("values as in Triton's interpreter", str(values["agree"])),
        ("values that differ", str(values["differ"])),
        ("not compared: the interpreter cannot run them", str(values["not compared"])),
    ]
    lines = ["| | count |", "|---|---|", *(f"| {name} | {count} |" for name, count in rows)]
    return "\n".join(lines) + "\n"


def report(entries: Sequence[Entry]) -> str:
    """Kernel by kernel, then the counts."""
    lines: list[str] = []
    for entry in entries:
        programs = entry.programs
        if not programs:
            lines.append(f"{entry.kernel}: does not compile: {entry.why_not}")
            continue
        runs = sum(program.runs for program in programs)
        agree = sum(program.values == "agree" for program in programs)
        lines.append(
            f"{entry.kernel}: {entry.verdict}: {len(programs)} programs, {runs} run,"
            f" {agree} agree with the interpreter"
        )
        for program in programs:
            why = program.refused or program.error or program.why
            if why:
                lines.append(f"    {program.label}: {program.values}: {why}")
    return "\n".join([*lines, "", table(entries)])


def write(text: str) -> None:
    """Puts the table between its marks in the page on the simulator."""
    before, _, rest = PAGE.read_text().partition(MARKS[0])
    _, _, after = rest.partition(MARKS[1])
    PAGE.write_text(f"{before}{MARKS[0]}\n{text}{MARKS[1]}{after}")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("tree", type=Path)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--kernel", action="append", default=[])
    parser.add_argument("--styles", type=int, default=Options.styles)
    parser.add_argument("--tries", type=int, default=Options.tries)
    parser.add_argument("--no-values", action="store_true")
    parser.add_argument("--timeout", type=float, default=60.0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    chosen = [
        found
        for found in find(given.tree.resolve())
        if not found.helper
        and (not given.kernel or any(text in found.key for text in given.kernel))
    ]
    options = Options(given.styles, given.tries, not given.no_values)
    entries = survey(given.tree.resolve(), chosen, options, given.jobs, given.timeout)
    if given.write:
        write(table(entries))
    if given.json:
        print(json.dumps([asdict(entry) | {"verdict": entry.verdict} for entry in entries]))
    else:
        print(report(entries))
    return 0


if __name__ == "__main__":
    sys.exit(main())
