"""The files that a port touches, without it and with it, whatever is on disk."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ascendport.checkout.tree import Checkout
from ascendport.errors import ExitCode, UserError
from ascendport.patching.install import Install, compose
from ascendport.patching.putback import put_back
from ascendport.patching.recognise import Status, match
from ascendport.patching.state import pristine, read_state
from ascendport.patching.view import steady
from ascendport.ports.manifest import Port, Variant


@dataclass(frozen=True)
class Images:
    """Both states of the files that a port touches, by checkout-relative POSIX path."""

    variant: Variant
    before: Mapping[str, bytes]
    """Pristine contents; a file that the port brings is absent."""
    after: Mapping[str, bytes]
    """The same files with this port in them, and no other."""
    beside: Mapping[str, bytes] = field(default_factory=dict)
    """Pristine contents of files that only other ports in the checkout have changed."""


def images(checkout: Checkout, port: Port) -> Images:
    """The before and after of ``port`` on ``checkout``. Writes nothing.

    The port's folder decides what is installed, also where an earlier text of the port is on
    disk. A port that was forced keeps the variant it was forced with.

    Raises:
        UserError: no variant fits, upstream has the port already, or an edit cannot be made.
    """
    return steady(checkout, lambda view: _images(view, port))


def _images(checkout: Checkout, port: Port) -> Images:
    state = put_back(checkout, read_state(checkout), [port])

    def read(file: str) -> bytes | None:
        return pristine(checkout, state, file)

    record = state.ports.get(port.name)
    variants = {variant.name: variant for variant in port.manifest.variants}
    variant = variants.get(record.variant) if record else None
    if variant is None:
        found = match(port, read)
        if found.status is not Status.APPLICABLE or found.variant is None:
            raise UserError(
                f"port {port.name} does not fit this checkout: {found.status} ({found.reason})",
                where=checkout.root,
                next="'ascendport status' shows more",
                code=ExitCode.FAILED,
            )
        variant = found.variant
    install = Install.of_port(port, variant)
    before: dict[str, bytes] = {}
    after: dict[str, bytes] = {}
    for file in install.files():
        text = read(file)
        if text is not None:
            before[file] = text
        result = compose(file, text, [install])
        if result is not None:
            after[file] = result
    others = {file: read(file) for file in state.files if file not in install.files()}
    beside = {file: text for file, text in others.items() if text is not None}
    return Images(variant, before, after, beside)
