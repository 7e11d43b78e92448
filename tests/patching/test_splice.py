"""Declared symbols go in; no other byte changes."""

from __future__ import annotations

import ast
import dataclasses
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ascendport.errors import UserError
from ascendport.patching import splice as module
from ascendport.patching.splice import splice
from ascendport.ports.digest import digest

FILE = "file.py"


def put(original: str, source: str, replace: str = "", add: str = "") -> str:
    raw = splice(original.encode(), source.encode(), replace.split(), add.split(), FILE)
    return raw.decode()


# --- generated modules: the expected text is put together from the same parts ---


@dataclass(frozen=True)
class Item:
    """One statement of a module, with what belongs to it."""

    symbol: str
    comments: tuple[str, ...]
    body: tuple[str, ...]
    definition: bool

    def text(self, comments: tuple[str, ...] | None = None) -> str:
        return "".join(f"{line}\n" for line in (*(comments or self.comments), *self.body))


INDENT = st.sampled_from(["    ", "\t", "  "])
COMMENT = st.sampled_from(["# plain", "# ä €", "#tight", "# 'quote", '# """'])
VALUE = st.sampled_from(
    [
        "1",
        "'ä'",
        '"""one\n  two\n"""',
        "(1,\n 2)",
        "[\n]  # end",
        "b'x'",
        "1 + \\\n  2",
        "f'''{1}\n'''",
    ]
)


@st.composite
def statements(draw: st.DrawFn, name: str) -> Item:
    indent = draw(INDENT)
    comments = tuple(draw(st.lists(COMMENT, max_size=2)))
    value = draw(VALUE)
    kind = draw(st.sampled_from(["def", "async def", "class", "=", "annotated"]))
    if kind == "=":
        return Item(name, comments, (f"{name} = {value}",), False)
    if kind == "annotated":
        return Item(name, comments, (f"{name}: int = {value}  # why",), False)
    lines = [f"@len  # {name}"] * draw(st.integers(0, 1))
    lines.append(f"class {name}:" if kind == "class" else f"{kind} {name}(x, *y):")
    if draw(st.booleans()):
        lines.append(f'{indent}"""Text.\n\n# no comment\n"""')
    lines.append(f"{indent}z = {value}")
    if draw(st.booleans()):
        lines.append("")
        lines.append(f"{indent}def inner(self):")
        lines.append(f"{indent}{indent}return {value}")
    if draw(st.booleans()):
        lines.append(f"{indent}# tail")
    return Item(name, comments, tuple(lines), True)


@dataclass(frozen=True)
class Example:
    target: list[Item]
    ours: list[Item]
    gaps: list[str]
    newline: str
    bom: bool
    final: bool

    def target_text(self) -> str:
        return self._whole([item.text() for item in self.target])

    def source_text(self) -> str:
        return '"""Ours."""\n\n' + "\n\n".join(item.text() for item in self.ours)

    def expected(self, symbols: set[str]) -> str:
        return self._whole([self._replaced(item, symbols) for item in self.target])

    def _replaced(self, item: Item, symbols: set[str]) -> str:
        if item.symbol not in symbols:
            return item.text()
        new = next(one for one in self.ours if one.symbol == item.symbol)
        # Comments above an assignment stay, those above a definition go with it.
        kept = () if item.definition else item.comments
        return dataclasses.replace(new, comments=kept + new.comments).text()

    def _whole(self, parts: list[str]) -> str:
        text = "import os\n\n" + "".join(
            part + gap for part, gap in zip(parts, self.gaps, strict=True)
        )
        return text if self.final else text.rstrip("\n")

    def raw(self, text: str) -> bytes:
        return (b"\xef\xbb\xbf" if self.bom else b"") + text.replace("\n", self.newline).encode()


