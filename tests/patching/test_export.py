"""The series that export writes gives, by git, the tree that apply gives."""

from __future__ import annotations

import re
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest

from ascendport import commands
from ascendport.checkout.cache import VARIABLE
from ascendport.checkout.tree import Checkout, recognise
from ascendport.checks import last
from ascendport.checks.outcome import CaseResult, CheckResult, Outcome
from ascendport.errors import UserError
from ascendport.patching.export import Author, FileChange, git_diff, message, patch, series
from ascendport.patching.images import images
from ascendport.patching.journal import execute
from ascendport.patching.plan import plan_apply
from ascendport.ports.catalogue import catalogue, select
from ascendport.ports.manifest import Port
from tests.conftest import RELEASES, ReleaseCopy
from tests.patching.campaign import apply, revert, silent
from tests.patching.conftest import KERNEL, KERNEL_TEXT, NEW, make_checkout, our_files

pytestmark = pytest.mark.usefixtures("quick_disk")


def git(root: Path, *words: str) -> str:
    command = ["git", "-c", "user.name=t", "-c", "user.email=t@example.org", *words]
    done = subprocess.run(command, cwd=root, check=True, capture_output=True)
    return done.stdout.decode()


def committed(root: Path) -> Path:
    git(root, "init", "-q", "-b", "main")
    git(root, "config", "core.autocrlf", "false")
    git(root, "config", "user.name", "Zoë Tester")
    git(root, "config", "user.email", "zoe@example.org")
    git(root, "add", "-A")
    git(root, "commit", "-qm", "start")
    return root


def files(root: Path) -> dict[str, tuple[bytes, int]]:
    """Contents and executable bit of every file that is neither git's nor the tool's."""
    return {
        path.relative_to(root).as_posix(): (path.read_bytes(), path.stat().st_mode & 0o100)
        for path in sorted(root.rglob("*"))
        if path.is_file() and not {".git", ".ascendport"} & set(path.relative_to(root).parts)
    }


def exported(root: Path, ports: list[Port], out: Path) -> commands.Exported:
    names, folders = [port.name for port in ports], [port.folder for port in ports]
    return commands.export(root, names, folders, silent, out=out, branch=None)


@pytest.mark.parametrize("applied", [False, True], ids=["unapplied", "applied"])
def test_git_am_gives_what_apply_gives(
    applied: bool, tmp_path: Path, checkout: Checkout, scale: Port, shift: Port
) -> None:
    checkout.path(KERNEL).chmod(0o755)
    root = committed(checkout.root)
    apply(root, scale)
    apply(root, shift)
    wanted = files(root)
    if not applied:
        revert(root, scale)
        revert(root, shift)
    found = exported(root, [shift, scale], tmp_path / "series.patch")
    assert [commit.port for commit in found.commits] == ["scale", "shift"]
    if applied:
        revert(root, scale)
        revert(root, shift)
    git(root, "am", str(tmp_path / "series.patch"))
    assert files(root) == wanted
    log = git(root, "log", "--format=%an|%s", "-2").splitlines()
    assert log == ["Zoë Tester|a port for tests"] * 2
    assert "Task: https://example.org/1" in git(root, "log", "-1", "--format=%b")


@pytest.mark.parametrize(
    "text",
    [
        KERNEL_TEXT.replace(b"\n", b"\r\n"),
        b"\xef\xbb\xbf" + KERNEL_TEXT,
        KERNEL_TEXT.removesuffix(b"\n"),
        b"# -*- coding: latin-1 -*-\n# \xe4\xf6\n" + KERNEL_TEXT,
        KERNEL_TEXT.replace(b"    ", b"\t"),
    ],
    ids=["crlf", "byte-order mark", "no last newline", "latin-1", "tabs"],
)
def test_unusual_texts_go_through_git(
    text: bytes, tmp_path: Path, checkout: Checkout, shift: Port
) -> None:
    checkout.path(KERNEL).write_bytes(text)
    root = committed(checkout.root)
    exported(root, [shift], tmp_path / "series.patch")
    git(root, "am", str(tmp_path / "series.patch"))
    by_git = files(root)
    git(root, "reset", "-q", "--hard", "HEAD~1")
    apply(root, shift)
    assert files(root) == by_git


