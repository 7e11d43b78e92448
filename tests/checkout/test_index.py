"""Finding files on mirrors, in directories and on several indexes."""

from __future__ import annotations

from pathlib import Path

import pytest

from ascendport.checkout.cache import Cache
from ascendport.checkout.index import Index, remembered
from ascendport.errors import UserError
from tests.checkout.conftest import Mirror, StartMirror, index_of

pytestmark = pytest.mark.usefixtures("clean_pip")


@pytest.mark.parametrize("json", [False, True], ids=["html", "json"])
def test_sdist_and_wheel(mirror: Mirror, json: bool) -> None:
    mirror.json = json
    sdist = mirror.add("some-thing", "some_thing-1.0rc1.tar.gz", b"sdist")
    mirror.add("some-thing", "some_thing-1.0-cp38-abi3-manylinux_2_28_x86_64.whl", b"larger")
    small = mirror.add("some-thing", "some_thing-1.0-cp38-abi3-win_arm64.whl", b"small")
    index = index_of(mirror)
    found = index.find_sdist("some-thing", "v1.0.rc1")
    assert (found.filename, found.sha256) == ("some_thing-1.0rc1.tar.gz", sdist)
    assert found.url == f"{mirror.base}/files/some_thing-1.0rc1.tar.gz"
    assert found.local_path is None
    wheel = index.find_wheel("some-thing", "1.0")
    assert (wheel.sha256, index.size(wheel)) == (small, 5)


def test_unknown_version_names_the_nearest(mirror: Mirror) -> None:
    for version in ("0.9", "1.0", "1.2", "1.4", "2.0"):
        mirror.add("p", f"p-{version}.tar.gz", b"")
    with pytest.raises(UserError, match=r"no p 1\.3") as caught:
        index_of(mirror).find_sdist("p", "1.3")
    assert caught.value.next == "nearest: 1.0, 1.2, 1.4, 2.0; newest: 2.0"
    with pytest.raises(UserError, match="'main' is not a version of p") as caught:
        index_of(mirror).find_sdist("p", "main")
    assert "2.0" in caught.value.next


def test_version_without_that_kind(mirror: Mirror) -> None:
    mirror.add("p", "p-1.0.tar.gz", b"")
    mirror.add("p", "p-1.1-py3-none-any.whl", b"")
    with pytest.raises(UserError, match=r"p 1\.1 has no sdist"):
        index_of(mirror).find_sdist("p", "1.1")


def test_local_build_stands_in(mirror: Mirror) -> None:
    mirror.add("p", "p-1.0+cpu-py3-none-any.whl", b"")
    assert index_of(mirror).find_wheel("p", "1.0").version == "1.0+cpu"
    mirror.add("p", "p-1.0-py3-none-any.whl", b"")
    assert index_of(mirror).find_wheel("p", "1.0").version == "1.0"
    with pytest.raises(UserError):
        index_of(mirror).find_wheel("p", "1.1")


def test_no_such_package(mirror: Mirror) -> None:
    with pytest.raises(UserError, match="no package p on the package index") as caught:
        index_of(mirror).find_sdist("p", "1")
    assert mirror.url in caught.value.where


def test_one_of_two_indexes_is_down(mirror: Mirror) -> None:
    mirror.add("p", "p-1.0.tar.gz", b"")
    index = index_of(mirror, index_urls=("http://127.0.0.1:1/simple/", mirror.url))
    assert index.find_sdist("p", "1.0").version == "1.0"
    with pytest.raises(UserError, match=r"no p 2\.0") as caught:
        index.find_sdist("p", "2.0")
    assert "not asked: http://127.0.0.1:1/simple/p/ (no connection)" in caught.value.next


def test_no_index_answers() -> None:
    index = index_of(index_urls=("http://u:secret@127.0.0.1:1/simple/",))
    with pytest.raises(UserError, match="cannot reach the package index") as caught:
        index.find_sdist("p", "1.0")
    for way in ("PIP_PROXY", "PIP_INDEX_URL", "PIP_FIND_LINKS"):
        assert way in caught.value.next
    assert "secret" not in str(caught.value)


