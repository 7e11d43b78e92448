"""Expressions: which values each may have."""

from __future__ import annotations

import ast
from abc import ABC, abstractmethod

from ascendport.wiring.index import SourceIndex
from ascendport.wiring.interpreter.findings import Findings
from ascendport.wiring.interpreter.frame import Frame
from ascendport.wiring.interpreter.lookup import attribute, entries
from ascendport.wiring.interpreter.values import (
    Const,
    LoadedModules,
    Own,
    RunTime,
    Seq,
    Values,
    constant,
    texts,
    unique,
)
from ascendport.wiring.summary import module_name
from ascendport.wiring.syntax import is_name, short


class Expressions(ABC):
    """Evaluates the expressions of the file ``path``. ``pinned``: version of vllm."""

    def __init__(self, path: str, index: SourceIndex, pinned: str) -> None:
        self.path = path
        self.module, self.is_package = module_name(path)
        self.index = index
        self.pinned = pinned
        self.findings = Findings()

    @abstractmethod
    def truth(self, node: ast.expr, frame: Frame) -> bool | None:
        """``bool(node)``; None where it is not known."""

    @abstractmethod
    def call(self, node: ast.Call, frame: Frame) -> Values:
        """What the call may return."""

    def eval(self, node: ast.expr, frame: Frame) -> Values:
        """The values that the expression may have."""
        match node:
            case ast.Name():
                found = frame.env.get(node.id)
                return found if found is not None else (RunTime(f"name {node.id}"),)
            case ast.Constant():
                return (Const(node.value),)
            case ast.Attribute():
                if node.attr == "modules" and is_name(node.value, "sys"):
                    return (LoadedModules(),)
                bases = self.eval(node.value, frame)
                return unique(attribute(self.index, base, node.attr) for base in bases)
            case ast.Subscript():
                return self.subscript(node, frame)
            case ast.Call():
                return self.call(node, frame)
            case ast.NamedExpr():
                values = self.eval(node.value, frame)
                frame.env.bind(node.target, values)
                return values
            case ast.Lambda():
                return (Own(node, frame.env),)
            case ast.Starred() | ast.Await():
                return self.eval(node.value, frame)
            case ast.BoolOp() | ast.Compare() | ast.UnaryOp(op=ast.Not()) | ast.IfExp():
                return self.choice(node, frame)
            case _:
                return self.made(node, frame)

    def subscript(self, node: ast.Subscript, frame: Frame) -> Values:
        return unique(
            value
            for container in self.eval(node.value, frame)
            for value in entries(self.index, container, self.eval(node.slice, frame), node.slice)
        )

    def choice(
        self, node: ast.BoolOp | ast.Compare | ast.UnaryOp | ast.IfExp, frame: Frame
    ) -> Values:
        """Expressions that a truth value decides."""
        if isinstance(node, ast.IfExp):
            chosen = self.truth(node.test, frame)
            parts = [node.body] if chosen else [node.orelse] if chosen is False else None
            return self.any_of(parts or [node.body, node.orelse], frame)
        decided = self.truth(node, frame)
        if isinstance(node, ast.BoolOp):
            values = self.any_of(node.values, frame)
            plain = all(isinstance(value, Const) for value in values)
            return values if decided is None or not plain else (Const(decided),)
        return (RunTime(short(node)) if decided is None else Const(decided),)

    def any_of(self, nodes: list[ast.expr], frame: Frame) -> Values:
        return unique(value for node in nodes for value in self.eval(node, frame))

    def made(self, node: ast.expr, frame: Frame) -> Values:
        """Containers and texts that the expression builds."""
        match node:
            case ast.Tuple() | ast.List() | ast.Set():
                return (Seq(tuple(self.eval(item, frame) for item in node.elts)),)
            case ast.Dict():
                keys = tuple(self.eval(key, frame) if key else () for key in node.keys)
                return (Seq(tuple(self.eval(item, frame) for item in node.values), keys),)
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp():
                return self.comprehension(node, frame)
            case ast.JoinedStr():
                return self.joined(node, frame)
            case ast.BinOp(op=ast.Add()):
                left, right = self.eval(node.left, frame), self.eval(node.right, frame)
                starts, ends = texts(left), texts(right)
                if (len(starts), len(ends)) == (len(left), len(right)):
                    return tuple(Const(start + end) for start in starts for end in ends)
        return (RunTime(short(node)),)

    def comprehension(
        self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp, frame: Frame
    ) -> Values:
        """One item that stands for all; conditions are not looked at."""
        inner = frame.apart()
        for generator in node.generators:
            values = self.eval(generator.iter, frame)
            known = next((value for value in values if isinstance(value, Seq)), None)
            if known is None:
                inner.env.bind_unknown(generator.target, "comprehension")
            else:
                inner.env.bind(generator.target, tuple(v for item in known.rounds for v in item))
        return (Seq((self.eval(node.elt, inner),)),)

    def joined(self, node: ast.JoinedStr, frame: Frame) -> Values:
        """An f-string, if all its parts are constants."""
        whole = ""
        for part in node.values:
            value = part.value if isinstance(part, ast.FormattedValue) else part
            known = constant(self.eval(value, frame))
            if known is None:
                return (RunTime("computed text"),)
            whole += str(known.value)
        return (Const(whole),)
