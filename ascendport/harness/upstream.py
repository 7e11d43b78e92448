"""A checkout's own tests of what a kernel port replaces, run under Triton's interpreter."""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from ascendport.harness.interpret import child_environment
from ascendport.harness.loading import module_name
from ascendport.harness.pytest_child import PytestChild
from ascendport.harness.workspace import Tree

TESTS = "tests"
"""Folder of a checkout that holds its tests."""

TREE = "ASCENDPORT_TREE"
"""Environment variable that tells `pytest_plugin` the tree: `Tree.to_json` as JSON."""

LIMIT_S = 60.0
"""CPU seconds of one test: some launch as many programs as serving would, to see whether an NPU
takes it. A test that needs more is skipped."""

TOO_LONG = f"more than {LIMIT_S:g} s of CPU under the interpreter"

STANDS_IN = "Triton's interpreter in the place of the compiler, the CPU in the place of the NPU"


def files_testing(root: Path, wanted: Mapping[str, frozenset[str]]) -> tuple[str, ...]:
    """The checkout's test files, relative to ``root``, that import one of the symbols ``wanted``
    (file of the tree → symbols)."""
    modules = {module_name(file): symbols for file, symbols in wanted.items()}
    mentioned = [name.rpartition(".")[2].encode() for name in modules]
    found = []
    for file in sorted((root / TESTS).rglob("test_*.py")):
        text = file.read_bytes()
        if any(name in text for name in mentioned) and _imports(text, modules):
            found.append(file.relative_to(root).as_posix())
    return tuple(found)


def _imports(text: bytes, modules: Mapping[str, frozenset[str]]) -> bool:
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return False
    return any(
        alias.name in modules.get(node.module or "", ())
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    )


def start(tree: Tree, tests: Sequence[str], scratch: Path, timeout_s: float) -> PytestChild:
    """pytest on some test files of a tree, begun.

    Tests that upstream skips run too: what the marks say concerns an NPU and its compiler.
    ``scratch``: an empty directory of ours. ``timeout_s``: for all of them.
    """
    options = [str(tree.file(test)) for test in tests]
    options += ["-p", "no:skipping", "-p", "ascendport.harness.pytest_plugin", "--noconftest"]
    # What pytest names a test by is its place below this folder.
    options += ["--import-mode=importlib", "--rootdir", str(tree.base or tree.overlay)]
    environment = {
        **child_environment(),
        TREE: json.dumps(tree.to_json()),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    }
    return PytestChild(
        options, cwd=scratch, scratch=scratch, environment=environment, timeout_s=timeout_s
    )
