from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ascendport.checks.subject import Subject
from ascendport.cli import app
from ascendport.errors import UserError
from ascendport.harness.workspace import Tree
from ascendport.store import bench, bench_child, mooncake
from ascendport.store.bench import MEMORY, Plan, plan, rows
from ascendport.store.bench_child import Setup, clear, prepare, round_of
from ascendport.store.memory import MemoryStore
from ascendport.store.scenario import Shape
from tests.conftest import ReleaseTree


def test_what_the_user_asks_for() -> None:
    chosen = plan(["2:4", "8:2"], [8, 64], 4, "memory", 2, sweep=True)
    assert chosen.sizes == ((2, 4), (8, 2))
    assert (chosen.blocks, chosen.layers, chosen.backend) == ((8, 64), 4, "memory")
    assert plan([], [], 32, "", 1, sweep=False) == Plan()


@pytest.mark.parametrize(
    ("sizes", "blocks", "layers", "backend", "ranks", "said"),
    [
        (["2-4"], [], 32, "", 1, "not a pair"),
        (["2:2"], [], 32, "", 1, "no TP mismatch"),
        (["3:2"], [], 32, "", 1, "no TP mismatch"),
        (["0:2"], [], 32, "", 1, "no TP mismatch"),
        ([], [0], 32, "", 1, "--blocks"),
        ([], [], 0, "", 1, "--layers"),
        ([], [], 32, "redis", 1, "mooncake, memory"),
        (["8:2"], [], 32, "", 3, "at most 2"),
    ],
)
def test_choices_that_cannot_be(
    sizes: list[str], blocks: list[int], layers: int, backend: str, ranks: int, said: str
) -> None:
    with pytest.raises(UserError, match=said):
        plan(sizes, blocks, layers, backend, ranks, sweep=False)


@pytest.mark.network
def test_without_mooncake_a_row_says_so(
    made: Callable[[str], Subject], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mooncake, "missing", lambda: "needs mooncake")
    found = list(rows(made("0.30.0rc2"), Plan(backend="mooncake")))
    assert [(row.outcome, row.reason) for row in found] == [("not_run", "needs mooncake")]


@pytest.mark.network
def test_on_the_store_in_memory(
    made: Callable[[str], Subject], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench, "SWEEP_TOKENS", (64,))
    monkeypatch.setattr(bench, "WEIGHED_TOKENS", 48)
    small = Plan(
        sizes=((2, 4),),
        blocks=(3,),
        layers=2,
        head_dim=8,
        block_size=16,
        rounds=2,
        backend="memory",
        sweep=True,
    )
    found = list(rows(made("0.24.0rc1"), small))
    assert {row.outcome for row in found} == {"ran"}, [row.reason for row in found]
    assert {row.target for row in found} == {"memory", "addresses only"}
    figures = {(row.case, row.quantity): (row.before, row.after) for row in found}
    assert figures["first save, 2 to 4, 3 blocks", "put slices"] == (6 * 4 * 16, 6 * 4 * 16)
    assert figures["load, 2 to 4, 3 blocks", "get slices"] == (3 * 4 * 16, 3 * 4)
    assert figures["load, 2 to 4, 64 tokens", "get slices"] == (4 * 4 * 16, 4 * 4)
    assert ("save again, 2 to 4, 3 blocks", "put calls") not in figures
    weighed = {case: figure for (case, quantity), figure in figures.items() if quantity == MEMORY}
    assert len(weighed) == 4, "the longer prompt is not weighed"
    # A list of integers takes 40 bytes an address, of which a load has 192 before, 12 after.
    was, now = weighed["load, 2 to 4, 3 blocks"]
    assert was is not None and now is not None
    assert was * 1024 > 40 * 192
    assert now < was / 2


@pytest.mark.network
def test_a_round_leaves_the_keys_to_ranks_that_are_still_at_work(
    made: Callable[[str], Subject], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench_child, "_state", None)
    shape = Shape(layers=1, heads=8, block_size=4, blocks=3)
    tree = Tree(made("0.30.0rc2").checkout.root)
    prepare(tree, "", Setup("before", 0, 2, 4, shape, 2, None, 0, False, 60.0))
    state = bench_child._state
    assert state is not None
    with state.stack:
        assert isinstance(state.store, MemoryStore)
        assert {sample.problem for sample in round_of(0).values()} == {""}
        assert state.store.objects
        clear()
        assert not state.store.objects


@pytest.mark.network
def test_a_side_that_cannot_be_timed_is_not_run(
    made: Callable[[str], Subject], tmp_path: Path
) -> None:
    from dataclasses import replace

    from ascendport.store.loading import FOLDER

    subject = made("0.30.0rc2")
    file = f"{FOLDER}/pool_worker.py"
    text = subject.after[file].replace(
        b"answer = self._get_tp_mismatch(keys, addrs, sizes)", b"answer = None"
    )
    assert text != subject.after[file]
    evil = replace(subject, after={**subject.after, file: text})
    small = Plan(
        sizes=((2, 4),), blocks=(2,), layers=1, head_dim=2, block_size=4, rounds=1, backend="memory"
    )
    found = {
        row.case.partition(",")[0]: row for row in rows(evil, small) if row.quantity == "total"
    }
    assert found["first save"].outcome == "ran"
    assert (found["load"].outcome, found["load"].reason) == (
        "not_run",
        "after: 2 blocks did not load",
    )


@pytest.mark.network
def test_the_command(release_tree: ReleaseTree, tmp_path: Path) -> None:
    out = tmp_path / "rows.json"
    command = ["bench", str(release_tree("0.30.0rc2")), "--tp-mismatch", "--backend", "memory"]
    command += ["--tp", "4:2", "--layers", "1", "--blocks", "1", "--json", str(out)]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    found = json.loads(out.read_text())["rows"]
    assert {row["port"] for row in found} == {"tp_mismatch"}
    total = next(row for row in found if row["quantity"] == "total")
    assert total["source"] == "measured"
    assert total["unit"] == "ms"
    assert 0 < total["ratio_low"] <= total["ratio"] <= total["ratio_high"]


@pytest.mark.network
@pytest.mark.parametrize("name", ["failure_fixes", "bincount"])
def test_a_port_that_is_named_and_cannot_be_timed_says_so(
    name: str, release_tree: ReleaseTree, tmp_path: Path
) -> None:
    found = tmp_path / "found.json"
    words = ["bench", str(release_tree("0.30.0rc2")), "--tp-mismatch", "--only", name]
    result = CliRunner().invoke(app, [*words, "--json", str(found)])
    assert result.exit_code == 3, result.output
    (row,) = json.loads(found.read_text())["rows"]
    assert (row["outcome"], row["reason"]) == ("not_run", "a port without saves and loads to time")


@pytest.mark.network
def test_the_command_without_mooncake(
    release_tree: ReleaseTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mooncake, "missing", lambda: "needs mooncake")
    monkeypatch.setenv("COLUMNS", "200")
    command = ["bench", str(release_tree("0.30.0rc2")), "--tp-mismatch", "--backend", "mooncake"]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 3
    assert "needs mooncake" in done.output
