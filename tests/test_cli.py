"""The command line as a user meets it: each command once, in a process or through the runner."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import ascendport
from ascendport.cli import app
from tests.conftest import ReleaseCopy

runner = CliRunner()


def run(*words: str | Path) -> Any:
    return runner.invoke(app, [str(word) for word in words])


def facts(*words: str | Path) -> dict[str, Any]:
    result = run(*words, "--json", "-")
    found: dict[str, Any] = json.loads(result.stdout)
    return found


@pytest.fixture
def tree(release_copy: ReleaseCopy, tmp_path: Path) -> Path:
    return release_copy("0.30.0rc2", tmp_path / "my träe")


def test_version() -> None:
    assert run("--version").stdout == f"ascendport {ascendport.__version__}\n"


def test_help_names_every_command() -> None:
    text = run("--help").stdout
    for command in ("list", "fetch", "status", "apply", "verify", "bench", "revert"):
        assert command in text


def test_list_shows_the_port_with_its_task_and_releases() -> None:
    port = next(p for p in facts("list")["ports"] if p["name"] == "grammar_bitmask")
    assert port["task"].endswith("/14160")
    assert port["variants"][0]["releases"][0] == "0.24.0rc1"


def test_status_apply_revert_round(tree: Path) -> None:
    def status() -> str:
        word: str = facts("status", tree)["ports"][0]["status"]
        return word

    assert status() == "applicable"
    applied = facts("apply", tree)
    assert [change["action"] for change in applied["changes"]] == ["modify"]
    assert status() == "applied"
    again = facts("apply", tree)
    assert again["ports"][0]["status"] == "already applied"
    assert again["changes"] == []
    assert facts("revert", tree)["ports"][0]["status"] == "reverted"
    assert status() == "applicable"


def test_dry_run_shows_the_diff_and_writes_nothing(tree: Path) -> None:
    result = run("apply", tree, "--dry-run")
    assert result.exit_code == 0
    assert "+++ b/vllm_ascend/ops/triton/v2/apply_grammar_bitmask.py" in result.stdout
    assert facts("status", tree)["ports"][0]["status"] == "applicable"
    assert "diff" in facts("apply", tree, "--dry-run")


def test_a_drifted_file_is_refused_with_status_1(tree: Path) -> None:
    file = tree / "vllm_ascend/ops/triton/v2/apply_grammar_bitmask.py"
    text = file.read_text()
    file.write_text(text.replace("remainder", "rest"))
    result = run("apply", tree)
    assert result.exit_code == 1
    assert "drifted" in result.stdout
    assert file.read_text() == text.replace("remainder", "rest")
    assert not (tree / ".ascendport").exists()


@pytest.mark.parametrize("command", ["status", "apply", "revert", "verify", "bench"])
def test_what_is_no_checkout_is_one_line_and_status_2(command: str, tmp_path: Path) -> None:
    result = run(command, tmp_path)
    assert result.exit_code == 2
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    assert str(tmp_path) in result.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        pytest.param(("--only", "grammar_bitmap"), "grammar_bitmask", id="port"),
        pytest.param(("--check", "oracel"), "oracle", id="check"),
        pytest.param(("--require", "everything"), "no such check", id="require"),
        pytest.param(("--soc", "Ascend910B9"), "Ascend910B", id="soc"),
    ],
)
def test_a_misspelt_name_offers_the_right_one(
    tree: Path, words: tuple[str, ...], said: str
) -> None:
    result = run("verify", tree, *words)
    assert result.exit_code == 2
    assert said in result.stderr
    assert result.stderr.count("\n") == 1


def test_errors_are_an_object_under_json(tmp_path: Path) -> None:
    result = run("status", tmp_path, "--json", "-")
    assert set(json.loads(result.stdout)["error"]) == {"what", "where", "next"}


def test_debug_shows_the_traceback(tmp_path: Path) -> None:
    assert run("status", tmp_path, "--debug").exception is not None


def test_a_required_check_that_does_not_run_is_status_3(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ascendport.ascend.toolchain.missing", lambda: "no compiler here")
    plain = run("verify", tree, "--check", "source", "--check", "compile")
    assert plain.exit_code == 0
    assert "not run" in plain.stdout
    assert "no compiler here" in plain.stdout
    needed = run("verify", tree, "--check", "source", "--check", "compile", "--require", "compile")
    assert needed.exit_code == 3
    alone = run("verify", tree, "--check", "compile")
    assert alone.exit_code == 3


def test_verify_gives_the_same_on_an_applied_tree(tree: Path) -> None:
    before = facts("verify", tree, "--check", "source")["ports"]
    run("apply", tree)
    assert facts("verify", tree, "--check", "source")["ports"] == before
    assert before[0]["checks"][0]["outcome"] == "passed"


def test_verify_of_a_drifted_tree_fails(tree: Path) -> None:
    file = tree / "vllm_ascend/ops/triton/v2/apply_grammar_bitmask.py"
    file.write_text(file.read_text().replace("remainder", "rest"))
    result = run("verify", tree, "--check", "source")
    assert result.exit_code == 1
    assert "drifted" in result.stdout


def test_junit_is_written(tree: Path, tmp_path: Path) -> None:
    file = tmp_path / "results.xml"
    assert run("verify", tree, "--check", "source", "--junit", file).exit_code == 0
    assert b"<testsuite " in file.read_bytes()


def test_bench_without_device_says_not_run(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ascendport.ascend.toolchain.missing", lambda: "no compiler here")
    result = run("bench", tree, "--device", "npu")
    assert result.exit_code == 3
    rows = facts("bench", tree, "--device", "npu")["rows"]
    assert {row["outcome"] for row in rows} == {"not_run"}
    assert {row["reason"].split(" (")[0] for row in rows} == {"no compiler here", "no Ascend NPU"}


def test_a_defect_is_one_line_too(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("inside")

    monkeypatch.setattr("ascendport.commands.status", broken)
    result = run("status", tree)
    assert result.exit_code == 2
    assert "a defect of ascendport (RuntimeError: inside)" in result.stderr
    assert result.stderr.count("\n") == 1


def test_static_commands_import_nothing_heavy(tree: Path) -> None:
    program = (
        "import sys; from typer.testing import CliRunner; from ascendport.cli import app\n"
        "for words in (['--help'], ['list'], ['status', sys.argv[1]], ['apply', sys.argv[1]],"
        " ['revert', sys.argv[1]]):\n"
        "    assert CliRunner().invoke(app, words).exit_code == 0, words\n"
        "heavy = {'torch', 'triton', 'vllm', 'numpy', 'unearth', 'xdsl'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", program, str(tree)], check=True)


def test_from_inside_the_tree_and_piped(tree: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "ascendport", "status"],
        cwd=tree / "vllm_ascend" / "ops",
        env={**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONPATH": str(Path.cwd())},
        capture_output=True,
        check=True,
    )
    assert b"applicable" in done.stdout
    assert b"Traceback" not in done.stderr
