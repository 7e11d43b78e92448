"""The verdict on one assignment."""

from __future__ import annotations

from dataclasses import replace

from ascendport.wiring.alike import alike_module
from ascendport.wiring.model import Assignment, Judged, Kind, Verdict, Where
from ascendport.wiring.things import Read, Thing, What
from ascendport.wiring.verdicts.class_attributes import judge_class_attribute
from ascendport.wiring.verdicts.facts import Facts, evidence, listed
from ascendport.wiring.verdicts.module_names import judge_module_name


def judge(facts: Facts, assignment: Assignment) -> Judged:
    """The verdict on an assignment, with the reads or the reason that it rests on."""
    if assignment.inactive:
        return Judged(assignment, Verdict.INACTIVE, assignment.inactive)
    if assignment.kind is Kind.IMPORT:
        why = f"{assignment.why}, and nothing catches the ImportError"
        return _no_such_object(facts, assignment, why)
    if assignment.where is Where.SWEEP:
        return _sweep(facts, assignment)
    base = assignment.base
    if assignment.where is not Where.THING or base is None:
        why = f"set on a value that only running tells: {assignment.why}"
        return Judged(assignment, Verdict.UNKNOWN, why)
    if base.what is What.OUTSIDE:
        return Judged(assignment, Verdict.OUTSIDE, f"belongs to {base.dotted}")
    if assignment.kind is Kind.MODULE:
        return _whole_module(facts, assignment, base)
    if base.what is What.MISSING:
        return _no_such_object(facts, assignment, f"vllm has no {base.dotted}")
    if assignment.kind is Kind.ITEM:
        return _entry(facts, assignment, base)
    match base.what:
        case What.MODULE:
            return judge_module_name(facts, assignment, base.module)
        case What.CLASS:
            return judge_class_attribute(facts, assignment, base)
        case What.UNSURE:
            return _loose(facts, assignment, f"what {base.dotted} is, only running tells")
        case _:
            return _loose(facts, assignment, f"{base.dotted} is a {base.what.value}")


def _no_such_object(facts: Facts, assignment: Assignment, why: str) -> Judged:
    instead = alike_module(facts.index, assignment.base)
    return Judged(assignment, Verdict.NO_SUCH_OBJECT, why, instead=instead)


def _sweep(facts: Facts, assignment: Assignment) -> Judged:
    """A loop over all loaded modules."""
    index, name = facts.index, assignment.name
    held = [
        module
        for module, summary in index.modules.items()
        if module.startswith("vllm.") and name in summary["binds"]
    ]
    reads = [read for module in held for read in index.name_reads(module, name)]
    if reads:
        notes = (f"{len(held)} modules of vllm have the name",)
        return Judged(assignment, Verdict.LIVE, "", evidence(reads), notes=notes)
    if held:
        why = f"{listed(held)} have it, and nothing reads it"
        return Judged(assignment, Verdict.NEVER_READ, why)
    return Judged(assignment, Verdict.NO_SUCH_NAME, "no module of vllm has the name")


def _whole_module(facts: Facts, assignment: Assignment, base: Thing) -> Judged:
    """``sys.modules["vllm.x"] = …``."""
    index, module = facts.index, base.dotted
    exists = base.what is What.MODULE
    reads = [
        Read(index.path(other), 1, "imports the module")
        for other, summary in index.modules.items()
        if module in summary["loads"] or f" {module}|" in summary["takes"]
    ]
    parent, _, last = module.rpartition(".")
    reads += index.name_reads(parent, last)
    if reads:
        verdict = Verdict.LIVE if exists else Verdict.ADDED
        return Judged(assignment, verdict, "", evidence(reads))
    verdict = Verdict.NEVER_READ if exists else Verdict.NO_SUCH_NAME
    return Judged(assignment, verdict, f"nothing imports {module}")


def _entry(facts: Facts, assignment: Assignment, base: Thing) -> Judged:
    """An entry of a container: every holder of the container sees it."""
    index = facts.index
    module, _, name = base.dotted.rpartition(".")
    if not index.is_module(module):
        attribute = replace(assignment, name=name)
        return _loose(facts, attribute, "an entry of a class attribute")
    reads = list(index.name_reads(module, name))
    for holder, own_name, _ in index.holders(module, name):
        reads += index.name_reads(holder, own_name)
    if reads:
        return Judged(assignment, Verdict.LIVE, "", evidence(reads), notes=("an entry",))
    return Judged(assignment, Verdict.NEVER_READ, f"nothing reads {base.dotted}")


def _loose(facts: Facts, assignment: Assignment, why: str) -> Judged:
    """An attribute of a value whose class is not known: any load of the name counts."""
    reads = [
        read
        for read in facts.index.attribute_reads(assignment.name)
        if read.line != assignment.line or read.file != assignment.file
    ]
    if reads:
        notes = (f"{why}; any load of the name counts",)
        return Judged(assignment, Verdict.LIVE, "", evidence(reads), notes=notes)
    if assignment.name.startswith("__"):
        return Judged(assignment, Verdict.LIVE, "", notes=(why, "the language reads it"))
    return Judged(assignment, Verdict.UNKNOWN, f"{why}; nothing loads .{assignment.name}")
