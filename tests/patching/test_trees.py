"""Trees of every kind, and trees that are arranged to lead a write astray."""

from __future__ import annotations

import os
import py_compile
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from ascendport import commands
from ascendport.checkout.tree import Checkout, Layout, recognise
from ascendport.errors import UserError
from ascendport.patching.journal import execute
from ascendport.patching.plan import plan_apply, plan_revert
from ascendport.patching.status import Status, status
from ascendport.ports.manifest import Port, load
from tests.patching.campaign import apply, revert, silent
from tests.patching.conftest import (
    KERNEL,
    KERNEL_TEXT,
    NEW,
    SHIFT,
    WIRING,
    Spec,
    make_checkout,
    make_port,
    snapshot,
)
from tests.patching.faults import REFUSED, Faults, calls_of, in_child, watched

pytestmark = pytest.mark.usefixtures("quick_disk")


def git(where: Path, *words: str) -> str:
    command = ["git", "-c", "user.name=t", "-c", "user.email=t@example.org"]
    command += ["-c", "protocol.file.allow=always", *words]
    done = subprocess.run(command, cwd=where, check=True, capture_output=True)
    return done.stdout.decode()


def repository(root: Path) -> Path:
    make_checkout(root)
    git(root, "init", "-q", "-b", "main")
    git(root, "add", "-A")
    git(root, "commit", "-qm", "start")
    return root


def clean(tmp: Path) -> Path:
    return repository(tmp / "tree")


def dirty(tmp: Path) -> Path:
    root = repository(tmp / "tree")
    (root / KERNEL).write_bytes(KERNEL_TEXT + b"# mine\n")
    (root / "staged.py").write_text("a = 1\n")
    git(root, "add", "staged.py")
    (root / "untracked.py").write_text("b = 1\n")
    return root


def worktree(tmp: Path) -> Path:
    git(repository(tmp / "main"), "worktree", "add", "-q", "-b", "other", str(tmp / "tree"))
    return tmp / "tree"


def submodule(tmp: Path) -> Path:
    outer = tmp / "outer"
    outer.mkdir()
    git(outer, "init", "-q")
    git(outer, "submodule", "--quiet", "add", str(repository(tmp / "inner")), "vendored")
    git(outer, "commit", "-qm", "start")
    return outer / "vendored"


def shallow(tmp: Path) -> Path:
    source = repository(tmp / "source")
    git(tmp, "clone", "-q", "--depth", "1", f"file://{source}", "tree")
    return tmp / "tree"


@pytest.mark.parametrize("kind", [clean, dirty, worktree, submodule, shallow])
def test_git_sees_the_files_and_nothing_else(
    kind: Callable[[Path], Path], tmp_path: Path, scale: Port
) -> None:
    root = kind(tmp_path)
    tree = recognise(root)
    assert tree.layout is Layout.GIT and tree.commit
    index = Path(git(root, "rev-parse", "--path-format=absolute", "--git-path", "index").strip())
    said = git(root, "status", "--porcelain", "--untracked-files=all")
    kept, before = index.read_bytes(), snapshot(root)
    apply(root, scale)
    assert index.read_bytes() == kept
    now = git(root, "--no-optional-locks", "status", "--porcelain", "--untracked-files=all")
    changed = {line[3:] for line in now.splitlines()} - {line[3:] for line in said.splitlines()}
    assert changed <= {KERNEL, WIRING, NEW} and NEW in changed
    revert(root, scale)
    assert index.read_bytes() == kept
    assert snapshot(root) == before
    assert git(root, "status", "--porcelain", "--untracked-files=all") == said


def test_an_installed_package_runs_the_port(tmp_path: Path) -> None:
    site = tmp_path / "site-packages"
    make_checkout(site, {"vllm_ascend/one.py": b"value = 1\n"})
    (site / "setup.py").unlink()
    (site / "vllm_ascend-1.0.dist-info").mkdir()
    (site / "vllm_ascend-1.0.dist-info" / "METADATA").write_text("Version: 1.0\n")
    assert recognise(site).layout is Layout.INSTALLED
    before = snapshot(site)
    port = valued(tmp_path, b"value = 2\n")
    apply(site, port)
    assert imported(site) == "2"
    revert(site, port)
    assert imported(site) == "1"
    shutil.rmtree(site / "vllm_ascend" / "__pycache__")
    assert snapshot(site) == before


def test_an_editable_install_runs_the_port(tmp_path: Path) -> None:
    root = make_checkout(tmp_path / "tree", {"vllm_ascend/one.py": b"value = 1\n"}).root
    site = tmp_path / "site"
    site.mkdir()
    (site / "__editable__.vllm_ascend-1.0.pth").write_text(f"{root}\n")
    apply(root, valued(tmp_path, b"value = 2\n"))
    program = f"import site; site.addsitedir({str(site)!r}); import vllm_ascend.one as m; "
    done = subprocess.run(
        [sys.executable, "-c", program + "print(m.value)"], capture_output=True, check=True
    )
    assert done.stdout == b"2\n"


