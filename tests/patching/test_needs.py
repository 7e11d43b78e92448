"""Variants whose replaced symbols look alike are told apart by what else the tree has."""

from __future__ import annotations

from pathlib import Path

import pytest

from ascendport.patching.recognise import Status, match
from ascendport.ports.manifest import Port, load
from tests.patching.conftest import (
    KERNEL,
    KERNEL_TEXT,
    SCALE,
    WIRING,
    Spec,
    make_checkout,
    make_port,
)


@pytest.fixture
def port(tmp_path: Path) -> Port:
    """Two variants for one original; the first needs an assignment of another file."""
    spec = Spec(KERNEL, SCALE, ["scale"], ["_product"], KERNEL_TEXT)
    made = make_port(tmp_path / "zz_scale", "zz_scale", {"old": [spec], "new": [spec]})
    path = made.folder / "port.toml"
    needs = f'name = "old"\n[variants.needs]\n"{WIRING}" = ["core.gone"]\n'
    path.write_text(path.read_text().replace('name = "old"\n', needs))
    return load(made.folder)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(b"import core\n\ncore.gone = 1\n", "old", id="has-it"),
        pytest.param(b"import core\n\ncore.other = 1\n", "new", id="lacks-it"),
        pytest.param(b"core.gone = (\n", "new", id="is-not-python"),
    ],
)
def test_the_variant_whose_needs_are_met(
    port: Port, tmp_path: Path, text: bytes, expected: str
) -> None:
    checkout = make_checkout(tmp_path / "tree", {WIRING: text})
    found = match(port, checkout.read)
    assert found.status is Status.APPLICABLE
    assert found.variant is not None and found.variant.name == expected


def test_what_is_lacking_is_said(port: Port, tmp_path: Path) -> None:
    changed = KERNEL_TEXT.replace(b"row *= factor", b"row = row * factor")
    checkout = make_checkout(tmp_path / "tree", {KERNEL: changed, WIRING: b"core = 1\n"})
    found = match(port, checkout.read)
    assert found.status is Status.DRIFTED
    only = port.manifest.model_copy(update={"variants": port.manifest.variants[:1]})
    first = match(
        port.model_copy(update={"manifest": only}), make_checkout(tmp_path / "b", {}).read
    )
    assert first.status is Status.DRIFTED
    assert first.reason == f"{WIRING} has no core.gone, which this variant needs"
