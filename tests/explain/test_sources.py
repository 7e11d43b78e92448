"""Places of a program, told as lines of the tree."""

from __future__ import annotations

from pathlib import Path

import pytest

from ascendport.explain.model import Place
from ascendport.explain.sources import Sources
from ascendport.simulator import Location

FILE = "vllm_ascend/ops/own.py"
TEXT = """\
def kernel(x):
    first = x   +  1
    store(
        x,
        first,
    )
    for i in range(
        3
    ):
        first = twice(first)
"""
GONE = "/tmp/made-up-and-gone/after/" + FILE


@pytest.fixture
def sources(tmp_path: Path) -> Sources:
    for name in ("vllm_ascend/ops/other.py", "triton/language.py", ".venv/lib/helper.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"# line 1 of {name}\n")
    return Sources(tmp_path, {FILE: TEXT.encode()})


def test_a_file_of_the_port_is_read_from_memory(sources: Sources) -> None:
    assert sources.place(Location(GONE, 2, 4)) == Place(FILE, 2, "first = x + 1")


def test_another_file_of_the_tree_is_read_from_the_checkout(
    sources: Sources, tmp_path: Path
) -> None:
    place = sources.place(Location(str(tmp_path / "vllm_ascend/ops/other.py"), 1))
    assert place == Place("vllm_ascend/ops/other.py", 1, "# line 1 of vllm_ascend/ops/other.py")


def test_a_line_that_continues_a_statement_has_its_start_in_front(sources: Sources) -> None:
    place = sources.place(Location(GONE, 5))
    assert place is not None
    assert place.text == "store( … first,"


def test_a_line_in_a_loops_body_does_not_continue_the_loop(sources: Sources) -> None:
    place = sources.place(Location(GONE, 10))
    assert place is not None
    assert place.text == "first = twice(first)"


@pytest.mark.parametrize("library", ["triton/language.py", ".venv/lib/helper.py"])
def test_a_library_line_is_told_as_the_line_that_calls_it(
    sources: Sources, tmp_path: Path, library: str
) -> None:
    # Also one that lies in the checkout's folder: beside an installed tree, or in an environment.
    deep = Location(
        str(tmp_path / library),
        1,
        within=Location("/else/where/inner.py", 7, within=Location(GONE, 2)),
    )
    assert sources.place(deep) == Place(FILE, 2, "first = x + 1")


def test_a_helper_of_the_tree_is_told_itself(sources: Sources) -> None:
    inlined = Location(GONE, 2, within=Location(GONE, 10))
    place = sources.place(inlined)
    assert place is not None
    assert place.line == 2


def test_a_library_line_without_a_caller_in_the_tree_is_told_itself(sources: Sources) -> None:
    place = sources.place(Location("/v/lib/site-packages/triton/standard.py", 175))
    assert place == Place("triton/standard.py", 175, "")


@pytest.mark.parametrize("number", [0, 11, 999])
def test_a_line_that_the_file_does_not_have(sources: Sources, number: int) -> None:
    assert sources.place(Location(GONE, number)) == Place(FILE, number, "")


def test_no_location_is_no_place(sources: Sources) -> None:
    assert sources.place(None) is None


def test_a_file_that_is_not_python_still_has_lines(tmp_path: Path) -> None:
    sources = Sources(tmp_path, {FILE: b"def (:\n  two\n"})
    assert sources.place(Location(GONE, 2)) == Place(FILE, 2, "two")
