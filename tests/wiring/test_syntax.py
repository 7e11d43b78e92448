from __future__ import annotations

import ast

import pytest

from ascendport.wiring.syntax import dotted, exception_names, last_part, outermost_names, short


def expression(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


@pytest.mark.parametrize(
    ("text", "whole", "last"),
    [("a", "a", "a"), ("a.b.c", "a.b.c", "c"), ("f().b", "?.b", "b"), ("f()", "?", "?")],
)
def test_dotted(text: str, whole: str, last: str) -> None:
    assert dotted(expression(text)) == whole
    assert last_part(expression(text)) == last


def test_outermost_names_are_the_longest() -> None:
    found = outermost_names(expression("a.b.c(d, e.f + g().h)"))
    assert sorted(ast.unparse(node) for node in found) == ["a.b.c", "d", "e.f", "g"]


@pytest.mark.parametrize("length", [58, 59, 60, 61, 90])
def test_short_has_at_most_60_characters(length: int) -> None:
    text = short(expression("x" * length))
    assert len(text) == min(length, 60)
    assert text.endswith("...") == (length > 60)


@pytest.mark.parametrize(
    ("clause", "names"),
    [
        ("except", {"BaseException"}),
        ("except KeyError", {"KeyError"}),
        ("except (a.KeyError, OSError)", {"KeyError", "OSError"}),
    ],
)
def test_exception_names(clause: str, names: set[str]) -> None:
    statement = ast.parse(f"try: pass\n{clause}: pass").body[0]
    assert isinstance(statement, ast.Try)
    assert exception_names(statement.handlers[0]) == names