def test_a_branch_leaves_tree_index_and_head_alone(
    checkout: Checkout, scale: Port, shift: Port
) -> None:
    root = committed(checkout.root)
    (root / "setup.py").write_text("mine = 1\n")
    git(root, "add", "setup.py")
    index = (root / ".git" / "index").read_bytes()
    before = files(root)
    names = ["scale", "shift"]
    folders = [scale.folder, shift.folder]
    commands.export(root, names, folders, silent, out=None, branch="ports")
    assert (root / ".git" / "index").read_bytes() == index
    assert files(root) == before
    with pytest.raises(UserError, match="the branch is there already"):
        commands.export(root, names, folders, silent, out=None, branch="ports")
    assert git(root, "log", "--format=%s", "main..ports").count("\n") == 2
    git(root, "checkout", "-q", "-f", "main")
    apply(root, scale)
    apply(root, shift)
    wanted = files(root)
    revert(root, scale)
    revert(root, shift)
    git(root, "checkout", "-q", "ports")
    assert files(root) == wanted


def test_a_branch_of_another_text_than_heads_is_refused(checkout: Checkout, shift: Port) -> None:
    root = committed(checkout.root)
    path = checkout.path(KERNEL)
    path.write_bytes(path.read_bytes() + b"mine = 1\n")
    with pytest.raises(UserError, match="HEAD has another text"):
        commands.export(root, ["shift"], [shift.folder], silent, out=None, branch="ports")
    assert "ports" not in git(root, "branch")


@pytest.mark.parametrize("name", ["a b", "-x", "a..b"])
def test_a_name_that_is_no_branch(name: str, checkout: Checkout, shift: Port) -> None:
    root = committed(checkout.root)
    with pytest.raises(UserError, match="not a name for a branch"):
        commands.export(root, ["shift"], [shift.folder], silent, out=None, branch=name)


def test_a_branch_needs_git(checkout: Checkout, shift: Port) -> None:
    with pytest.raises(UserError, match="needs a git clone"):
        commands.export(checkout.root, ["shift"], [shift.folder], silent, out=None, branch="ports")


def test_what_does_not_fit_is_not_exported(tmp_path: Path, checkout: Checkout, shift: Port) -> None:
    checkout.path(KERNEL).write_bytes(KERNEL_TEXT.replace(b"row + step", b"row - step"))
    with pytest.raises(UserError, match="port shift does not fit"):
        exported(checkout.root, [shift], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_what_upstream_has_is_not_exported(tmp_path: Path, checkout: Checkout, shift: Port) -> None:
    apply(checkout.root, shift)
    for path in checkout.state_dir.rglob("*"):
        if path.is_file():
            path.unlink()
    with pytest.raises(UserError, match="upstream has them already"):
        exported(checkout.root, [shift], tmp_path / "out")


def test_the_message_has_design_and_figures(shift: Port) -> None:
    (shift.folder / "README.md").write_text(
        "# shift\n\n## Design\n\n- One pass over\n  the rows.\n- No copies.\n\n## Values\n\nx\n"
    )
    subject, body = message(shift, "oracle: passed, 3 cases")
    assert subject == "a port for tests"
    assert "Design\n\n- One pass over the rows.\n- No copies.\n" in body
    assert "Values" not in body
    assert body.endswith("Verified with ascendport\n\noracle: passed, 3 cases\n")
    assert "Verified" not in message(shift, "")[1]


def test_every_port_of_ours_has_a_fit_message() -> None:
    for port in catalogue():
        subject, body = message(port, "")
        assert len(subject) <= 100
        assert port.manifest.task in body
        assert all(len(line) <= 100 for line in body.splitlines() if not line.startswith("|"))


def test_figures_are_those_of_the_same_texts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, checkout: Checkout, shift: Port
) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "cache"))
    made = images(checkout, shift)
    passed = CheckResult.of("oracle", (CaseResult("one", Outcome.PASSED),))
    skipped = CheckResult.not_run("compile", "no compiler")
    last.keep("shift", made.before, made.after, [passed, skipped])
    last.keep("shift", made.before, made.after, [CheckResult("source", Outcome.FAILED)])
    lines = last.figures("shift", made.before, made.after).splitlines()
    assert [line.partition(" (")[0] for line in lines] == [
        "oracle: passed, 1 cases",
        "source: failed, 0 cases",
    ]
    assert last.figures("shift", made.before, {}) == ""
    exported(checkout.root, [shift], tmp_path / "out")
    assert b"oracle: passed, 1 cases" in (tmp_path / "out").read_bytes()


