"""What the coverage script reads, and what it makes of it."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from ascendport.errors import UserError
from ascendport.store.loading import FOLDER
from ascendport.store.upstream import TESTS
from tests import scripts
from tests.patching.conftest import make_checkout

POOL = b"""class LookupKeyServer:
    def __init__(self):
        def process_request(value):
            if value:
                return 1
            return 0

        self.answer = process_request

    def close(self):
        self.answer = None
        return True


class Other:
    def close(self):
        return False
"""
HALF = b"""from vllm_ascend.distributed.kv_transfer.kv_pool.ascend_store.pool import LookupKeyServer


def test_answer():
    assert LookupKeyServer().answer(1) == 1
"""
WHOLE = b"""import threading

from vllm_ascend.distributed.kv_transfer.kv_pool.ascend_store.pool import LookupKeyServer


def test_close_in_a_thread():
    server = LookupKeyServer()
    assert server.answer(0) == 0
    thread = threading.Thread(target=server.close)
    thread.start()
    thread.join()
    assert server.answer is None
"""
SLOW = b"""import threading


def test_no_end():
    threading.Event().wait()
"""
EXIT = b"""import os

os._exit(3)
"""


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return scripts.script("store_coverage")


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout with a small store and one test of it."""
    packages = [Path(FOLDER).parents[at] for at in range(len(Path(FOLDER).parts) - 1)]
    files = {f"{package}/__init__.py": b"" for package in (*packages, FOLDER)}
    files |= {
        f"{FOLDER}/pool.py": POOL,
        f"{FOLDER}/backend/__init__.py": b"",
        f"{FOLDER}/backend/mooncake.py": b"NAME = 1\n\n\ndef get():\n    return NAME\n",
        "vllm_ascend/platform.py": b"class NPUPlatform:\n    pass\n",
        f"{TESTS}/_mock_deps.py": b"",
        f"{TESTS}/test_half.py": HALF,
    }
    return make_checkout(tmp_path_factory.mktemp("tree"), files).root


def figures(found: Any) -> dict[str, tuple[int, int]]:
    return {name: (lines.ran, lines.there) for name, lines in found.items()}


@pytest.fixture(scope="module")
def alone(script: ModuleType, tree: Path) -> dict[str, tuple[int, int]]:
    """What the tree's own test runs."""
    return figures(script.measured(tree, {}))


def test_what_the_trees_tests_run(alone: dict[str, tuple[int, int]]) -> None:
    assert alone == {
        "__init__.py": (0, 0),
        "backend/__init__.py": (0, 0),
        # Two classes and their methods, what the constructor does, and half of the answer.
        "pool.py": (9, 13),
        # Nobody imports it.
        "backend/mooncake.py": (0, 3),
        "LookupKeyServer.__init__": (2, 2),
        "LookupKeyServer.__init__.process_request": (2, 3),
        "LookupKeyServer.close": (0, 2),
    }


def test_what_further_tests_run_and_without_them(
    script: ModuleType, tree: Path, alone: dict[str, tuple[int, int]]
) -> None:
    file = f"{TESTS}/test_whole.py"
    both = figures(script.measured(tree, {file: WHOLE}))
    assert both["pool.py"] == (12, 13)
    assert both["LookupKeyServer.__init__.process_request"] == (3, 3)
    assert both["LookupKeyServer.close"] == (2, 2)
    assert figures(script.measured(tree, {file: WHOLE}, (file,))) == alone


@pytest.mark.parametrize(
    ("text", "timeout_s", "said"),
    [
        pytest.param(SLOW, 3.0, "no end after 3 s", id="a-test-without-end"),
        pytest.param(EXIT, 300.0, "ended with status 3", id="a-test-that-ends-the-process"),
    ],
)
def test_tests_that_do_not_end_have_no_coverage(
    script: ModuleType,
    tree: Path,
    text: bytes,
    timeout_s: float,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(script, "TIMEOUT_S", timeout_s)
    with pytest.raises(UserError, match=said):
        script.measured(tree, {f"{TESTS}/test_other.py": text})


def test_table(script: ModuleType) -> None:
    lines = script.Lines
    before = {"pool.py": lines(13, 9), "LookupKeyServer.close": lines(2, 0)}
    after = {
        "LookupKeyServer.close": lines(2, 2),
        "LookupKeyClient.close": lines(3, 1),
        "pool.py": lines(13, 12),
        "backend/mooncake.py": lines(3, 3),
        "__init__.py": lines(0, 0),
    }
    assert script.table(before, after).splitlines() == [
        "| | the tree's tests | with the failure tests |",
        "|---|---|---|",
        "| `backend/mooncake.py` | – | 3 of 3 (100 %) |",
        "| `pool.py` | 9 of 13 (69 %) | 12 of 13 (92 %) |",
        "| all files | 9 of 13 (69 %) | 15 of 16 (94 %) |",
        "| `LookupKeyClient.close` | – | 1 of 3 (33 %) |",
        "| `LookupKeyServer.close` | 0 of 2 (0 %) | 2 of 2 (100 %) |",
    ]


def test_a_tree_without_tests_of_the_store(
    script: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_checkout(tmp_path)
    assert script.main([str(tmp_path)]) == 1
    assert f"the checkout has no {TESTS}" in capsys.readouterr().err


def test_a_port_that_does_not_fit(
    script: ModuleType, tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert script.main([str(tree)]) == 1
    assert "failure_tests does not fit" in capsys.readouterr().err
