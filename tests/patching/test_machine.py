"""Apply, revert, edit, upgrade, kill, recover and two at once, in any order, on a real release.

The model knows what each file must hold: the user's lines at its top, then the original with the
ports in it that are in. It is compared after every step, byte for byte.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from ascendport import commands
from ascendport.checkout.tree import MARKERS, PACKAGE, Checkout, recognise
from ascendport.patching.install import Install, compose
from ascendport.patching.plan import Plan
from ascendport.patching.state import INTENT, SAVED, read_state
from ascendport.patching.status import status
from ascendport.ports.manifest import Port
from tests.conftest import RELEASES, ReleaseCopy
from tests.patching.campaign import NEXT, silent
from tests.patching.conftest import Spec, make_port
from tests.patching.faults import DIED, Faults, in_child

pytestmark = [pytest.mark.network, pytest.mark.usefixtures("quick_disk")]

PENALTIES = "vllm_ascend/worker/v2/sample/penalties.py"
LOGPROB = "vllm_ascend/worker/v2/sample/logprob.py"
BROUGHT = "tests/ours/test_it.py"
INSIDE = b"    return [args, kwargs]  # ours\n"

TEXTS = {
    "first": b"""import operator


def _added(things):
    return [operator.neg(thing) for thing in things]


def bincount(*args, **kwargs):
    _added(args)
    return [args, kwargs]  # ours
""",
    "second": b"""def apply_penalties(*args, **kwargs):
    return [kwargs, args]


""",
    "second, logprob": b"""def compute_token_logprobs(*args, **kwargs):
    return [args, kwargs, 1]