@st.composite
def examples(draw: st.DrawFn) -> Example:
    names = [f"n{at}" for at in range(draw(st.integers(1, 4)))]
    target = [draw(statements(name)) for name in names]
    ours = [draw(statements(name)) for name in draw(st.permutations(names))]
    gaps = [draw(st.sampled_from(["", "\n", "\n\n", "\n\n\n"])) for _ in names]
    return Example(
        target,
        ours,
        gaps,
        draw(st.sampled_from(["\n", "\r\n", "\r"])),
        draw(st.booleans()),
        draw(st.booleans()),
    )


@given(examples(), st.data())
@settings(max_examples=80, deadline=None)
def test_only_the_declared_symbols_change(example: Example, data: st.DataObject) -> None:
    names = [item.symbol for item in example.target]
    chosen = data.draw(st.lists(st.sampled_from(names), unique=True))
    result = splice(
        example.raw(example.target_text()), example.source_text().encode(), chosen, [], FILE
    )
    assert result == example.raw(example.expected(set(chosen)))
    for symbol in chosen:
        assert digest(result, symbol) == digest(example.source_text().encode(), symbol)


@given(examples())
@settings(max_examples=40, deadline=None)
def test_replacing_by_the_own_text_is_the_identity(example: Example) -> None:
    # An assignment's comments stay and its own come after them: those would stand twice.
    items = [item for item in example.target if item.definition or not item.comments]
    raw = example.raw(example.target_text())
    assert splice(raw, raw, [item.symbol for item in items], [], FILE) == raw


@given(examples(), st.data())
@settings(max_examples=40, deadline=None)
def test_adding_is_an_insertion(example: Example, data: st.DataObject) -> None:
    anchor = data.draw(st.sampled_from([None, *example.target]))
    extra = data.draw(statements("extra"))
    source = example.source_text() + "\n\n" + extra.text()
    replace = [] if anchor is None else [anchor.symbol]
    raw = example.raw(example.target_text())
    without = splice(raw, source.encode(), replace, [], FILE)
    result = splice(raw, source.encode(), replace, ["extra"], FILE)
    inserted = len(result) - len(without)
    assert inserted > 0
    assert any(result[:at] + result[at + inserted :] == without for at in range(len(without) + 1))
    assert digest(result, "extra") == digest(source.encode(), "extra")


# --- single rules ---


def test_comments_above_a_definition_go_and_above_an_assignment_stay() -> None:
    original = "import a\n\n# old\ndef f(): 1\n\n# group\na.x = 1\na.y = 2\n"
    source = "import a\n\n# new\ndef f(): 2\n\n\n# why\na.x = 3\n"
    assert put(original, source, "f a.x") == (
        "import a\n\n# new\ndef f(): 2\n\n# group\n# why\na.x = 3\na.y = 2\n"
    )


def test_the_files_header_stays() -> None:
    assert put("# licence\ndef f(): 1\n", "# licence of ours\ndef f(): 2\n", "f") == (
        "# licence\ndef f(): 2\n"
    )


def test_a_string_that_ends_like_a_comment_stays() -> None:
    original = 'T = """\n# no comment"""\ndef f(): 1\n'
    assert put(original, "\n\ndef f(): 2\n", "f") == 'T = """\n# no comment"""\ndef f(): 2\n'


def test_comments_at_the_end_of_a_body_go_with_it() -> None:
    original = "def f():\n    1\n    # tail\n\n    # more\n# next\nx = 1\n"
    assert put(original, "def f(): 2\n", "f") == "def f(): 2\n# next\nx = 1\n"


METHOD = """class Worker:
    size = 1

    # old
    def run(self, x):
        return x

    def stop(self):
        pass
"""


