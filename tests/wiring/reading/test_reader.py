from __future__ import annotations

from textwrap import dedent

import pytest

from ascendport.wiring.reading.reader import empty, summarise
from ascendport.wiring.summary import names_in


def names(text: str, field: str) -> set[str]:
    summary = summarise(dedent(text).encode(), "vllm/m.py")
    assert summary is not None
    return set(names_in(summary[field]))  # type: ignore[literal-required]


SCOPES = {
    "global": ("def f(): return g", {"g"}),
    "parameter": ("def f(g): return g", set()),
    "local": ("def f():\n g = 1\n return g", set()),
    "closure": ("def f():\n g = 1\n def h(): return g", set()),
    "declared global": ("def f():\n global g\n g = 1\n return g", {"g"}),
    "comprehension": ("def f(): return [g for g in h]", {"h"}),
    "class attribute": ("class C:\n g = 1\n h = g", set()),
    "method past its class": ("class C:\n g = 1\n def f(self): return g", {"g"}),
    "default value": ("def f(x=g): pass", set()),
    "decorator": ("@g\ndef f(): pass", set()),
    "lambda": ("f = lambda x: g(x)", {"g"}),
    "annotation": ("def f(x: g) -> h: pass", set()),
    "local import": ("def f():\n import g\n return g", set()),
    "caught exception": ("def f():\n try: pass\n except E as g: return g", {"E"}),
    "walrus": ("def f():\n if (g := 1): return g", set()),
    "loop target": ("def f():\n for g in h: return g", {"h"}),
    "match capture": ("def f(x):\n match x:\n  case g: return g", set()),
}


@pytest.mark.parametrize("case", SCOPES, ids=str)
def test_late_globals(case: str) -> None:
    text, expected = SCOPES[case]
    assert names(text, "late") == expected


def test_code_that_runs_at_import_is_early() -> None:
    text = "x = a\nclass C(b):\n y = c\n@d\ndef f(z=e): return g"
    assert names(text, "early") == {"a", "b", "c", "d", "e"}
    assert names(text, "late") == {"g"}


def test_chains_follow_imports_at_either_level() -> None:
    text = """
        import vllm.a as x
        from vllm import b
        from . import c
        import torch
        def f(y, b2):
            import vllm.d as z
            return x.one, b.two.three, c.four, z.five, torch.six, y.seven, b2.eight
    """
    assert names(text, "chains") == {
        "vllm.a.one",
        "vllm.b.two.three",
        "vllm.c.four",
        "vllm.d.five",
    }


def test_getattr_with_a_constant_is_a_load_and_setattr_is_none() -> None:
    text = "def f(x):\n getattr(x, 'asked')\n setattr(x, 'set_here', 1)\n x.__dict__['put'] = 1"
    assert names(text, "attrs") == {"asked", "__dict__"}
    assert names(text, "strings") == set()


def test_imports_under_a_condition_are_not_sure() -> None:
    text = """
        import vllm.sure
        if x:
            import vllm.unsure
        if TYPE_CHECKING:
            import vllm.never
        else:
            import vllm.other
        try:
            import vllm.tried
        except ImportError:
            pass
        def f():
            import vllm.later
    """
    summary = summarise(dedent(text).encode(), "vllm/m.py")
    assert summary is not None
    assert summary["loads"] == ["vllm.sure", "vllm.other", "vllm.tried"]


def test_classes() -> None:
    text = """
        class A(b.C, D[int], call()):
            x = 1
            y: int
            def f(self): self.z = 1
            class Inner: pass
    """
    summary = summarise(dedent(text).encode(), "vllm/m.py")
    assert summary is not None
    found = summary["classes"]["A"]
    assert found["bases"] == ["b.C", "D", "?"]
    assert set(names_in(found["attrs"])) == {"x", "y", "f", "Inner"}
    assert set(names_in(found["inst"])) == {"z"}
    assert "A.Inner" in summary["classes"]


@pytest.mark.parametrize("source", [b"def (", b"\0"], ids=["syntax", "null byte"])
def test_unreadable_source(source: bytes) -> None:
    assert summarise(source, "vllm/m.py") is None


def test_the_empty_summary_says_nothing() -> None:
    assert empty() == summarise(b"", "vllm/m.py")
