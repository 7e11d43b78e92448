"""Cutting a symbol and what it needs out of a larger source."""

from __future__ import annotations

import pytest

from ascendport.harness.extraction import CannotExtractError, extract

FILES = {
    "vllm/v1/big.py": b"""\
import heavy
import math as maths
from vllm.triton_utils import tl, triton
from vllm.v1.small import twice
from .other import Thing
from vllm.v1.gone import Missing

UNUSED = heavy.start()
if maths.pi > 3:
    LIMIT = 7
else:
    LIMIT = 8

PAIR, REST = (LIMIT, 1), 2


@triton.jit
def helper(x, N: tl.constexpr):
    return x + N


def launcher(x: Missing, y=PAIR) -> Thing:
    z: Missing = twice(LIMIT)
    return helper, z


class Uses:
    parent = helper
""",
    "vllm/v1/small.py": b"import heavy\n\ndef twice(n):\n    return n * 2\n\nheavy.go()\n",
    "vllm/v1/other.py": b"class Thing: pass\n",
}


def test_keeps_what_is_needed_and_nothing_else() -> None:
    files = extract(FILES.get, "vllm/v1/big.py", "launcher")
    assert set(files) == {"vllm/v1/big.py", "vllm/v1/small.py"}
    big = files["vllm/v1/big.py"].decode()
    assert "heavy" not in big
    assert "Uses" not in big
    assert "vllm.v1.gone" not in big
    assert "@triton.jit\ndef helper" in big
    assert "import math as maths" in big
    assert files["vllm/v1/small.py"].decode().count("heavy") == 0


def test_result_runs_without_vllm() -> None:
    small = extract(FILES.get, "vllm/v1/small.py", "twice")["vllm/v1/small.py"]
    space: dict[str, object] = {}
    exec(small, space)
    twice = space["twice"]
    assert callable(twice)
    assert twice(4) == 8


@pytest.mark.parametrize(
    ("path", "symbol", "says"),
    [
        ("vllm/v1/none.py", "x", "no vllm/v1/none.py"),
        ("vllm/v1/small.py", "thrice", "does not define thrice"),
    ],
    ids=["no-file", "no-symbol"],
)
def test_what_is_not_there_is_named(path: str, symbol: str, says: str) -> None:
    with pytest.raises(CannotExtractError, match=says):
        extract(FILES.get, path, symbol)


def test_import_of_a_missing_module_is_named_when_it_is_needed() -> None:
    files = {"vllm/a.py": b"from vllm.b import c\n\ndef f():\n    return c\n"}
    with pytest.raises(CannotExtractError, match=r"vllm\.b"):
        extract(files.get, "vllm/a.py", "f")
