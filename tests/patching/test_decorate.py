"""A decorator is put on a function of the tree, whose text stays the tree's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ascendport.checkout.tree import Checkout
from ascendport.checks import source
from ascendport.checks.outcome import Outcome
from ascendport.checks.subject import Subject
from ascendport.errors import UserError
from ascendport.patching import splice as module
from ascendport.patching.images import images
from ascendport.patching.journal import execute
from ascendport.patching.plan import plan_apply, plan_revert
from ascendport.patching.recognise import Status, match
from ascendport.patching.splice import splice
from ascendport.patching.status import status
from ascendport.ports.manifest import Port, load
from tests.patching.conftest import (
    KERNEL,
    KERNEL_TEXT,
    SHIFT,
    Spec,
    make_checkout,
    make_port,
    snapshot,
)

GUARD = b'''import functools


def _guarded(function):
    """Answers None where the function raises."""

    @functools.wraps(function)
    def call(*args, **kwargs):
        try:
            return function(*args, **kwargs)
        except ValueError:
            return None

    return call
'''


@pytest.fixture
def guard(tmp_path: Path) -> Port:
    """Guards a method and a decorated function of one file."""
    spec = Spec(
        KERNEL,
        GUARD,
        add=["_guarded"],
        known=KERNEL_TEXT,
        decorate={"Launcher.run": "_guarded", "scale": "_guarded"},
    )
    return make_port(tmp_path / "zz_guard", "zz_guard", {"only": [spec]})


def put(original: str, added: str, decorate: dict[str, str]) -> str:
    """``original`` with the decorators; ``added`` defines ``wrap``."""
    add = ["wrap"] if added else []
    pairs = tuple(decorate.items())
    return splice(original.encode(), added.encode(), [], add, "file.py", pairs).decode()


WRAP = "def wrap(function):\n    return function\n"


@pytest.mark.parametrize(
    ("original", "symbol", "expected"),
    [
        pytest.param(
            "a = 1\n\n\n# why\ndef f():\n    pass\n",
            "f",
            f"a = 1\n\n\n{WRAP}\n\n# why\n@wrap\ndef f():\n    pass\n",
            id="function-under-a-comment",
        ),
        pytest.param(
            "class A:\n    # why\n    @property\n    # more\n    async def f(self): ...\n",
            "A.f",
            f"{WRAP}\n\nclass A:\n    # why\n    @wrap\n    @property\n    # more\n"
            "    async def f(self): ...\n",
            id="method-with-a-decorator",
        ),
        pytest.param(
            "if True:\n\tdef f():\n\t\tpass\n",
            "f",
            f"{WRAP}\n\nif True:\n\t@wrap\n\tdef f():\n\t\tpass\n",
            id="tabs-in-a-block",
        ),
        pytest.param(
            "def f():\r\n    pass",
            "f",
            WRAP.replace("\n", "\r\n") + "\r\n\r\n@wrap\r\ndef f():\r\n    pass",
            id="crlf-and-no-last-newline",
        ),
    ],
)
def test_where_the_line_goes(original: str, symbol: str, expected: str) -> None:
    assert put(original, WRAP, {symbol: "wrap"}) == expected


@pytest.mark.parametrize(
    ("original", "added", "decorate", "said"),
    [
        pytest.param("a = 1\n", WRAP, {"a": "wrap"}, "a is no function", id="no-function"),
        pytest.param("class A:\n    x = 1\n", WRAP, {"A": "wrap"}, "A is no function", id="class"),
        pytest.param("def f(): ...\n", "", {"f": "wrap"}, "neither the file nor", id="unbound"),
        pytest.param("def f(): ...\n", WRAP, {"g": "wrap"}, "no symbol g", id="missing"),
        pytest.param(
            "a = 1; f = 2\ndef g(): ...\ndef g(): ...\n",
            WRAP,
            {"g": "wrap"},
            "bound more than once",
            id="bound-twice",
        ),
    ],
)
def test_what_cannot_be_decorated(
    original: str, added: str, decorate: dict[str, str], said: str
) -> None:
    with pytest.raises(UserError, match=said):
        put(original, added, decorate)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param("@wrap\n", "@other\n", id="another-decorator"),
        pytest.param("@wrap\ndef f(): ...", "@wrap\ndef f(): return 1", id="another-text"),
        pytest.param("@wrap\ndef f", "@other\n@wrap\ndef f", id="not-the-first"),
    ],
)
def test_a_wrong_edit_is_caught(old: str, new: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real: Any = module._apply

    def broken(target: Any, edits: Any) -> str:
        text: str = real(target, edits)
        assert old in text
        return text.replace(old, new)

    monkeypatch.setattr(module, "_apply", broken)
    with pytest.raises(UserError, match=r"did not pass its own check .*f is not as the port"):
        put("def f(): ...\n", WRAP, {"f": "wrap"})


def test_a_symbol_is_replaced_or_decorated() -> None:
    with pytest.raises(UserError, match="f is declared twice"):
        splice(b"def f(): ...\n", b"def f(): ...\n", ["f"], [], "file.py", [("f", "f")])


def test_a_name_that_the_file_imports_will_do() -> None:
    text = "from functools import cache\n\n\ndef f(): ...\n"
    assert put(text, "", {"f": "cache"}) == text.replace("def f", "@cache\ndef f")


def test_in_and_out_again(checkout: Checkout, guard: Port) -> None:
    before = snapshot(checkout.root)
    execute(plan_apply(checkout, [guard]))
    text = checkout.path(KERNEL).read_text()
    assert "# Slow, row by row.\n@_guarded\n@jit\ndef scale(rows, factor):\n" in text
    assert "\n    @_guarded\n    def run(self, rows):\n" in text
    assert text.index("def _guarded") < text.index("@_guarded")
    assert status(checkout, [guard])[0].status is Status.APPLIED
    execute(plan_revert(checkout))
    assert snapshot(checkout.root) == before


def test_beside_a_port_that_replaces_another_symbol(
    checkout: Checkout, guard: Port, tmp_path: Path
) -> None:
    before = snapshot(checkout.root)
    other = make_port(
        tmp_path / "aa", "aa", {"only": [Spec(KERNEL, SHIFT, ["shift"], [], KERNEL_TEXT)]}
    )
    execute(plan_apply(checkout, [guard, other]))
    execute(plan_revert(checkout, ["aa"]))
    assert b"@_guarded" in checkout.path(KERNEL).read_bytes()
    assert b"step.__add__" not in checkout.path(KERNEL).read_bytes()
    execute(plan_revert(checkout))
    assert snapshot(checkout.root) == before


def test_two_ports_on_one_function_are_refused(
    checkout: Checkout, guard: Port, tmp_path: Path
) -> None:
    spec = Spec(KERNEL, b"def scale(rows, factor): ...\n", ["scale"], [], KERNEL_TEXT)
    other = make_port(tmp_path / "aa", "aa", {"only": [spec]})
    plan = plan_apply(checkout, [guard, other])
    assert not plan.changes
    assert any("both change scale" in one.reason for one in plan.ports)


@pytest.mark.parametrize(
    ("old", "new", "expected", "fits"),
    [
        pytest.param(b"row *= factor", b"row = factor * row", Status.DRIFTED, True, id="edited"),
        pytest.param(
            b"@jit\ndef scale(rows, factor):",
            b"@jit\nclass scale:",
            Status.DRIFTED,
            False,
            id="no-function",
        ),
        pytest.param(b"def scale(", b"def scaled(", Status.DRIFTED, False, id="gone"),
    ],
)
def test_drift(
    guard: Port, tmp_path: Path, old: bytes, new: bytes, expected: Status, fits: bool
) -> None:
    text = KERNEL_TEXT.replace(old, new)
    assert text != KERNEL_TEXT
    found = match(guard, make_checkout(tmp_path / "tree", {KERNEL: text}).read)
    assert (found.status, found.forcible) == (expected, fits)


def test_drift_is_forced_onto_any_text_of_the_function(guard: Port, tmp_path: Path) -> None:
    text = KERNEL_TEXT.replace(b"row *= factor", b"row = factor * row")
    checkout = make_checkout(tmp_path / "tree", {KERNEL: text})
    execute(plan_apply(checkout, [guard], force=True))
    after = checkout.path(KERNEL).read_bytes()
    assert b"row = factor * row" in after and b"@_guarded\n@jit" in after
    execute(plan_revert(checkout))
    assert checkout.path(KERNEL).read_bytes() == text


def test_upstream_with_the_same_decorators_supersedes(
    checkout: Checkout, guard: Port, tmp_path: Path
) -> None:
    execute(plan_apply(checkout, [guard]))
    taken = make_checkout(tmp_path / "new", {KERNEL: checkout.path(KERNEL).read_bytes()})
    assert match(guard, taken.read).status is Status.SUPERSEDED


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param(b"@_guarded\n@jit", b"@jit", id="decorator-gone"),
        pytest.param(b"@_guarded\n@jit", b"@jit\n@_guarded", id="decorator-below"),
        pytest.param(b"row *= factor", b"row = factor", id="text-changed"),
    ],
)
def test_the_source_check_sees_another_text(
    checkout: Checkout, guard: Port, old: bytes, new: bytes
) -> None:
    made = images(checkout, guard)
    right = source.run(Subject(checkout, guard, made.variant, made.before, made.after))
    assert right.outcome is Outcome.PASSED, right.reason
    text = made.after[KERNEL]
    assert text is not None and old in text
    wrong = {**made.after, KERNEL: text.replace(old, new)}
    result = source.run(Subject(checkout, guard, made.variant, made.before, wrong))
    failed = {case.case: case.reason for case in result.cases if case.outcome is Outcome.FAILED}
    assert "under @_guarded" in failed["scale"]


def test_a_port_of_new_files_alone(checkout: Checkout, tmp_path: Path) -> None:
    folder = tmp_path / "zz_tests"
    made = make_port(folder, "zz_tests", {"any": []}, {"tests/test_scale.py": b"def test(): ...\n"})
    assert made.manifest.variants[0].releases() == ("1.0",)
    before = snapshot(checkout.root)
    execute(plan_apply(checkout, [made]))
    assert checkout.read("tests/test_scale.py") == b"def test(): ...\n"
    assert status(checkout, [made])[0].status is Status.APPLIED
    execute(plan_revert(checkout))
    assert snapshot(checkout.root) == before


def test_a_port_of_new_files_alone_needs_what_it_names(checkout: Checkout, tmp_path: Path) -> None:
    folder = tmp_path / "zz_tests"
    make_port(folder, "zz_tests", {"any": []}, {"tests/test_scale.py": b"def test(): ...\n"})
    path = folder / "port.toml"
    path.write_text(path.read_text() + f'[variants.needs]\n"{KERNEL}" = ["absent"]\n')
    found = match(load(folder), checkout.read)
    assert found.status is Status.MISSING and "absent" in found.reason


@pytest.mark.parametrize(
    ("more", "said"),
    [
        pytest.param("", "neither 'targets' nor 'new_files'", id="nothing"),
        pytest.param("[variants.needs]\n'a.py' = []\n", "needs.a.py", id="needs-nothing-of-a-file"),
        pytest.param(
            "[[variants.new_files]]\nfile = 'a.py'\nsource = 'a.py'\n",
            "'seen_in' is for variants of new files alone",
            id="no-releases",
        ),
    ],
)
def test_manifests_of_new_files_that_are_refused(tmp_path: Path, more: str, said: str) -> None:
    path = tmp_path / "port.toml"
    head = 'name = "zz"\nkind = "store"\nsummary = "x"\ntask = "https://example.org/1"\n'
    path.write_text(f'{head}[[variants]]\nname = "any"\n{more}')
    with pytest.raises(UserError, match=said):
        load(tmp_path)
