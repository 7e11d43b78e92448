"""Runs a checkout's own store tests, before and after, each on a copy in a child process."""

from __future__ import annotations

import importlib.util
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import ascendport
from ascendport.harness.pytest_child import PytestChild
from ascendport.harness.workspace import write_tree
from ascendport.store.loading import installed_vllm

TESTS = "tests/ut/distributed/ascend_store"
NEEDS = ("pytest", "torch", "numpy", "prometheus_client", "regex", "zmq")
BUILD_INFO = "vllm_ascend/_build_info.py"
"""Written by vllm-ascend's build; some releases import it."""


def missing(root: Path) -> str:
    """Why the tests of the checkout at ``root`` cannot run here; empty: they can."""
    if not (root / TESTS).is_dir():
        return f"the checkout has no {TESTS}"
    absent = [name for name in NEEDS if importlib.util.find_spec(name) is None]
    if absent:
        return f"needs {', '.join(absent)}; pip install 'ascendport[store]' pytest"
    return ""


def which() -> str:
    """Which vllm the tests see, in words."""
    version = installed_vllm()
    return f"vllm {version}" if version else "the tests' mocks of vllm"


@contextmanager
def running(
    root: Path,
    files: Mapping[str, bytes],
    timeout_s: float,
    tests: Sequence[str] = (TESTS,),
    more: Sequence[str] = (),
) -> Iterator[PytestChild]:
    """Starts the tests on a copy of the checkout with ``files`` (path → contents) in it. They are
    stopped, and the copy removed, at the end of the block.

    ``tests``: files and folders; ``more``: further options of pytest."""
    with tempfile.TemporaryDirectory(prefix="ascendport-") as directory:
        copy = Path(directory) / "tree"
        _copy(root, copy)
        write_tree(copy, files)
        started = _start(copy, timeout_s, tests, more)
        try:
            yield started
        finally:
            started.stop()


def _start(tree: Path, timeout_s: float, tests: Sequence[str], more: Sequence[str]) -> PytestChild:
    options = [*tests, *more, "--rootdir", str(tree)]
    if not installed_vllm():
        options += ["--noconftest", "-p", "ascendport.store.pytest_plugin"]
    package = Path(ascendport.__file__).parent.parent
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join((str(tree), str(package))),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    return PytestChild(
        options, cwd=tree, scratch=tree.parent, environment=environment, timeout_s=timeout_s
    )


def _copy(root: Path, copy: Path) -> None:
    """What the tests can import: the package's Python files and the unit tests."""

    def other(folder: str, names: list[str]) -> list[str]:
        return [
            name
            for name in names
            if not (Path(folder) / name).is_dir() and not name.endswith((".py", ".json", ".toml"))
        ]

    # Without their modes: a file that nobody may write would stay the one before.
    for folder in ("vllm_ascend", "tests/ut"):
        shutil.copytree(root / folder, copy / folder, ignore=other, copy_function=shutil.copyfile)
    if (root / "tests/__init__.py").is_file():
        shutil.copyfile(root / "tests/__init__.py", copy / "tests/__init__.py")
    if not (copy / BUILD_INFO).exists():
        (copy / BUILD_INFO).write_text('__device_type__ = "A2"\n')
