"""The command line as a user meets it: each command once, in a process or through the runner."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import ascendport
from ascendport.cli import app
from tests.conftest import ReleaseCopy
from tests.evil import texts
from tests.evil.build import port
from tests.timing.test_explain import check_format

runner = CliRunner()
ONE = ("--only", "grammar_bitmask")


def run(*words: str | Path) -> Any:
    return runner.invoke(app, [str(word) for word in words])


def facts(*words: str | Path) -> dict[str, Any]:
    result = run(*words, "--json", "-")
    found: dict[str, Any] = json.loads(result.stdout)
    return found


@pytest.fixture
def other_port(tmp_path: Path) -> Path:
    """A port with other cases, and no target in any release."""
    port(tmp_path / "ports" / "scale", texts.RIGHT)
    return tmp_path / "ports"


@pytest.fixture
def tree(release_copy: ReleaseCopy, tmp_path: Path) -> Path:
    return release_copy("0.30.0rc2", tmp_path / "my träe")


def test_version() -> None:
    assert run("--version").stdout == f"ascendport {ascendport.__version__}\n"


def test_help_names_every_command() -> None:
    text = run("--help").stdout
    for command in ("list", "fetch", "status", "apply", "verify", "bench", "revert", "simulate"):
        assert command in text


def test_list_shows_the_port_with_its_task_and_releases() -> None:
    port = next(p for p in facts("list")["ports"] if p["name"] == "grammar_bitmask")
    assert port["task"].endswith("/14160")
    assert port["variants"][0]["releases"][0] == "0.24.0rc1"


def test_status_apply_revert_round(tree: Path) -> None:
    def status() -> str:
        word: str = facts("status", tree, *ONE)["ports"][0]["status"]
        return word

    assert status() == "applicable"
    applied = facts("apply", tree, *ONE)
    assert [change["action"] for change in applied["changes"]] == ["modify"]
    assert status() == "applied"
    again = facts("apply", tree, *ONE)
    assert again["ports"][0]["status"] == "already applied"
    assert again["changes"] == []
    assert facts("revert", tree)["ports"][0]["status"] == "reverted"
    assert status() == "applicable"


def test_dry_run_shows_the_diff_and_writes_nothing(tree: Path) -> None:
    result = run("apply", tree, *ONE, "--dry-run")
    assert result.exit_code == 0
    assert "+++ b/vllm_ascend/ops/triton/v2/apply_grammar_bitmask.py" in result.stdout
    assert facts("status", tree, *ONE)["ports"][0]["status"] == "applicable"
    assert "diff" in facts("apply", tree, *ONE, "--dry-run")


def test_a_drifted_file_is_refused_with_status_1(tree: Path) -> None:
    file = tree / "vllm_ascend/ops/triton/v2/apply_grammar_bitmask.py"
    text = file.read_text()
    file.write_text(text.replace("remainder", "rest"))
    result = run("apply", tree, *ONE)
    assert result.exit_code == 1
    assert "drifted" in result.stdout
    assert file.read_text() == text.replace("remainder", "rest")
    assert not (tree / ".ascendport").exists()


@pytest.mark.parametrize(
    "words",
    [
        ("status",),
        ("apply",),
        ("revert",),
        ("verify",),
        ("bench",),
        ("simulate", "grammar_bitmask", "--checkout"),
    ],
    ids=lambda words: words[0],
)
def test_what_is_no_checkout_is_one_line_and_status_2(
    words: tuple[str, ...], tmp_path: Path
) -> None:
    result = run(*words, tmp_path)
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
        pytest.param(("--case", "64-row-bf16"), "64-rows-bf16", id="case"),
        pytest.param(
            ("--check", "source", "--case", "64-row-bf16"), "64-rows-bf16", id="case-of-no-use"
        ),
    ],
)
def test_a_misspelt_name_offers_the_right_one(
    tree: Path, words: tuple[str, ...], said: str
) -> None:
    result = run("verify", tree, *words)
    assert result.exit_code == 2
    assert said in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        pytest.param(("--only", "grammar_bitmap"), "grammar_bitmask", id="port"),
        pytest.param(("--soc", "Ascend910B9"), "Ascend910B", id="soc"),
        pytest.param(("--case", "64-row-bf16"), "64-rows-bf16", id="case"),
        pytest.param(("--device", "tpu"), "npu", id="device"),
    ],
)
def test_bench_offers_the_right_name(tree: Path, words: tuple[str, ...], said: str) -> None:
    result = run("bench", tree, *words)
    assert result.exit_code == 2
    assert said in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_case_of_one_port_leaves_the_others_out(tree: Path, other_port: Path) -> None:
    words = ("--ports", other_port, "--case", "rows-3", "--only", "grammar_bitmask")
    found = facts("verify", tree, "--check", "source", *words, "--only", "scale")
    checks = {one["name"]: one["checks"][0] for one in found["ports"]}
    assert checks["grammar_bitmask"]["outcome"] == "not_run"
    assert "no case of it is named rows-3" in checks["grammar_bitmask"]["reason"]
    assert "missing" in checks["scale"]["reason"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        pytest.param(("verify", "--json"), "cannot write the JSON", id="json"),
        pytest.param(("verify", "--junit"), "cannot write the JUnit file", id="junit"),
        pytest.param(
            ("simulate", "grammar_bitmask", "--trace"), "cannot write the trace", id="trace"
        ),
    ],
)
def test_a_file_that_cannot_be_written_is_said_before_the_work(
    words: tuple[str, ...], said: str, tmp_path: Path
) -> None:
    # There is no checkout either: what is said first is the file.
    result = run(*words, tmp_path / "no" / "file")
    assert result.exit_code == 2
    assert said in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_part_that_is_named_twice_is_one() -> None:
    from ascendport.commands import options

    assert options(("A2", "ascend910b3", "A3"), (), 0, False).socs == (
        "Ascend910B3",
        "Ascend910_9391",
    )


def test_errors_are_an_object_under_json(tmp_path: Path) -> None:
    result = run("status", tmp_path, "--json", "-")
    assert set(json.loads(result.stdout)["error"]) == {"what", "where", "next"}


def test_debug_shows_the_traceback(tmp_path: Path) -> None:
    assert run("status", tmp_path, "--debug").exception is not None


def test_a_required_check_that_does_not_run_is_status_3(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ascendport.ascend.toolchain.missing", lambda: "no compiler here")
    plain = run("verify", tree, *ONE, "--check", "source", "--check", "compile")
    assert plain.exit_code == 0
    assert "not run" in plain.stdout
    assert "no compiler here" in plain.stdout
    needed = run(
        "verify", tree, *ONE, "--check", "source", "--check", "compile", "--require", "compile"
    )
    assert needed.exit_code == 3
    alone = run("verify", tree, *ONE, "--check", "compile")
    assert alone.exit_code == 3


def test_verify_gives_the_same_on_an_applied_tree(tree: Path) -> None:
    before = facts("verify", tree, "--check", "source", *ONE)["ports"]
    run("apply", tree, *ONE)
    assert facts("verify", tree, "--check", "source", *ONE)["ports"] == before
    assert before[0]["checks"][0]["outcome"] == "passed"


def test_verify_of_a_drifted_tree_fails(tree: Path) -> None:
    file = tree / "vllm_ascend/ops/triton/v2/apply_grammar_bitmask.py"
    file.write_text(file.read_text().replace("remainder", "rest"))
    result = run("verify", tree, *ONE, "--check", "source")
    assert result.exit_code == 1
    assert "drifted" in result.stdout


def test_junit_is_written(tree: Path, tmp_path: Path) -> None:
    file = tmp_path / "results.xml"
    assert run("verify", tree, "--check", "source", "--junit", file, *ONE).exit_code == 0
    assert b"<testsuite " in file.read_bytes()


def test_bench_without_device_says_not_run(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ascendport.ascend.toolchain.missing", lambda: "no compiler here")
    result = run("bench", tree, *ONE, "--device", "npu")
    assert result.exit_code == 3
    rows = facts("bench", tree, *ONE, "--device", "npu")["rows"]
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


# --- simulate ----------------------------------------------------------------------------------


def simulate(tree: Path, *words: str | Path) -> Any:
    return run("simulate", "grammar_bitmask", "--checkout", tree, *words)


@pytest.mark.parametrize(
    ("words", "said", "code"),
    [
        pytest.param(("--case", "1-row-bf61"), "1-row-bf16", 2, id="case"),
        pytest.param(("--soc", "A5"), "A5 programs are compiled, not simulated", 2, id="a5"),
        pytest.param(("--soc", "Ascend910B9"), "near matches", 2, id="soc"),
    ],
)
def test_simulate_refuses_what_it_cannot_do(
    tree: Path, words: tuple[str, ...], said: str, code: int
) -> None:
    result = simulate(tree, *words)
    assert result.exit_code == code
    assert said in result.stderr
    assert result.stderr.count("\n") == 1


def test_simulate_needs_a_port_that_there_is(tree: Path) -> None:
    result = run("simulate", "grammar_bitmap", "--checkout", tree)
    assert (result.exit_code, "grammar_bitmask" in result.stderr) == (2, True)


def test_simulate_of_a_store_port_names_the_kernels(tree: Path, tmp_path: Path) -> None:
    made = port(tmp_path / "ports" / "scale", texts.RIGHT)
    manifest = made.folder / "port.toml"
    manifest.write_text(manifest.read_text().replace('kind = "kernel"', 'kind = "store"'))
    result = run("simulate", "scale", "--checkout", tree, "--ports", made.folder)
    assert result.exit_code == 2
    assert "a store port has no kernel" in result.stderr
    assert "grammar_bitmask" in result.stderr
    benched = facts("bench", tree, "--only", "scale", "--ports", made.folder)
    assert [row["reason"] for row in benched["rows"]] == ["a store port has no kernel to time"]


def test_simulate_of_a_case_of_another_variant_names_those_of_this_one(
    release_copy: ReleaseCopy, tmp_path: Path
) -> None:
    old = release_copy("0.26.0rc1", tmp_path / "old")
    result = simulate(old, "--case", "positions-1-to-5")
    assert result.exit_code == 2
    assert "case positions-1-to-5 is not for variant" in result.stderr
    assert "64-rows-bf16" in result.stderr


def test_simulate_of_a_port_that_does_not_fit(tree: Path, other_port: Path) -> None:
    absent = run("simulate", "scale", "--checkout", tree, "--ports", other_port)
    assert (absent.exit_code, "missing" in absent.stderr) == (3, True)
    file = tree / "vllm_ascend/ops/triton/v2/apply_grammar_bitmask.py"
    file.write_text(file.read_text().replace("remainder", "rest"))
    drifted = simulate(tree)
    assert (drifted.exit_code, "drifted" in drifted.stderr) == (1, True)


def test_simulate_without_the_toolchain_is_status_3(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ascendport.ascend.toolchain.missing", lambda: "no compiler; get one")
    result = simulate(tree)
    assert result.exit_code == 3
    assert result.stderr == "error: nothing can be compiled here; no compiler; get one\n"


def test_simulate_of_a_port_without_cases(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ascendport.ports.catalogue import catalogue

    own = next(one for one in catalogue() if one.name == "grammar_bitmask")
    copy = tmp_path / "ports" / "grammar_bitmask"
    shutil.copytree(own.folder, copy)
    (copy / "cases.py").write_text((copy / "cases.py").read_text() + "\nCASES = ()\n")
    monkeypatch.setattr("ascendport.ports.catalogue._own", lambda: iter(()))
    result = run("simulate", "grammar_bitmask", "--checkout", tree, "--ports", copy)
    assert result.exit_code == 3
    assert "no case is for variant packed" in result.stderr


@pytest.mark.ascend
def test_simulate_shows_both_sides_and_writes_a_trace(tree: Path, tmp_path: Path) -> None:
    trace, json_to = tmp_path / "träce.json", tmp_path / "facts.json"
    words = ("--case", "vocab-1000", "--trace", trace, "--json", json_to)
    after = simulate(tree, *words)
    assert after.exit_code == 0, after.stderr
    found = json.loads(json_to.read_text())
    assert (found["outcome"], found["findings"], found["side"]) == ("passed", 0, "after")
    assert found["latency"]["source"] == "modelled"
    assert found["other"]["findings"] > 0
    assert found["trace"] == str(trace)
    check_format(json.loads(trace.read_text()))
    before = simulate(tree, "--before", *words)
    # Upstream's kernel leaves its rows.
    assert before.exit_code == 1
    found = json.loads(json_to.read_text())
    assert (found["outcome"], found["side"]) == ("failed", "before")
    assert "out-of-bounds write" in before.stdout
    assert "vllm_ascend/ops/triton/v2/apply_grammar_bitmask.py" in {
        line["place"]["file"] for line in found["launches"][0]["hot_lines"] if line["place"]
    }
