from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ascendport.ascend.bishengir import Program
from ascendport.ascend.program import read
from ascendport.ascend.soc import DEFAULTS, Family, Soc, soc, table
from ascendport.errors import UserError


def test_defaults_are_one_of_each_family() -> None:
    assert [soc(name).family for name in DEFAULTS] == list(Family)


@pytest.mark.parametrize("family", list(Family))
def test_family_name_stands_for_its_default(family: Family) -> None:
    assert soc(family.value) in [soc(name) for name in DEFAULTS]
    assert soc(family.value.lower()).family is family


@given(st.sampled_from(sorted(table())), st.booleans())
def test_any_case_finds_the_part(name: str, upper: bool) -> None:
    assert soc(name.upper() if upper else name.lower()).name == name


@pytest.mark.parametrize(
    "name",
    ["Ascend910B1", "Ascend910B2", "Ascend910B2C", "Ascend910B3", "Ascend910B4", "Ascend910B4-1"]
    + [f"Ascend910_{number}" for number in (9362, 9372, 9381, 9382, 9391, 9392)]
    + ["Ascend950PR_9589", "Ascend910_9589"],
)
def test_known(name: str) -> None:
    part = soc(name)
    assert part.name == name
    assert part.target == f"--target={name}"
    assert part.compiler.endswith("-a5") == (part.family is Family.A5)
    assert part.source


def test_310p_is_refused_with_the_reason() -> None:
    with pytest.raises(UserError, match="never installed for 310P"):
        soc("Ascend310P3")


def test_unknown_names_near_matches() -> None:
    with pytest.raises(UserError, match="Ascend910B3") as caught:
        soc("Ascend910B33")
    assert caught.value.where == "Ascend910B33"


def test_unlike_anything_names_the_defaults() -> None:
    with pytest.raises(UserError, match=DEFAULTS[0]):
        soc("?")


def _assert_module_agrees(part: Soc, made: Program) -> None:
    facts = read(made.text)
    assert facts.vector_cores == part.vector_cores
    assert facts.ub_capacity_bytes == part.ub_bytes


QUICK = [*DEFAULTS, "Ascend910B1", "Ascend910B4-1", "Ascend910_9362", "Ascend950DT_950x"]


@pytest.mark.ascend
@pytest.mark.parametrize("name", QUICK)
def test_constants_are_those_of_the_module(name: str, program: Callable[..., Program]) -> None:
    _assert_module_agrees(soc(name), program("add_one", name))


@pytest.mark.ascend
@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(table()) - set(QUICK)))
def test_constants_of_every_other_part(name: str, program: Callable[..., Program]) -> None:
    _assert_module_agrees(soc(name), program("add_one", name))


@pytest.mark.ascend
def test_table_holds_every_part_that_a_compiler_offers(kernels: Any) -> None:
    import subprocess

    from ascendport.ascend.toolchain import binary

    offered: set[str] = set()
    for compiler in ("bishengir-compile", "bishengir-compile-a5"):
        said = subprocess.run(
            [binary(compiler), "--help"], capture_output=True, text=True, check=True
        )
        offered |= set(re.findall(r"=(Ascend9\S+)", said.stdout))
    assert offered == set(table())
