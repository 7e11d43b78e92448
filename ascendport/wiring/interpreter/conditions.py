"""Conditions: version guards, ``hasattr`` and flags that this vllm decides."""

from __future__ import annotations

import ast

from ascendport.wiring.interpreter.expressions import Expressions
from ascendport.wiring.interpreter.frame import Frame
from ascendport.wiring.interpreter.values import Const, RunTime, Values, constant, is_none, truth_of
from ascendport.wiring.interpreter.versions import compare_versions, same_version
from ascendport.wiring.syntax import last_part
from ascendport.wiring.things import Thing

_VLLM_VERSION = ("vllm.__version__", "vllm.version.__version__")
_PARSES = ("Version", "parse")
"""Functions of packaging.version."""


class Conditions(Expressions):
    """Decides what can be decided; anything else is None and runs both ways."""

    def truth(self, node: ast.expr, frame: Frame) -> bool | None:
        match node:
            case ast.UnaryOp(op=ast.Not()):
                inner = self.truth(node.operand, frame)
                return None if inner is None else not inner
            case ast.BoolOp():
                parts = [self.truth(part, frame) for part in node.values]
                decisive = isinstance(node.op, ast.Or)
                if decisive in parts:
                    return decisive
                return None if None in parts else not decisive
            case ast.Compare(ops=[operator], comparators=[other]):
                return self.compare(node.left, operator, other, frame)
            case ast.Compare():
                return None
            case _:
                return _agreed([truth_of(value) for value in self.eval(node, frame)])

    def compare(
        self, left: ast.expr, operator: ast.cmpop, right: ast.expr, frame: Frame
    ) -> bool | None:
        """``is None``, comparisons with vllm's version, ``==`` and ``!=`` of constants."""
        if isinstance(operator, ast.Is | ast.IsNot):
            return self.compare_none(left, operator, right, frame)
        versions = [self.version(side, frame) for side in (left, right)]
        if versions[0] and versions[1] and (_asks_version(left) or _asks_version(right)):
            return compare_versions(versions[0], operator, versions[1])
        one, other = (constant(self.eval(side, frame)) for side in (left, right))
        if one and other and isinstance(operator, ast.Eq | ast.NotEq):
            return bool(one.value == other.value) == isinstance(operator, ast.Eq)
        return None

    def compare_none(
        self, left: ast.expr, operator: ast.cmpop, right: ast.expr, frame: Frame
    ) -> bool | None:
        for one, other in ((left, right), (right, left)):
            if isinstance(one, ast.Constant) and one.value is None:
                answer = _agreed([is_none(value) for value in self.eval(other, frame)])
                return None if answer is None else answer != isinstance(operator, ast.IsNot)
        return None

    def version(self, node: ast.expr, frame: Frame) -> str | None:
        """The version that an expression stands for: a constant, ``Version("…")``, or vllm's."""
        if isinstance(node, ast.Call) and last_part(node.func) in _PARSES and len(node.args) == 1:
            return self.version(node.args[0], frame)
        if isinstance(node, ast.Attribute) and node.attr == "__version__":
            base = self.eval(node.value, frame)
            known = base and isinstance(base[0], Thing) and base[0].dotted == "vllm"
            return self.pinned if known else None
        match self.eval(node, frame):
            case (Const(value=str(text)),):
                return text
            case (Thing() as thing,) if thing.dotted in _VLLM_VERSION:
                return self.pinned
        return None

    def version_is(self, wanted: ast.expr, frame: Frame) -> Values:
        """vllm_ascend's own ``vllm_version_is("…")``."""
        return tuple(
            Const(same_version(value.value, self.pinned))
            if isinstance(value, Const)
            else RunTime("version")
            for value in self.eval(wanted, frame)
        )


def _agreed(answers: list[bool | None]) -> bool | None:
    """The answer that all alternatives give, or None."""
    distinct = set(answers)
    return distinct.pop() if len(distinct) == 1 else None


def _asks_version(node: ast.expr) -> bool:
    return "__version__" in ast.unparse(node)
