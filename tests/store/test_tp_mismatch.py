"""The port tp_mismatch on real releases, and evil versions of it that the checks must refuse."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ascendport.checks import calls, store_wiring
from ascendport.checks.outcome import Outcome
from ascendport.checks.store_wiring import SCENARIOS as WIRING
from ascendport.checks.subject import Options, Subject
from ascendport.harness.workspace import Tree, write_tree
from ascendport.store.drive import run_loaded
from ascendport.store.judge import judge, wiring_problems
from ascendport.store.loading import FOLDER, Loaded, loaded
from ascendport.store.portcode import scenarios
from ascendport.store.scenario import Scenario
from tests.conftest import RELEASES
from tests.store.conftest import port

pytestmark = pytest.mark.network

Made = Callable[[str], Subject]

WORKER = f"{FOLDER}/pool_worker.py"
FOUR = ("0.24.0rc1", "0.26.0rc1", "0.27.1rc1", "0.30.0rc2")
QUICK = (
    "2 to 4, 8 heads",
    "4 to 2, blocks of 128",
    "8 to 2, 8 heads",
    "2 to 2",
    "2 to 2, loads by a thread",
    "loads by a thread",
    "sizes as text",
    "some blocks present, 4 to 2",
    "a prefix is shared, 2 to 4",
    "preempted",
    "put fails for one block, 2 to 4",
    "exists raises, 2 to 4",
    "get breaks in the thread",
    "put breaks in the backend, 2 to 4",
    "the store goes in mid-save, 4 to 2",
)


@contextmanager
def _store(subject: Subject, files: Any, folder: Path) -> Iterator[Loaded]:
    write_tree(folder, files)
    with loaded(Tree(folder, subject.checkout.root)) as modules:
        yield modules


def _problems(modules: Loaded, chosen: tuple[Scenario, ...]) -> dict[str, list[str]]:
    found = {}
    for scenario in chosen:
        facts = run_loaded(modules, scenario, 0)
        problems = judge(scenario, facts, 0) + wiring_problems(scenario, facts)
        if problems:
            found[scenario.name] = problems
    return found


@pytest.mark.parametrize("release", FOUR)
def test_scenarios(release: str, made: Made, tmp_path: Path) -> None:
    subject = made(release)
    names = () if release == "0.30.0rc2" else QUICK
    chosen = scenarios(port(), subject.variant.name, names)
    assert len(chosen) >= len(QUICK)
    with _store(subject, subject.after, tmp_path / "after") as modules:
        assert _problems(modules, chosen) == {}


@pytest.mark.slow
@pytest.mark.parametrize("release", RELEASES)
def test_every_scenario_on_every_release(release: str, made: Made, tmp_path: Path) -> None:
    subject = made(release)
    with _store(subject, subject.after, tmp_path / "after") as modules:
        assert _problems(modules, scenarios(port(), subject.variant.name)) == {}


@pytest.mark.parametrize(
    ("release", "scenario", "said"),
    [
        pytest.param("0.24.0rc1", "2 to 4, 8 heads", "did not load|handed none", id="dead-024"),
        pytest.param("0.26.0rc1", "4 to 2, 8 heads", "handed none", id="dead-026"),
        pytest.param(
            "0.30.0rc2", "put fails for one block, 2 to 4", "did not store", id="events-of-failed"
        ),
        pytest.param("0.30.0rc2", "get breaks in the thread", "dead|not marked", id="thread-ends"),
        pytest.param(
            "0.30.0rc2", "V narrower than K, 2 to 4", "elements of V|other bytes", id="narrow-v"
        ),
    ],
)
def test_what_is_wrong_before(
    release: str, scenario: str, said: str, made: Made, tmp_path: Path
) -> None:
    import re

    subject = made(release)
    chosen = scenarios(port(), subject.variant.name, (scenario,))
    with _store(subject, subject.before, tmp_path / "before") as modules:
        found = " | ".join(_problems(modules, chosen)[scenario])
    assert re.search(said, found), found


EVIL = [
    pytest.param(
        "enumerate(send_thread.lookup(keys))",
        "enumerate(send_thread.lookup(keys) and send_thread.lookup(keys))",
        "2 to 4, 8 heads",
        "asked for more than once",
        id="asks-twice",
    ),
    pytest.param(
        "enumerate(send_thread.lookup(keys)) if not there]",
        "enumerate(send_thread.lookup(keys)) if not there][:-1]",
        "2 to 4, 8 heads",
        "missing keys were not put",
        id="drops-a-key",
    ),
    pytest.param(
        "(subs[:, None] * self._head_bytes",
        "(subs[::-1, None] * self._head_bytes",
        "2 to 4, 8 heads",
        "elements of K",
        id="swaps-heads",
    ),
    pytest.param(
        "self._invalid_block_ids.update(lost)",
        "lost.clear()",
        "get lacks one key, 2 to 4",
        "did not load and are not marked",
        id="forgets-a-missing-block",
    ),
    pytest.param(
        "enumerate(send_thread.lookup(keys)) if not there]",
        "enumerate(send_thread.lookup(keys))]",
        "save again, 4 to 2",
        "were put again",
        id="puts-present-keys-again",
    ),
    pytest.param(
        "if at is not None and (at not in touched or at in broken):",
        "if at is not None and at not in touched:",
        "put fails for one block, 4 to 2",
        "announced that it did not store",
        id="announces-what-failed",
    ),
    pytest.param(
        "if at is not None and (at not in touched or at in broken):",
        "if at in broken:",
        "some blocks present, 2 to 4",
        "announced that it did not store",
        id="announces-what-was-there",
    ),
    pytest.param(
        "maybe_convert_block_hash(hashes[before])",
        "maybe_convert_block_hash(hashes[0])",
        "events of a first save",
        "wrong parent",
        id="wrong-parent",
    ),
    pytest.param(
        "turn = self.tp_rank % len(parts[0])",
        "turn = 0",
        "2 to 4, 8 heads",
        "not turned by the rank",
        id="does-not-turn-the-keys",
    ),
    pytest.param(
        "if sub_keys == 1:\n            sizes",
        "if not sub_keys:\n            sizes",
        "4 to 2, 8 heads",
        "slices where",
        id="does-not-merge",
    ),
    pytest.param(
        "self._head_bytes = self._token_bytes // sub_keys",
        "self._head_bytes = self._token_bytes",
        "2 to 4, 8 heads",
        "outside of the caches|other bytes|elements of",
        id="reads-past-a-block",
    ),
    pytest.param(
        "send_thread.dec_stored_request(req_meta.req_id)",
        "req_meta.req_id",
        "2 to 4, 8 heads",
        "books still hold",
        id="keeps-the-request-in-the-books",
    ),
    pytest.param(
        "answer = None\n        codes",
        "raise\n        codes",
        "get breaks in the thread",
        "dead|not marked",
        id="lets-the-thread-end",
    ),
]


@pytest.mark.parametrize(("old", "new", "scenario", "said"), EVIL)
def test_evil_ports_are_caught(
    old: str, new: str, scenario: str, said: str, made: Made, tmp_path: Path
) -> None:
    import re

    subject = made("0.30.0rc2")
    text = subject.after[WORKER].decode()
    assert text.count(old) == 1
    files = {**subject.after, WORKER: text.replace(old, new).encode()}
    chosen = scenarios(port(), subject.variant.name, (scenario,))
    with _store(subject, files, tmp_path / "evil") as modules:
        found = " | ".join(_problems(modules, chosen).get(scenario, ["right"]))
    assert re.search(said, found), found


@pytest.mark.parametrize(
    ("new", "scenario", "said"),
    [
        ("worker = None", "2 to 4, loads by a thread", "handed none"),
        ("worker = self", "2 to 2, loads by a thread", "handed worker, not none"),
    ],
    ids=["never-wired", "always-wired"],
)
def test_wrong_wiring_is_caught(
    new: str, scenario: str, said: str, made: Made, tmp_path: Path
) -> None:
    subject = made("0.26.0rc1")
    text = subject.after[WORKER].decode()
    old = "worker = self if self.tp_mismatch else None"
    assert text.count(old) == 1
    files = {**subject.after, WORKER: text.replace(old, new).encode()}
    chosen = next(one for one in WIRING if one.name == scenario)
    with _store(subject, files, tmp_path / "evil") as modules:
        problems = wiring_problems(chosen, run_loaded(modules, chosen, 0))
    assert said in " | ".join(problems)


def test_the_wiring_check_is_red_where_no_worker_is_handed(made: Made) -> None:
    subject = made("0.26.0rc1")
    text = subject.after[WORKER].decode()
    old = "worker = self if self.tp_mismatch else None"
    assert text.count(old) == 1
    files = {**subject.after, WORKER: text.replace(old, "worker = None").encode()}
    assert store_wiring.run(subject).outcome is Outcome.PASSED
    result = store_wiring.run(replace(subject, after=files))
    assert result.outcome is Outcome.FAILED
    assert "handed none" in result.reason


def test_the_check_runs_both_trees_in_children(made: Made) -> None:
    names = ("2 to 4, 8 heads", "2 to 2")
    subject = replace(made("0.24.0rc1"), options=Options(cases=names))
    result = calls.run(subject)
    assert result.outcome is Outcome.PASSED, result.reason
    mismatch, same = result.cases
    assert "before" in mismatch.figures
    assert mismatch.figures["before"] != "right"
    assert same.figures["before"] == "right"
    assert mismatch.figures["put_keys_after"] == 4 * 4
    assert mismatch.figures["asked_at_most_after"] == 1


def test_a_port_that_raises_fails_and_does_not_stop_the_check(made: Made) -> None:
    subject = made("0.30.0rc2")
    text = subject.after[WORKER].decode()
    old = "class _TpMismatchSlices:"
    files = {**subject.after, WORKER: text.replace(old, f"raise OSError('no')\n{old}").encode()}
    evil = replace(subject, after=files, options=Options(cases=("2 to 4, 8 heads",)))
    result = calls.run(evil)
    assert result.outcome is Outcome.FAILED
    assert "OSError" in result.cases[0].reason
