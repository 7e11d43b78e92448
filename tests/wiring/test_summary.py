from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ascendport.wiring.summary import absolute, line_of, module_name, names_in, pack


@given(st.dictionaries(st.from_regex(r"[a-z_.|]{1,8}", fullmatch=True), st.integers(1, 10**6)))
def test_packed_names_give_their_lines_back(lines: dict[str, int]) -> None:
    packed = pack(lines)
    assert {name: line_of(packed, name) for name in lines} == lines
    assert list(names_in(packed)) == list(lines)
    assert line_of(packed, "zz:no") is None


@pytest.mark.parametrize(
    ("package", "target", "level", "expected"),
    [
        (False, "x", 0, "x"),
        (False, "x", 1, "a.x"),
        (True, "x", 1, "a.b.x"),
        (False, None, 1, "a"),
        (True, "x", 2, "a.x"),
        (False, "x", 9, "x"),
    ],
    ids=str,
)
def test_relative_imports(package: bool, target: str | None, level: int, expected: str) -> None:
    assert absolute("a.b", package, target, level) == expected


def test_module_names() -> None:
    assert module_name("vllm/a/__init__.py") == ("vllm.a", True)
    assert module_name("vllm/a/b.py") == ("vllm.a.b", False)
