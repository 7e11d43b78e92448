"""A digest changes with the meaning of a symbol, and with nothing else."""

from __future__ import annotations

import ast
import io
import tokenize

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ascendport.errors import UserError
from ascendport.ports.digest import (
    canonical,
    digest,
    digests,
    fits,
    index,
    normal,
    parse,
    signature,
)

MODULE = '''"""A module."""

import lib


@lib.jit(cores=8)
def kernel(x_ptr, stride: int = 3, *rest, TILE: "lib.const" = 64, **more):
    """Adds."""
    total = 0.5
    for at in range(0, stride):  # each
        if at % 2 == 1 and x_ptr is not None:
            total += x_ptr[at] * -1.5e3
        else:
            total -= 1
    text = f"{total:>{TILE}} of {stride!r}" + 'plain' + r"raw\\d"
    return [total, text, b"bytes", {**more, "k": (1, 2)}, lambda a: a or total]


class Launcher:
    """Launches."""

    limit = 65535

    def __getitem__(self, grid):
        async def inner():
            return await grid[0]

        return inner if grid < (self.limit,) else None


lib.kernel = kernel
SIZE: int = 1 << 20
'''
SYMBOLS = ["kernel", "Launcher", "Launcher.__getitem__", "lib.kernel", "SIZE"]


def all_digests(text: str) -> dict[str, str | None]:
    return digests(text.encode(), SYMBOLS)


BASE = all_digests(MODULE)


def test_digests_are_the_same_on_every_python() -> None:
    # Computed with Python 3.11, 3.12 and 3.13.
    assert BASE == {
        "kernel": "863647995badf45f",
        "Launcher": "73a61ad394eef24a",
        "Launcher.__getitem__": "8e132569c7b58d81",
        "lib.kernel": "ddb202bffeb1d67a",
        "SIZE": "8d1403ec9632abe2",
    }


def test_rewriting_by_the_interpreter_changes_nothing() -> None:
    assert all_digests(ast.unparse(ast.parse(MODULE))) == BASE


def test_docstrings_change_nothing() -> None:
    assert all_digests(MODULE.replace('"""Adds."""', "").replace('"""Launches."""', "")) == BASE
    assert all_digests(MODULE.replace("Adds.", "Takes away.")) == BASE


@pytest.mark.parametrize("newline", ["\r\n", "\r"], ids=["CRLF", "CR"])
def test_line_ends_change_nothing(newline: str) -> None:
    assert all_digests(MODULE.replace("\n", newline)) == BASE


def test_tabs_a_byte_order_mark_and_quotes_change_nothing() -> None:
    assert all_digests(MODULE.replace("    ", "\t")) == BASE
    assert digests(b"\xef\xbb\xbf" + MODULE.encode(), SYMBOLS) == BASE
    assert all_digests(MODULE.replace("'plain'", '("pl" u"ain")')) == BASE


@given(st.lists(st.sampled_from(["  # note", "", "   ", "  # ä \t#"]), min_size=60, max_size=60))
def test_comments_and_blank_ends_change_nothing(ends: list[str]) -> None:
    lines = MODULE.splitlines()
    assert len(lines) <= 60
    changed = [line + end if '"""' not in line else line for line, end in zip(lines, ends)]  # noqa: B905
    gaps = [line + "\n" * (1 + len(end) % 3) for line, end in zip(changed, ends)]  # noqa: B905
    assert all_digests("".join(gaps)) == BASE


def test_a_coding_cookie_is_honoured() -> None:
    latin = "# coding: latin-1\nNAME = 'größe'\n".encode("latin-1")
    assert digest(latin, "NAME") == digest("NAME = 'größe'\n".encode(), "NAME")


def changeable() -> list[tuple[int, tokenize.TokenInfo]]:
    tokens = list(tokenize.generate_tokens(io.StringIO(MODULE).readline))
    kept = []
    for at, token in enumerate(tokens):
        docstring = token.string.startswith('"""')
        name = token.type == tokenize.NAME and token.string.isidentifier()
        if (name or token.type in (tokenize.NUMBER, tokenize.STRING, tokenize.OP)) and not (
            docstring or token.start[0] < 5
        ):
            kept.append((at, token))
    return kept


