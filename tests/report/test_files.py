"""Files that a user named."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest

from ascendport.errors import UserError
from ascendport.report.files import check_writable, write_whole


def write(path: Path, data: bytes = b"new") -> None:
    write_whole(path, data, "trace", "--trace")


def test_a_new_file_is_written_with_the_usual_rights(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write(tmp_path / "a")
    finally:
        os.umask(before)
    assert (tmp_path / "a").read_bytes() == b"new"
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o640
    assert [file.name for file in tmp_path.iterdir()] == ["a"]


def test_a_file_keeps_its_rights_and_a_link_its_target(tmp_path: Path) -> None:
    real, link = tmp_path / "real", tmp_path / "link"
    real.write_bytes(b"old")
    real.chmod(0o600)
    link.symlink_to(real)
    write(link)
    assert link.is_symlink()
    assert real.read_bytes() == b"new"
    assert stat.S_IMODE(real.stat().st_mode) == 0o600


def test_what_fails_half_way_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: Path, target: Path) -> None:
        raise OSError(28, "No space left on device")

    (tmp_path / "a").write_bytes(b"old")
    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(UserError, match="No space left") as caught:
        write(tmp_path / "a")
    assert str(tmp_path / "a") in str(caught.value)
    assert "--trace" in caught.value.next
    assert (tmp_path / "a").read_bytes() == b"old"
    assert [file.name for file in tmp_path.iterdir()] == ["a"]


def test_a_pipe_is_written_to_and_stays_one(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.append(fifo.read_bytes()))
    reader.start()
    write(fifo)
    reader.join(10)
    assert got == [b"new"]
    assert fifo.is_fifo()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        pytest.param("no/such/file", "no such folder", id="no-folder"),
        pytest.param(".", "it is a folder", id="a-folder"),
        pytest.param("file/inside", "no such folder", id="a-file-for-a-folder"),
    ],
)
def test_what_cannot_be_written_is_said_before(tmp_path: Path, name: str, said: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=said):
        check_writable(tmp_path / name, "trace", "--trace")
    with pytest.raises(UserError, match="cannot write the trace"):
        write(tmp_path / name)


def test_a_file_that_can_be_written_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"old")
    check_writable(tmp_path / "a", "trace", "--trace")
    check_writable(tmp_path / "b", "trace", "--trace")
    assert (tmp_path / "a").read_bytes() == b"old"
    assert not (tmp_path / "b").exists()
