"""What a name in a patch file may stand for, and the scopes that hold names."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ascendport.wiring.model import Where
from ascendport.wiring.things import Thing, What

MAX_ITEMS = 200
"""Rounds of a loop, or alternatives of a name, that are followed."""
OWN_ATTRIBUTE = "attribute of an own object"


@dataclass(frozen=True)
class Const:
    """A value that the text of the file gives."""

    value: Any


@dataclass(frozen=True)
class Seq:
    """A tuple, list, set, or a mapping (then ``keys`` is as long as ``items``)."""

    items: tuple[tuple[Value, ...], ...]
    keys: tuple[tuple[Value, ...], ...] | None = None

    @property
    def rounds(self) -> tuple[tuple[Value, ...], ...]:
        """What a loop over it gives: a mapping its keys."""
        return self.items if self.keys is None else self.keys


@dataclass(frozen=True, eq=False)
class Own:
    """A function or class that the patch file defines, with the scope around it."""

    node: ast.AST
    env: Env


@dataclass(frozen=True)
class RunTime:
    """A value that the analysis does not follow."""

    why: str


@dataclass(frozen=True)
class LoadedModules:
    """``sys.modules``."""


@dataclass(frozen=True)
class Sweep:
    """Any module in ``sys.modules``."""


@dataclass(frozen=True)
class Namespace:
    """``x.__dict__`` or ``vars(x)``."""

    of: Value


Value = Thing | Const | Seq | Own | RunTime | LoadedModules | Sweep | Namespace
Values = tuple[Value, ...]
"""The alternatives; empty where a call is known to return nothing."""


class Env:
    """Variables of one scope."""

    def __init__(self, parent: Env | None = None) -> None:
        self.parent = parent
        self.vars: dict[str, Values] = {}

    def get(self, name: str) -> Values | None:
        """The values of ``name`` here or in a scope around; None where no scope has it."""
        env: Env | None = self
        while env is not None:
            if name in env.vars:
                return env.vars[name]
            env = env.parent
        return None

    def bind(self, target: ast.expr, values: Values) -> None:
        """``target = values``, as far as the target consists of names."""
        if isinstance(target, ast.Name):
            self.vars[target.id] = values[:MAX_ITEMS]
        elif isinstance(target, ast.Tuple | ast.List):
            for position, part in enumerate(target.elts):
                self.bind(part, _unpacked(values, position))
        elif isinstance(target, ast.Starred):
            self.bind(target.value, (RunTime("starred value"),))

    def bind_unknown(self, target: ast.expr, why: str) -> None:
        """Every name in ``target`` becomes a run-time value."""
        for node in ast.walk(target):
            if isinstance(node, ast.Name):
                self.vars[node.id] = (RunTime(why),)


def _unpacked(values: Values, position: int) -> Values:
    picked: list[Value] = []
    for value in values:
        if isinstance(value, Seq) and position < len(value.items):
            picked += value.items[position]
        else:
            picked.append(RunTime("unpacked value"))
    return tuple(picked)


def unique(values: Iterable[Value]) -> Values:
    """Without repetitions, in order."""
    return tuple(dict.fromkeys(values))


def merged(first: dict[str, Values], second: dict[str, Values]) -> dict[str, Values]:
    """The variables after either of two branches."""
    found = dict(first)
    for name, values in second.items():
        if name in found and found[name] is not values:
            found[name] = unique((*found[name], *values))[:MAX_ITEMS]
        else:
            found[name] = values
    return found


def texts(values: Values) -> list[str]:
    """Those of the values that are constant strings."""
    return [v.value for v in values if isinstance(v, Const) and isinstance(v.value, str)]


def constant(values: Values) -> Const | None:
    """The one value, if it is a constant."""
    only = values[0] if len(values) == 1 else None
    return only if isinstance(only, Const) else None


def is_missing(value: Value) -> bool:
    """A name of vllm or vllm_ascend that does not exist."""
    return isinstance(value, Thing) and value.what is What.MISSING


def truth_of(value: Value) -> bool | None:
    """``bool(value)``; None where it is not known."""
    if isinstance(value, Const):
        return bool(value.value)
    if isinstance(value, Seq):
        return bool(value.items)
    return True if _is_object(value) else None


def is_none(value: Value) -> bool | None:
    """``value is None``; None where it is not known."""
    if isinstance(value, Const):
        return value.value is None
    return False if _is_object(value) or isinstance(value, Own | Seq) else None


def _is_object(value: Value) -> bool:
    known = (What.MODULE, What.CLASS, What.FUNCTION)
    return isinstance(value, Thing) and value.what in known


def where(base: Value, deferred: bool) -> Where:
    """What kind of object an assignment to an attribute of ``base`` changes."""
    if isinstance(base, Thing):
        return Where.THING
    if isinstance(base, Sweep):
        return Where.SWEEP
    if isinstance(base, Own | Const | Seq):
        return Where.OWN
    if isinstance(base, RunTime) and base.why == OWN_ATTRIBUTE:
        return Where.OWN
    return Where.STATE if deferred else Where.RUN_TIME
