"""Before and after are the same whatever is on disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from ascendport.checkout.tree import Checkout
from ascendport.errors import ExitCode, UserError
from ascendport.patching.images import images
from ascendport.patching.journal import execute
from ascendport.patching.plan import plan_apply
from ascendport.ports.manifest import Port
from tests.patching.conftest import (
    BROUGHT,
    KERNEL,
    KERNEL_TEXT,
    NEW,
    SHIFT,
    WIRING,
    WIRING_TEXT,
)

pytestmark = pytest.mark.usefixtures("quick_disk")


def test_the_same_before_and_after_applying(checkout: Checkout, scale: Port, shift: Port) -> None:
    found = images(checkout, scale)
    assert found.before == {KERNEL: KERNEL_TEXT, WIRING: WIRING_TEXT}
    assert found.after.keys() == {KERNEL, WIRING, NEW}
    assert found.after[NEW] == BROUGHT
    execute(plan_apply(checkout, [scale]))
    assert {file: checkout.read(file) for file in found.after} == found.after
    assert images(checkout, scale) == found
    execute(plan_apply(checkout, [shift]))
    assert images(checkout, scale) == found


def test_an_edit_of_the_user_is_not_in_them(checkout: Checkout, scale: Port) -> None:
    found = images(checkout, scale)
    execute(plan_apply(checkout, [scale]))
    checkout.path(KERNEL).write_bytes(b"mine = 1\n")
    assert images(checkout, scale) == found


def test_the_folders_text_counts(checkout: Checkout, shift: Port) -> None:
    execute(plan_apply(checkout, [shift]))
    (shift.folder / "only_0.py").write_bytes(b"def shift(rows, step): return rows\n")
    assert b"return rows\n" in images(checkout, shift).after[KERNEL]


def test_a_forced_port_has_images(checkout: Checkout, shift: Port) -> None:
    text = KERNEL_TEXT.replace(b"row + step", b"row - step")
    checkout.path(KERNEL).write_bytes(text)
    with pytest.raises(UserError, match="does not fit this checkout: drifted") as refused:
        images(checkout, shift)
    assert refused.value.code is ExitCode.FAILED
    execute(plan_apply(checkout, [shift], force=True))
    assert images(checkout, shift).before == {KERNEL: text}


def test_a_superseded_port_has_none(checkout: Checkout, shift: Port, tmp_path: Path) -> None:
    checkout.path(KERNEL).write_bytes(SHIFT)
    with pytest.raises(UserError, match="superseded"):
        images(checkout, shift)


def test_what_other_ports_changed_is_pristine(checkout: Checkout, scale: Port, shift: Port) -> None:
    assert not images(checkout, shift).beside
    execute(plan_apply(checkout, [scale, shift]))
    assert checkout.read(WIRING) != WIRING_TEXT
    found = images(checkout, shift)
    # The file that scale brings has no pristine contents.
    assert found.beside == {WIRING: WIRING_TEXT}
    assert KERNEL in found.before and not images(checkout, scale).beside
