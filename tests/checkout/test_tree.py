"""Which directories are checkouts, and what they say of themselves."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ascendport.checkout.tree import MARKERS, PACKAGE, Checkout, Layout, recognise
from ascendport.errors import UserError
from tests.checkout.conftest import ascend_files, write_files
from tests.conftest import RELEASES, ReleaseTree


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A fake checkout in a path with a space and a non-ASCII letter."""
    return write_files(tmp_path / "größer als" / "Baum", ascend_files())


@pytest.mark.network
@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("below", ["", PACKAGE, f"{PACKAGE}/ops", "tests"])
def test_real_release_is_recognised(release: str, below: str, release_tree: ReleaseTree) -> None:
    root = release_tree(release)
    checkout = recognise(root / below)
    assert checkout.root == root.resolve()
    assert checkout.layout is Layout.SOURCE
    assert checkout.release == release
    assert checkout.commit and len(checkout.commit) >= 7


def test_name_of_the_folder_does_not_count(tree: Path) -> None:
    assert recognise(tree).root == tree.resolve()
    decoy = tree.parent / "vllm-ascend"
    decoy.mkdir()
    (decoy / "README.md").write_text("nothing here")
    with pytest.raises(UserError):
        recognise(decoy)


def test_link_to_a_checkout(tree: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(tree, target_is_directory=True)
    assert recognise(link).root == tree.resolve()
    assert recognise(link / PACKAGE / "ops").root == tree.resolve()


def test_relative_path(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tree / PACKAGE)
    assert recognise(Path()).root == tree.resolve()


# --- layouts ---


def test_source_tree(tree: Path) -> None:
    checkout = recognise(tree)
    assert checkout.layout is Layout.SOURCE
    assert (checkout.release, checkout.commit) == ("9.9.0rc1", "abcdef123")
    assert checkout.state_dir == tree.resolve() / ".ascendport"


def test_source_tree_without_version_file(tree: Path) -> None:
    (tree / PACKAGE / "_version.py").unlink()
    checkout = recognise(tree)
    assert (checkout.release, checkout.commit) == ("9.9.0rc1", None)
    (tree / "PKG-INFO").unlink()
    assert recognise(tree).release is None


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A site-packages directory with an installed vllm-ascend and something else."""
    root = tmp_path / "site-packages"
    files = {name: data for name, data in ascend_files().items() if name.startswith(PACKAGE)}
    files["vllm_ascend-9.9.0rc2.dist-info/METADATA"] = b"Name: x\nVersion: 9.9.0rc2\n\nVersion: 1\n"
    files["numpy/__init__.py"] = b""
    return write_files(root, files)


@pytest.mark.parametrize("below", ["", PACKAGE, f"{PACKAGE}/worker"])
def test_installed_package(site: Path, below: str) -> None:
    checkout = recognise(site / below)
    assert checkout.layout is Layout.INSTALLED
    assert checkout.root == site.resolve()
    assert checkout.release == "9.9.0rc2"
    assert checkout.state_dir == site.resolve() / PACKAGE / ".ascendport"


def test_neighbour_of_an_installed_package_is_no_checkout(site: Path) -> None:
    with pytest.raises(UserError, match="not a vllm-ascend checkout"):
        recognise(site / "numpy")


# --- git, compared with the git program itself ---


def git(where: Path, *words: str) -> str:
    env = {
        **{name: value for name, value in os.environ.items() if not name.startswith("GIT_")},
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        **{
            f"GIT_{who}_{what}": "x@y"
            for who in ("AUTHOR", "COMMITTER")
            for what in ("NAME", "EMAIL")
        },
    }
    done = subprocess.run(
        ["git", *words], cwd=where, env=env, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


@pytest.fixture
def clone(tree: Path) -> Path:
    if shutil.which("git") is None:
        pytest.skip("no git program")
    git(tree, "init", "-q", "-b", "main")
    git(tree, "add", "-A")
    git(tree, "commit", "-q", "-m", "one")
    return tree


def test_git_clone(clone: Path) -> None:
    checkout = recognise(clone / PACKAGE)
    assert checkout.layout is Layout.GIT
    assert checkout.commit == git(clone, "rev-parse", "HEAD")
    assert checkout.release == "9.9.0rc1"  # no tag: what the last build left
    assert checkout.state_dir == clone.resolve() / ".ascendport"


@pytest.mark.parametrize("annotated", [False, True], ids=["light tag", "annotated tag"])
@pytest.mark.parametrize("packed", [False, True], ids=["loose", "packed"])
@pytest.mark.parametrize("detached", [False, True], ids=["on a branch", "detached"])
def test_git_tag_and_commit(clone: Path, annotated: bool, packed: bool, detached: bool) -> None:
    git(clone, "tag", *(("-a", "-m", "t") if annotated else ()), "v9.9.1rc5")
    git(clone, "tag", "nightly")
    if detached:
        git(clone, "checkout", "-q", "--detach")
    if packed:
        git(clone, "pack-refs", "--all")
    checkout = recognise(clone)
    assert checkout.commit == git(clone, "rev-parse", "HEAD")
    assert checkout.release == "9.9.1rc5"
    git(clone, "commit", "-q", "--allow-empty", "-m", "two")
    later = recognise(clone)
    assert later.commit == git(clone, "rev-parse", "HEAD") != checkout.commit
    assert later.release == "9.9.0rc1"


def test_git_worktree(clone: Path, tmp_path: Path) -> None:
    other = tmp_path / "other tree"
    git(clone, "worktree", "add", "-q", "-b", "side", str(other))
    git(other, "commit", "-q", "--allow-empty", "-m", "two")
    checkout = recognise(other)
    assert checkout.layout is Layout.GIT
    assert checkout.commit == git(other, "rev-parse", "HEAD")
    assert checkout.commit != recognise(clone).commit


@pytest.mark.parametrize(
    "head", ["", "ref: refs/heads/nothing\n", "ref: ../../../secret\n", "garbage\n"]
)
def test_git_without_a_readable_commit(clone: Path, head: str) -> None:
    (clone / ".git" / "HEAD").write_text(head)
    checkout = recognise(clone)
    assert (checkout.layout, checkout.commit) == (Layout.GIT, None)


# --- what is not a checkout ---


def test_missing(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such directory") as caught:
        recognise(tmp_path / "nowhere")
    assert "nowhere" in caught.value.where


def test_file(tree: Path) -> None:
    with pytest.raises(UserError, match="this is a file"):
        recognise(tree / "setup.py")


def test_empty(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="empty") as caught:
        recognise(tmp_path)
    assert "ascendport fetch" in caught.value.next


@pytest.mark.parametrize("below", ["", "vllm"])
def test_vllm_itself(tmp_path: Path, below: str) -> None:
    write_files(tmp_path, {f"vllm/{name}.py": b"" for name in ("__init__", "envs", "version")})
    with pytest.raises(UserError, match="vLLM itself"):
        recognise(tmp_path / below)


@pytest.mark.parametrize("marker", [name for name, _ in MARKERS])
def test_every_marker_counts(tree: Path, marker: str) -> None:
    (tree / PACKAGE / marker).unlink()
    with pytest.raises(UserError, match="not a whole vllm-ascend tree") as caught:
        recognise(tree)
    assert marker in caught.value.what


def test_marker_with_other_contents(tree: Path) -> None:
    (tree / PACKAGE / "platform.py").write_text("class SomethingElse: ...\n")
    with pytest.raises(UserError, match=r"platform\.py"):
        recognise(tree)


def test_parent_names_the_candidate(tree: Path) -> None:
    for parent in (tree.parent, tree.parent.parent):
        with pytest.raises(UserError, match="one below") as caught:
            recognise(parent)
        assert str(tree) in caught.value.next


def test_parent_of_several_names_them(tree: Path) -> None:
    write_files(tree.parent / "zweiter", ascend_files())
    with pytest.raises(UserError, match="2 below") as caught:
        recognise(tree.parent)
    assert str(tree) in caught.value.next
    assert "zweiter" in caught.value.next


def test_unrelated(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("hello")
    with pytest.raises(UserError, match="not a vllm-ascend checkout"):
        recognise(tmp_path)


# --- reading ---


def test_read(tree: Path) -> None:
    checkout = recognise(tree)
    assert checkout.read("Dockerfile") == (tree / "Dockerfile").read_bytes()
    assert checkout.read("nothing.py") is None
    assert checkout.read("setup.py/below") is None
    with pytest.raises(UserError, match="cannot read"):
        checkout.read(PACKAGE)


@pytest.mark.parametrize("rel", ["/etc/passwd", "../x", "a/../../x", "", ".", "a\\b", "a\0b"])
def test_path_refuses(rel: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not a path inside"):
        Checkout(tmp_path, Layout.SOURCE).path(rel)


@given(rel=st.text(alphabet="ab./\\ü ", max_size=12))
def test_path_stays_inside(rel: str) -> None:
    root = Path("/some/root")
    try:
        path = Checkout(root, Layout.SOURCE).path(rel)
    except ValueError:
        return
    assert Path(os.path.normpath(path)).is_relative_to(root)


def test_import_is_light() -> None:
    """The module is on the path of commands that answer at once."""
    heavy = {"requests", "unearth", "httpx2", "platformdirs", "filelock", "pydantic", "packaging"}
    heavy |= {"importlib.metadata", "tomllib", "tarfile", "zipfile", "subprocess", "json"}
    code = "import sys, ascendport.checkout.tree; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    bare = subprocess.run(
        [sys.executable, "-c", "import sys; print(*sys.modules)"],
        check=True,
        capture_output=True,
        text=True,
    )
    loaded = set(done.stdout.split()) - set(bare.stdout.split())
    assert "ascendport.checkout.tree" in loaded
    assert not loaded & heavy
