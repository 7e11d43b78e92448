"""A port's mends one by one: which symbols make up each, and the port without one of them.

A store port that mends several things says so in ``fixes.toml``, a table a mend::

    [lookup-server]
    defects = ["c3", "c4"]
    why = "one sentence"
    symbols = ["LookupKeyServer.__init__", "LookupKeyServer._answer"]
    tests = ["test_failure_lookup.py::TestServer::test_garbage"]

``symbols`` are those that the mend brings or changes, over all variants; no two mends share one.
``tests`` fail where this mend alone is missing.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from ascendport.checks.subject import Subject
from ascendport.errors import UserError
from ascendport.patching.install import Edit, Install, compose
from ascendport.ports.digest import normal
from ascendport.ports.manifest import Port

FILE = "fixes.toml"


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    defects: tuple[str, ...] = Field(min_length=1)
    why: str = Field(min_length=1)
    symbols: tuple[str, ...] = Field(min_length=1)
    tests: tuple[str, ...] = Field(min_length=1)


@dataclass(frozen=True)
class Fix:
    """One mend."""

    name: str
    defects: tuple[str, ...]
    why: str
    symbols: frozenset[str]
    """As `ports.digest.normal` spells them."""
    tests: tuple[str, ...]


def fixes_of(port: Port) -> tuple[Fix, ...]:
    """The port's mends, in the order of the file.

    Raises:
        UserError: the file is missing or not as described, two mends share a symbol, or a symbol
            of the port belongs to none.
    """
    path = port.folder / FILE
    try:
        data = tomllib.loads(path.read_text("utf-8"))
        entries = TypeAdapter(dict[str, _Entry]).validate_python(data)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, ValidationError) as error:
        said = str(error).splitlines()
        raise UserError(f"not a table of mends ({'; '.join(said[:3])})", where=path) from error
    fixes = tuple(
        Fix(name, one.defects, one.why, frozenset(map(normal, one.symbols)), one.tests)
        for name, one in entries.items()
    )
    _check(port, fixes, path)
    return fixes


def _check(port: Port, fixes: tuple[Fix, ...], path: Path) -> None:
    owner: dict[str, str] = {}
    for fix in fixes:
        for symbol in sorted(fix.symbols):
            if symbol in owner:
                raise UserError(
                    f"{owner[symbol]} and {fix.name} share {symbol}",
                    where=path,
                    next="make one mend of them, or give each a symbol of its own",
                )
            owner[symbol] = fix.name
    declared = set(_declared(port))
    for problem, symbols in (
        ("belongs to no mend", declared - owner.keys()),
        ("is no symbol of the port", owner.keys() - declared),
    ):
        if symbols:
            raise UserError(f"{min(symbols)} {problem}", where=path, next="mend that file")


def _declared(port: Port) -> Iterator[str]:
    for variant in port.manifest.variants:
        for target in variant.targets:
            yield from map(normal, target.symbols)


def without(subject: Subject, fix: Fix) -> dict[str, bytes]:
    """The files of ``subject.after`` with all mends but this one.

    Raises:
        UserError: what is left cannot be installed: another mend leans on this one.
    """
    whole = Install.of_port(subject.port, subject.variant)
    rest = replace(whole, edits=tuple(_without(edit, fix) for edit in whole.edits))
    files = dict(subject.after)
    for file in whole.files():
        edited = replace(rest, edits=tuple(edit for edit in rest.edits if edit.symbols()))
        result = compose(file, subject.before.get(file), [edited])
        if result is not None:
            files[file] = result
    return files


def _without(edit: Edit, fix: Fix) -> Edit:
    def kept(symbols: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(symbol for symbol in symbols if normal(symbol) not in fix.symbols)

    decorate = tuple(pair for pair in edit.decorate if normal(pair[0]) not in fix.symbols)
    return replace(edit, replace=kept(edit.replace), add=kept(edit.add), decorate=decorate)
