from __future__ import annotations

import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ascendport.wiring.interpreter.versions import compare_versions, same_version

NUMBERS = st.lists(st.integers(0, 20), min_size=3, max_size=3)


def operator(text: str) -> ast.cmpop:
    node = ast.parse(f"a {text} b", mode="eval").body
    assert isinstance(node, ast.Compare)
    return node.ops[0]


@pytest.mark.parametrize("text", ["==", "!=", "<", "<=", ">", ">="])
@given(one=NUMBERS, other=NUMBERS)
def test_versions_compare_by_their_numbers(text: str, one: list[int], other: list[int]) -> None:
    left, right = (".".join(map(str, numbers)) for numbers in (one, other))
    expected = eval(f"{one} {text} {other}")
    assert compare_versions(left, operator(text), right) is expected


@pytest.mark.parametrize(
    ("left", "text", "right"), [("1.0", "in", "1.0"), ("main", "<", "1.0"), ("1.0", "==", "")]
)
def test_what_cannot_be_compared(left: str, text: str, right: str) -> None:
    assert compare_versions(left, operator(text), right) is None


@pytest.mark.parametrize(
    ("text", "same"), [("1.2", True), ("1.2.0", True), ("1.2.0rc1", False), ("main", False)]
)
def test_same_version(text: str, same: bool) -> None:
    assert same_version(text, "1.2.0") is same
