"""Names across many files: what a dotted name means, and who reads it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from ascendport.wiring.summary import (
    ClassSummary,
    ModuleSummary,
    line_of,
    module_name,
)

INSIDE = ("vllm", "vllm_ascend")
_BUILT = ("_C", "._version", "._build_info")
"""Ends of the names of modules that a build makes: no source tree has them."""


_SEARCHED: tuple[Literal["takes", "chains", "strings", "attrs"], ...] = (
    "takes",
    "chains",
    "strings",
    "attrs",
)


class What(StrEnum):
    """What a dotted name turned out to be."""

    MODULE = "module"
    CLASS = "class"
    FUNCTION = "function"
    VALUE = "value"
    OUTSIDE = "outside"
    """It belongs to another distribution."""
    MISSING = "missing"
    UNSURE = "unsure"
    """Only running the code could tell (a module-level ``__getattr__``, a star import from
    another distribution, a base class from elsewhere)."""


@dataclass(frozen=True)
class Thing:
    """An object: where it is defined. ``path`` is empty for a module."""

    what: What
    module: str
    path: str = ""

    @property
    def dotted(self) -> str:
        return f"{self.module}.{self.path}" if self.path else self.module


@dataclass(frozen=True)
class Read:
    """Somebody reads a name. ``how`` is a phrase; ``copied`` holds the module that took a copy
    by ``from … import`` when it was imported, if the read goes through one."""

    file: str
    line: int
    how: str
    copied: str = ""

    def __str__(self) -> str:
        return f"{self.file}:{self.line} ({self.how})"


class _Corpus:
    """Packed strings of all modules as one text, so that a search is one ``str.find``."""

    def __init__(self, packed: Iterable[tuple[str, str]]) -> None:
        self.modules: list[str] = []
        self.starts: list[int] = []
        texts: list[str] = []
        size = 0
        for module, text in packed:
            if len(text) > 1:
                self.modules.append(module)
                self.starts.append(size)
                texts.append(text)
                size += len(text)
        self.text = "".join(texts)

    def find(self, pattern: str) -> Iterator[tuple[str, str, int]]:
        """(module, whole name, line) of every packed name that contains ``pattern``."""
        at = self.text.find(pattern)
        while at >= 0:
            end = self.text.find(" ", at + 1)
            start = self.text.rfind(" ", 0, at + 1) + 1
            name, _, line = self.text[start:end].rpartition(":")
            yield self.modules[bisect_right(self.starts, at) - 1], name, int(line)
            at = self.text.find(pattern, end)

    def lines(self, name: str) -> Iterator[tuple[str, int]]:
        """(module, line) wherever exactly ``name`` is packed."""
        for module, _, line in self.find(f" {name}:"):
            yield module, line


class SourceIndex:
    """Summaries of the files of one or more packages, by path (``vllm/envs.py``)."""

    def __init__(self, summaries: Mapping[str, ModuleSummary]) -> None:
        self.modules: dict[str, ModuleSummary] = {}
        self.paths: dict[str, str] = {}
        self.packages: set[str] = set()
        self._holders: dict[tuple[str, str], list[tuple[str, str, int]]] = {}
        self._star_holders: dict[str, list[str]] = {}
        self._users: dict[str, list[tuple[str, int, str]]] = {}
        self._by_base: dict[str, list[Thing]] | None = None
        self._edges: dict[str, tuple[str, ...]] = {}
        self._takes, self._chains, self._strings, self._attrs = (
            _Corpus((path, summary[field]) for path, summary in self._by_module(summaries))
            for field in _SEARCHED
        )
        for path, summary in summaries.items():
            module, is_package = module_name(path)
            self.modules[module] = summary
            self.paths[module] = path
            if is_package:
                self.packages.add(module)
        # Folders without __init__.py are packages too.
        for module in list(self.modules):
            while "." in module:
                module = module.rpartition(".")[0]
                self.packages.add(module)
        for module, summary in self.modules.items():
            for name, bound in summary["binds"].items():
                if bound[0] == "n":
                    _, line, source, original = bound.split(":")
                    holder = (module, name, int(line))
                    self._holders.setdefault((source, original), []).append(holder)
            for source in summary["stars"]:
                self._star_holders.setdefault(source, []).append(module)

    @staticmethod
    def _by_module(
        summaries: Mapping[str, ModuleSummary],
    ) -> list[tuple[str, ModuleSummary]]:
        return [(module_name(path)[0], summary) for path, summary in summaries.items()]

    # -- what a name means ------------------------------------------------------------------

    def is_module(self, dotted: str) -> bool:
        return dotted in self.modules or dotted in self.packages

    def inside(self, dotted: str) -> bool:
        return dotted.partition(".")[0] in INSIDE

    def path(self, module: str) -> str:
        return self.paths.get(module, module.replace(".", "/"))

    def names(self, module: str) -> list[str]:
        """Every name that the module surely has, its submodules left out."""
        summary = self.modules.get(module)
        if summary is None:
            return []
        found = [*summary["binds"], *summary["lazy_names"]]
        for source in summary["stars"]:
            if source != module:
                found += self.public(source)
        return found

    def submodules(self, package: str) -> list[str]:
        """The last parts of the names of the package's modules."""
        known = {*self.modules, *self.packages}
        return [name.rpartition(".")[2] for name in known if name.rpartition(".")[0] == package]

    def public(self, module: str, seen: frozenset[str] = frozenset()) -> list[str]:
        """What ``from module import *`` takes."""
        summary = self.modules.get(module)
        if summary is None or module in seen:
            return []
        if summary["exports"] is not None:
            return summary["exports"]
        found = [name for name in summary["binds"] if not name.startswith("_")]
        for source in summary["stars"]:
            found += self.public(source, seen | {module})
        return found

    def member(self, module: str, name: str, seen: frozenset[str] = frozenset()) -> Thing:
        """The object that ``module.name`` is, re-exports followed to the definition."""
        if not self.inside(module):
            return Thing(What.OUTSIDE, f"{module}.{name}")
        if not self.is_module(module):
            return Thing(What.MISSING, module, name)
        key = f"{module}:{name}"
        if key in seen:
            return Thing(What.UNSURE, module, name)
        seen |= {key}
        if f"{module}.{name}".endswith(_BUILT):
            return Thing(What.OUTSIDE, f"{module}.{name}")
        summary = self.modules.get(module)
        bound = summary["binds"].get(name) if summary else None
        if summary and bound:
            kind = bound[0]
            if kind == "f":
                return Thing(What.FUNCTION, module, name)
            if kind == "c":
                return Thing(What.CLASS, module, name)
            if kind == "v":
                return Thing(What.VALUE, module, name)
            parts = bound.split(":")
            if kind == "m":
                return self.module_thing(parts[2])
            source, original = parts[2], parts[3]
            if source == module and self.is_module(f"{module}.{original}"):
                return Thing(What.MODULE, f"{module}.{original}")
            return self.member(source, original, seen)
        if self.is_module(f"{module}.{name}"):
            return Thing(What.MODULE, f"{module}.{name}")
        if summary:
            if name in summary["lazy_names"]:
                return self.lazy(module, name, summary["lazy_names"][name], seen)
            unsure = summary["lazy"]
            for source in summary["stars"]:
                if not self.inside(source):
                    unsure = True
                elif name in self.public(source):
                    return self.member(source, name, seen)
            if unsure:
                return Thing(What.UNSURE, module, name)
        return Thing(What.MISSING, module, name)

    def lazy(self, module: str, name: str, where: str, seen: frozenset[str]) -> Thing:
        """The object behind an entry of a lazy-import table: ``".a:Name"``, ``"p.a.Name"``."""
        target, _, attribute = where.partition(":")
        if target.startswith("."):
            target = module + target
        for candidate, member in (
            (target, attribute or name),
            (target.rpartition(".")[0], target.rpartition(".")[2]),
            (f"{module}.{target}", attribute or name),
        ):
            if self.is_module(candidate):
                found = self.member(candidate, member, seen)
                if found.what is not What.MISSING:
                    return found
        return Thing(What.UNSURE, module, name)

    def module_thing(self, dotted: str) -> Thing:
        if not self.inside(dotted):
            return Thing(What.OUTSIDE, dotted)
        if self.is_module(dotted):
            return Thing(What.MODULE, dotted)
        if dotted.endswith(_BUILT):
            return Thing(What.OUTSIDE, dotted)
        return Thing(What.MISSING, dotted)

    def class_summary(self, thing: Thing) -> ClassSummary | None:
        summary = self.modules.get(thing.module)
        return summary["classes"].get(thing.path) if summary else None

    def bases(self, thing: Thing) -> list[Thing]:
        """The direct base classes."""
        own = self.class_summary(thing)
        return [self.dotted(thing.module, base) for base in own["bases"]] if own else []

    def dotted(self, module: str, text: str) -> Thing:
        """``text``, a dotted expression in ``module``."""
        if text == "?":
            return Thing(What.UNSURE, module, text)
        first, *rest = text.split(".")
        thing = self.member(module, first)
        if thing.what is What.MISSING:
            # A builtin.
            return Thing(What.OUTSIDE, first)
        for part in rest:
            thing = self.attribute(thing, part)
        return thing

    def attribute(self, thing: Thing, name: str) -> Thing:
        """``thing.name``."""
        if thing.what is What.MODULE:
            return self.member(thing.module, name)
        if thing.what is What.OUTSIDE:
            return Thing(What.OUTSIDE, f"{thing.module}.{name}")
        if thing.what is What.CLASS:
            owner, line = self.owner(thing, name)
            if owner is None:
                if name.startswith("__") and name.endswith("__"):
                    return Thing(What.UNSURE, thing.module, f"{thing.path}.{name}")
                return Thing(
                    What.MISSING if line == 0 else What.UNSURE, thing.module, f"{thing.path}.{name}"
                )
            summary = self.modules[owner.module]
            path = f"{owner.path}.{name}"
            if path in summary["classes"]:
                return Thing(What.CLASS, owner.module, path)
            return Thing(What.FUNCTION, owner.module, path)
        if thing.what is What.MISSING:
            return Thing(What.MISSING, thing.module, f"{thing.path}.{name}".lstrip("."))
        return Thing(What.UNSURE, thing.module, f"{thing.path}.{name}")

    def ancestry(self, thing: Thing) -> Iterator[Thing]:
        """The class and its bases, nearest first; those from elsewhere included."""
        queue, seen = [thing], set()
        while queue:
            current = queue.pop(0)
            if current in seen:
                continue
            seen.add(current)
            yield current
            if current.what is What.CLASS:
                queue += self.bases(current)

    def owner(self, thing: Thing, name: str) -> tuple[Thing | None, int]:
        """The class among ``thing`` and its bases that defines ``name``, with the line.

        ``(None, 0)``: none does. ``(None, 1)``: a base from elsewhere may.
        """
        doubtful = 0
        for current in self.ancestry(thing):
            if current.what is What.CLASS:
                own = self.class_summary(current)
                line = line_of(own["attrs"], name) if own else None
                if line is not None:
                    return current, line
            elif current.module not in ("object", "ABC", "Protocol", "Generic", "abc.ABC"):
                doubtful = 1
        return None, doubtful

    def sets_on_instance(self, thing: Thing, name: str) -> int | None:
        """The line where a method of the class (or of a base) sets ``self.name``."""
        for current in self.ancestry(thing):
            own = self.class_summary(current) if current.what is What.CLASS else None
            if own and (line := line_of(own["inst"], name)) is not None:
                return line
        return None

    # -- who reads --------------------------------------------------------------------------

    def holders(self, module: str, name: str) -> list[tuple[str, str, int]]:
        """(module, its name for it, line) of every ``from module import name`` that runs when
        the taking module is imported."""
        found = list(self._holders.get((module, name), []))
        for taker in self._star_holders.get(module, []):
            if name in self.public(module):
                found.append((taker, name, 1))
        if "." in module and self.is_module(f"{module}.{name}"):
            return []
        return found

    def name_reads(self, module: str, name: str) -> Iterator[Read]:
        """Late reads of the module's own name: what sees a later assignment to it."""
        summary = self.modules.get(module)
        if summary and (line := line_of(summary["late"], name)) is not None:
            yield Read(self.path(module), line, "its own functions")
        for user, line, how in self.users(f"{module}.{name}"):
            yield Read(self.path(user), line, how)

    def early_read(self, module: str, name: str) -> int | None:
        """The line where importing the module reads its own name."""
        summary = self.modules.get(module)
        return line_of(summary["early"], name) if summary else None

    def annotation(self, module: str, name: str) -> int | None:
        summary = self.modules.get(module)
        return line_of(summary["annotated"], name) if summary else None

    def users(self, dotted: str) -> list[tuple[str, int, str]]:
        """Who reads ``module.name`` in late code: (module, line, how). Aliases of modules and
        packages' re-exports of modules are followed."""
        if dotted in self._users:
            return self._users[dotted]
        source, _, name = dotted.rpartition(".")
        found = [
            (module, line, "imports it inside a function")
            for module, line in self._takes.lines(f"{source}|{name}")
        ]
        for corpus, how in (
            (self._chains, "as an attribute of the module"),
            (self._strings, "names it in a string"),
        ):
            users = set()
            for end in (":", "."):
                for module, text, line in corpus.find(f".{name}{end}"):
                    if module not in users and dotted in self._links(text):
                        users.add(module)
                        found.append((module, line, how))
        self._users[dotted] = found
        return found

    def _links(self, chain: str) -> list[str]:
        """``a.b.c.d`` → every ``module.name`` that evaluating it reads."""
        parts = chain.split(".")
        links = []
        current = parts[0]
        for part in parts[1:]:
            links.append(f"{current}.{part}")
            if self.is_module(f"{current}.{part}"):
                bound = self.modules[current]["binds"] if current in self.modules else {}
                if part not in bound:
                    current = f"{current}.{part}"
                    continue
            thing = self.member(current, part)
            if thing.what is not What.MODULE:
                break
            current = thing.module
        return links

    def attribute_reads(self, name: str, first: Iterable[str] = ()) -> Iterator[Read]:
        """Late loads of ``.name`` from anything; those in the modules ``first`` come first."""
        lines = dict(self._attrs.lines(name))
        preferred = [module for module in first if module in lines]
        chosen = set(preferred)
        for module in [*preferred, *(other for other in lines if other not in chosen)]:
            yield Read(self.path(module), lines[module], f"loads .{name}")

    def string_reads(self, name: str) -> Iterator[Read]:
        """String constants equal to ``name``."""
        for module, line in self._strings.lines(name):
            yield Read(self.path(module), line, "names it in a string")

    def subclasses(self, thing: Thing) -> list[Thing]:
        """Direct and indirect subclasses."""
        if self._by_base is None:
            self._by_base = {}
            for module, summary in self.modules.items():
                for path, own in summary["classes"].items():
                    for base in own["bases"]:
                        last = base.rpartition(".")[2]
                        self._by_base.setdefault(last, []).append(Thing(What.CLASS, module, path))
        found: list[Thing] = []
        queue = [thing]
        while queue:
            parent = queue.pop()
            for child in self._by_base.get(parent.path.rpartition(".")[2], []):
                if child not in found and parent in self.bases(child):
                    found.append(child)
                    queue.append(child)
        return found

    # -- what is imported when --------------------------------------------------------------

    def closure(self, roots: Iterable[str]) -> set[str]:
        """The modules that importing ``roots`` certainly imports, packages' own code included."""
        seen: set[str] = set()
        queue = [found for root in roots if (found := self._existing(root))]
        while queue:
            module = queue.pop()
            if module in seen:
                continue
            seen.add(module)
            if module not in self._edges:
                summary = self.modules.get(module)
                targets = [self._existing(name) for name in summary["loads"]] if summary else []
                parent = module.rpartition(".")[0]
                self._edges[module] = tuple({*targets, parent} - {"", module})
            queue += self._edges[module]
        return seen

    def _existing(self, dotted: str) -> str:
        """The longest part of ``dotted`` that is a module, or ""."""
        while dotted and not self.is_module(dotted):
            dotted = dotted.rpartition(".")[0]
        return dotted


def nearest(names: Iterable[str], name: str) -> str:
    """The most alike of ``names``, or "" where none is alike (ratio 0.7, by difflib)."""
    import difflib

    found = difflib.get_close_matches(name, sorted(set(names) - {name}), n=1, cutoff=0.7)
    return found[0] if found else ""