def test_plain_http_is_refused_unless_trusted(mirror: Mirror) -> None:
    mirror.add("p", "p-1.0.tar.gz", b"")
    url = "http://mirror.invalid/simple/"
    with pytest.raises(UserError, match="trusted-host"):
        index_of(index_urls=(url,), proxy=mirror.base).find_sdist("p", "1.0")
    trusting = index_of(index_urls=(url,), proxy=mirror.base, trusted_hosts=("mirror.invalid",))
    assert trusting.find_sdist("p", "1.0").version == "1.0"


def test_credentials_of_the_index_do_not_show(mirror: Mirror) -> None:
    mirror.add("p", "p-1.0.tar.gz", b"")
    mirror.user = "me:secret"
    index = index_of(index_urls=(f"http://me:secret@127.0.0.1:{mirror.port}/simple/",))
    assert "secret" not in index.find_sdist("p", "1.0").url
    assert "secret" not in index.key("p", "1.0", "sdist")
    with pytest.raises(UserError, match="status 401"):
        index_of(mirror).find_sdist("p", "1.0")


def test_directory_of_files(tmp_path: Path) -> None:
    folder = tmp_path / "räder"
    folder.mkdir()
    (folder / "p-1.0.tar.gz").write_bytes(b"abc")
    index = index_of(index_urls=(), find_links=(str(folder),))
    found = index.find_sdist("p", "1.0")
    assert found.local_path == folder / "p-1.0.tar.gz"
    assert (found.sha256, index.size(found)) == (None, 3)


def test_file_with_a_hash_goes_first(mirror: Mirror, tmp_path: Path) -> None:
    (tmp_path / "p-1.0.tar.gz").write_bytes(b"abc")
    sha = mirror.add("p", "p-1.0.tar.gz", b"abc")
    index = index_of(mirror, find_links=(str(tmp_path),))
    assert index.find_sdist("p", "1.0").sha256 == sha


def test_index_on_this_disk(tmp_path: Path) -> None:
    page = tmp_path / "ein index" / "p"
    page.mkdir(parents=True)
    (page / "p-1.0.tar.gz").write_bytes(b"abc")
    digest = "0" * 64
    (page / "index.html").write_text(f'<a href="p-1.0.tar.gz#sha256={digest}">p</a>')
    found = index_of(index_urls=(page.parent.as_uri(),)).find_sdist("p", "1.0")
    assert (found.local_path, found.sha256) == (page / "p-1.0.tar.gz", digest)


def test_missing_directory_is_told(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such directory"):
        index_of(index_urls=(), find_links=(str(tmp_path / "no"),)).find_sdist("p", "1")


def test_environment_of_the_user(
    mirror: Mirror, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirror.add("p", "p-1.0.tar.gz", b"")
    (tmp_path / "p-2.0.tar.gz").write_bytes(b"")
    monkeypatch.setenv("PIP_INDEX_URL", mirror.url)
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    assert Index.of_user().find_sdist("p", "1.0")
    assert Index.of_user().find_sdist("p", "2.0")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    assert Index.of_user().find_sdist("p", "2.0")
    with pytest.raises(UserError, match=r"no p 1\.0"):
        Index.of_user().find_sdist("p", "1.0")


def test_answers_are_remembered_for_the_same_index(start_mirror: StartMirror, cache: Cache) -> None:
    mirror, other = start_mirror(), start_mirror()
    mirror.add("p", "p-1.0.tar.gz", b"one")
    other.add("p", "p-1.0.tar.gz", b"two")
    first = remembered(cache, index_of(mirror), "p", "1.0", "sdist")
    asked = len(mirror.requests)
    assert remembered(cache, index_of(mirror), "p", "1.0", "sdist") == first
    assert len(mirror.requests) == asked
    assert remembered(cache, index_of(other), "p", "1.0", "sdist").sha256 != first.sha256


def test_answers_without_a_hash_are_not_remembered(mirror: Mirror, cache: Cache) -> None:
    mirror.add("p", "p-1.0.tar.gz", b"one", sha256=None)
    for _ in range(2):
        remembered(cache, index_of(mirror), "p", "1.0", "sdist")
    assert mirror.requests.count("GET /simple/p/") == 2