REPLACEMENTS = ["zz", "7", "7.0", "'zz'", "+", "*", "<", ">=", "not", "is", "or", "=="]


@given(st.sampled_from(changeable()), st.sampled_from(REPLACEMENTS))
@settings(max_examples=300)
def test_any_other_token_changes_a_digest(
    chosen: tuple[int, tokenize.TokenInfo], replacement: str
) -> None:
    _, token = chosen
    lines = MODULE.splitlines(keepends=True)
    row, start, end = token.start[0] - 1, token.start[1], token.end[1]
    lines[row] = f"{lines[row][:start]} {replacement} {lines[row][end:]}"
    text = "".join(lines)
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return
    # An oracle of another make: CPython's own dump, which is exact within one release.
    if ast.dump(tree) != ast.dump(ast.parse(MODULE)):
        assert all_digests(text) != BASE


VALUES = [
    "1", "True", "1.0", "0", "-0.0", "0.0", "False", "1e400", "1j", "b'1'", "'1'", "...",
    "None", "'\\ud800'", "''", "b''", "(1,)", "[1]", "{1}", "{1: 1}", "-1", "~1", "x", "'x'",
    "10**400", str(10**400), "f'{x}'", "f'{x!r}'", "f'{x:1}'", "f'1'", "'a' 'b'", "'a', 'b'",
    "lambda: 1", "lambda x: 1", "lambda *x: 1", "lambda *, x: 1", "lambda x, /: 1", "x.y", "x[1]",
    "{**x}", "{None: x}", "(yield)", "(yield x)", "(yield from x)", "[*x]",
]  # fmt: skip


def test_values_that_differ_have_digests_that_differ() -> None:
    found = {value: digest(f"X = {value}\n".encode(), "X") for value in VALUES}
    assert len(set(found.values())) == len(VALUES)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("f'a' 'b' f'{x}' ''", "f'ab{x}'"),
        ("f'{x:}'", "f'{x}'"),
        ("u'a'", "'a'"),
        ("(1)", "1"),
        ("0x10", "16"),
        ("1_000", "1000"),
        ("'\\x41'", "'A'"),
    ],
)
def test_spellings_of_one_value_have_one_digest(one: str, other: str) -> None:
    assert digest(f"X = {one}\n".encode(), "X") == digest(f"X = {other}\n".encode(), "X")


def test_keyword_only_defaults_keep_their_places() -> None:
    first = digest(b"def f(*, a, b=None): pass\n", "f")
    assert first != digest(b"def f(*, a=None, b): pass\n", "f")


def test_deep_trees_are_walked() -> None:
    deep = "X = " + " + ".join(["x"] * 1500)
    assert len(digest(deep.encode(), "X")) == 16


GUARDED = b"""
if FAST:
    def fast(): return 1
    class Box:
        try:
            def size(self): return 1
        except NameError:
            pass
elif SLOW:
    def slow(): return 2
try:
    from lib import jit
except ImportError:
    def jit(f): return f
else:
    table["key"] = jit
finally:
    done = True
with lib.patch() as p:
    p.kernel = 1
for x in y:
    looped = 1
a = b = 1
c, d = 1, 2
e += 1
twice = 1
twice = 2
"""


def test_guarded_definitions_are_symbols() -> None:
    found = index(parse(GUARDED))
    assert set(found) == {
        "fast", "Box", "Box.size", "slow", "jit", "table['key']", "done", "p.kernel", "twice",
    }  # fmt: skip


def test_subscripts_may_be_spelled_as_you_like() -> None:
    assert normal('table [ "key" ]') == "table['key']"
    assert digest(GUARDED, 'table["key"]') == digest(GUARDED, "table['key']")


