"""Free names, and what a module binds."""

from __future__ import annotations

import ast

import pytest

from ascendport.patching.names import Import, bindings, needed, statement_text


@pytest.mark.parametrize(
    ("snippet", "expected"),
    [
        ("f = free", "free"),
        ("import a\nf = a.b", "a"),
        ("import a.b as c\nf = c", "c"),
        ("import a\nf = 1", ""),
        ("f = len(print)", ""),
        ("from a import len\nf = len", "len"),
        ("def f(x, *y, z=1, **w): return x, y, z, w, f", ""),
        ("def f(x=free): pass", "free"),
        ("def f(x: free): pass", "free"),
        ("from a import T\ndef f(x: 'list[T]') -> 'U': pass", "T"),
        ("from a import T\ndef f(x):\n    y: 'T' = 1", "T"),
        ("from a import T\ndef f(x: Literal['some T']): pass", "Literal"),
        ("@free\nclass C(base, metaclass=meta): pass", "free base meta"),
        ("class C:\n    x = 1\n    y = x\n    def f(self): return x", "x"),
        ("class C:\n    def f(self): return super().f(), __class__", ""),
        ("f = [b for a in m for b in a if b]", "m"),
        ("f = {a: [c for c in a if (d := c)] for a in [d for d in m]}", "m"),
        ("f = [a for a in a]", "a"),
        ("f = [(lambda: b + c)() for b in m for d in b]", "m c"),
        ("f = lambda x=y: x + free", "y free"),
        ("def f(x):\n    return [b for a in x for b in a if b], b", "b"),
        ("class C:\n    x = [b for a in m for b in a if b]", "m"),
        ("def f():\n    import a\n    return a", ""),
        ("def f():\n    global g\n    g = 1", "g"),
        ("def f():\n    x = 1\n    def g():\n        nonlocal x\n        x = 2", ""),
        ("def f():\n    try: pass\n    except E as e: raise e\n    with w as v: v", "E w"),
        ("def f(x):\n    match x:\n        case {'k': K(y=[*z]), **r}: return z, r, y", "K y"),
        ("a.b = c", "a c"),
        ("a['b'] = c", "a c"),
        ("del_ = 1\ndef f():\n    del x", ""),
        ("def f():\n    return f'{x!r:{y}}'", "x y"),
    ],
)
def test_needed(snippet: str, expected: str) -> None:
    assert needed(snippet) == set(expected.split())


MODULE = """
from __future__ import annotations
import a, b.c as d
from . import e
from ..f import g as h
from lib import *
if TYPE_CHECKING:
    import t1
    if x:
        from t import t2
else:
    import runs
if typing.TYPE_CHECKING:
    import t3
if FAST:
    import guarded
    def fast(): local = 1
try:
    from i import j
except ImportError as error:
    j = None
for k in y: pass
with m as n: pass
(o, [p, *q]) = r = [s for s in y if (u := s)]
class C:
    inside = 1
if not TYPE_CHECKING:
    import also
"""


def test_bindings() -> None:
    found = bindings(ast.parse(MODULE))
    assert [[item.bound for item in items] for items in found.statements] == [
        [], ["a", "d"], ["e"], ["h"], [],
    ]  # fmt: skip
    assert {item.bound for item in found.guarded} == {"runs", "guarded", "j", "also"}
    assert found.others == {"fast", "error", "j", "k", "n", "o", "p", "q", "r", "u", "C"}
    assert found.typing == {"t1", "t2", "t3"}
    assert found.star
    assert Import("f", "g", "h", 2) in found.imports


def test_statement_text_gives_back_the_statement() -> None:
    for line in ("import a, b.c as d\n", "from . import e\n", "from ..f import g as h, i\n"):
        (items,) = bindings(ast.parse(line)).statements
        assert statement_text(items) == line
