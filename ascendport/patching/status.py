"""Where each port stands in a checkout. Reads only; fast enough to run at every prompt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ascendport.checkout.tree import Checkout
from ascendport.patching.drift import Original, drift, releases
from ascendport.patching.install import Install
from ascendport.patching.putback import put_back
from ascendport.patching.recognise import Status, match
from ascendport.patching.state import (
    OBJECTS,
    PortRecord,
    State,
    pristine,
    read_object,
    read_state,
    sha256,
)
from ascendport.patching.text import unified
from ascendport.patching.view import steady
from ascendport.ports.manifest import Port

__all__ = ["Original", "PortStatus", "Status", "status"]


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

    def look(view: Checkout) -> list[PortStatus]:
        state = put_back(view, read_state(view), ports)
        return [_status(view, state, port, original) for port in ports]

    return steady(checkout, look)


def _status(checkout: Checkout, state: State, port: Port, original: Original | None) -> PortStatus:
    record = state.ports.get(port.name)
    if record is not None:
        return _recorded(checkout, state, port, record)
    found = match(port, lambda file: pristine(checkout, state, file))
    variant = found.variant
    files = tuple(dict.fromkeys(target.file for target in variant.targets)) if variant else ()
    reason, difference = found.reason, ""
    if found.status is Status.DRIFTED:
        first = drift(checkout, state, found, found.problems[0], original)
        difference = first.upstream
        known = releases(found, found.problems[0])
        if not difference and known and first.theirs:
            reason += f"; 'ascendport fetch {known[-1]} DIR' gets a text it knows"
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
            reasons.append(f"{file} holds no port: as it was before, or another original")
        elif disk is None:
            reasons.append(f"{file} was deleted since")
        else:
            reasons.append(f"{file} was edited since")
        ours = read_object(checkout, kept.after)
        differences.append(unified(ours, disk, f"{file} (as applied)", f"{file} (on disk)"))
    files = record.files()
    if reasons:
        reason = f"{'; '.join(reasons)}; originals are kept in {checkout.state_dir / OBJECTS}"
        if all("holds no port" in one for one in reasons):
            reason = f"{'; '.join(reasons)}; 'ascendport apply' puts it in again"
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
        notes.append("an older text of the port; 'ascendport apply' upgrades it")
    return PortStatus(
        port, Status.APPLIED, record.variant, "; ".join(notes), "", files, record.forced
    )


def _older(port: Port, record: PortRecord) -> bool:
    """Whether the folder's text differs from what was applied."""
    variant = next((v for v in port.manifest.variants if v.name == record.variant), None)
    if variant is None:
        return True
    return Install.of_port(port, variant, forced=record.forced).record() != record