# --- byte code ---

ONE = "vllm_ascend/one.py"


def valued(tmp_path: Path, text: bytes) -> Port:
    spec = Spec(ONE, text, ["value"], [], b"value = 1\n")
    return make_port(tmp_path / "one", "one", {"only": [spec]})


def imported(root: Path) -> str:
    """What a fresh Python, which writes byte code, finds."""
    env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run(
        [sys.executable, "-c", "import vllm_ascend.one; print(vllm_ascend.one.value)"],
        cwd=root, env={**env, "PYTHONPATH": str(root)}, capture_output=True, check=True,
    )  # fmt: skip
    return done.stdout.decode().strip()


def test_a_cache_that_python_would_not_check_goes_and_comes_back(tmp_path: Path) -> None:
    root = make_checkout(tmp_path / "tree", {ONE: b"value = 1\n"}).root
    py_compile.compile(
        str(root / ONE), invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH
    )
    before = snapshot(root)
    port = valued(tmp_path, b"value = 2\n")
    plan = commands.apply(root, ["one"], [port.folder], silent, dry_run=False, force=False)
    assert [change.action for change in plan.changes] == ["delete", "modify"]
    assert imported(root) == "2"
    revert(root, port)
    (root / "vllm_ascend" / "__pycache__" / f"__init__.{sys.implementation.cache_tag}.pyc").unlink()
    assert snapshot(root) == before
    assert imported(root) == "1"


def test_texts_of_one_size_in_one_second_are_each_seen(tmp_path: Path) -> None:
    root = make_checkout(tmp_path / "tree", {ONE: b"value = 1\n"}).root
    port = valued(tmp_path, b"value = 2\n")
    seen = [imported(root)]
    for digit in (2, 3, 4):
        (port.folder / "only_0.py").write_bytes(b"value = %d\n" % digit)
        apply(root, port)
        seen.append(imported(root))
    revert(root, port)
    seen.append(imported(root))
    assert seen == ["1", "2", "3", "4", "1"]


# --- texts and files of other makes ---


@pytest.mark.parametrize(
    "text",
    [
        KERNEL_TEXT.replace(b"\n", b"\r\n"),
        b"\xef\xbb\xbf" + KERNEL_TEXT.replace(b"\n", b"\r\n"),
        KERNEL_TEXT.replace(b"    ", b"\t"),
        b"# coding: latin-1\n# \xe9\n" + KERNEL_TEXT.removesuffix(b"\n"),
    ],
    ids=["crlf", "byte-order mark", "tabs", "latin-1, no last newline"],
)
def test_unusual_texts_come_back_byte_for_byte(text: bytes, tmp_path: Path, scale: Port) -> None:
    root = make_checkout(tmp_path / "tree", {KERNEL: text}).root
    before = snapshot(root)
    apply(root, scale)
    assert (root / KERNEL).read_bytes() != text
    revert(root, scale)
    assert snapshot(root) == before


def test_no_hard_link_is_made(checkout: Checkout, scale: Port) -> None:
    calls = calls_of(checkout.root, lambda: execute(plan_apply(checkout, [scale])))
    calls += calls_of(checkout.root, lambda: execute(plan_revert(checkout)))
    assert not [call for call in calls if call.startswith(("link ", "symlink "))]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_root_leaves_the_owner_and_the_mode(checkout: Checkout, scale: Port) -> None:
    path = checkout.path(KERNEL)
    os.chown(path, 12345, 54321)
    path.chmod(0o2750)
    execute(plan_apply(checkout, [scale]))
    seen = path.stat()
    assert (seen.st_uid, seen.st_gid, seen.st_mode & 0o7777) == (12345, 54321, 0o2750)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_a_file_of_another_user_is_refused_before_writing() -> None:
    # Not below pytest's directory, which nobody else may enter.
    with tempfile.TemporaryDirectory() as folder:
        root = make_checkout(Path(folder, "tree")).root
        spec = Spec(KERNEL, SHIFT, ["shift"], [], KERNEL_TEXT)
        port = make_port(Path(folder, "port"), "shift", {"only": [spec]})
        for path in (Path(folder), *Path(folder).rglob("*")):
            path.chmod(0o777)
        before = snapshot(root)
        tree = Checkout(root, Layout.SOURCE)

        def as_nobody() -> None:
            os.setgid(65534)
            os.setuid(65534)
            (refused,) = plan_apply(tree, [port]).refused
            assert "belongs to another user" in refused.reason
            raise UserError(refused.reason)

        assert in_child(as_nobody) == REFUSED
        assert snapshot(root) == before


def test_extended_attributes_stay(checkout: Checkout, scale: Port) -> None:
    path = checkout.path(KERNEL)
    try:
        os.setxattr(path, "user.note", b"mine")
    except OSError:
        pytest.skip("the file system keeps no attributes")
    execute(plan_apply(checkout, [scale]))
    assert os.getxattr(path, "user.note") == b"mine"


