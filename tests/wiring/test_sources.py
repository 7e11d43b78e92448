from __future__ import annotations

import io
import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ascendport.checkout.cache import Cache
from ascendport.wiring import sources
from ascendport.wiring.reading.reader import summarise
from ascendport.wiring.sources import python_files, summaries


def silent(what: str, done: int, total: int) -> None:
    """Progress that nobody watches."""


def test_only_changed_files_are_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[str] = []

    def counted(source: bytes, path: str) -> object:
        parsed.append(path)
        return summarise(source, path)

    monkeypatch.setattr(sources, "summarise", counted)
    cache = Cache(tmp_path)
    files = {"vllm_ascend/a.py": b"a = 1", "vllm_ascend/b.py": b"b = 1"}
    first = summaries(files, "tree", silent, cache)
    assert summaries(files, "tree", silent, cache) == first
    assert parsed == list(files)
    changed = summaries({**files, "vllm_ascend/b.py": b"c = 1"}, "tree", silent, cache)
    assert parsed == [*files, "vllm_ascend/b.py"]
    assert list(changed["vllm_ascend/b.py"]["binds"]) == ["c"]
    assert changed["vllm_ascend/a.py"] == first["vllm_ascend/a.py"]


def test_a_file_that_is_no_python_has_an_empty_summary(tmp_path: Path) -> None:
    found = summaries({"vllm/a.py": b"def ("}, "tree", silent, Cache(tmp_path))
    assert found["vllm/a.py"]["binds"] == {}


def test_python_files(tmp_path: Path) -> None:
    for path in ("p/a.py", "p/q/b.py", "p/q/c.txt", "p/__pycache__/d.py", "p/.git/e.py", "f.py"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(path.encode())
    assert python_files(tmp_path, "p") == {"p/a.py": b"p/a.py", "p/q/b.py": b"p/q/b.py"}


@given(
    st.lists(st.tuples(st.booleans(), st.binary(max_size=400), st.booleans()), max_size=12),
    st.sampled_from([0, 200, 10**6]),
)
def test_members_of_a_zip_come_out_of_joined_ranges(
    entries: list[tuple[bool, bytes, bool]], gap: int
) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for number, (_, data, packed) in enumerate(entries):
            kind = zipfile.ZIP_DEFLATED if packed else zipfile.ZIP_STORED
            archive.writestr(f"vllm/f{number}.py", data, kind)
    whole = buffer.getvalue()
    with zipfile.ZipFile(buffer) as archive, pytest.MonkeyPatch.context() as patch:
        patch.setattr(sources, "_GAP", gap)
        infos = archive.infolist()
        wanted = [info for info, (take, _, _) in zip(infos, entries, strict=True) if take]
        runs = sources._runs(wanted)
        found = [
            data
            for start, stop, inside in runs
            for data in sources._members(whole[start:stop], start, inside)
        ]
    assert found == [data for take, data, _ in entries if take]
    if gap == 10**6:
        assert len(runs) <= 1
