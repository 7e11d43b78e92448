"""Who reads a name, across the files of one or more packages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from ascendport.wiring.corpus import Corpus
from ascendport.wiring.names import Names
from ascendport.wiring.summary import ModuleSummary, line_of
from ascendport.wiring.things import Read, Thing, What


class SourceIndex(Names):
    """Names, and those who read them. ``summaries``: by path (``vllm/envs.py``)."""

    def __init__(self, summaries: Mapping[str, ModuleSummary]) -> None:
        super().__init__(summaries)
        self._holders: dict[tuple[str, str], list[tuple[str, str, int]]] = {}
        self._star_holders: dict[str, list[str]] = {}
        self._users: dict[str, list[tuple[str, int, str]]] = {}
        self._by_base: dict[str, list[Thing]] | None = None
        self._edges: dict[str, tuple[str, ...]] = {}
        every = self.modules.items()
        self._takes = Corpus((module, summary["takes"]) for module, summary in every)
        self._chains = Corpus((module, summary["chains"]) for module, summary in every)
        self._strings = Corpus((module, summary["strings"]) for module, summary in every)
        self._attrs = Corpus((module, summary["attrs"]) for module, summary in every)
        for module, summary in every:
            for name, bound in summary["binds"].items():
                if bound[0] == "n":
                    _, line, source, original = bound.split(":")
                    holder = (module, name, int(line))
                    self._holders.setdefault((source, original), []).append(holder)
            for source in summary["stars"]:
                self._star_holders.setdefault(source, []).append(module)

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
