"""Assignments to attributes of classes: ``Class.name = …``.

Which object a load of ``.name`` in other code is made on, names alone do not tell. Where the
class has the name, any load counts; where it has not, only those in the class's own family.
"""

from __future__ import annotations

from ascendport.wiring.alike import alike_attribute
from ascendport.wiring.index import SourceIndex
from ascendport.wiring.model import Assignment, Judged, Verdict
from ascendport.wiring.things import Read, Thing, What
from ascendport.wiring.verdicts.facts import MARKER, Facts, by_ascend, evidence

_CALLED_BY_FRAMEWORKS = {
    "forward": "torch's Module.__call__",
    "backward": "torch's autograd",
    "setup_context": "torch's autograd",
}
"""Methods that code outside vllm calls by name."""


def judge_class_attribute(facts: Facts, assignment: Assignment, base: Thing) -> Judged:
    """The verdict on an assignment to an attribute of the class ``base``."""
    index, name = facts.index, assignment.name
    owner, doubtful = index.owner(base, name)
    notes: list[str] = []
    instance_line = index.sets_on_instance(base, name) if owner is None else None
    if instance_line is not None:
        notes.append(f"instances set their own {name} ({index.path(base.module)}:{instance_line})")
    if name.startswith("__") and name.endswith("__"):
        read = _at_class(index, base, "the language calls it")
        return Judged(assignment, Verdict.LIVE, "", (read,), notes=tuple(notes))
    family = _family(index, base)
    reads = _reads(index, assignment, base, family, own_reads=owner is None)
    exists = owner is not None or bool(doubtful) or instance_line is not None
    if not reads:
        return _unread(facts, assignment, base, exists=exists, defined=owner is not None)
    near = [read for read in reads if read.file in {index.path(module) for module in family}]
    if not near:
        notes.append("read outside the class and its family: any load of the name counts")
    if owner is None and doubtful and not notes:
        notes.append("a base class outside vllm may define it")
    if exists:
        return Judged(assignment, Verdict.LIVE, "", reads, notes=tuple(notes))
    return _new_name(index, assignment, base, reads, near, notes)


def _reads(
    index: SourceIndex, assignment: Assignment, base: Thing, family: list[str], *, own_reads: bool
) -> tuple[Read, ...]:
    """Those who load the attribute. ``own_reads``: those in the patch file count as well."""
    name = assignment.name
    loads = (
        read
        for read in index.attribute_reads(name, family)
        if own_reads or read.file != assignment.file
    )
    reads = evidence(loads) or evidence(index.string_reads(name))
    if not reads and name in _CALLED_BY_FRAMEWORKS:
        return (_at_class(index, base, _CALLED_BY_FRAMEWORKS[name]),)
    return reads


def _unread(
    facts: Facts, assignment: Assignment, base: Thing, *, exists: bool, defined: bool
) -> Judged:
    """``exists``: the class, an instance or a base from elsewhere has it; ``defined``: a class of
    vllm has it."""
    name = assignment.name
    if not defined and facts.is_marker(assignment):
        return Judged(assignment, Verdict.ADDED, MARKER)
    verdict, why = Verdict.NEVER_READ, f"nothing loads .{name}"
    if not exists:
        verdict, why = Verdict.NO_SUCH_NAME, f"{base.dotted} has no {name}, and {why}"
    instead = alike_attribute(facts.index, base, name)
    return Judged(assignment, verdict, why, instead=instead)


def _new_name(
    index: SourceIndex,
    assignment: Assignment,
    base: Thing,
    reads: tuple[Read, ...],
    near: list[Read],
    notes: list[str],
) -> Judged:
    """The class lacks the name, and somebody loads it."""
    name = assignment.name
    every = [*index.attribute_reads(name), *index.string_reads(name)]
    if own := evidence(filter(by_ascend, every)):
        why = f"{base.dotted} has no {name}; vllm_ascend reads it"
        return Judged(assignment, Verdict.ADDED, why, own, notes=tuple(notes))
    if near:
        return Judged(assignment, Verdict.LIVE, "", tuple(near), notes=tuple(notes))
    return Judged(
        assignment,
        Verdict.NO_SUCH_NAME,
        f"{base.dotted} has no {name}; only unrelated code loads .{name}",
        reads,
        instead=alike_attribute(index, base, name),
    )


def _family(index: SourceIndex, base: Thing) -> list[str]:
    """The modules of the class, of those above it and of those below it."""
    above = [thing.module for thing in index.ancestry(base) if thing.what is What.CLASS]
    below = [child.module for child in index.subclasses(base)]
    return list(dict.fromkeys([base.module, *above, *below]))


def _at_class(index: SourceIndex, base: Thing, how: str) -> Read:
    own = index.class_summary(base)
    return Read(index.path(base.module), own["line"] if own else 1, how)