def test_mail_has_nothing_that_ends_it_early(checkout: Checkout, shift: Port) -> None:
    (shift.folder / "README.md").write_text("## Design\n\n---\n\nFrom here on.\n\ndiff -u\n")
    commits = series(plan_apply(checkout, [shift]), [shift], {})
    mail = patch(commits, Author("n", "e@example.org"), datetime(2020, 1, 1, tzinfo=UTC)).decode()
    assert len(re.findall(r"(?m)^---$", mail)) == 1
    assert len(re.findall(r"(?m)^From ", mail)) == 1
    assert mail.index("\n diff -u") < mail.index("\n---\n") < mail.index("\ndiff --git")


def test_a_path_that_is_not_ascii_goes_through_git(tmp_path: Path) -> None:
    root = tmp_path / "repo"
    root.mkdir()
    name = 'größe "1".py'
    (root / name).write_bytes(b"a = 1\n")
    committed(root)
    text = git_diff(FileChange(name, b"a = 1\n", b"a = 2", 0o644))
    subprocess.run(["git", "apply", "-"], input=text, cwd=root, check=True)
    assert (root / name).read_bytes() == b"a = 2"


@pytest.mark.network
@pytest.mark.parametrize(
    "names",
    [
        pytest.param(["bincount", "penalties"], id="two in one file"),
        pytest.param([], id="all that fit", marks=pytest.mark.slow),
    ],
)
def test_our_ports_on_the_latest_release(
    names: list[str], tmp_path: Path, release_copy: ReleaseCopy
) -> None:
    needed = our_files(RELEASES[-1], select(catalogue(), names))
    root = committed(release_copy(RELEASES[-1], tmp_path / "tree", needed))
    out = tmp_path / "series.patch"
    found = commands.export(root, names, [], silent, out=out, branch=None)
    assert len(found.commits) > 1
    commands.apply(root, names, [], silent, dry_run=False, force=False)
    wanted = files(root)
    commands.revert(root, names, [], silent, dry_run=False)
    git(root, "am", str(out))
    assert files(root) == wanted


def test_a_new_file_has_its_header(checkout: Checkout, scale: Port) -> None:
    (commit,) = series(plan_apply(checkout, [scale]), [scale], {})
    (new,) = [change for change in commit.changes if change.file == NEW]
    text = git_diff(new)
    assert b"new file mode 100644\n" in text and b"--- /dev/null\n" in text
    execute(plan_apply(checkout, [scale]))
    assert recognise(checkout.root).read(NEW) == new.after


def test_make_checkout_is_recognised(tmp_path: Path) -> None:
    assert recognise(make_checkout(tmp_path / "t").root).root == (tmp_path / "t").resolve()


@pytest.mark.parametrize("committed_as", ["lf", "crlf"])
def test_line_ends_that_git_converts(
    committed_as: str, tmp_path: Path, checkout: Checkout, scale: Port, shift: Port
) -> None:
    """The clone's files end their lines with CRLF; git keeps LF, or has kept CRLF all along."""
    crlf = KERNEL_TEXT.replace(b"\n", b"\r\n")
    checkout.path(KERNEL).write_bytes(crlf if committed_as == "crlf" else KERNEL_TEXT)
    root = committed(checkout.root)
    git(root, "config", "core.autocrlf", "true")
    checkout.path(KERNEL).write_bytes(crlf)
    git(root, "add", "-A")
    assert not git(root, "status", "--porcelain")
    ports = [scale, shift]
    for port in ports:
        apply(root, port)
    exported(root, ports, tmp_path / "series.patch")
    names, folders = [port.name for port in ports], [port.folder for port in ports]
    commands.export(root, names, folders, silent, out=None, branch="ports")
    git(root, "add", "-A")
    wanted = git(root, "write-tree")
    git(root, "reset", "-q", "--hard")
    git(root, "am", str(tmp_path / "series.patch"))
    assert git(root, "rev-parse", "HEAD^{tree}") == wanted
    assert git(root, "rev-parse", "ports^{tree}") == wanted
