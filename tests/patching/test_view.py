"""Who reads never waits and never sees half of a change; who writes waits and says so."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ascendport import commands
from ascendport.checkout.tree import Checkout, recognise
from ascendport.errors import UserError
from ascendport.patching.images import images
from ascendport.patching.plan import plan_revert
from ascendport.patching.status import status
from ascendport.patching.view import steady
from ascendport.ports.manifest import Port
from tests.patching.campaign import apply, revert, silent
from tests.patching.conftest import KERNEL, NEW, make_checkout
from tests.patching.faults import Faults, calls_of, watched

pytestmark = pytest.mark.usefixtures("quick_disk")


@contextmanager
def paused(root: Path, work: Callable[[], object], at: int) -> Iterator[Callable[[], int]]:
    """Another process stopped in front of call ``at``; the value lets it go on and gives its
    exit status."""
    reached_r, reached_w = os.pipe()
    go_r, go_w = os.pipe()

    def stop() -> None:
        os.write(reached_w, b"!")
        os.read(go_r, 1)

    child = os.fork()
    if child == 0:
        try:
            with watched(Faults(root, at, then=stop)):
                work()
        except BaseException as error:
            os.write(2, f"{error!r}\n".encode())
            os._exit(70)
        os._exit(0)
    done: list[int] = []

    def go_on() -> int:
        if not done:
            os.write(go_w, b"!")
            done.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        return done[0]

    try:
        assert os.read(reached_r, 1) == b"!"
        yield go_on
    finally:
        go_on()
        for handle in (reached_r, reached_w, go_r, go_w):
            os.close(handle)


@pytest.mark.parametrize("kind", ["apply", "revert"])
def test_a_reader_sees_all_or_nothing_of_a_change_under_way(
    kind: str, tmp_path: Path, scale: Port
) -> None:
    def made(name: str) -> tuple[Path, Callable[[], object]]:
        root = make_checkout(tmp_path / name).root
        if kind == "revert":
            apply(root, scale)
        return root, lambda: apply(root, scale) if kind == "apply" else revert(root, scale)

    root, work = made("counted")
    expected = images(recognise(root), scale)
    calls = calls_of(root, work)
    intent = next(at for at, call in enumerate(calls) if call.startswith("replace .ascendport/.i"))
    moments = [
        at
        for at, call in enumerate(calls)
        if at > intent and call.startswith(("replace", "rmdir tests"))
    ]
    assert len(moments) > 3
    seen = []
    for at in moments:
        root, work = made(f"at{at}")
        said: list[str] = []
        with paused(root, work, at) as go_on:
            tree, (found,) = commands.status(root, [scale.name], [scale.folder], said.append)
            seen.append(found.status.value)
            assert images(tree, scale) == expected
            assert said == [
                "another run is writing to this checkout: shown is how it is before or after that"
            ]
            assert not plan_revert(tree).refused
            assert go_on() == 0
        after = status(tree, [scale])[0].status.value
        assert after == ("applied" if kind == "apply" else "applicable")
    # The replace of the record is the moment of the change.
    commit = [calls[at] for at in moments].index("replace .ascendport/.state.json.ascendport-new")
    old, new = ("applicable", "applied")[:: 1 if kind == "apply" else -1]
    assert seen == [old if number <= commit else new for number in range(len(moments))]


def test_a_second_writer_waits_says_so_and_plans_anew(
    tmp_path: Path, checkout: Checkout, scale: Port, shift: Port
) -> None:
    twin = make_checkout(tmp_path / "twin")
    calls = calls_of(twin.root, lambda: apply(twin.root, scale))
    at = next(i for i, call in enumerate(calls) if call.startswith("replace vllm_ascend/patch"))
    said: list[str] = []
    with paused(checkout.root, lambda: apply(checkout.root, scale), at) as go_on:

        def note(text: str) -> None:
            said.append(text)
            go_on()

        plan = commands.apply(
            checkout.root, ["shift"], [shift.folder], note, dry_run=False, force=False
        )
    assert said == ["another run is writing to this checkout: waiting up to 30 s (--wait)"]
    assert [one.status.value for one in status(checkout, [scale, shift])] == ["applied"] * 2
    text = checkout.path(KERNEL).read_bytes()
    assert b"_product" in text and b"__add__" in text
    assert [change.file for change in plan.changes] == [KERNEL]


def test_a_writer_between_plan_and_writing_makes_a_new_plan(
    checkout: Checkout, scale: Port, shift: Port, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ascendport.patching import journal

    kept = journal.execute
    first: list[bool] = []

    def execute(plan: object, **how: object) -> None:
        if not first:
            first.append(True)
            apply(checkout.root, scale)
        kept(plan, **how)  # type: ignore[arg-type]

    monkeypatch.setattr(journal, "execute", execute)
    commands.apply(checkout.root, ["shift"], [shift.folder], silent, dry_run=False, force=False)
    assert [one.status.value for one in status(checkout, [scale, shift])] == ["applied"] * 2


def test_what_changes_while_it_is_read_is_read_again(checkout: Checkout, scale: Port) -> None:
    looks: list[bytes | None] = []

    def look(view: Checkout) -> bytes | None:
        found = view.read(NEW)
        looks.append(found)
        if len(looks) == 1:
            apply(checkout.root, scale)
        return found

    assert steady(checkout, look) == looks[1]
    assert looks[0] is None and looks[1] is not None


@pytest.mark.parametrize("error", [FileNotFoundError(2, "gone"), UserError("gone")], ids=repr)
def test_what_cannot_be_read_while_it_changes_is_read_again(
    error: Exception, checkout: Checkout, scale: Port
) -> None:
    """A file may go between two looks at it."""
    looks: list[bytes | None] = []

    def look(view: Checkout) -> bytes | None:
        looks.append(view.read(NEW))
        if len(looks) == 1:
            apply(checkout.root, scale)
            raise error
        return looks[-1]

    assert steady(checkout, look) is not None

    def never(view: Checkout) -> None:
        raise error

    with pytest.raises(UserError, match="gone"):
        steady(checkout, never)


def test_a_checkout_that_never_rests_is_reported(
    checkout: Checkout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ascendport.patching.view._PAUSE_S", 0)

    def look(view: Checkout) -> None:
        (checkout.root / "new").touch()
        (checkout.root / "new").unlink()

    with pytest.raises(UserError, match="changes faster than it can be read"):
        steady(checkout, look)