# --- staying inside ---


def _execute_calls(root: Path, port: Port) -> list[str]:
    tree = make_checkout(root)
    plan = plan_apply(tree, [port])
    return calls_of(tree.root, lambda: execute(plan))


@pytest.mark.parametrize(
    ("moment", "names"),
    [
        ("write .ascendport/.intent.json.ascendport-new", ("ops",)),
        ("unlink vllm_ascend/patch/.wire.py.ascendport-new", ("ops", "patch")),
    ],
    ids=["before the first file", "between two files"],
)
def test_a_directory_that_becomes_a_link_while_applying(
    moment: str, names: tuple[str, ...], tmp_path: Path, scale: Port
) -> None:
    """Nothing outside is written, neither by the change nor by putting it back."""
    checkout = make_checkout(tmp_path / "tree")
    outside = tmp_path / "outside"
    outside.mkdir()
    calls = _execute_calls(tmp_path / "counted", scale)
    plan = plan_apply(checkout, [scale])
    seen = []

    def swap() -> None:
        for name in names:
            folder = checkout.path(f"vllm_ascend/{name}")
            folder.rename(outside / name)
            folder.symlink_to(outside / name)
        seen.append(snapshot(outside))

    at = calls.index(moment)
    if len(names) > 1:
        at -= 3  # before the directory of the second file is opened
    with watched(Faults(checkout.root, at, then=swap)), pytest.raises(UserError):
        execute(plan)
    assert snapshot(outside) == seen[0]
    for name in names:
        folder = checkout.path(f"vllm_ascend/{name}")
        folder.unlink()
        (outside / name).rename(folder)
    commands.status(checkout.root, ["scale"], [scale.folder], silent)
    assert status(checkout, [scale])[0].status is Status.APPLICABLE
    assert checkout.read(KERNEL) == KERNEL_TEXT


def test_an_edit_in_front_of_the_replace_is_noticed(tmp_path: Path, scale: Port) -> None:
    checkout = make_checkout(tmp_path / "tree")
    calls = _execute_calls(tmp_path / "counted", scale)
    moment = calls.index("fsync vllm_ascend/patch/.wire.py.ascendport-new")
    plan = plan_apply(checkout, [scale])
    mine = checkout.path(WIRING).read_bytes() + b"mine = 1\n"

    def type_it() -> None:
        checkout.path(WIRING).write_bytes(mine)

    edit = Faults(checkout.root, moment, then=type_it)
    with watched(edit), pytest.raises(UserError, match="edited meanwhile"):
        execute(plan)
    assert checkout.read(WIRING) == mine
    assert checkout.read(KERNEL) == KERNEL_TEXT
    assert not checkout.state_dir.exists()


def test_a_state_directory_that_is_a_link_is_never_written_through(
    tmp_path: Path, checkout: Checkout, scale: Port
) -> None:
    plan = plan_apply(checkout, [scale])
    (tmp_path / "outside").mkdir()
    checkout.state_dir.symlink_to(tmp_path / "outside")
    with pytest.raises(UserError, match="symbolic link"):
        execute(plan)
    assert not list((tmp_path / "outside").iterdir())


def test_a_link_to_a_directory_inside_is_refused(
    tmp_path: Path, checkout: Checkout, scale: Port
) -> None:
    ops = checkout.path("vllm_ascend/ops")
    ops.rename(ops.with_name("real"))
    ops.symlink_to("real")
    (port,) = plan_apply(checkout, [scale]).refused
    assert "vllm_ascend/ops is a symbolic link" in port.reason


@pytest.mark.parametrize("path", ["../evil.py", "/etc/evil", "a/../../evil", "a\\..\\evil", "."])
def test_a_manifest_that_leads_outside_is_refused(path: str, shift: Port) -> None:
    manifest = shift.folder / "port.toml"
    text = manifest.read_text()
    manifest.write_text(text.replace(f'"{KERNEL}"', f"'{path}'"))
    with pytest.raises(UserError, match="key variants"):
        load(shift.folder)


def test_a_manifest_runs_no_code(tmp_path: Path, checkout: Checkout, shift: Port) -> None:
    manifest = shift.folder / "port.toml"
    evil = f"__import__('pathlib').Path('{tmp_path}/evil').touch()"
    manifest.write_text(manifest.read_text().replace("'shift'", f'"{evil}"'))
    (shift.folder / "only_0.py").write_text(f"{evil}\n")
    with pytest.raises(UserError):
        plan_apply(checkout, [load(shift.folder)])
    assert not (tmp_path / "evil").exists()


def test_a_ports_own_code_is_not_run(tmp_path: Path, checkout: Checkout, shift: Port) -> None:
    (shift.folder / "only_0.py").write_text(
        f"open('{tmp_path}/evil', 'w')\n\n\ndef shift(rows, step):\n    return rows\n"
    )
    apply(checkout.root, shift)
    assert not (tmp_path / "evil").exists()
