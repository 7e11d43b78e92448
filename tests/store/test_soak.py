"""A soak sees what goes wrong, and how the check judges what it saw."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest

from ascendport.checkout.tree import recognise
from ascendport.checks import soak as check
from ascendport.checks.outcome import Outcome
from ascendport.checks.subject import Options, Subject
from ascendport.harness.children import Children, Failure
from ascendport.harness.workspace import Tree, workspace
from ascendport.patching.images import images
from ascendport.ports.catalogue import catalogue
from ascendport.store import soak
from ascendport.store.chaos import Chaos
from ascendport.store.soak import Soaked
from tests.conftest import ReleaseTree

RIGHT = Soaked(
    60.0,
    "",
    {"saves": 9, "blocks loaded": 9, "blocks marked": 3, "lookups with a hit": 4},
    {"put raises": 2},
    {},
    "stand-in for vllm",
)


@pytest.mark.parametrize(
    ("found", "said"),
    [
        pytest.param(RIGHT, "", id="right"),
        pytest.param(Failure("the child process died"), "the child process died", id="died"),
        pytest.param(replace(RIGHT, problem="nobody is left"), "nobody is left", id="problem"),
        pytest.param(
            replace(RIGHT, leaks={"threads": 2}), "left over at the end: 2 threads", id="leak"
        ),
        pytest.param(replace(RIGHT, injected={}), "no failure was injected", id="nothing-injected"),
        pytest.param(
            replace(RIGHT, counts={**RIGHT.counts, "blocks marked": 0}),
            "no blocks marked",
            id="nothing-marked",
        ),
        pytest.param(replace(RIGHT, counts={}), "no saves", id="nothing-done"),
    ],
)
def test_what_a_run_says(found: Soaked | Failure, said: str) -> None:
    assert said in check.problem(found)
    case = check.case("memory", 0, None, found)
    assert (case.outcome is Outcome.PASSED) == (not said)


# --- on a release, with the port in it ---

SECONDS = 4.0


@dataclass
class Liar(Chaos):
    """Says that all is well though a transfer broke off."""

    def batch_get_into_multi_buffers(
        self, keys: Sequence[str], addresses: Any, sizes: Any
    ) -> list[int]:
        codes = super().batch_get_into_multi_buffers(keys, addresses, sizes)
        return [abs(code) for code in codes] + [0] * (len(keys) - len(codes))


def lied_to(tree: Tree) -> Soaked:
    """In a child process: a soak on a store that lies."""
    vars(soak)["Chaos"] = Liar
    return soak.run(tree, "", SECONDS, 3)


def _holding(tree: Tree, opened: Callable[[], object]) -> Soaked:
    """A soak whose every write keeps something that it has opened."""
    whole = soak._write
    held = []

    def write(*args: Any) -> None:
        held.append(opened())
        whole(*args)

    vars(soak)["_write"] = write
    return soak.run(tree, "", SECONDS, 3)


def leaking(tree: Tree) -> Soaked:
    """In a child process: a soak whose saves leave files open."""
    return _holding(tree, lambda: open("/dev/null"))  # noqa: PTH123


def connected(tree: Tree) -> Soaked:
    """In a child process: a soak whose saves leave connections open."""
    server = socket.create_server(("127.0.0.1", 0))
    return _holding(
        tree, lambda: (socket.create_connection(server.getsockname()), server.accept()[0])
    )


def subject(release_tree: ReleaseTree, release: str) -> Subject:
    checkout = recognise(release_tree(release))
    port = next(port for port in catalogue() if port.name == "failure_fixes")
    made = images(checkout, port)
    options = Options(minutes=2 * SECONDS / 60, seed=3)
    return Subject(checkout, port, made.variant, made.before, made.after, options)


@pytest.mark.network
def test_a_tree_with_the_mends(release_tree: ReleaseTree) -> None:
    result = check.run(subject(release_tree, "0.30.0rc2"))
    assert result.outcome is Outcome.PASSED, result.reason
    # The tree as it was does not last.
    assert result.cases[0].figures["before"] != "nothing wrong"


@pytest.mark.network
@pytest.mark.parametrize(
    ("work", "said"),
    [
        pytest.param(lied_to, "did not arrive, and is not marked", id="a-store-that-lies"),
        pytest.param(leaking, "file descriptors", id="a-leak"),
        pytest.param(connected, " connections", id="a-leak-of-connections"),
    ],
)
def test_what_a_soak_must_see(release_tree: ReleaseTree, work: Any, said: str) -> None:
    given = subject(release_tree, "0.26.0rc1")
    with (
        workspace(given.checkout.root, given.before, given.after) as places,
        Children(1) as children,
    ):
        found = children.result(children.submit(work, places.after), 300.0)
    assert said in check.problem(found)
