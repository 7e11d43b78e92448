"""Three-way merges: both ways to do one agree, and neither loses a line."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ascendport.patching import merge as merging
from ascendport.patching.merge import merge

NAMES = ("yours", "as applied", "without the port")
BASE = b"".join(b"line %d\n" % at for at in range(12))


def test_changes_far_apart_are_both_there() -> None:
    mine = BASE.replace(b"line 2\n", b"mine\n")
    theirs = BASE.replace(b"line 9\n", b"theirs\n")
    found = merge(BASE, mine, theirs)
    assert found.text == mine.replace(b"line 9\n", b"theirs\n")
    assert found.conflicts == ""


@pytest.mark.parametrize("by", ["git", "hand"])
def test_changes_of_one_line_are_a_conflict(by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if by == "hand":
        monkeypatch.setattr("shutil.which", lambda name: None)
    mine = BASE.replace(b"line 5\n", b"mine\n")
    theirs = BASE.replace(b"line 5\n", b"theirs\n")
    lines = merge(BASE, mine, theirs).conflicts.splitlines()
    marked = [line.lstrip("<|=>").strip() for line in lines[3:-3]]
    assert marked == ["yours", "mine", "as applied", "line 5", "", "theirs", "without the port"]
    assert lines[:3] == ["line 2", "line 3", "line 4"]
    assert lines[-3:] == ["line 6", "line 7", "line 8"]


def test_markers_in_a_text_are_no_conflict() -> None:
    marked = b"<<<<<<< a\nx\n=======\ny\n>>>>>>> b\n"
    found = merge(BASE + marked, BASE + marked + b"mine\n", b"theirs\n" + BASE + marked)
    assert found.conflicts == ""
    assert found.text == b"theirs\n" + BASE + marked + b"mine\n"


def test_a_last_line_without_its_end() -> None:
    text = BASE.removesuffix(b"\n")
    theirs = text.replace(b"line 1\n", b"theirs\n")
    assert merge(text, text + b" mine", theirs).text == theirs + b" mine"


texts = st.lists(st.sampled_from([b"a\n", b"b\n", b"c\r\n", b"d\n", b"e"]), max_size=8).map(
    lambda lines: b"".join(lines)
)


def edited(side: bytes, edits: dict[int, str]) -> bytes:
    """`BASE` with each named line deleted, replaced, or followed by another one."""
    out = []
    for at, line in enumerate(BASE.splitlines(keepends=True)):
        what = edits.get(at)
        new = b"%s %d\n" % (side, at)
        out += {None: [line], "delete": [], "replace": [new], "add": [line, new]}[what]
    return b"".join(out)


edits = st.dictionaries(
    st.integers(0, 11), st.sampled_from(["delete", "replace", "add"]), max_size=5
)


@settings(max_examples=60)
@given(edits, edits)
def test_what_is_clean_by_hand_is_the_same_by_git(one: dict[int, str], two: dict[int, str]) -> None:
    mine, theirs = edited(b"mine", one), edited(b"theirs", two)
    by_hand = merging._by_hand(BASE, mine, theirs, NAMES)
    if not merging._conflicts(by_hand):
        assert by_hand == merging._by_git(BASE, mine, theirs, NAMES)
    else:
        assert set(one) & {at + step for at in two for step in (-1, 0, 1)}


@settings(max_examples=60)
@given(texts, texts)
def test_one_side_alone_is_taken_whole(base: bytes, other: bytes) -> None:
    assert merge(base, base, other).text == other
    assert merge(base, other, base).text == other
    assert merging._by_hand(base, other, base, NAMES) == other
    assert merging._by_hand(base, base, other, NAMES) == other
    assert merging._by_hand(base, other, other, NAMES) == other