@pytest.mark.parametrize("indent", ["    ", "\t", "  "], ids=["four", "tab", "two"])
def test_a_method_takes_the_targets_indentation(indent: str) -> None:
    source = (
        "class Worker:\n  # new\n  def run(self, x):\n    text = '''\n  kept\n'''\n"
        "    return (text,\n      x)\n"
    )
    result = put(METHOD.replace("    ", indent), source, "Worker.run")
    assert result == METHOD.replace("    ", indent).replace(
        f"{indent}# old\n{indent}def run(self, x):\n{indent}{indent}return x\n",
        f"{indent}# new\n{indent}def run(self, x):\n{indent}  text = '''\n  kept\n'''\n"
        f"{indent}  return (text,\n{indent}    x)\n",
    )
    assert digest(result.encode(), "Worker.run") == digest(source.encode(), "Worker.run")


def test_added_methods_and_helpers() -> None:
    source = (
        "import math\n\n\nLIMIT = 4\nOTHER = 5\n\n\ndef helper(x): return math.sin(x) + OTHER\n\n\n"
        "class Worker:\n    def run(self, x): return helper(x + LIMIT)\n\n"
        "    def late(self): return self.run(1)\n"
    )
    result = put("import os\n\n\n# about\n" + METHOD, source, "Worker.run", "helper LIMIT OTHER")
    assert result == (
        "import os\nimport math\n\n\nLIMIT = 4\nOTHER = 5\n\n\n"
        "def helper(x): return math.sin(x) + OTHER\n\n\n# about\n"
        + METHOD.replace(
            "    # old\n    def run(self, x):\n        return x\n",
            "    def run(self, x): return helper(x + LIMIT)\n",
        )
    )
    late = put(METHOD, source, "", "Worker.late")
    assert late == METHOD + "\n    def late(self): return self.run(1)\n"
    early = put("import math\n" + METHOD, source.replace("helper(x + LIMIT)", "2"),
                "Worker.run", "Worker.late")  # fmt: skip
    assert early.index("def late") < early.index("def run") < early.index("def stop")


def test_a_property_of_the_targets_class_may_be_used() -> None:
    target = "class A:\n    @property\n    def x(self): return 1\n\n    def y(self): return 2\n"
    source = "class A:\n    @x.setter\n    def y(self, v): self.v = v\n"
    assert "@x.setter" in put(target, source, "A.y")


def test_a_guarded_definition_stays_in_its_block() -> None:
    original = "if FAST:\n    # old\n    def f():\n        return 1\nelse:\n    g = 1\n"
    source = "def f():\n    '''doc\n'''\n    return 2\n\n\ndef helper():\n    return f()\n"
    assert put(original, source, "f", "helper") == (
        "def helper():\n    return f()\n\n\n"
        "if FAST:\n    def f():\n        '''doc\n'''\n        return 2\nelse:\n    g = 1\n"
    )


def test_an_empty_file_takes_additions() -> None:
    assert put("", "import math\n\n\ndef f(): return math.pi\n", "", "f") == (
        "import math\n\n\ndef f(): return math.pi\n"
    )


# --- imports ---

USES = "def f(x): return {} if x else {}\n"


