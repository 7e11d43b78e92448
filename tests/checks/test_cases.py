"""Names of cases, over several ports."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ascendport.checks.cases import default, of_ports
from ascendport.errors import UserError
from ascendport.harness.case import Case
from ascendport.harness.portcode import load_port
from ascendport.ports.catalogue import catalogue, select
from ascendport.ports.manifest import Port
from tests.evil import texts
from tests.evil.build import port

MakePort = Callable[[str, str], Port]


@pytest.fixture
def make(tmp_path: Path) -> MakePort:
    """A port of that name, whose cases have that word in front."""

    def made(name: str, word: str) -> Port:
        cases = texts.CASES.replace('Case("', f'Case("{word}')
        built = port(tmp_path / name, texts.RIGHT, cases=cases)
        manifest = built.manifest.model_copy(update={"name": name})
        return built.model_copy(update={"manifest": manifest})

    return made


def test_each_port_gets_the_names_that_it_has(make: MakePort) -> None:
    ports = [make("one", ""), make("two", "other-")]
    found = of_ports(ports, ("rows-3", "other-rows-5", "rows-3"))
    assert found == {"one": ("rows-3",), "two": ("other-rows-5",)}


def test_a_name_that_no_port_has_is_refused_with_near_ones(make: MakePort) -> None:
    ports = [make("one", ""), make("two", "other-")]
    with pytest.raises(UserError, match="no such case") as caught:
        of_ports(ports, ("rows-3", "row-5"))
    assert caught.value.where == "row-5"
    assert "rows-5" in caught.value.next


def test_with_none_near_all_are_listed(make: MakePort) -> None:
    with pytest.raises(UserError) as caught:
        of_ports([make("one", "")], ("zzz",))
    assert caught.value.next == "one has rows-3, rows-5, no-rows, rows-60"


def test_of_many_cases_the_first_are_listed() -> None:
    with pytest.raises(UserError) as caught:
        of_ports(catalogue(), ["@@@"])
    assert "grammar_bitmask has vocab-1000, " in str(caught.value.next)
    (one,) = select(catalogue(), ["grammar_bitmask"])
    count = len(load_port(one).cases)
    assert f" and {count - 6} more" in str(caught.value.next)
    assert len(str(caught.value.next)) < 1000


def test_store_ports_have_no_cases() -> None:
    with pytest.raises(UserError, match="no port has cases"):
        of_ports([], ("x",))


@pytest.mark.parametrize(
    ("tags", "chosen"),
    [
        pytest.param(["", "compile", "grid", "bench", "bench"], 3, id="timed"),
        pytest.param(["grid", "compile"], 1, id="compiled"),
        pytest.param(["", "grid"], 0, id="first"),
    ],
)
def test_the_case_that_shows_most(tags: list[str], chosen: int) -> None:
    cases = [Case(str(n), {}, frozenset({tag} - {""})) for n, tag in enumerate(tags)]
    assert default(cases) == cases[chosen]


def test_no_cases_no_default() -> None:
    assert default(()) is None
