import io
import json
from pathlib import Path

import pytest
from rich.console import Console
from rich.text import Text

from ascendport.errors import UserError
from ascendport.report.sink import Sink


def test_a_result_goes_to_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    Sink().result({"a": 1}, [Text("shown")])
    out, err = capsys.readouterr()
    assert "shown" in out
    assert err == ""


def test_json_to_stdout_is_alone_there(capsys: pytest.CaptureFixture[str]) -> None:
    Sink("-").result({"ü": 1}, [Text("shown")])
    out, _ = capsys.readouterr()
    assert json.loads(out) == {"ü": 1}


def test_json_to_a_file_beside_the_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "facts of ü.json"
    Sink(str(file)).result({"a": [1]}, [Text("shown")])
    assert json.loads(file.read_text("utf-8")) == {"a": [1]}
    assert "shown" in capsys.readouterr().out


def test_json_that_cannot_be_written_names_the_file(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot write the JSON") as caught:
        Sink(str(tmp_path / "no" / "file")).result({}, [])
    assert "no/file" in str(caught.value)


def test_an_error_is_one_line_and_an_object(capsys: pytest.CaptureFixture[str]) -> None:
    problem = UserError("what happened [x]", where="/a/place", next="do this")
    Sink("-").error(problem)
    out, err = capsys.readouterr()
    assert json.loads(out) == {
        "error": {"what": "what happened [x]", "where": "/a/place", "next": "do this"}
    }
    assert err == "error: what happened [x]: /a/place; do this\n"


def test_a_long_error_stays_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    Sink().error(UserError("long " * 100, where="/a"))
    assert capsys.readouterr().err.count("\n") == 1


def test_nan_is_refused_rather_than_written_as_no_json() -> None:
    with pytest.raises(ValueError, match="Out of range"):
        Sink("-").result({"a": float("nan")}, [])


def test_a_table_in_a_pipe_is_not_cut(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    Sink().result({}, [Text("x" * 200)])
    assert "x" * 200 in capsys.readouterr().out


def test_a_table_in_a_pipe_is_as_wide_as_columns_says(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "50")
    Sink().result({}, [Text("x" * 60)])
    assert capsys.readouterr().out.startswith("x" * 50 + "\n")


def test_terminal_is_asked_of_stderr() -> None:
    sink = Sink()
    sink.errors = Console(file=io.StringIO(), force_terminal=True)
    assert sink.terminal
