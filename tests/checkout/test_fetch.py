"""Fetching a release. The mirror serves fake sdists made here; one test takes a real release."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from ascendport.checkout.cache import Cache
from ascendport.checkout.fetch import fetch, sdist
from ascendport.checkout.tree import Layout
from ascendport.errors import UserError
from tests.checkout.conftest import Mirror, ascend_files, index_of, silent, tar_of
from tests.conftest import RELEASES, ReleaseTree

RELEASE = "9.9.0rc1"
NAME = f"vllm_ascend-{RELEASE}.tar.gz"
PROJECT = "vllm-ascend"


@pytest.fixture
def served(mirror: Mirror) -> Mirror:
    mirror.add(PROJECT, NAME, tar_of(ascend_files(RELEASE), f"vllm_ascend-{RELEASE}"))
    return mirror


def files_below(root: Path) -> dict[str, bytes]:
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in root.rglob("*")
        if path.is_file()
    }


def nothing_left(parent: Path, cache: Cache) -> None:
    """No trace of a failed fetch beside its destination, and no file in the cache."""
    assert not [path for path in parent.iterdir() if path != cache.root]
    assert not list((cache.root / "tmp").glob("*"))


@pytest.mark.parametrize("there", [False, True], ids=["new", "empty directory"])
def test_destination_is_the_root(served: Mirror, cache: Cache, tmp_path: Path, there: bool) -> None:
    dest = tmp_path / "mein baum ü" / "x"
    if there:
        dest.mkdir(parents=True)
        inode = dest.stat().st_ino
    seen: list[tuple[str, int, int]] = []
    checkout = fetch(
        RELEASE,
        dest,
        lambda what, done, total: seen.append((what, done, total)),
        index=index_of(served),
        cache=cache,
    )
    assert files_below(dest) == ascend_files(RELEASE)
    assert [path.name for path in dest.parent.iterdir()] == ["x"]
    assert (checkout.root, checkout.layout, checkout.release) == (
        dest.resolve(),
        Layout.SOURCE,
        RELEASE,
    )
    assert checkout.notes == ()
    assert {what for what, _, _ in seen} == {NAME, f"unpacking {NAME}"}
    assert all(done <= total for _, done, total in seen)
    if there:
        assert dest.stat().st_ino == inode


def test_second_fetch_needs_no_network(served: Mirror, cache: Cache, tmp_path: Path) -> None:
    fetch(RELEASE, tmp_path / "one", silent, index=index_of(served), cache=cache)
    asked = list(served.requests)
    fetch(RELEASE, tmp_path / "two", silent, index=index_of(served), cache=cache)
    assert served.requests == asked
    assert files_below(tmp_path / "two") == files_below(tmp_path / "one")


def test_damaged_file_in_the_cache_is_fetched_again(served: Mirror, cache: Cache) -> None:
    path = sdist(RELEASE, silent, index=index_of(served), cache=cache)
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])
    again = sdist(RELEASE, silent, index=index_of(served), cache=cache)
    assert again.read_bytes() == whole
    assert len(served.downloads()) == 2


def test_file_that_moved_is_found_again(served: Mirror, cache: Cache) -> None:
    path = sdist(RELEASE, silent, index=index_of(served), cache=cache)
    data = path.read_bytes()
    path.unlink()
    served.files.clear()
    served.folder = "/moved/"
    served.add(PROJECT, NAME, data)
    assert sdist(RELEASE, silent, index=index_of(served), cache=cache).read_bytes() == data
    assert served.downloads() == [f"GET /moved/{NAME}"]


def test_wrong_hash(mirror: Mirror, cache: Cache, tmp_path: Path) -> None:
    data = tar_of(ascend_files(RELEASE), "top")
    mirror.add(PROJECT, NAME, data, sha256="0" * 64)
    with pytest.raises(UserError, match="not the file that the index names"):
        fetch(RELEASE, tmp_path / "deep" / "x", silent, index=index_of(mirror), cache=cache)
    nothing_left(tmp_path, cache)
    assert not (cache.root / "files").exists()


def test_index_without_hashes_is_told(mirror: Mirror, cache: Cache, tmp_path: Path) -> None:
    mirror.add(PROJECT, NAME, tar_of(ascend_files(RELEASE), "top"), sha256=None)
    checkout = fetch(RELEASE, tmp_path / "x", silent, index=index_of(mirror), cache=cache)
    (note,) = checkout.notes
    assert "not checked" in note


@pytest.mark.parametrize("sha256", ["right", None], ids=["hash", "no hash"])
def test_connection_that_breaks_off(
    served: Mirror, cache: Cache, tmp_path: Path, sha256: str | None
) -> None:
    served.add(PROJECT, NAME, served.files[f"/files/{NAME}"], sha256)
    served.cut = 300
    with pytest.raises(UserError, match="broke off"):
        fetch(RELEASE, tmp_path / "x", silent, index=index_of(served), cache=cache)
    nothing_left(tmp_path, cache)
    served.cuts_left = 1
    retrying = index_of(served, retries=2)
    fetch(RELEASE, tmp_path / "x", silent, index=retrying, cache=cache)
    assert files_below(tmp_path / "x") == ascend_files(RELEASE)


def test_no_network(cache: Cache, tmp_path: Path) -> None:
    index = index_of(index_urls=("http://127.0.0.1:1/simple/",))
    with pytest.raises(UserError, match="cannot reach the package index") as caught:
        fetch(RELEASE, tmp_path / "x", silent, index=index, cache=cache)
    assert "PIP_PROXY" in caught.value.next
    nothing_left(tmp_path, cache)


def test_directory_of_files(mirror: Mirror, cache: Cache, tmp_path: Path) -> None:
    links = tmp_path / "links"
    links.mkdir()
    (links / NAME).write_bytes(tar_of(ascend_files(RELEASE), "top"))
    index = index_of(index_urls=(), find_links=(str(links),))
    assert sdist(RELEASE, silent, index=index, cache=cache) == links / NAME
    assert fetch(RELEASE, tmp_path / "x", silent, index=index, cache=cache).notes


@pytest.mark.parametrize("kind", ["file", "full directory", "link to nowhere"])
def test_destination_in_use(served: Mirror, cache: Cache, tmp_path: Path, kind: str) -> None:
    dest = tmp_path / "x"
    if kind == "file":
        dest.write_text("mine")
    elif kind == "full directory":
        dest.mkdir()
        (dest / "mine").write_text("mine")
    else:
        dest.symlink_to(tmp_path / "nowhere")
    with pytest.raises(UserError, match="the destination is"):
        fetch(RELEASE, dest, silent, index=index_of(served), cache=cache)
    assert served.requests == []
    assert dest.is_symlink() or list(dest.parent.rglob("*"))


@pytest.mark.parametrize("there", [False, True], ids=["new", "empty directory"])
@pytest.mark.parametrize("when", [NAME, f"unpacking {NAME}"], ids=["downloading", "unpacking"])
def test_interrupted(served: Mirror, cache: Cache, tmp_path: Path, when: str, there: bool) -> None:
    dest = tmp_path / "a" / "b"
    if there:
        dest.mkdir(parents=True)

    def progress(what: str, done: int, total: int) -> None:
        if what == when and done == total:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch(RELEASE, dest, progress, index=index_of(served), cache=cache)
    if there:
        assert list(dest.parent.iterdir()) == [dest]
        assert list(dest.iterdir()) == []
        dest.rmdir()
        dest.parent.rmdir()
    nothing_left(tmp_path, cache)


def test_destination_that_cannot_be_written(served: Mirror, cache: Cache, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(UserError, match="cannot write there"):
        fetch(RELEASE, tmp_path / "file" / "x", silent, index=index_of(served), cache=cache)
    assert (tmp_path / "file").read_text() == "mine"


# --- archives ---


def scrambled(data: bytes) -> bytes:
    return data[:60] + bytes(byte ^ 0xFF for byte in data[60:90]) + data[90:]


def odd_tar(*members: tuple[str, str, str]) -> bytes:
    """A whole fake release and ``members``: (name, kind, target or contents)."""
    buffer = io.BytesIO(tar_of(ascend_files(RELEASE), "top"))
    result = io.BytesIO()
    with tarfile.open(fileobj=buffer) as plain, tarfile.open(fileobj=result, mode="w:gz") as tar:
        for member in plain:
            tar.addfile(member, plain.extractfile(member))
        for name, kind, text in members:
            info = tarfile.TarInfo(name)
            if kind == "file":
                info.size = len(text)
                tar.addfile(info, io.BytesIO(text.encode()))
                continue
            info.type = {
                "link": tarfile.SYMTYPE,
                "hard": tarfile.LNKTYPE,
                "pipe": tarfile.FIFOTYPE,
            }[kind]
            info.linkname = text
            tar.addfile(info)
    return result.getvalue()


BAD_ARCHIVES = {
    "above": (odd_tar(("top/../../evil", "file", "x")), "outside the destination"),
    "link out": (odd_tar(("top/l", "link", "../../..")), "outside the destination"),
    "absolute link": (odd_tar(("top/l", "link", "/etc/passwd")), "absolute path"),
    "hard link out": (odd_tar(("top/l", "hard", "../../evil")), "outside the destination"),
    "pipe": (odd_tar(("top/p", "pipe", "")), "special file"),
    "two tops": (odd_tar(("other/x", "file", "x")), "2 entries at its top"),
    "cut off": (tar_of(ascend_files(RELEASE), "top")[:-40], "ended before"),
    "scrambled": (scrambled(tar_of(ascend_files(RELEASE), "top")), "cannot unpack"),
    "no archive": (b"<html>please log in</html>", "could not be opened"),
    "empty file": (b"", "cannot unpack"),
    "no members": (tar_of({}, "top"), "0 entries at its top"),
    "another project": (tar_of({"setup.py": b""}, "top"), "not a vllm-ascend tree"),
}
"""Contents, and what is told of them."""


@pytest.mark.parametrize("name", BAD_ARCHIVES)
def test_bad_archive(mirror: Mirror, cache: Cache, tmp_path: Path, name: str) -> None:
    data, told = BAD_ARCHIVES[name]
    mirror.add(PROJECT, NAME, data)
    with pytest.raises(UserError, match=told) as caught:
        fetch(RELEASE, tmp_path / "a" / "x", silent, index=index_of(mirror), cache=cache)
    assert "sdist" in caught.value.what
    nothing_left(tmp_path, cache)


def test_link_inside_is_kept(mirror: Mirror, cache: Cache, tmp_path: Path) -> None:
    mirror.add(PROJECT, NAME, odd_tar(("top/link.md", "link", "Dockerfile")))
    fetch(RELEASE, tmp_path / "x", silent, index=index_of(mirror), cache=cache)
    assert (tmp_path / "x" / "link.md").readlink() == Path("Dockerfile")


def test_python_without_the_filter(
    served: Mirror, cache: Cache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(tarfile, "data_filter")
    with pytest.raises(UserError, match="cannot unpack archives safely"):
        fetch(RELEASE, tmp_path / "x", silent, index=index_of(served), cache=cache)
    nothing_left(tmp_path, cache)


@pytest.mark.network
def test_real_release(release_tree: ReleaseTree, tmp_path: Path) -> None:
    """Through the user's own index; the other releases come the same way in `release_tree`."""
    release = RELEASES[-1]
    pristine = release_tree(release)
    checkout = fetch(release, tmp_path / "x", silent)
    assert (checkout.release, checkout.notes) == (release, ())
    sizes = [
        {path.relative_to(root): path.stat().st_size for path in root.rglob("*") if path.is_file()}
        for root in (checkout.root, pristine)
    ]
    assert sizes[0] == sizes[1]
    assert len(sizes[0]) > 1000