""",
}
NEWER = {"first": (b"operator.neg", b"operator.abs"), "second": (b"[kwargs, args]", b"[kwargs]")}
NAMES = ("first", "second")


def make_ports(folder: Path, tree: Checkout) -> dict[str, Port]:
    originals = {file: tree.read(file) or b"" for file in (PENALTIES, LOGPROB)}
    first = Spec(PENALTIES, TEXTS["first"], ["bincount"], ["_added"], originals[PENALTIES])
    second = [
        Spec(PENALTIES, TEXTS["second"], ["apply_penalties"], [], originals[PENALTIES]),
        Spec(
            LOGPROB, TEXTS["second, logprob"], ["compute_token_logprobs"], [], originals[LOGPROB]
        ),
    ]  # fmt: skip
    return {
        "first": make_port(folder / "first", "first", {"only": [first]}),
        "second": make_port(folder / "second", "second", {"only": second}, {BROUGHT: b"a = 1\n"}),
    }


FILES = {"first": (PENALTIES,), "second": (PENALTIES, LOGPROB, BROUGHT)}


def recorded(applied: Iterable[str]) -> set[str]:
    """The files that ports are in."""
    return {file for name in applied for file in FILES[name]}


class Machine(RuleBasedStateMachine):
    """One checkout and what it must hold."""

    pristine: Path
    """A tree that each run copies."""

    @initialize()
    def start(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="machine-"))
        self.root = self.folder / "tree"
        shutil.copytree(self.pristine, self.root)
        self.tree = recognise(self.root)
        self.ports = make_ports(self.folder / "ports", self.tree)
        self.originals = {file: self.tree.read(file) for file in (PENALTIES, LOGPROB, BROUGHT)}
        self.applied: dict[str, Install] = {}
        self.mine: dict[str, bytes] = {}
        """Lines that the user put at the top of a file since a port went into it."""
        self.inside = False
        """Whether the user changed a line of the first port."""
        self.saved: list[bytes] = []
        """Texts of the user's that were replaced: copies must hold them."""
        self.number = 0

    def teardown(self) -> None:
        shutil.rmtree(getattr(self, "folder", ""), ignore_errors=True)

    # --- what the model says ---

    def composed(self, file: str, applied: dict[str, Install]) -> bytes | None:
        return compose(file, self.originals[file], applied.values())

    def expected(self, file: str, applied: dict[str, Install]) -> bytes | None:
        text = self.composed(file, applied)
        if text is None:
            return None
        if self.inside and file == PENALTIES:
            assert INSIDE in text
            text = text.replace(INSIDE, b"    return mine(args)\n")
        return self.mine.get(file, b"") + text

    def now(self, name: str) -> Install:
        """The port as its folder has it."""
        port = self.ports[name]
        return Install.of_port(port, port.manifest.variants[0])

    def command(self, what: str, names: list[str], **how: bool) -> Plan:
        folders = [port.folder for port in self.ports.values()]
        if what == "apply":
            return commands.apply(self.root, names, folders, silent, dry_run=False, force=False)
        return commands.revert(self.root, names, folders, silent, dry_run=False, **how)

    def after(self, what: str, names: list[str]) -> dict[str, Install]:
        applied = dict(self.applied)
        for name in names:
            if what == "apply":
                applied[name] = self.now(name)
            else:
                applied.pop(name, None)
        return applied

    def replaced(self, applied: dict[str, Install]) -> None:
        """Notes the edited files that going to ``applied`` replaces."""
        for file in recorded(self.applied):
            edited = file in self.mine or (self.inside and file == PENALTIES)
            if edited and self.composed(file, applied) != self.composed(file, self.applied):
                text = self.expected(file, self.applied)
                assert text is not None
                self.saved.append(text)

    def settle(self, applied: dict[str, Install]) -> None:
        """What the user wrote before the first port went into a file is part of its original."""
        for file in recorded(applied) - recorded(self.applied):
            if file in self.mine:
                self.originals[file] = self.mine.pop(file) + (self.originals[file] or b"")
        self.applied = applied

    # --- what happens ---

    @rule(names=st.sets(st.sampled_from(NAMES), min_size=1))
    def apply(self, names: set[str]) -> None:
        chosen = sorted(names)
        wanted = self.after("apply", chosen)
        self.replaced(wanted)
        # A newer text of the first port has other lines than the user's.
        assert not self.command("apply", chosen).refused
        self.settle(wanted)

    @rule(names=st.sets(st.sampled_from(NAMES), min_size=1))
    def revert(self, names: set[str]) -> None:
        chosen = [name for name in sorted(names) if name in self.applied]
        if not chosen:
            return
        wanted = self.after("revert", chosen)
        conflict = self.inside and "first" not in wanted
        if not conflict:
            self.replaced(wanted)
        assert bool(self.command("revert", chosen).refused) == conflict
        if not conflict:
            self.settle(wanted)

    @precondition(lambda self: self.inside)
    @rule()
    def revert_theirs(self) -> None:
        wanted = self.after("revert", ["first"])
        self.replaced(wanted)
        assert not self.command("revert", ["first"], theirs=True).refused
        self.inside = False
        # The whole file is upstream's and the other port's; the lines at its top are in the copy.
        self.mine.pop(PENALTIES, None)
        self.settle(wanted)

    @precondition(lambda self: self.inside)
    @rule()
    def revert_keep(self) -> None:
        kept = self.tree.read(PENALTIES)
        assert not self.command("revert", ["first"], keep=True).refused
        assert self.tree.read(PENALTIES) == kept
        self.settle(self.after("revert", ["first"]))
        # The user then tidies the file up by hand.
        self.inside = False
        text = self.expected(PENALTIES, self.applied)
        assert text is not None
        self.tree.path(PENALTIES).write_bytes(text)

    @rule(file=st.sampled_from([PENALTIES, LOGPROB]))
    def edit(self, file: str) -> None:
        self.number += 1
        line = b"# mine %d\n" % self.number
        text = self.tree.read(file)
        assert text is not None
        self.tree.path(file).write_bytes(line + text)
        self.mine[file] = line + self.mine.get(file, b"")

    @precondition(lambda self: "first" in self.applied and not self.inside)
    @rule()
    def edit_inside(self) -> None:
        path = self.tree.path(PENALTIES)
        text = path.read_bytes()
        assert text.count(INSIDE) == 1
        path.write_bytes(text.replace(INSIDE, b"    return mine(args)\n"))
        self.inside = True

    @rule(file=st.sampled_from([PENALTIES, LOGPROB]))
    def undo_edits(self, file: str) -> None:
        self.mine.pop(file, None)
        if file == PENALTIES:
            self.inside = False
        text = self.expected(file, self.applied)
        assert text is not None
        self.tree.path(file).write_bytes(text)

    @rule(name=st.sampled_from(NAMES))
    def new_version(self, name: str) -> None:
        """The port's folder changes; what is in the checkout does not."""
        path = self.ports[name].folder / "only_0.py"
        old, new = NEWER[name]
        text = path.read_bytes()
        path.write_bytes(text.replace(old, new) if old in text else text.replace(new, old))

    @precondition(lambda self: not self.inside)
    @rule(
        what=st.sampled_from(["apply", "revert"]),
        names=st.sets(st.sampled_from(NAMES), min_size=1),
        at=st.integers(0, 700),
        torn=st.booleans(),
        then=st.sampled_from(NEXT),
    )
    def kill(
        self,
        what: str,
        names: set[str],
        at: int,
        torn: bool,
        then: tuple[str, Callable[[Path, Port], object]],
    ) -> None:
        """A death somewhere in a command; the next command finds what it left."""
        chosen = sorted(names if what == "apply" else names & set(self.applied))
        if not chosen:
            return
        faults = Faults(self.root.resolve(), at, "tear" if torn else "die")
        code = in_child(lambda: self.command(what, chosen), faults)
        assert code in (0, DIED)
        then[1](self.root, self.ports["first"])
        wanted = self.after(what, chosen)
        there = dict(read_state(self.tree).ports)
        done = there == {name: one.record() for name, one in wanted.items()}
        if not done:
            assert code == DIED
            assert there == {name: one.record() for name, one in self.applied.items()}
            return
        self.replaced(wanted)
        self.settle(wanted)

    @precondition(lambda self: not self.inside)
    @rule()
    def two_at_once(self) -> None:
        """Both processes end well, whoever comes first."""
        children = []
        for name in NAMES:
            child = os.fork()
            if child == 0:
                try:
                    os._exit(bool(self.command("apply", [name]).refused))
                except BaseException as error:
                    os.write(2, f"{error!r}\n".encode())
                    os._exit(70)
            children.append(child)
        codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
        assert codes == [0, 0]
        # The copies of what lies between are of no one order: only the lines must be there.
        self.settle(self.after("apply", list(NAMES)))

    # --- what must hold ---

    @invariant()
    def every_file_is_as_it_must_be(self) -> None:
        if not hasattr(self, "tree"):
            return
        for file in (PENALTIES, LOGPROB, BROUGHT):
            assert self.tree.read(file) == self.expected(file, self.applied), file

    @invariant()
    def status_never_lies(self) -> None:
        if not hasattr(self, "tree"):
            return
        for found in status(self.tree, list(self.ports.values())):
            name = found.port.name
            edited = any(file in self.mine for file in FILES[name]) or self.inside
            if name not in self.applied:
                assert found.status.value == "applicable"
            elif edited:
                assert found.status.value == "modified"
            else:
                assert found.status.value == "applied"
                older = self.applied[name] != self.now(name)
                assert ("an older text" in found.reason) is older

    @invariant()
    def nothing_of_the_users_is_lost(self) -> None:
        if not hasattr(self, "tree"):
            return
        kept = self.tree.state_dir / SAVED
        copies = {path.read_bytes() for path in kept.iterdir()} if kept.is_dir() else set()
        assert set(self.saved) <= copies

    @invariant()
    def the_tool_leaves_nothing_behind(self) -> None:
        if not hasattr(self, "tree"):
            return
        folder = self.tree.state_dir
        assert not (folder / INTENT).exists()
        assert folder.exists() is (bool(self.applied) or (folder / SAVED).exists())
        assert not list(self.root.rglob("*.ascendport-new"))
        assert self.tree.path("tests").exists() is ("second" in self.applied)


@pytest.fixture(scope="module")
def pristine(release_copy: ReleaseCopy, tmp_path_factory: pytest.TempPathFactory) -> Path:
    files = {f"{PACKAGE}/{name}" for name, _ in MARKERS} | {"setup.py", PENALTIES, LOGPROB}
    return release_copy(RELEASES[-1], tmp_path_factory.mktemp("p") / "tree", tuple(sorted(files)))


def run(pristine: Path, **how: Any) -> None:
    machine = type("OnRelease", (Machine,), {"pristine": pristine})
    checks = [HealthCheck.too_slow, HealthCheck.data_too_large]
    run_state_machine_as_test(
        machine, settings=settings(deadline=None, suppress_health_check=checks, **how)
    )


def test_any_order(pristine: Path) -> None:
    run(pristine, max_examples=8, stateful_step_count=12, derandomize=True)


@pytest.mark.slow
def test_any_order_for_long(pristine: Path) -> None:
    run(pristine, max_examples=150, stateful_step_count=30)
