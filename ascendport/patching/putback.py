"""Files that hold no port any more, though the record says so.

Somebody checked the file out again, pulled, or unpacked another release over the tree. What is on
disk then is an original, and the port can be put into that.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence

from ascendport.checkout.tree import Checkout
from ascendport.errors import UserError
from ascendport.patching.recognise import Status, match
from ascendport.patching.state import FileRecord, State, TargetRecord, read_object, sha256
from ascendport.ports.digest import digest_of, index, normal, parse
from ascendport.ports.manifest import Port

Symbols = Mapping[str, list[ast.stmt]]


def put_back(checkout: Checkout, state: State, ports: Sequence[Port] = ()) -> State:
    """The state with what is on disk as the original of each such file.

    A file counts when it is neither as recorded before nor after, and either

    - every symbol that a recorded port changes there has its old original's digest or another one
      that ``ports`` know of an original, and no symbol that a port adds is there; or
    - every port that the record has in it fits the tree as it is on disk, and nothing of what was
      put into the file is left. So it is told where another release has other symbols, or no such
      file, which then counts as one that was not there before.

    So an edited text of a port never counts.
    """
    files = dict(state.files)
    moved = {
        file: disk
        for file, record in state.files.items()
        if record.before is not None
        and _sha(disk := checkout.read(file)) not in (record.before, record.after)
    }
    fitting = _fitting(checkout, state, ports, moved)
    for file, disk in moved.items():
        record = state.files[file]
        inside = [name for name, port in state.ports.items() if file in port.files()]
        if fitting.issuperset(inside) and not any(
            holds(checkout, state, name, file, disk) for name in inside
        ):
            files[file] = FileRecord(before=_sha(disk), after=record.after)
        elif disk is not None and _is_original(
            state, ports, file, disk, read_object(checkout, record.before or "")
        ):
            files[file] = FileRecord(before=sha256(disk), after=record.after)
    return state if files == state.files else state.model_copy(update={"files": files})


def holds(checkout: Checkout, state: State, name: str, file: str, disk: bytes | None) -> bool:
    """Whether ``disk``, the text of a file now, has anything left of what the port put into it:
    a symbol that it adds or changes, as it was applied."""
    if disk is None:
        return False
    port, record = state.ports[name], state.files[file]
    if any(new.file == file for new in port.new_files):
        return True
    try:
        there = index(parse(disk))
        ours = index(parse(read_object(checkout, record.after)))
        old = index(parse(read_object(checkout, record.before))) if record.before else {}
    except UserError:
        return False
    targets = [target for target in port.targets if target.file == file]
    # A name alone says nothing: another release may have one like that of an added symbol.
    return any(
        _digests(there, symbol) & (_digests(ours, symbol) - _digests(old, symbol))
        for target in targets
        for symbol in map(normal, (*target.changes, *target.add))
    )


def _digests(symbols: Symbols, symbol: str) -> set[str]:
    return {digest_of(node) for node in symbols.get(symbol, [])}


def _fitting(
    checkout: Checkout, state: State, ports: Sequence[Port], files: Mapping[str, bytes | None]
) -> set[str]:
    """The recorded ports with a file among ``files`` that fit what is on disk, or that upstream
    has made needless there."""
    found = set()
    for port in ports:
        record = state.ports.get(port.name)
        if record is None or files.keys().isdisjoint(record.files()):
            continue
        try:
            fits = match(port, checkout.read).status
        except UserError:
            continue  # the port's own text is damaged: the record must do
        if fits in (Status.APPLICABLE, Status.SUPERSEDED):
            found.add(port.name)
    return found


def _sha(data: bytes | None) -> str | None:
    return None if data is None else sha256(data)


def _is_original(
    state: State, ports: Sequence[Port], file: str, disk: bytes, original: bytes
) -> bool:
    try:
        there, old = index(parse(disk)), index(parse(original))
    except UserError:
        return False
    return all(
        _without(target, there, old, _known(name, file, ports))
        for name, record in state.ports.items()
        for target in record.targets
        if target.file == file
    )


def _without(
    target: TargetRecord, there: Symbols, old: Symbols, known: Mapping[str, set[str]]
) -> bool:
    for symbol in map(normal, target.changes):
        nodes = there.get(symbol, [])
        originals = {digest_of(node) for node in old.get(symbol, [])} | known.get(symbol, set())
        if len(nodes) != 1 or digest_of(nodes[0]) not in originals:
            return False
    return not any(normal(symbol) in there for symbol in target.add)


def _known(name: str, file: str, ports: Sequence[Port]) -> dict[str, set[str]]:
    """Symbol → digests of originals, and of upstream's own better texts, by the manifests."""
    found: dict[str, set[str]] = {}
    for port in ports:
        for variant in port.manifest.variants if port.name == name else ():
            for target in variant.targets:
                for digests in (target.digests, target.superseded):
                    for symbol, texts in digests.items() if target.file == file else ():
                        found.setdefault(normal(symbol), set()).update(texts)
    return found