@pytest.mark.parametrize(
    ("head", "source_head", "used", "expected"),
    [
        ("import os\n", "import math\n", "math.pi", "import os\nimport math\n"),
        ("import math\n", "import math\n", "math.pi", "import math\n"),
        ("from a import (\n    b,\n    c,\n)\n", "from a import c\n", "c",
         "from a import (\n    b,\n    c,\n)\n"),
        ("from a import b\n", "from a import b, c\n", "b + c",
         "from a import b\nfrom a import c\n"),
        ('"""Doc."""\n', "import math\n", "math.pi", '"""Doc."""\n\nimport math\n\n\n'),
        ("# head\n", "import math\n", "math.pi", "# head\n\nimport math\n\n\n"),
        ("from __future__ import annotations\n", "import math\n", "math.pi",
         "from __future__ import annotations\nimport math\n"),
        ("import os; y = (1,\n 2)\n", "import math\n", "math.pi",
         "import os; y = (1,\n 2)\nimport math\n"),
        ("import a.b\n", "import a.c\n", "a.c.d", "import a.b\nimport a.c\n"),
        ("import os\n", "import math\nimport re\n", "re.I", "import os\nimport re\n"),
        ("import os\n", "from . import x as y\nfrom ..z import w\n", "y + w",
         "import os\nfrom . import x as y\nfrom ..z import w\n"),
        ("import os\n", "import math\n", "[math for math in x]", "import os\n"),
        ("import os\n", "import math\n", "(lambda math: math)(x)", "import os\n"),
        ("try:\n    import math\nexcept ImportError:\n    raise\n", "import math\n", "math.pi",
         "try:\n    import math\nexcept ImportError:\n    raise\n"),
        ("import os\nif TYPE_CHECKING:\n    import math\n", "import math\n", "math.pi",
         "import os\nimport math\nif TYPE_CHECKING:\n    import math\n"),
        ("from lib import *\n", "", "anything", "from lib import *\n"),
        ("import os\n", "import math\nimport math\n", "math.pi", "import os\nimport math\n"),
    ],
)  # fmt: skip
def test_imports(head: str, source_head: str, used: str, expected: str) -> None:
    result = put(head + "def f(x): 1\n", source_head + USES.format(used, 0), "f")
    assert result == expected + USES.format(used, 0)


@pytest.mark.parametrize(
    "source",
    [
        "import math\n@math.wraps\ndef f(x): 1\n",
        "import math\ndef f(x: math.T): 1\n",
        "import math\ndef f(x) -> math.T: 1\n",
        "import math\ndef f(x: 'list[math.T]'): 1\n",
        "import math\ndef f(x=math.pi): 1\n",
        "import math\ndef f(x):\n    y: math.T = 1\n",
        "import math\ndef f(x):\n    def g(math=math): 1\n",
        "import math\nclass f(math.Base):\n    math = 1\n",
        "import math\ndef f(x):\n    global math\n",
    ],
    ids=["decorator", "annotation", "result", "quoted", "default", "local", "nested", "base",
         "global"],
)  # fmt: skip
def test_where_names_are_looked_for(source: str) -> None:
    assert put("def f(x): 1\n", source, "f").startswith("import math\n")


def test_imports_go_in_front_of_the_first_edit() -> None:
    original = "import os\n\n\nf = 1\n\nimport late\n"
    assert put(original, "import math\nf = math.pi\n", "f") == (
        "import os\nimport math\n\n\nf = math.pi\n\nimport late\n"
    )


def test_a_long_import_is_cut() -> None:
    names = [f"name_{at:02}" for at in range(12)]
    source = f"from library.of.names import {', '.join(names)}\nf = [{', '.join(names)}]\n"
    result = put("import os\nf = 1\n", source, "f")
    assert result.count("from library.of.names import") == 12


# --- refusals ---

