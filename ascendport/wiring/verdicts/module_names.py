"""Assignments to names of modules: ``module.name = …``."""

from __future__ import annotations

from ascendport.wiring.alike import alike_name
from ascendport.wiring.index import SourceIndex
from ascendport.wiring.model import Assignment, Judged, Verdict
from ascendport.wiring.summary import line_of, module_name
from ascendport.wiring.things import Read, What
from ascendport.wiring.verdicts.copies import Copies, copies
from ascendport.wiring.verdicts.facts import MARKER, Facts, by_ascend, evidence, listed


def judge_module_name(facts: Facts, assignment: Assignment, module: str) -> Judged:
    """The verdict on an assignment to a name of ``module``."""
    index, name = facts.index, assignment.name
    defined = index.member(module, name).what is not What.MISSING
    # Code of the patch file that reads a name of vllm keeps the original; a name that vllm
    # lacks it can only read after it was added.
    direct = [
        read
        for read in index.name_reads(module, name)
        if not defined or read.file != assignment.file
    ]
    held = copies(facts, module, name, assignment.file)
    unpatched = tuple(
        holder for holder in held.stale if any(True for _ in index.name_reads(holder, name))
    )
    if direct or held.later:
        return _read(assignment, defined, direct, held, unpatched)
    if (by_name := _found_by_name(index, module, name)) is not None:
        notes = ("looked up by its name",)
        return Judged(assignment, Verdict.LIVE, "", (by_name,), notes=notes)
    if defined:
        return _unread(index, assignment, module, held, unpatched)
    if facts.is_marker(assignment):
        return Judged(assignment, Verdict.ADDED, MARKER)
    why = f"{module} neither has nor reads {name}"
    instead = alike_name(index, module, name)
    return Judged(assignment, Verdict.NO_SUCH_NAME, why, instead=instead)


def _read(
    assignment: Assignment,
    defined: bool,
    direct: list[Read],
    held: Copies,
    unpatched: tuple[str, ...],
) -> Judged:
    reads = [*direct, *held.later]
    notes = [] if direct else ["live only if the reader is imported after the patch"]
    verdict, why = Verdict.LIVE, ""
    if not defined and all(map(by_ascend, reads)):
        verdict, why = Verdict.ADDED, "vllm has no such name; only vllm_ascend reads it"
    return Judged(
        assignment,
        verdict,
        why,
        evidence(reads),
        also_held=unpatched,
        notes=(*notes, *held.notes),
    )


def _unread(
    index: SourceIndex,
    assignment: Assignment,
    module: str,
    held: Copies,
    unpatched: tuple[str, ...],
) -> Judged:
    """The module has the name, and nothing reads it there afterwards."""
    name = assignment.name
    if held.stale:
        return Judged(
            assignment,
            Verdict.COPIED_BEFORE,
            f"only modules that took their own copy before read it: {listed(held.stale)}",
            also_held=unpatched,
            instead=alike_name(index, module, name),
            notes=tuple(held.notes),
        )
    if held.patched:
        why = f"nothing reads it there; every copy is patched itself: {listed(held.patched)}"
        return Judged(assignment, Verdict.REDUNDANT, why)
    for line, what in (
        (index.early_read(module, name), "import-time code"),
        (index.annotation(module, name), "annotations"),
    ):
        if line is not None:
            why = f"only {what} read it, at {index.path(module)}:{line}"
            return Judged(assignment, Verdict.ONLY_AT_IMPORT, why)
    why = f"{module} has it, and nothing reads it there"
    instead = alike_name(index, module, name)
    return Judged(assignment, Verdict.NEVER_READ, why, instead=instead)


def _found_by_name(index: SourceIndex, module: str, name: str) -> Read | None:
    """A file of vllm that spells the module's last part and the name: a registry."""
    last = module.rpartition(".")[2]
    for read in index.string_reads(name):
        other = index.modules.get(module_name(read.file)[0])
        if other and read.file.startswith("vllm/") and line_of(other["strings"], last):
            return Read(read.file, read.line, "a table of names")
    return None
