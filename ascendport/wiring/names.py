"""What a dotted name means, across the files of one or more packages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ascendport.wiring.summary import ClassSummary, ModuleSummary, line_of, module_name
from ascendport.wiring.things import Thing, What

INSIDE = ("vllm", "vllm_ascend")
_BUILT = ("_C", "._version", "._build_info")
"""Ends of the names of modules that a build makes: no source tree has them."""
_NO_NAMES = ("object", "ABC", "Protocol", "Generic", "abc.ABC")
"""Bases from elsewhere that add no attributes to look for."""


class Names:
    """Modules by dotted name. ``summaries``: by path (``vllm/envs.py``)."""

    def __init__(self, summaries: Mapping[str, ModuleSummary]) -> None:
        self.modules: dict[str, ModuleSummary] = {}
        self.paths: dict[str, str] = {}
        self.packages: set[str] = set()
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
