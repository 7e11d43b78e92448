"""A port's edits as values, and files with several ports in them.

A file's contents are a function of its pristine text and of the set of ports in it: ports are
put in by name order, whatever the order they were asked for in. That is what lets one of two
ports be taken out of a file that they share.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ascendport.errors import UserError
from ascendport.patching.splice import splice
from ascendport.patching.state import NewFileRecord, PortRecord, TargetRecord, sha256
from ascendport.ports.digest import normal
from ascendport.ports.manifest import Port, Target, Variant


@dataclass(frozen=True)
class Edit:
    """What goes into one file."""

    file: str
    source: bytes
    replace: tuple[str, ...]
    add: tuple[str, ...]
    decorate: tuple[tuple[str, str], ...] = ()
    """Pairs of a function and the decorator that is put on it."""

    @classmethod
    def of(cls, target: Target | TargetRecord, source: bytes) -> Edit:
        """What a manifest, or a record of one, declares for a file; ``source``: the port's text."""
        decorate = tuple(target.decorate.items())
        return cls(target.file, source, target.replace, target.add, decorate)

    def symbols(self) -> tuple[str, ...]:
        """Every symbol that it brings or changes, as `ports.digest.normal` spells them."""
        changed = (*self.replace, *self.add, *(symbol for symbol, _ in self.decorate))
        return tuple(map(normal, changed))


@dataclass(frozen=True)
class Install:
    """One port in one variant, with every text that it needs."""

    name: str
    variant: str
    forced: bool
    edits: tuple[Edit, ...]
    new_files: tuple[tuple[str, bytes], ...] = ()

    @classmethod
    def of_port(cls, port: Port, variant: Variant, *, forced: bool = False) -> Install:
        """The port as its folder has it.

        Raises:
            UserError: a source file cannot be read.
        """
        edits = tuple(Edit.of(target, port.text(target)) for target in variant.targets)
        new_files = tuple((new.file, port.read(new.source)) for new in variant.new_files)
        return cls(port.name, variant.name, forced, edits, new_files)

    @classmethod
    def of_record(cls, name: str, record: PortRecord, read: Callable[[str], bytes]) -> Install:
        """The port as the state recorded it; ``read`` gives an object by its hash."""
        edits = tuple(Edit.of(target, read(target.source)) for target in record.targets)
        new_files = tuple((new.file, read(new.source)) for new in record.new_files)
        return cls(name, record.variant, record.forced, edits, new_files)

    def record(self) -> PortRecord:
        """What the state keeps of it."""
        return PortRecord(
            variant=self.variant,
            forced=self.forced,
            targets=tuple(
                TargetRecord(
                    file=edit.file,
                    source=sha256(edit.source),
                    replace=edit.replace,
                    add=edit.add,
                    decorate=dict(edit.decorate),
                )
                for edit in self.edits
            ),
            new_files=tuple(
                NewFileRecord(file=file, source=sha256(data)) for file, data in self.new_files
            ),
        )

    def texts(self) -> tuple[bytes, ...]:
        """The port's own texts, which the state keeps as objects."""
        return (*(edit.source for edit in self.edits), *(data for _, data in self.new_files))

    def files(self) -> tuple[str, ...]:
        """Every file that it touches."""
        names = [edit.file for edit in self.edits] + [file for file, _ in self.new_files]
        return tuple(dict.fromkeys(names))


def compose(file: str, pristine: bytes | None, installs: Iterable[Install]) -> bytes | None:
    """A file's contents with ``installs`` in it; None: there is no such file.

    Raises:
        UserError: two ports want the same symbol or bring the same file, or an edit cannot be
            made.
    """
    contents = pristine
    taken: dict[str, str] = {}
    for install in sorted(installs, key=lambda install: install.name):
        for edit in (edit for edit in install.edits if edit.file == file):
            if contents is None:
                raise UserError(f"port {install.name} edits a file that is not there", where=file)
            for symbol in edit.symbols():
                if other := _overlap(symbol, taken):
                    raise UserError(
                        f"ports {other} and {install.name} both change {symbol}", where=file
                    )
            contents = splice(contents, edit.source, edit.replace, edit.add, file, edit.decorate)
            taken.update(dict.fromkeys(edit.symbols(), install.name))
        for data in (data for name, data in install.new_files if name == file):
            if contents is not None:
                raise UserError(
                    f"port {install.name} brings a file that is there already",
                    where=file,
                    next="move that file away",
                )
            contents = data
    return contents


def _overlap(symbol: str, taken: dict[str, str]) -> str | None:
    for other, name in taken.items():
        if symbol == other or symbol.startswith(f"{other}.") or other.startswith(f"{symbol}."):
            return name
    return None
