"""Targets of assignments: what each one changes."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from ascendport.wiring.interpreter.conditions import Conditions
from ascendport.wiring.interpreter.frame import Frame
from ascendport.wiring.interpreter.values import (
    LoadedModules,
    Namespace,
    Own,
    RunTime,
    Value,
    Values,
    is_missing,
    texts,
    where,
)
from ascendport.wiring.model import Assignment, Kind
from ascendport.wiring.syntax import outermost_names, short
from ascendport.wiring.things import Thing

_MAX_WRAPPERS = 3
"""Own functions inside own functions that are searched for what a wrapper calls."""


@dataclass(frozen=True)
class Change:
    """One statement that changes an attribute or an entry: ``node`` as written, the ``name`` that
    it changes, and the expression put there (None: it is deleted)."""

    node: ast.expr
    name: str
    value: ast.expr | None
    kind: Kind = Kind.ATTRIBUTE

    @property
    def target(self) -> str:
        """As written; of a call such as ``setattr(x, "name", …)``: ``x.name``."""
        if isinstance(self.node, ast.Call) and self.node.args:
            return f"{ast.unparse(self.node.args[0])}.{self.name}"
        return ast.unparse(self.node)


class Targets(Conditions):
    """Binds names of the file itself, and records changes of everything else."""

    def assign(self, target: ast.expr, value: ast.expr, values: Values, frame: Frame) -> None:
        """``target = value``, whose values are ``values``."""
        match target:
            case ast.Name():
                frame.env.bind(target, values)
            case ast.Starred():
                self.assign(target.value, value, (RunTime("starred value"),), frame)
            case ast.Tuple() | ast.List():
                self.unpack(target, value, values, frame)
            case ast.Attribute():
                bases = self.eval(target.value, frame)
                self.record(Change(target, target.attr, value), bases, frame)
            case ast.Subscript():
                names = texts(self.eval(target.slice, frame))
                for container in self.eval(target.value, frame):
                    self.put(target, container, names, value, frame)

    def unpack(
        self, target: ast.Tuple | ast.List, value: ast.expr, values: Values, frame: Frame
    ) -> None:
        parts = value.elts if isinstance(value, ast.Tuple | ast.List) else []
        if len(parts) == len(target.elts):
            for left, right in zip(target.elts, parts, strict=True):
                self.assign(left, right, self.eval(right, frame), frame)
            return
        for part in target.elts:
            if isinstance(part, ast.Name):
                frame.env.bind(target, values)
            else:
                self.assign(part, value, (RunTime("unpacked value"),), frame)

    def put(
        self, node: ast.expr, container: Value, names: list[str], value: ast.expr, frame: Frame
    ) -> None:
        """``container[name] = value`` for each of ``names``; none: the name is not known."""
        match container:
            case LoadedModules():
                for name in names:
                    thing = self.index.module_thing(name)
                    self.record(Change(node, name, value, Kind.MODULE), (thing,), frame)
                if not names:
                    unknown = (RunTime("key of sys.modules"),)
                    self.record(Change(node, "?", value, Kind.MODULE), unknown, frame)
            case Namespace():
                base = container.of if names else RunTime("name of the attribute")
                for name in names or ["?"]:
                    self.record(Change(node, name, value), (base,), frame)
            case Thing():
                shown = names[0] if names else "?"
                self.record(Change(node, shown, value, Kind.ITEM), (container,), frame)

    def set_attribute(self, node: ast.Call, frame: Frame) -> None:
        """``setattr(x, name, value)``."""
        bases = self.eval(node.args[0], frame)
        value = node.args[2]
        self.eval(value, frame)
        for name in self.eval(node.args[1], frame):
            if known := texts((name,)):
                self.record(Change(node, known[0], value), bases, frame)
                continue
            shown = f"<{short(node.args[1])}>"
            real = any(isinstance(base, Thing) for base in bases)
            unknown: Values = (RunTime("name of the attribute"),) if real else bases
            self.record(Change(node, shown, value), unknown, frame)

    def delete(self, target: ast.expr, frame: Frame) -> None:
        """``del x.name`` or ``del x.__dict__["name"]``."""
        if isinstance(target, ast.Attribute):
            bases = self.eval(target.value, frame)
            self.record(Change(target, target.attr, None, Kind.DELETE), bases, frame)
        elif isinstance(target, ast.Subscript):
            for name in texts(self.eval(target.slice, frame)):
                for container in self.eval(target.value, frame):
                    if isinstance(container, Namespace):
                        change = Change(target, name, None, Kind.DELETE)
                        self.record(change, (container.of,), frame)

    def delete_attribute(self, node: ast.Call, frame: Frame) -> None:
        """``delattr(x, name)``."""
        for name in texts(self.eval(node.args[1], frame)):
            bases = self.eval(node.args[0], frame)
            self.record(Change(node, name, None, Kind.DELETE), bases, frame)

    def record(self, change: Change, bases: Values, frame: Frame) -> None:
        """Keeps one assignment for each object that ``bases`` may be; those that do not exist
        only where none does."""
        value, context = change.value, frame.context
        things = tuple(dict.fromkeys(self.named(value, frame))) if value is not None else ()
        for base in [base for base in bases if not is_missing(base)] or bases:
            self.findings.add(
                Assignment(
                    file=self.path,
                    line=change.node.lineno,
                    target=change.target,
                    name=change.name,
                    where=where(base, context.deferred),
                    base=base if isinstance(base, Thing) else None,
                    kind=change.kind,
                    values=things,
                    conditions=context.conditions,
                    inactive=context.inactive,
                    deferred=context.deferred,
                    why=base.why if isinstance(base, RunTime) else "",
                )
            )

    def named(self, value: ast.AST, frame: Frame, depth: int = 0) -> Iterator[Thing]:
        """Objects of other files that an expression, or an own function in it, names."""
        for node in outermost_names(value):
            for found in self.eval(node, frame):
                if isinstance(found, Thing):
                    yield found
                elif isinstance(found, Own) and depth < _MAX_WRAPPERS:
                    yield from self.named_inside(found, frame, depth)

    def named_inside(self, own: Own, frame: Frame, depth: int) -> Iterator[Thing]:
        scope = Frame(own.env, frame.context)
        for node in outermost_names(own.node):
            for found in self.eval(node, scope):
                if isinstance(found, Thing):
                    yield found
                elif isinstance(found, Own) and found.node is not own.node:
                    name = ast.Name(getattr(found.node, "name", ""), ast.Load())
                    yield from self.named(name, Frame(found.env, frame.context), depth + 1)
