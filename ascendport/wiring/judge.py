"""Verdicts: does an assignment land on a name that somebody reads afterwards?"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from ascendport.wiring.index import Read, SourceIndex, Thing, What, nearest
from ascendport.wiring.model import Assignment, Judged, Kind, Verdict, Where
from ascendport.wiring.summary import line_of, module_name, names_in

_SHOWN = 3
"""Reads kept as evidence."""

_MARKER = "vllm has no such name; only the patch file itself asks for it, with hasattr or getattr"

_CALLED_BY_FRAMEWORKS = {
    "forward": "torch's Module.__call__",
    "backward": "torch's autograd",
    "setup_context": "torch's autograd",
}
"""Methods that code outside vllm calls by name."""


@dataclass(frozen=True)
class Judge:
    """Judges the assignments of one tree.

    Rests on names only: whether the code that reads a name is itself ever run is not judged.
    """

    index: SourceIndex
    patched: frozenset[tuple[str, str]] = frozenset()
    """(module, name) of every active assignment to a module's name."""
    swept: frozenset[str] = frozenset()
    """Names that a loop over ``sys.modules`` rebinds wherever they are held."""
    loaded: dict[str, frozenset[str]] = field(default_factory=dict)
    """Patch file → modules certainly imported before it runs to its end."""
    probed: dict[str, frozenset[tuple[Thing, str]]] = field(default_factory=dict)
    """Patch file → objects and names that it asks for with hasattr or getattr."""

    def judge(self, assignment: Assignment) -> Judged:
        if assignment.inactive:
            return Judged(assignment, Verdict.INACTIVE, assignment.inactive)
        if assignment.kind is Kind.IMPORT:
            return Judged(
                assignment,
                Verdict.NO_SUCH_OBJECT,
                f"{assignment.why}, and nothing catches the ImportError",
                instead=self.alike_module(assignment),
            )
        if assignment.where is Where.SWEEP:
            return self.sweep(assignment)
        base = assignment.base
        if assignment.where is not Where.THING or base is None:
            return Judged(
                assignment,
                Verdict.UNKNOWN,
                f"set on a value that only running tells: {assignment.why}",
            )
        if assignment.kind is Kind.MODULE:
            return self.whole_module(assignment, base)
        if assignment.kind is Kind.ITEM:
            return self.item(assignment, base)
        match base.what:
            case What.OUTSIDE:
                return Judged(assignment, Verdict.OUTSIDE, f"belongs to {base.dotted}")
            case What.MISSING:
                return Judged(
                    assignment,
                    Verdict.NO_SUCH_OBJECT,
                    f"vllm has no {base.dotted}",
                    instead=self.alike_module(assignment),
                )
            case What.UNSURE:
                return self.loose(assignment, f"what {base.dotted} is, only running tells")
            case What.MODULE:
                return self.module_name(assignment, base.module, assignment.name)
            case What.CLASS:
                return self.class_attribute(assignment, base)
            case _:
                return self.loose(assignment, f"{base.dotted} is a {base.what.value}")

    # -- names of modules -------------------------------------------------------------------

    def module_name(self, assignment: Assignment, module: str, name: str) -> Judged:
        index = self.index
        loaded = self.loaded.get(assignment.file, frozenset())
        thing = index.member(module, name)
        defined = thing.what is not What.MISSING
        # Code of the patch file that reads a name of vllm keeps the original; a name that vllm
        # lacks it can only read after it was added.
        direct = [
            read
            for read in index.name_reads(module, name)
            if not defined or read.file != assignment.file
        ]
        later, stale, covered = self.copies(module, name, loaded, assignment)
        also = tuple(
            holder for holder in stale if any(True for _ in index.name_reads(holder, name))
        )
        reads = [*direct, *later]
        if reads:
            first = _unique(reads)
            by_vllm = [read for read in reads if not read.file.startswith("vllm_ascend/")]
            notes = []
            if not direct:
                notes.append("live only if the reader is imported after the patch")
            if covered:
                notes.append(f"copies patched themselves: {_listed(covered)}")
            if defined or by_vllm:
                return Judged(
                    assignment, Verdict.LIVE, "", first, also_held=also, notes=tuple(notes)
                )
            return Judged(
                assignment,
                Verdict.ADDED,
                "vllm has no such name; only vllm_ascend reads it",
                first,
                also_held=also,
                notes=tuple(notes),
            )
        instead = self.alike_name(module, name)
        if (by_name := self.found_by_name(module, name)) is not None:
            return Judged(
                assignment, Verdict.LIVE, "", (by_name,), notes=("looked up by its name",)
            )
        if not defined and self.is_marker(assignment):
            return Judged(assignment, Verdict.ADDED, _MARKER)
        if not defined:
            return Judged(
                assignment,
                Verdict.NO_SUCH_NAME,
                f"{module} neither has nor reads {name}",
                instead=instead,
            )
        if stale:
            why = f"only modules that took their own copy before read it: {_listed(stale)}"
            notes_stale = (f"copies patched themselves: {_listed(covered)}",) if covered else ()
            return Judged(
                assignment,
                Verdict.COPIED_BEFORE,
                why,
                also_held=also,
                instead=instead,
                notes=notes_stale,
            )
        if covered:
            why = f"nothing reads it there; every copy is patched itself: {_listed(covered)}"
            return Judged(assignment, Verdict.REDUNDANT, why)
        line = index.early_read(module, name)
        annotated = index.annotation(module, name)
        if line is not None or annotated is not None:
            place = f"{index.path(module)}:{line or annotated}"
            what = "import-time code" if line is not None else "annotations"
            return Judged(assignment, Verdict.ONLY_AT_IMPORT, f"only {what} read it, at {place}")
        return Judged(
            assignment,
            Verdict.NEVER_READ,
            f"{module} has it, and nothing reads it there",
            instead=instead,
        )

    def is_marker(self, assignment: Assignment) -> bool:
        """The patch file asks for the very name: a mark that it was here, or a back-port."""
        base = assignment.base
        return (base, assignment.name) in self.probed.get(assignment.file, frozenset())

    def found_by_name(self, module: str, name: str) -> Read | None:
        """A file of vllm that spells the module's last part and the name: a registry."""
        last = module.rpartition(".")[2]
        for read in self.index.string_reads(name):
            other = self.index.modules.get(module_name(read.file)[0])
            if other and read.file.startswith("vllm/") and line_of(other["strings"], last):
                return Read(read.file, read.line, "a table of names")
        return None

    def copies(
        self,
        module: str,
        name: str,
        loaded: frozenset[str],
        assignment: Assignment,
        seen: frozenset[tuple[str, str]] = frozenset(),
    ) -> tuple[list[Read], list[str], list[str]]:
        """Copies taken by ``from module import name``: (reads through copies that a later import
        may take, holders loaded before, holders patched themselves)."""
        later: list[Read] = []
        stale: list[str] = []
        covered: list[str] = []
        index = self.index
        for holder, own_name, line in index.holders(module, name):
            if (holder, own_name) in seen:
                continue
            path = index.path(holder)
            if holder == module:
                continue
            inner = seen | {(module, name), (holder, own_name)}
            reads = list(index.name_reads(holder, own_name))
            early = index.early_read(holder, own_name)
            deeper, deeper_stale, deeper_covered = self.copies(
                holder, own_name, loaded, assignment, inner
            )
            used = bool(reads or early is not None or deeper or deeper_stale or deeper_covered)
            if not used:
                continue
            swept = own_name in self.swept and holder in loaded
            if (holder, own_name) in self.patched or swept:
                covered.append(holder)
            elif holder in loaded:
                stale.append(holder)
            elif path != assignment.file:
                if reads:
                    how = f"takes a copy in line {line}, {reads[0].how}"
                    later.append(Read(path, reads[0].line, how, holder))
                elif early is not None:
                    later.append(Read(path, early, f"copy of line {line}, at import", holder))
                elif deeper:
                    later.append(replace(deeper[0], copied=holder))
        return later, stale, covered

    def alike_name(self, module: str, name: str) -> str:
        """The name most alike that late code of the module reads, else that it has."""
        summary = self.index.modules.get(module)
        if summary is None:
            return ""
        read = nearest(names_in(summary["late"]), name)
        return read or nearest(self.index.names(module), name)

    def alike_module(self, assignment: Assignment) -> str:
        base = assignment.base
        if base is None:
            return ""
        index = self.index
        module = base.module
        if base.path and index.is_module(module):
            first = base.path.partition(".")[0]
            alike = nearest(index.names(module), first)
            return f"{module}.{alike}" if alike else ""
        if not index.is_module(module):
            parent, _, last = module.rpartition(".")
            if index.is_module(parent):
                here = nearest([*index.names(parent), *index.submodules(parent)], last)
                if here:
                    return f"{parent}.{here}"
            elsewhere = [other for other in index.modules if other.endswith("." + last)]
            return nearest(elsewhere, module) or (elsewhere[0] if len(elsewhere) == 1 else "")
        return ""

    def sweep(self, assignment: Assignment) -> Judged:
        name = assignment.name
        held = [
            module
            for module, summary in self.index.modules.items()
            if module.startswith("vllm.") and name in summary["binds"]
        ]
        reads = [read for module in held for read in self.index.name_reads(module, name)]
        if reads:
            note = f"{len(held)} modules of vllm have the name"
            return Judged(assignment, Verdict.LIVE, "", _unique(reads), notes=(note,))
        if held:
            return Judged(
                assignment, Verdict.NEVER_READ, f"{_listed(held)} have it, and nothing reads it"
            )
        return Judged(assignment, Verdict.NO_SUCH_NAME, "no module of vllm has the name")

    def whole_module(self, assignment: Assignment, base: Thing) -> Judged:
        if base.what is What.OUTSIDE:
            return Judged(assignment, Verdict.OUTSIDE, f"belongs to {base.dotted}")
        module = base.dotted
        reads = [
            Read(self.index.path(other), 1, "imports the module")
            for other, summary in self.index.modules.items()
            if module in summary["loads"] or f" {module}|" in summary["takes"]
        ]
        parent, _, last = module.rpartition(".")
        reads += list(self.index.name_reads(parent, last))
        if not reads:
            dead = Verdict.NEVER_READ if base.what is What.MODULE else Verdict.NO_SUCH_NAME
            return Judged(assignment, dead, f"nothing imports {module}")
        added = base.what is not What.MODULE
        return Judged(assignment, Verdict.ADDED if added else Verdict.LIVE, "", _unique(reads))

    def item(self, assignment: Assignment, base: Thing) -> Judged:
        """An entry of a container: every holder of the container sees it."""
        if base.what is What.OUTSIDE:
            return Judged(assignment, Verdict.OUTSIDE, f"belongs to {base.dotted}")
        if base.what is What.MISSING:
            return Judged(
                assignment,
                Verdict.NO_SUCH_OBJECT,
                f"vllm has no {base.dotted}",
                instead=self.alike_module(assignment),
            )
        module, _, name = base.dotted.rpartition(".")
        if not self.index.is_module(module):
            return self.loose(replace(assignment, name=name), "an entry of a class attribute")
        reads = list(self.index.name_reads(module, name))
        for holder, own_name, _ in self.index.holders(module, name):
            reads += self.index.name_reads(holder, own_name)
        if reads:
            return Judged(assignment, Verdict.LIVE, "", _unique(reads), notes=("an entry",))
        return Judged(assignment, Verdict.NEVER_READ, f"nothing reads {base.dotted}")

    # -- attributes of classes --------------------------------------------------------------

    def class_attribute(self, assignment: Assignment, base: Thing) -> Judged:
        index, name = self.index, assignment.name
        owner, doubtful = index.owner(base, name)
        relatives = [base.module, *(t.module for t in index.ancestry(base) if t.what is What.CLASS)]
        relatives += [child.module for child in index.subclasses(base)]
        relatives = list(dict.fromkeys(relatives))
        exists = owner is not None or bool(doubtful)
        notes: list[str] = []
        if owner is None and (line := index.sets_on_instance(base, name)) is not None:
            exists = True
            notes.append(f"instances set their own {name} ({index.path(base.module)}:{line})")
        if name.startswith("__") and name.endswith("__"):
            read = Read(index.path(base.module), _class_line(index, base), "the language calls it")
            verdict = Verdict.LIVE
            return Judged(assignment, verdict, "", (read,), notes=tuple(notes))
        reads = _unique(
            read
            for read in index.attribute_reads(name, relatives)
            if owner is None or read.file != assignment.file
        )
        if not reads:
            reads = _unique(index.string_reads(name))
        if not reads and name in _CALLED_BY_FRAMEWORKS:
            reads = (
                Read(
                    index.path(base.module), _class_line(index, base), _CALLED_BY_FRAMEWORKS[name]
                ),
            )
        if not reads:
            if owner is None and self.is_marker(assignment):
                return Judged(assignment, Verdict.ADDED, _MARKER)
            if not exists:
                alike = nearest(self.class_names(base), name)
                return Judged(
                    assignment,
                    Verdict.NO_SUCH_NAME,
                    f"{base.dotted} has no {name}, and nothing loads .{name}",
                    instead=alike,
                )
            return Judged(
                assignment,
                Verdict.NEVER_READ,
                f"nothing loads .{name}",
                instead=nearest(self.class_names(base), name),
            )
        near = {index.path(module) for module in relatives}
        if not any(read.file in near for read in reads):
            notes.append("read outside the class and its family: any load of the name counts")
        if owner is None and doubtful and not notes:
            notes.append("a base class outside vllm may define it")
        if exists:
            return Judged(assignment, Verdict.LIVE, "", reads, notes=tuple(notes))
        own = [
            read
            for read in [*index.attribute_reads(name), *index.string_reads(name)]
            if read.file.startswith("vllm_ascend/")
        ]
        family = [read for read in reads if read.file in near]
        if own:
            return Judged(
                assignment,
                Verdict.ADDED,
                f"{base.dotted} has no {name}; vllm_ascend reads it",
                _unique(own),
                notes=tuple(notes),
            )
        if family:
            return Judged(assignment, Verdict.LIVE, "", _unique(family), notes=tuple(notes))
        return Judged(
            assignment,
            Verdict.NO_SUCH_NAME,
            f"{base.dotted} has no {name}; only unrelated code loads .{name}",
            reads,
            instead=nearest(self.class_names(base), name),
        )

    def class_names(self, base: Thing) -> list[str]:
        names: list[str] = []
        for current in self.index.ancestry(base):
            own = self.index.class_summary(current) if current.what is What.CLASS else None
            if own:
                names += names_in(own["attrs"])
        return names

    def loose(self, assignment: Assignment, why: str) -> Judged:
        """An attribute of a value whose class is not known: any load of the name counts."""
        reads = [
            read
            for read in self.index.attribute_reads(assignment.name)
            if read.line != assignment.line or read.file != assignment.file
        ]
        if reads:
            notes = (f"{why}; any load of the name counts",)
            return Judged(assignment, Verdict.LIVE, "", _unique(reads), notes=notes)
        if assignment.name.startswith("__"):
            return Judged(assignment, Verdict.LIVE, "", notes=(why, "the language reads it"))
        return Judged(assignment, Verdict.UNKNOWN, f"{why}; nothing loads .{assignment.name}")


def _class_line(index: SourceIndex, base: Thing) -> int:
    own = index.class_summary(base)
    return own["line"] if own else 1


def _unique(reads: Iterable[Read]) -> tuple[Read, ...]:
    found: dict[tuple[str, int], Read] = {}
    for read in reads:
        found.setdefault((read.file, read.line), read)
        if len(found) >= _SHOWN:
            break
    return tuple(found.values())


def _listed(names: Sequence[str]) -> str:
    unique = list(dict.fromkeys(names))
    text = ", ".join(unique[:3])
    return text if len(unique) <= 3 else f"{text} and {len(unique) - 3} more"
