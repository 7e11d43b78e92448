"""Imports: what they bind, which fail with this vllm, and which certainly run."""

from __future__ import annotations

import ast

from ascendport.wiring.interpreter.frame import Context, Ended, Frame
from ascendport.wiring.interpreter.targets import Targets
from ascendport.wiring.interpreter.values import Const, RunTime, Value, Values
from ascendport.wiring.model import Assignment, Kind, Where
from ascendport.wiring.summary import absolute
from ascendport.wiring.things import Thing, What

CATCHES_IMPORT = {"ImportError", "ModuleNotFoundError", "Exception", "BaseException"}
"""Exceptions whose handlers catch a failing import."""


class Imports(Targets):
    """Import statements and calls. A module or name that vllm lacks makes the import fail."""

    def import_(self, node: ast.Import, frame: Frame) -> Ended | None:
        """``import a.b as c``."""
        ended = None
        for alias in node.names:
            thing = self.index.module_thing(alias.name)
            if thing.what is What.MISSING:
                ended = self.fails(node, alias.name, f"no module {alias.name}", frame.context)
            else:
                self.findings.note_import(node.lineno, alias.name, frame.context)
            first = alias.name.partition(".")[0]
            bound = thing if alias.asname else self.index.module_thing(first)
            frame.env.vars[alias.asname or first] = (bound,)
        return ended

    def import_from(self, node: ast.ImportFrom, frame: Frame) -> Ended | None:
        """``from a import b as c``."""
        source = self.source(node)
        ended = None
        if self.index.module_thing(source).what is What.MISSING:
            ended = self.fails(node, source, f"no module {source}", frame.context)
        else:
            self.findings.note_import(node.lineno, source, frame.context)
        for alias in node.names:
            if alias.name == "*":
                for name in self.index.public(source):
                    frame.env.vars[name] = (self.index.member(source, name),)
                continue
            thing = self.index.member(source, alias.name)
            if thing.what is What.MISSING and ended is None:
                why = f"{source} has no name {alias.name}"
                ended = self.fails(node, f"{source}.{alias.name}", why, frame.context)
            elif thing.what is What.MODULE:
                self.findings.note_import(node.lineno, thing.module, frame.context)
            frame.env.vars[alias.asname or alias.name] = (thing,)
        return ended

    def import_call(self, node: ast.Call, frame: Frame) -> Values:
        """``import_module(name)``, ``__import__(name)``."""
        results: list[Value] = []
        for name in self.eval(node.args[0], frame):
            thing = self.module_named(name)
            if isinstance(thing, Thing) and thing.what is What.MODULE:
                self.findings.note_import(node.lineno, thing.module, frame.context)
            results.append(thing)
        return tuple(results)

    def find_spec(self, node: ast.Call, frame: Frame) -> Values:
        """``find_spec(name)``: None where there is no such module."""
        found = [self.module_named(name) for name in self.eval(node.args[0], frame)]
        missing = [isinstance(thing, Thing) and thing.what is What.MISSING for thing in found]
        return tuple(
            Const(None) if gone else thing for thing, gone in zip(found, missing, strict=True)
        )

    def module_named(self, name: Value) -> Thing | RunTime:
        if isinstance(name, Const) and isinstance(name.value, str):
            return self.index.module_thing(name.value)
        return RunTime("import of a computed name")

    def fails(self, node: ast.stmt, target: str, why: str, context: Context) -> Ended:
        """Keeps the failing import as a finding."""
        if not context.inactive:
            self.findings.add(
                Assignment(
                    file=self.path,
                    line=node.lineno,
                    target=f"import {target}",
                    name=target.rpartition(".")[2],
                    where=Where.THING,
                    base=Thing(What.MISSING, target),
                    kind=Kind.IMPORT,
                    conditions=context.conditions,
                    deferred=context.deferred,
                    why=why,
                )
            )
        return Ended(f"the import in line {node.lineno} fails: {why}")

    def decided(self, body: list[ast.stmt]) -> bool:
        """Every import of the block is of vllm or vllm_ascend: whether it fails is known."""
        for statement in body:
            for node in ast.walk(statement):
                if isinstance(node, ast.Import):
                    sources = [alias.name for alias in node.names]
                else:
                    sources = [self.source(node)] if isinstance(node, ast.ImportFrom) else []
                if not all(map(self.index.inside, sources)):
                    return False
        return True

    def source(self, node: ast.ImportFrom) -> str:
        return absolute(self.module, self.is_package, node.module, node.level)