@pytest.mark.parametrize("symbol", ["", "1", "a b", "f()", "a + b", "a.b c"])
def test_what_is_no_symbol_is_refused(symbol: str) -> None:
    with pytest.raises(UserError, match="not a symbol"):
        normal(symbol)


def test_a_name_bound_twice_is_refused() -> None:
    with pytest.raises(UserError, match=r"twice is bound more than once \(lines 26, 27\)"):
        digest(GUARDED, "twice")
    with pytest.raises(UserError, match="more than once"):
        digests(GUARDED, ["fast", "twice"])


def test_a_missing_name() -> None:
    assert digests(b"a = 1\n", ["b"]) == {"b": None}
    with pytest.raises(UserError, match=r"no symbol b: file\.py"):
        digest(b"a = 1\n", "b", "file.py")


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"a = 1\ndef f(:\n", "line 2"),
        (b"if a:\n\tb\n        c\n", "line 3"),
        (b"a = '\0'\n", "null bytes"),
        (b"# coding: klingon\na = 1\n", "klingon"),
        (b"a = '\xff'\n", "not valid Python"),
        (b"a = " + b"(" * 500 + b")" * 500, "not valid Python"),
    ],
    ids=["syntax", "tabs", "null", "cookie", "bytes", "nesting"],
)
def test_what_is_not_python_names_the_reason(raw: bytes, said: str) -> None:
    with pytest.raises(UserError, match=said):
        digest(raw, "a", "file.py")


def test_invalid_escapes_do_not_warn(recwarn: pytest.WarningsRecorder) -> None:
    digest(b"a = '\\d'\n", "a")
    assert not recwarn.list


def test_canonical_is_ascii() -> None:
    assert canonical(parse("x = 'ä' + ö\n".encode())).isascii()


def node(text: str) -> ast.stmt:
    return ast.parse(text).body[0]


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [
        ("def f(a, b): 1", "def f(a, b): 2", True),
        ("def f(a: int, b=2): 1", "def f(a, b=3): 2", True),
        ("def f(a, b): 1", "def f(a, b, c): 2", False),
        ("def f(a, b): 1", "def f(a, c): 2", False),
        ("def f(a, b): 1", "def f(b, a): 2", False),
        ("def f(a, b): 1", "def f(a, b=1): 2", False),
        ("def f(a, b=1): 1", "def f(a, b): 2", True),
        ("def f(a, b=1): 1", "def f(a): 2", True),
        ("def f(a, b): 1", "def f(a): 2", False),
        ("def f(a, *, b=1): 1", "def f(a): 2", True),
        ("def f(a, *, b): 1", "def f(a): 2", False),
        ("def f(a, *, b): 1", "def f(a, b): 2", False),
        ("def f(a): 1", "def f(a, *b): 2", False),
        ("def f(a): 1", "def f(a, **b): 2", False),
        ("def f(a, *b, **c): 1", "def f(a): 2", True),
        ("async def f(a): 1", "def f(a): 2", False),
        ("f = 1", "def f(a): 2", False),
        ("def f(a): 2", "f = 1", False),
        ("f = 1", "f = 2", True),
        ("class C:\n def f(s, a): 1\n def g(s): 1", "class C:\n def f(s, a): 2", True),
        ("class C:\n def f(s, a): 1", "class C:\n def f(s, a, b): 2", False),
        ("class C:\n def f(s, a): 1", "class C:\n def g(s, a): 2", False),
    ],
)
def test_fits(ours: str, theirs: str, expected: bool) -> None:
    assert fits(node(ours), node(theirs)) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("def f(a, b: int=1, *, c): pass", "f(a, b: int=1, *, c)"),
        ("class C(Base, metaclass=M): pass", "class C(Base, M)"),
        ("class C: pass", "class C"),
        ("a.b = 1", "a.b"),
        ("a: int = 1", "a"),
    ],
)
def test_signature(text: str, expected: str) -> None:
    assert signature(node(text)) == expected
