"""Bytes to text and back, and differences that git applies."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ascendport.errors import UserError
from ascendport.patching.text import decode, lines, readable, unified, with_newline

TEXTS = st.text(st.sampled_from("ab#\r\n\t \f\x1c\u2028ä"), max_size=40)


@given(TEXTS, st.booleans())
def test_decoding_loses_nothing(text: str, bom: bool) -> None:
    raw = (b"\xef\xbb\xbf" if bom else b"") + text.encode()
    found = decode(raw, "file.py")
    assert found.encode(found.text, "file.py") == raw
    assert "".join(found.lines) == text


@given(TEXTS)
def test_lines_are_cut_as_python_cuts_them(text: str) -> None:
    found = lines(text)
    assert "".join(found) == text
    assert not any("\n" in line.strip("\r\n") or "\r" in line.strip("\r\n") for line in found)
    whole = with_newline(text, "\n")
    assert len(found) == whole.count("\n") + (bool(text) and not whole.endswith("\n"))


@pytest.mark.parametrize(
    ("text", "newline"),
    [("", "\n"), ("a", "\n"), ("a\r\nb\nc\r\n", "\r\n"), ("a\rb", "\r"), ("a\nb\r\n", "\n")],
)
def test_newline_is_the_most_common(text: str, newline: str) -> None:
    assert decode(text.encode(), "").newline == newline


def test_latin_1() -> None:
    raw = "# -*- coding: latin-1 -*-\nname = 'größe'\n".encode("latin-1")
    found = decode(raw, "file.py")
    assert "größe" in found.text
    assert found.encode(found.text, "file.py") == raw
    with pytest.raises(UserError, match="iso-8859-1 cannot hold '\\\\u20ac'"):
        found.encode("€", "file.py")


@pytest.mark.parametrize("raw", [b"# coding: klingon\n", b"a = '\xff'\n"], ids=["cookie", "bytes"])
def test_what_cannot_be_decoded(raw: bytes) -> None:
    with pytest.raises(UserError, match="cannot decode the file"):
        decode(raw, "file.py")
    assert readable(raw)


def test_an_encoding_that_does_not_survive_is_refused() -> None:
    raw = b"# coding: utf-7\nname = '+AGE-'\n"
    with pytest.raises(UserError, match="does not survive"):
        decode(raw, "file.py")


CASES = {
    "create": (None, b"a\nb\n"),
    "delete": (b"a\nb\n", None),
    "modify": (b"a\nb\nc\n", b"a\nx\nc\n"),
    "no final newline": (b"a\nb", b"a\nc"),
    "gains a final newline": (b"a\nb", b"a\nb\n"),
    "CRLF": (b"a\r\nb\r\n", b"a\r\nx\r\n"),
    "form feed and CR": (b"a\x0c\rb\nc\n", b"a\x0c\rb\nd\n"),
    "non-ASCII": ("ä\nb\n".encode(), "ö\nb\n".encode()),
    "empty before": (b"", b"a\n"),
}


@pytest.mark.parametrize("case", CASES)
def test_git_applies_the_difference(case: str, tmp_path: Path) -> None:
    before, after = CASES[case]
    path = tmp_path / "f.py"
    if before is not None:
        path.write_bytes(before)
    text = unified(before, after, "a/f.py", "b/f.py")
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    subprocess.run(
        ["git", "apply", "--whitespace=nowarn", "-"], input=text.encode(), cwd=tmp_path, check=True
    )
    assert (path.read_bytes() if path.exists() else None) == after


def test_equal_texts_do_not_differ() -> None:
    assert unified(b"a\n", b"a\n", "a", "b") == ""
    assert unified(None, None, "a", "b") == ""
