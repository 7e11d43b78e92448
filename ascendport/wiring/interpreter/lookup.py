"""Attributes and entries of values."""

from __future__ import annotations

import ast

from ascendport.wiring.index import SourceIndex
from ascendport.wiring.interpreter.values import (
    OWN_ATTRIBUTE,
    Const,
    LoadedModules,
    Namespace,
    Own,
    RunTime,
    Seq,
    Sweep,
    Value,
    Values,
)
from ascendport.wiring.syntax import short
from ascendport.wiring.things import Thing, What


def attribute(index: SourceIndex, base: Value, name: str) -> Value:
    """``base.name``."""
    if name == "__dict__" and not isinstance(base, RunTime):
        return Namespace(base)
    if isinstance(base, Thing):
        if name == "__globals__" and base.what is What.FUNCTION:
            return Namespace(index.module_thing(base.module))
        if base.what is What.OUTSIDE and base.module == "sys" and name == "modules":
            return LoadedModules()
        return index.attribute(base, name)
    if isinstance(base, Sweep):
        return RunTime("attribute of any loaded module")
    if isinstance(base, Own):
        return RunTime(OWN_ATTRIBUTE)
    return base if isinstance(base, RunTime) else RunTime(f"attribute {name}")


def entries(index: SourceIndex, container: Value, keys: Values, written: ast.expr) -> Values:
    """``container[key]`` for each of ``keys``; ``written``: the key as the file has it."""
    results = [value for key in keys for value in _entry(index, container, key, written)]
    return tuple(results) or (RunTime(short(written)),)


def _entry(index: SourceIndex, container: Value, key: Value, written: ast.expr) -> Values:
    constant = key.value if isinstance(key, Const) else None
    match container:
        case LoadedModules():
            if isinstance(constant, str):
                return (index.module_thing(constant),)
            return (RunTime("this module") if short(written) == "__name__" else Sweep(),)
        case Namespace() if isinstance(constant, str):
            return (attribute(index, container.of, constant),)
        case Seq(items=items, keys=None):
            if isinstance(constant, int) and -len(items) <= constant < len(items):
                return items[constant]
            return tuple(value for item in items for value in item)
        case Seq(items=items, keys=tuple(names)):
            known = isinstance(key, Const)
            found = [item for name, item in zip(names, items, strict=True) if key in name]
            return tuple(value for item in (found if known else items) for value in item)
        case Thing():
            return (RunTime(f"item of {container.dotted}"),)
    return ()
