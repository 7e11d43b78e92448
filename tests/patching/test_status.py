"""Where a port stands, told by the texts alone."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from ascendport.checkout.tree import Checkout
from ascendport.errors import UserError
from ascendport.patching.journal import execute
from ascendport.patching.plan import plan_apply
from ascendport.patching.status import PortStatus, Status, status
from ascendport.ports.manifest import Port
from tests.patching.conftest import (
    KERNEL,
    KERNEL_TEXT,
    NEW,
    SHIFT,
    WIRING,
    WIRING_TEXT,
    Spec,
    make_port,
)

pytestmark = pytest.mark.usefixtures("quick_disk")


def only(checkout: Checkout, port: Port) -> PortStatus:
    (found,) = status(checkout, [port])
    assert found.port is port
    return found


def edit(checkout: Checkout, file: str, old: bytes, new: bytes) -> None:
    text = checkout.path(file).read_bytes()
    assert old in text
    checkout.path(file).write_bytes(text.replace(old, new))


def test_applicable(checkout: Checkout, scale: Port) -> None:
    found = only(checkout, scale)
    assert (found.status, found.variant, found.reason) == (Status.APPLICABLE, "only", "")
    assert found.files == (KERNEL, WIRING)


def test_applicable_whatever_comments_and_formatting(checkout: Checkout, scale: Port) -> None:
    edit(checkout, KERNEL, b"# Slow, row by row.", b"# Quick.")
    edit(checkout, KERNEL, b"row *= factor", b"row *= (  factor )  # why")
    edit(checkout, KERNEL, b"\n", b"\r\n")
    edit(checkout, WIRING, b"core.scale = scale", b"core.scale = None")
    assert only(checkout, scale).status is Status.APPLICABLE


def test_applied(checkout: Checkout, scale: Port) -> None:
    execute(plan_apply(checkout, [scale]))
    found = only(checkout, scale)
    assert (found.status, found.variant, found.reason) == (Status.APPLIED, "only", "")
    assert found.files == (KERNEL, WIRING, NEW)


def test_applied_with_an_older_text_of_the_port(checkout: Checkout, scale: Port) -> None:
    execute(plan_apply(checkout, [scale]))
    (scale.folder / "only_1.py").write_bytes(b"core.shift = None\n")
    found = only(checkout, scale)
    assert found.status is Status.APPLIED
    assert "an older text of the port" in found.reason


@pytest.mark.parametrize("file", [KERNEL, WIRING, NEW])
def test_modified(file: str, checkout: Checkout, scale: Port) -> None:
    execute(plan_apply(checkout, [scale]))
    checkout.path(file).write_bytes(checkout.path(file).read_bytes() + b"mine = 1\n")
    found = only(checkout, scale)
    assert found.status is Status.MODIFIED
    assert f"{file} was edited since" in found.reason
    assert "+mine = 1\n" in found.difference
    assert found.difference.count("\n+") == 2  # the file's name and the line


def test_modified_by_deleting_and_by_putting_back(checkout: Checkout, scale: Port) -> None:
    original = checkout.path(KERNEL).read_bytes()
    execute(plan_apply(checkout, [scale]))
    checkout.path(KERNEL).write_bytes(original)
    checkout.path(WIRING).unlink()
    found = only(checkout, scale)
    assert found.status is Status.MODIFIED
    assert f"{KERNEL} holds no port" in found.reason
    assert f"{WIRING} was deleted since" in found.reason


def test_superseded(checkout: Checkout, shift: Port) -> None:
    text = KERNEL_TEXT[: KERNEL_TEXT.index(b"def shift")] + b"# theirs\n" + SHIFT
    checkout.path(KERNEL).write_bytes(text)
    found = only(checkout, shift)
    assert found.status is Status.SUPERSEDED
    assert "of its own" in found.reason


def test_half_superseded_is_drifted(checkout: Checkout, scale: Port) -> None:
    edit(checkout, WIRING, b"core.shift = shift\n", b"core.shift = shift or None\n")
    found = only(checkout, scale)
    assert found.status is Status.DRIFTED
    assert f"core.shift in {WIRING} already is the port's" in found.reason


def test_missing(checkout: Checkout, shift: Port) -> None:
    checkout.path(KERNEL).write_bytes(b"other = 1\n")
    found = only(checkout, shift)
    assert (found.status, found.reason) == (Status.MISSING, f"{KERNEL} has no shift")
    checkout.path(KERNEL).unlink()
    found = only(checkout, shift)
    assert (found.status, found.reason) == (Status.MISSING, f"no file {KERNEL}")


def test_a_target_of_two_that_is_gone_is_drifted(checkout: Checkout, scale: Port) -> None:
    checkout.path(WIRING).unlink()
    found = only(checkout, scale)
    assert (found.status, found.reason) == (Status.DRIFTED, f"no file {WIRING}")


def test_drifted_by_one_token(checkout: Checkout, scale: Port) -> None:
    edit(checkout, KERNEL, b"row *= factor", b"row += factor")
    found = only(checkout, scale)
    assert found.status is Status.DRIFTED
    assert f"scale in {KERNEL} has a text that the port does not know" in found.reason
    assert "'ascendport fetch 1.0 DIR'" in found.reason
    assert found.difference == ""


def test_drifted_by_an_argument_shows_both_signatures(checkout: Checkout, scale: Port) -> None:
    edit(checkout, KERNEL, b"def scale(rows, factor):", b"def scale(rows, factor, offset):")
    found = only(checkout, scale)
    assert found.status is Status.DRIFTED
    assert "there scale(rows, factor, offset), in the port scale(rows, factor)" in found.reason


def test_drifted_by_an_added_name(checkout: Checkout, scale: Port) -> None:
    edit(checkout, KERNEL, b"LIMIT = 4", b"LIMIT = 4\n_product = 1")
    found = only(checkout, scale)
    assert found.status is Status.DRIFTED
    assert "already has _product, which the port adds" in found.reason


def test_drifted_by_a_second_definition(checkout: Checkout, shift: Port) -> None:
    edit(checkout, KERNEL, b"LIMIT = 4", b"LIMIT = 4\nshift = None")
    found = only(checkout, shift)
    assert found.status is Status.DRIFTED
    assert "binds shift more than once" in found.reason


def test_a_file_that_is_not_python_is_drifted(checkout: Checkout, shift: Port) -> None:
    checkout.path(KERNEL).write_bytes(b"def shift(:\n")
    found = only(checkout, shift)
    assert found.status is Status.DRIFTED
    assert "not valid Python" in found.reason and "line 1" in found.reason


def test_the_difference_is_to_the_nearest_original(checkout: Checkout, scale: Port) -> None:
    edit(checkout, KERNEL, b"row *= factor", b"row += factor")
    asked: list[tuple[str, str]] = []

    def original(release: str, file: str) -> bytes | None:
        asked.append((release, file))
        return KERNEL_TEXT

    (found,) = status(checkout, [scale], original)
    assert asked == [("1.0", KERNEL)]
    assert "-        row *= factor\n+        row += factor\n" in found.difference
    assert "shift" not in found.difference
    assert "fetch" not in found.reason


def test_a_class_that_lost_a_method(tmp_path: Path, checkout: Checkout) -> None:
    ours = b"class Launcher:\n    def __init__(self, kernel): self.kernel = kernel\n"
    spec = Spec(KERNEL, ours, ["Launcher"], [], b"class Launcher: pass\n")
    port = make_port(tmp_path / "p", "launcher", {"only": [spec]})
    found = only(checkout, port)
    assert found.status is Status.DRIFTED
    assert (
        "there class Launcher with __init__(self, kernel), run(self, rows), "
        "in the port class Launcher with __init__(self, kernel)" in found.reason
    )


def test_the_variant_is_told_by_digest(tmp_path: Path, checkout: Checkout) -> None:
    older = KERNEL_TEXT.replace(b"row + step", b"step + row")
    variants = {
        "old": [Spec(KERNEL, SHIFT, ["shift"], [], older)],
        "elsewhere": [Spec("vllm_ascend/gone.py", SHIFT, ["shift"], [], KERNEL_TEXT)],
        "new": [Spec(KERNEL, SHIFT, ["shift"], [], KERNEL_TEXT)],
    }
    port = make_port(tmp_path / "p", "several", variants)
    assert only(checkout, port).variant == "new"
    checkout.path(KERNEL).write_bytes(older)
    assert (only(checkout, port).status, only(checkout, port).variant) == (
        Status.APPLICABLE,
        "old",
    )


def test_a_port_without_its_own_symbol_is_the_ports_fault(
    tmp_path: Path, checkout: Checkout
) -> None:
    spec = Spec(KERNEL, b"other = 1\n", ["shift"], [], KERNEL_TEXT)
    port = make_port(tmp_path / "p", "broken", {"only": [spec]})
    with pytest.raises(UserError, match=r"no symbol shift: .*only_0\.py"):
        status(checkout, [port])


def test_adds_alone(tmp_path: Path, checkout: Checkout) -> None:
    spec = Spec(WIRING, b"core.extra = 1\n", [], ["core.extra"], WIRING_TEXT)
    port = make_port(tmp_path / "p", "adds", {"only": [spec]})
    assert only(checkout, port).status is Status.APPLICABLE
    edit(checkout, WIRING, b"core.shift", b"core.extra = 1\ncore.shift")
    assert only(checkout, port).status is Status.SUPERSEDED


def test_a_text_that_is_the_ports_and_the_originals_does_not_hide_that_the_port_is_in(
    tmp_path: Path, checkout: Checkout
) -> None:
    """A port may replace a symbol by a text like the original's; with the others it is the
    port's, as after a commit of the patched tree."""
    shift = b"def shift(rows, step):\n    return [row + step for row in rows]\n"
    specs = [Spec(KERNEL, SHIFT_AND_LIMIT, ["LIMIT", "shift"], [], KERNEL_TEXT)]
    assert shift in KERNEL_TEXT and shift in SHIFT_AND_LIMIT
    port = make_port(tmp_path / "p", "both", {"only": specs})
    execute(plan_apply(checkout, [port]))
    shutil.rmtree(checkout.state_dir)
    assert only(checkout, port).status is Status.SUPERSEDED
    edit(checkout, KERNEL, b"row + step", b"step + row")
    assert only(checkout, port).status is Status.DRIFTED


SHIFT_AND_LIMIT = b"""LIMIT = 7


def shift(rows, step):
    return [row + step for row in rows]
"""