REFUSED: dict[str, tuple[str, str, str, str, str]] = {
    "missing in the target": ("a = 1\n", "f = 1\n", "f", "", "no symbol f: file.py"),
    "missing in the source": ("f = 1\n", "a = 1\n", "f", "", "no symbol f: the port's text"),
    "bound twice": ("f = 1\nf = 2\n", "f = 3\n", "f", "", r"more than once \(lines 1, 2\)"),
    "bound twice by the port": ("f = 1\n", "f = 1\nf = 2\n", "f", "", "more than once"),
    "shares its line": ("f = 1; g = 2\n", "f = 3\n", "f", "", "shares a line"),
    "one-line block": ("if x: f = 1\n", "f = 3\n", "f", "", "shares a line"),
    "second on its line": ("g = 1; f = 2\n", "f = 3\n", "f", "", "shares a line"),
    "added, but there": ("f = 1\ng = 1\n", "f = 2\ng = 2\n", "f", "g", "already binds g"),
    "added, but imported there": ("import g\nf = 1\n", "f = 2\ng = 2\n", "f", "g", "already binds"),
    "added to no class": ("f = 1\n", "class A:\n    def g(self): 1\n", "", "A.g", "no symbol A"),
    "added to a one-line class": (
        "class A: pass\n", "class A:\n    def g(self): 1\n", "", "A.g", "no class with a body",
    ),
    "declared twice": ("f = 1\n", "f = 2\n", "f f", "", "declared twice"),
    "declared with its class": (
        "class A:\n    x = 1\n", "class A:\n    x = 2\n", "A A.x", "", "is part of A",
    ),
    "import of another thing": (
        "from b import x\nf = 1\n", "from a import x\nf = x\n", "f", "", "to something else",
    ),
    "import over a definition": (
        "def x(): 1\nf = 1\n", "from a import x\nf = x\n", "f", "", "'from a import x'",
    ),
    "helper forgotten": (
        "f = 1\n", "def helper(): 1\ndef f(): return helper()\n", "f", "", "uses helper, which its",
    ),
    "helper differs": (
        "def helper(): 0\nf = 1\n", "def helper(): 1\ndef f(): return helper()\n", "f", "",
        "neither replaces nor adds",
    ),
    "name of nobody": ("f = 1\n", "def f(): return nobody\n", "f", "", "neither its text nor"),
    "guarded import": (
        "f = 1\n", "try:\n    import a\nexcept ImportError:\n    pass\nf = a\n", "f", "", "uses a",
    ),
    "target is not Python": ("f = (\n", "f = 2\n", "f", "", "not valid Python .*: file.py"),
    "source is not Python": ("f = 1\n", "f = (\n", "f", "", "not valid Python .*the port's text"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case: str) -> None:
    original, source, replace, add, said = REFUSED[case]
    with pytest.raises(UserError, match=said):
        put(original, source, replace, add)


def test_a_helper_that_both_have_alike_is_used() -> None:
    original = "log = make(__name__)\nf = 1\n"
    source = "log = make(__name__)\ndef f(): log()\n"
    assert put(original, source, "f") == "log = make(__name__)\ndef f(): log()\n"


def test_text_that_the_encoding_cannot_hold_is_refused() -> None:
    original = "# coding: latin-1\nx = 'ä'\nf = 1\n".encode("latin-1")
    assert splice(original, "f = 'ö'\n".encode(), ["f"], [], FILE).endswith(
        "f = 'ö'\n".encode("latin-1")
    )
    with pytest.raises(UserError, match="cannot hold"):
        splice(original, "f = '€'\n".encode(), ["f"], [], FILE)


BROKEN: dict[str, tuple[str, str]] = {
    "another symbol changes": ("g = 2", "more than the declared symbols"),
    "the symbol is not the port's": ("f = 4", "f is not as the port has it"),
    "not Python": ("f = (", "not valid Python"),
    "the symbol is gone": ("", "no symbol f"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_wrong_edit_is_caught(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    bad, said = BROKEN[case]
    real: Any = module._apply

    def broken(target: Any, edits: Any) -> str:
        text: str = real(target, edits)
        wrong = "g = 1" if bad.startswith("g") else "f = 3"
        assert wrong in text
        return text.replace(wrong, bad)

    monkeypatch.setattr(module, "_apply", broken)
    with pytest.raises(UserError, match=f"did not pass its own check .*{said}"):
        put(f"f = 1\ng = 1  # {case}\n", "f = 3\n", "f")


def test_a_lost_import_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_import_block", lambda target, imports, edits: [])
    with pytest.raises(UserError, match="'import cmath' is not in the result"):
        put("f = 1\n", "import cmath\nf = cmath.pi\n", "f")


def test_results_parse_under_this_python() -> None:
    for case in (METHOD, "def f[T](x: T): 1\n"):
        try:
            ast.parse(case)
        except SyntaxError:
            continue
        assert put(case + "x = 1\n", "x = 2\n", "x") == case + "x = 2\n"
