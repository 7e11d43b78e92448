"""Where each port stands in a checkout. Reads only; fast enough to run at every prompt."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ascendport.checkout.tree import Checkout
from ascendport.errors import UserError
from ascendport.patching.recognise import Match, Status, match
from ascendport.patching.state import (
    OBJECTS,
    PortRecord,
    State,
    pristine,
    read_object,
    read_state,
    sha256,
)
from ascendport.patching.text import lines, readable, unified
from ascendport.ports.digest import Definition, index, normal, parse
from ascendport.ports.manifest import Port

__all__ = ["Original", "PortStatus", "Status", "status"]

Original = Callable[[str, str], bytes | None]
"""(release, file) → that release's text of the file if it can be had offline, else None."""


@dataclass(frozen=True)
class PortStatus:
    """Where one port stands."""

    port: Port
    status: Status
    variant: str | None
    """The variant that is in, that fits, or that comes nearest."""
    reason: str = ""
    difference: str = ""
    """A unified diff: for modified from the tool's text to the disk's, for drifted from the
    nearest known original, where that can be had offline."""
    files: tuple[str, ...] = ()
    forced: bool = False
    """Whether the port was applied over an original that it does not know."""


def status(
    checkout: Checkout, ports: Sequence[Port], original: Original | None = None
) -> list[PortStatus]:
    """The status of each port, in the order given. Takes no lock and writes nothing.

    Raises:
        UserError: the tool's record is damaged, or a port's own text is.
    """
    state = read_state(checkout)
    return [_status(checkout, state, port, original) for port in ports]


def _status(checkout: Checkout, state: State, port: Port, original: Original | None) -> PortStatus:
    record = state.ports.get(port.name)
    if record is not None:
        return _recorded(checkout, state, port, record)
    found = match(port, lambda file: pristine(checkout, state, file))
    variant = found.variant
    files = tuple(dict.fromkeys(target.file for target in variant.targets)) if variant else ()
    reason, difference = found.reason, ""
    if found.status is Status.DRIFTED:
        reason, difference = _drift(checkout, state, found, original)
    name = variant.name if variant else None
    return PortStatus(port, found.status, name, reason, difference, files)


def _recorded(checkout: Checkout, state: State, port: Port, record: PortRecord) -> PortStatus:
    reasons, differences = [], []
    for file in record.files():
        kept = state.files[file]
        disk = checkout.read(file)
        found = None if disk is None else sha256(disk)
        if found == kept.after:
            continue
        if found == kept.before:
            reasons.append(f"{file} is as it was before the port")
        elif disk is None:
            reasons.append(f"{file} was deleted since")
        else:
            reasons.append(f"{file} was edited since")
        ours = read_object(checkout, kept.after)
        differences.append(unified(ours, disk, f"{file} (as applied)", f"{file} (on disk)"))
    files = record.files()
    if reasons:
        reason = f"{'; '.join(reasons)}; originals are kept in {checkout.state_dir / OBJECTS}"
        return PortStatus(
            port,
            Status.MODIFIED,
            record.variant,
            reason,
            "".join(differences),
            files,
            record.forced,
        )
    notes = []
    if record.forced:
        notes.append("forced over an original that the port does not know")
    if _older(port, record):
        notes.append("the port's folder has another text; revert and apply to renew it")
    return PortStatus(
        port, Status.APPLIED, record.variant, "; ".join(notes), "", files, record.forced
    )


def _older(port: Port, record: PortRecord) -> bool:
    """Whether the folder's text differs from what was applied."""
    variant = next((v for v in port.manifest.variants if v.name == record.variant), None)
    if variant is None:
        return True
    applied = [
        (target.file, target.source, target.replace, target.add) for target in record.targets
    ]
    now = [
        (target.file, sha256(port.read(target.source)), target.replace, target.add)
        for target in variant.targets
    ]
    brought = [(new.file, new.source) for new in record.new_files]
    brings = [(new.file, sha256(port.read(new.source))) for new in variant.new_files]
    return applied != now or brought != brings


def _drift(
    checkout: Checkout, state: State, found: Match, original: Original | None
) -> tuple[str, str]:
    """Reason and difference for a text that the port does not know."""
    problem = found.problems[0]
    releases = [
        release
        for target in (found.variant.targets if found.variant else ())
        if target.file == problem.file
        for known in target.digests.get(problem.symbol, {}).values()
        for release in known
    ]
    text = pristine(checkout, state, problem.file)
    theirs = _symbol_text(text, problem.symbol)
    if not releases or not theirs:
        return problem.reason, ""
    differences = []
    for release in releases if original is not None else ():
        known = _symbol_text(original(release, problem.file), problem.symbol) if original else ""
        if known:
            old = f"{problem.file} ({release})"
            new = f"{problem.file} (this checkout)"
            differences.append(unified(known.encode(), theirs.encode(), old, new))
    if differences:
        return problem.reason, min(differences, key=len)
    return f"{problem.reason}; 'ascendport fetch {releases[-1]} DIR' gets a text it knows", ""


def _symbol_text(raw: bytes | None, symbol: str) -> str:
    """The lines of one symbol, decorators included; empty where there is no such symbol."""
    if raw is None:
        return ""
    try:
        nodes = index(parse(raw)).get(normal(symbol), [])
    except UserError:
        return ""
    if len(nodes) != 1:
        return ""
    node = nodes[0]
    decorators = node.decorator_list if isinstance(node, Definition) else []
    first = min([node.lineno, *(decorator.lineno for decorator in decorators)])
    text = "".join(lines(readable(raw))[first - 1 : node.end_lineno])
    return text if text.endswith("\n") else text + "\n"
