"""What is recorded of a launch is what triton would compile."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ascendport.errors import UserError
from ascendport.harness.case import Case, Role, Tensor, Workload, numpy_dtype
from ascendport.harness.launches import Launch, Recording, record
from ascendport.harness.loading import Device
from ascendport.harness.portcode import PortCode
from ascendport.harness.workspace import Tree, write_tree
from tests.conftest import ReleaseTree
from tests.evil import texts

pytestmark = pytest.mark.ascend

CASE = Case("one")


def port(launch: Any, columns: int = 48, dtype: str = "bf16") -> PortCode:
    def workload(case: Case, variant: str, rng: np.random.Generator) -> Workload:
        x = rng.standard_normal((100, columns)).astype(numpy_dtype(dtype))
        return Workload(
            {"x": Tensor(x), "out": Tensor(x, Role.OUT, row_stride=columns + 1)}, {"factor": 2.5}
        )

    def reference(workload: Workload, variant: str) -> dict[str, Any]:
        return {}

    return PortCode((CASE,), workload, launch, reference)


def scale(entry: Any, tensors: Any, scalars: Any, variant: str) -> None:
    entry(tensors["out"], tensors["x"], scalars["factor"])


def tree(folder: Path, text: str = texts.VICTIM) -> Tree:
    files = {**texts.TREE, texts.FILE: text}
    write_tree(folder, {name: body.encode() for name, body in files.items()})
    return Tree(folder)


def only(recorded: Recording) -> Launch:
    assert len(recorded.launches) == 1
    return recorded.launches[0]


def test_one_launch_in_full(tmp_path: Path) -> None:
    place = tree(tmp_path)
    launch = only(record(place, texts.FILE, "scale", port(scale), CASE, "v", device=Device(24)))
    assert launch.to_json() == {
        "file": texts.FILE,
        "kernel": "_scale_kernel",
        "grid": [24],
        "signature": {
            "out_ptr": "*bf16",
            "out_stride": "i32",
            "x_ptr": "*bf16",
            "x_stride": "i32",
            "factor": "fp32",
            "rows": "i32",
            "columns": "i32",
        },
        "constants": {"PROGRAMS": 24, "BLOCK": 256},
        "divisible_by_16": ["out_ptr", "x_ptr", "x_stride", "columns", "BLOCK"],
        "equal_to_1": [],
        "options": {"multibuffer": False},
        "tensors": {
            "out_ptr": {
                "tensor": "out",
                "dtype": "bf16",
                "shape": [100, 48],
                "strides": [49, 1],
                "offset": 0,
            },
            "x_ptr": {
                "tensor": "x",
                "dtype": "bf16",
                "shape": [100, 48],
                "strides": [48, 1],
                "offset": 0,
            },
        },
        "scalars": {
            "out_stride": 49,
            "x_stride": 48,
            "factor": 2.5,
            "rows": 100,
            "columns": 48,
        },
        "note": "",
    }
    assert json.loads(json.dumps(launch.to_json())) == launch.to_json()
    assert launch.programs == 24
    assert launch.attrs().arg_properties == {"tt.divisibility": [0, 2, 3, 6, 8], "tt.equal_to": []}
    assert launch.function.fn.__name__ == "_scale_kernel"


def test_one_becomes_a_constant(tmp_path: Path) -> None:
    code = port(scale, columns=1, dtype="fp32")
    launch = only(record(tree(tmp_path), texts.FILE, "scale", code, CASE, "v"))
    assert launch.equal_to_1 == ("x_stride", "columns")
    assert launch.constants == {"x_stride": 1, "columns": 1, "PROGRAMS": 40, "BLOCK": 256}
    assert launch.signature["columns"] == "i32"


TORCH = texts.changed(
    "    programs = min", "    import torch\n    x = x[1:].to(torch.float32)\n    programs = min"
)
HALF = texts.changed("    programs = min", "    x = x[2:]\n    programs = min")


@pytest.mark.parametrize(
    ("text", "name", "offset", "kind"),
    [(TORCH, "", 0, "*fp32"), (HALF, "x", 96, "*bf16")],
    ids=["made-by-the-launcher", "a-part"],
)
def test_launcher_that_needs_torch_gets_it(
    tmp_path: Path, text: str, name: str, offset: int, kind: str
) -> None:
    launch = only(record(tree(tmp_path, text), texts.FILE, "scale", port(scale), CASE, "v"))
    argument = launch.tensors["x_ptr"]
    assert (argument.tensor, argument.offset) == (name, offset)
    assert launch.signature["x_ptr"] == kind
    assert launch.tensors["out_ptr"].tensor == "out"


@pytest.mark.parametrize("torch", [False, True], ids=["light", "torch"])
def test_light_and_torch_tensors_record_the_same(tmp_path: Path, torch: bool) -> None:
    touched = texts.changed("    programs = min", "    x[0]\n    programs = min")
    text = touched if torch else texts.VICTIM
    launch = only(record(tree(tmp_path, text), texts.FILE, "scale", port(scale), CASE, "v"))
    plain = only(record(tree(tmp_path / "b"), texts.FILE, "scale", port(scale), CASE, "v"))
    assert launch.to_json() == plain.to_json()


WRAPPED = texts.changed(
    "@triton.jit\n",
    "@triton.autotune([triton.Config({'BLOCK': 64}), triton.Config({'BLOCK': 32})], key=[])\n"
    "@triton.heuristics({'PROGRAMS': lambda args: args['rows'] - 93})\n@triton.jit\n",
    texts.changed(
        "PROGRAMS=programs, BLOCK=256, multibuffer=False",
        "multibuffer=True",
        texts.changed("[(programs,)]", "[lambda meta: (meta['BLOCK'], 2)]"),
    ),
)


def test_wrappers_are_resolved(tmp_path: Path) -> None:
    launch = only(record(tree(tmp_path, WRAPPED), texts.FILE, "scale", port(scale), CASE, "v"))
    assert (launch.constants["BLOCK"], launch.constants["PROGRAMS"]) == (64, 7)
    assert launch.grid == (64, 2)
    assert launch.note == "autotuned: first of 2 configurations"
    assert launch.options["multibuffer"] is True


def test_unknown_option_is_refused_as_at_a_launch(tmp_path: Path) -> None:
    place = tree(tmp_path, texts.EVIL["unknown-option"])
    with pytest.raises(KeyError, match="multibufer"):
        record(place, texts.FILE, "scale", port(scale), CASE, "v")


def test_everything_is_put_back(tmp_path: Path) -> None:
    from triton.runtime.driver import driver
    from triton.runtime.jit import JITFunction

    kept = (JITFunction.run, driver.active, sys.meta_path[:])
    with pytest.raises(ValueError, match="thanks"):
        record(tree(tmp_path, texts.EVIL["raises"]), texts.FILE, "scale", port(scale), CASE, "v")
    assert (JITFunction.run, driver.active, sys.meta_path) == kept


def test_interpreter_mode_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    with pytest.raises(UserError, match="TRITON_INTERPRET"):
        record(tree(tmp_path), texts.FILE, "scale", port(scale), CASE, "v")


@pytest.mark.network
def test_real_release(release_tree: ReleaseTree) -> None:
    from ascendport.harness.portcode import load_port
    from ascendport.ports.manifest import load

    grammar = load_port(load(Path(__file__).parents[2] / "kernels" / "grammar_bitmask"))
    place = Tree(Path("/nonexistent"), release_tree("0.30.0rc2"))
    (case,) = grammar.of("packed", ("64-rows-bf16",))
    file = "vllm_ascend/ops/triton/v2/apply_grammar_bitmask.py"
    launch = only(record(place, file, "_apply_grammar_bitmask_kernel", grammar, case, "packed"))
    assert (launch.file, launch.grid) == (file, (40,))
    assert launch.options == {"multibuffer": False}
