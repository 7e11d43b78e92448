"""source: real trees pass; every way to break callers or neighbours is caught."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ascendport.checkout.tree import recognise
from ascendport.checks import source
from ascendport.checks.outcome import CheckResult, Outcome
from ascendport.checks.subject import Subject
from ascendport.patching.images import images
from ascendport.ports.catalogue import catalogue
from tests.conftest import EACH_RELEASE, ReleaseTree
from tests.evil import texts
from tests.evil.build import subject


def _failed(result: CheckResult) -> dict[str, str]:
    return {c.case: c.reason for c in result.cases if c.outcome is Outcome.FAILED}


@pytest.mark.network
@pytest.mark.parametrize("release", EACH_RELEASE)
def test_every_port_on_every_release(release: str, release_tree: ReleaseTree) -> None:
    tree = recognise(release_tree(release))
    for port in catalogue():
        made = images(tree, port)
        result = source.run(Subject(tree, port, made.variant, made.before, made.after))
        assert result.outcome is Outcome.PASSED, result.reason


@pytest.mark.network
@pytest.mark.parametrize(
    ("old", "new", "case"),
    [
        pytest.param(
            "            vocab_size,\n            BLOCK_SIZE,\n        ):",
            "            vocabulary,\n            BLOCK_SIZE,\n        ):",
            "_apply_grammar_bitmask_kernel",
            id="renamed-argument",
        ),
        pytest.param(
            "            BLOCK_SIZE,\n        ):",
            "            BLOCK_SIZE,\n            more,\n        ):",
            "_apply_grammar_bitmask_kernel",
            id="one-more-argument",
        ),
    ],
)
def test_a_launcher_that_callers_do_not_fit(
    old: str, new: str, case: str, release_tree: ReleaseTree
) -> None:
    tree = recognise(release_tree("0.26.0rc1"))
    port = next(port for port in catalogue() if port.name == "grammar_bitmask")
    made = images(tree, port)
    file = made.variant.targets[0].file
    text = made.after[file].decode()
    assert old in text
    broken = {file: text.replace(old, new, 1).encode()}
    result = source.run(Subject(tree, port, made.variant, made.before, broken))
    assert result.outcome is Outcome.FAILED
    # Also the launcher's own text is no longer the port's.
    assert "_ApplyGrammarBitmaskKernelLauncher" in _failed(result)
    assert "callers do not fit" in _failed(result)[case]


def _evil(tmp_path: Path, after: str, *, text: str | None = None) -> CheckResult:
    """``after`` as the tree's file, ``text`` (default: the same) as the port's own text."""
    given = subject(tmp_path, text if text is not None else after)
    return source.run(replace(given, after={texts.FILE: after.encode()}))


def test_the_control_passes(tmp_path: Path) -> None:
    assert _evil(tmp_path, texts.RIGHT).outcome is Outcome.PASSED


def test_a_renamed_argument(tmp_path: Path) -> None:
    result = _evil(tmp_path, texts.EVIL["renamed-argument"])
    assert "it was scale(out, x, factor), it is scale(out, x, scaling)" in _failed(result)["scale"]


def test_a_kernel_that_only_the_port_calls_may_change_its_arguments(tmp_path: Path) -> None:
    after = texts.RIGHT.replace("factor, rows", "multiplier, rows").replace(
        "* factor", "* multiplier"
    )
    result = _evil(tmp_path, after)
    assert result.outcome is Outcome.PASSED, result.reason


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        pytest.param(
            "from vllm_ascend.ops.triton.triton_utils import cores\n",
            "from vllm_ascend.ops.triton.triton_utils import cores\n\nLIMIT = 3\n",
            "not declared",
            id="something-new",
        ),
        pytest.param(
            "from vllm_ascend.ops.triton.triton_utils import cores\n",
            "",
            "gone",
            id="an-import-gone",
        ),
    ],
)
def test_what_is_not_declared_may_not_change(tmp_path: Path, old: str, new: str, said: str) -> None:
    result = _evil(tmp_path, texts.changed(old, new, texts.RIGHT), text=texts.RIGHT)
    assert said in _failed(result)[f"rest of {texts.FILE}"]


def test_an_import_may_be_added(tmp_path: Path) -> None:
    assert _evil(tmp_path, "import math\n" + texts.RIGHT).outcome is Outcome.PASSED


def test_text_that_is_not_the_ports(tmp_path: Path) -> None:
    result = _evil(tmp_path, texts.EVIL["zeros"], text=texts.RIGHT)
    assert "does not hold the port's text" in _failed(result)["_scale_kernel"]


def test_a_file_that_does_not_parse(tmp_path: Path) -> None:
    result = _evil(tmp_path, texts.RIGHT + "def broken(:\n", text=texts.RIGHT)
    assert result.outcome is Outcome.FAILED
    assert "line" in result.reason
