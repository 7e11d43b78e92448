"""Files that hold no port any more, though the record says so.

Somebody checked the file out again, pulled, or unpacked another release over the tree. What is on
disk then is an original, and the port can be put into that.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence

from ascendport.checkout.tree import Checkout
from ascendport.errors import UserError
from ascendport.patching.state import FileRecord, State, TargetRecord, read_object, sha256
from ascendport.ports.digest import digest_of, index, normal, parse
from ascendport.ports.manifest import Port

Symbols = Mapping[str, list[ast.stmt]]


def put_back(checkout: Checkout, state: State, ports: Sequence[Port] = ()) -> State:
    """The state with the text on disk as the original of each such file.

    A file counts when it is neither as recorded before nor after, every symbol that a recorded
    port changes there has its old original's digest or another one that ``ports`` know of an
    original, and no symbol that a port adds is there. So an edited text of a port never counts.
    """
    files = dict(state.files)
    for file, record in state.files.items():
        disk = checkout.read(file)
        if record.before is None or disk is None:
            continue
        if sha256(disk) not in (record.before, record.after) and _is_original(
            state, ports, file, disk, read_object(checkout, record.before)
        ):
            files[file] = FileRecord(before=sha256(disk), after=record.after)
    return state if files == state.files else state.model_copy(update={"files": files})


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
