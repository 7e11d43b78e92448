"""The name that was probably meant, where the one written does not exist."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from ascendport.wiring.index import SourceIndex
from ascendport.wiring.summary import names_in
from ascendport.wiring.things import Thing, What


def nearest(names: Iterable[str], name: str) -> str:
    """The most alike of ``names``, or "" where none is alike (ratio 0.7, by difflib)."""
    found = difflib.get_close_matches(name, sorted(set(names) - {name}), n=1, cutoff=0.7)
    return found[0] if found else ""


def alike_name(index: SourceIndex, module: str, name: str) -> str:
    """The name most alike that late code of the module reads, else that it has."""
    summary = index.modules.get(module)
    if summary is None:
        return ""
    return nearest(names_in(summary["late"]), name) or nearest(index.names(module), name)


def alike_attribute(index: SourceIndex, base: Thing, name: str) -> str:
    """The name most alike that the class ``base`` or one above it has."""
    names: list[str] = []
    for current in index.ancestry(base):
        own = index.class_summary(current) if current.what is What.CLASS else None
        if own:
            names += names_in(own["attrs"])
    return nearest(names, name)


def alike_module(index: SourceIndex, base: Thing | None) -> str:
    """The module, or the object in it, most alike to the missing ``base``: in the same package,
    else one of the same last name anywhere."""
    if base is None:
        return ""
    module = base.module
    if index.is_module(module):
        alike = nearest(index.names(module), base.path.partition(".")[0]) if base.path else ""
        return f"{module}.{alike}" if alike else ""
    parent, _, last = module.rpartition(".")
    if index.is_module(parent):
        here = nearest([*index.names(parent), *index.submodules(parent)], last)
        if here:
            return f"{parent}.{here}"
    elsewhere = [other for other in index.modules if other.endswith("." + last)]
    return nearest(elsewhere, module) or (elsewhere[0] if len(elsewhere) == 1 else "")
