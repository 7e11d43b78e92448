"""Importing a tree's modules without vllm and without package bodies."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from ascendport.harness.light import NeedsTorch
from ascendport.harness.loading import Device, UnavailableError, loaded, module_name
from ascendport.harness.workspace import Tree, workspace, write_tree
from tests.evil import texts

pytestmark = pytest.mark.ascend


def tree(folder: Path, **more: str) -> Tree:
    files = {**texts.TREE, **{f"vllm_ascend/{name}.py": text for name, text in more.items()}}
    write_tree(folder, {name: text.encode() for name, text in files.items()})
    return Tree(folder)


def test_device_properties_are_set_and_nothing_stays(tmp_path: Path) -> None:
    before = set(sys.modules)
    with loaded(tree(tmp_path), texts.FILE, Device(24), light=True) as module:
        assert module.cores() == 24
        assert sys.modules["vllm_ascend.worker.scale"] is module
    assert {name for name in sys.modules if name.startswith(("vllm", "torch_npu"))} <= before
    assert not list(tmp_path.rglob("*.pyc"))


def test_vllm_without_stand_in_is_refused_by_name(tmp_path: Path) -> None:
    place = tree(tmp_path, wants="from vllm.config import VllmConfig\n")
    with (
        pytest.raises(UnavailableError, match=r"vllm\.config"),
        loaded(place, "vllm_ascend/wants.py", light=True),
    ):
        pass


@pytest.mark.parametrize(
    "text",
    ["import torch.nn", "from torch import nn", "import torch\nx = torch.zeros(1)"],
    ids=["submodule", "name", "call"],
)
def test_light_torch_refuses_real_use(tmp_path: Path, text: str) -> None:
    place = tree(tmp_path, wants=text + "\n")
    with pytest.raises(NeedsTorch), loaded(place, "vllm_ascend/wants.py", light=True):
        pass


def test_light_torch_serves_annotations(tmp_path: Path) -> None:
    text = "import torch\ndef f(x: torch.Tensor | None, y: torch.dtype) -> torch.Tensor: ...\n"
    place = tree(tmp_path, wants=text)
    with (
        loaded(place, "vllm_ascend/wants.py", light=True) as module,
        pytest.raises(NeedsTorch, match=r"torch\.Tensor"),
    ):
        isinstance(3, module.torch.Tensor)
    assert "torch" not in sys.modules or hasattr(sys.modules["torch"], "nn")


def test_overlay_wins_hidden_is_hidden_and_the_rest_is_read_in_place(tmp_path: Path) -> None:
    checkout = tmp_path / "tree"
    write_tree(checkout, {"vllm_ascend/a.py": b"x = 1\n", "vllm_ascend/b.py": b"x = 2\n"})
    before = {"vllm_ascend/a.py": b"x = 3\n"}
    after = {"vllm_ascend/a.py": b"x = 4\n", "vllm_ascend/b.py": b"x = 5\n"}
    with workspace(checkout, before, after) as places:
        with loaded(places.before, "vllm_ascend/a.py", light=True) as module:
            assert module.x == 3
        assert places.before.file("vllm_ascend/b.py") is None
        again = Tree.from_json(places.after.to_json())
        with loaded(again, "vllm_ascend/b.py", light=True) as module:
            assert module.x == 5
            assert again.relative(str(module.__file__)) == "vllm_ascend/b.py"
        overlay = places.after.overlay
    assert not overlay.exists()
    assert (checkout / "vllm_ascend/b.py").read_bytes() == b"x = 2\n"


def test_paths_that_leave_the_tree_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not a path inside"):
        write_tree(tmp_path, {"../x": b""})


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("vllm_ascend/worker/a.py", "vllm_ascend.worker.a"),
        ("lib/site-packages/vllm_ascend/a.py", "vllm_ascend.a"),
    ],
)
def test_module_name(path: str, name: str) -> None:
    assert module_name(path) == name
