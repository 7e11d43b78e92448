from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ascendport.checks.subject import Subject
from ascendport.harness.workspace import Tree
from ascendport.store.loading import FOLDER, UnlistedError, loaded, which_vllm
from tests.conftest import RELEASES, ReleaseTree

WORKER = f"{FOLDER}/pool_worker.py"


def _tree(folder: Path, worker: str) -> Tree:
    """A store of our own, of the modules that the harness looks for."""
    texts = {
        "__init__": "",
        "pool_worker": worker,
        "kv_transfer": "",
        "metadata": "",
        "backend/__init__": "backend_map = {}\n",
        "backend/mooncake_backend": "",
    }
    for name, text in texts.items():
        path = folder / FOLDER / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return Tree(folder)


def test_own_modules_are_real_and_gone_afterwards(tmp_path: Path) -> None:
    tree = _tree(tmp_path, "from vllm.logger import logger\nfrom . import metadata\nMARK = 7\n")
    before = set(sys.modules)
    with loaded(tree) as store:
        assert store.worker.MARK == 7
        assert store.vllm == "stand-in for vllm"
    assert not {name for name in set(sys.modules) - before if name.startswith("vllm")}
    assert not list(tmp_path.rglob("*.pyc"))


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("from vllm.config import NoSuchThing\n", "vllm.config.NoSuchThing"),
        ("import vllm.no_such_module\n", "vllm.no_such_module"),
        ("from vllm_ascend.worker import model_runner\n", "vllm_ascend.worker"),
        ("import torch_npu\n", "torch_npu"),
    ],
    ids=["name", "module", "other-part-of-vllm-ascend", "torch-npu"],
)
def test_what_is_not_listed_is_refused_by_name(tmp_path: Path, text: str, named: str) -> None:
    with pytest.raises(UnlistedError, match=named), loaded(_tree(tmp_path, text)):
        pass


def test_vllm_is_used_where_the_pinned_version_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "site"
    (site / "vllm-9.9.9.dist-info").mkdir(parents=True)
    (site / "vllm-9.9.9.dist-info/METADATA").write_text("Name: vllm\nVersion: 9.9.9\n")
    (site / "vllm").mkdir()
    (site / "vllm/__init__.py").write_text("")
    (site / "vllm/logger.py").write_text("logger = 'the real one'\n")
    monkeypatch.syspath_prepend(site)
    tree = _tree(tmp_path / "tree", "from vllm.logger import logger\n")
    assert which_vllm("9.9.9") == "vllm 9.9.9"
    with loaded(tree, "9.9.9") as store:
        assert store.worker.logger == "the real one"
        assert store.vllm == "vllm 9.9.9"
    assert which_vllm("9.9.8") == "stand-in for vllm"
    # What is installed stays in `sys.modules`; here it is not.
    for name in [name for name in sys.modules if name.partition(".")[0] == "vllm"]:
        del sys.modules[name]
    with loaded(tree, "9.9.8") as store:
        assert store.worker.logger != "the real one"


@pytest.mark.network
@pytest.mark.parametrize("release", RELEASES)
def test_every_release_loads(release: str, release_tree: ReleaseTree) -> None:
    with loaded(Tree(Path("/nonexistent"), release_tree(release))) as store:
        assert store.worker.KVPoolWorker.__module__.startswith("vllm_ascend")


@pytest.mark.network
def test_the_tree_in_front_wins(made: Callable[[str], Subject], tmp_path: Path) -> None:
    subject = made("0.30.0rc2")
    path = tmp_path / WORKER
    path.parent.mkdir(parents=True)
    path.write_bytes(subject.after[WORKER])
    with loaded(Tree(tmp_path, subject.checkout.root)) as store:
        assert hasattr(store.worker, "_TpMismatchSlices")
