from __future__ import annotations

from textwrap import dedent

import pytest

from ascendport.wiring.routes import Reach, reach
from tests.wiring.pairs import ASCEND, analysed

FILE = "vllm_ascend/ops/fast.py"


def reached(patch: str, symbol: str, source: str = ASCEND[FILE]) -> Reach:
    analysis = analysed(patch, ascend={FILE: source})
    return reach(analysis, FILE, dedent(source).encode(), (symbol,))[0]


IMPORT = "import vllm.core as c\nfrom vllm_ascend.ops.fast import fast, Pool\n"
ROUTES = {
    "assigned": (IMPORT + "c.work = fast", "fast", True),
    "assigned to a dead name": (IMPORT + "c.wrok = fast", "fast", False),
    "assigned to a dead and to a live name": (
        IMPORT + "c.wrok = fast\nc.work = fast",
        "fast",
        True,
    ),
    "assigned in a wrapper": (IMPORT + "def w(x): return fast(x)\nc.work = w", "fast", True),
    "wrapper on a dead name": (IMPORT + "def w(x): return fast(x)\nc.wrok = w", "fast", False),
    "assigned as staticmethod": (IMPORT + "c.work = staticmethod(fast)", "fast", True),
    "inactive": (IMPORT + "if False:\n c.work = fast", "fast", False),
    "helper of a reached symbol": (IMPORT + "c.work = fast", "helper", True),
    "helper of a dead symbol": (IMPORT + "c.wrok = fast", "helper", False),
    "never mentioned": (IMPORT + "c.work = fast", "lonely", False),
    "called by vllm_ascend": ("", "serve", True),
    "class used by a reached function": ("", "Pool", True),
    "method that is called": ("", "Pool.put", True),
    "method that nobody calls": ("", "Pool.drop", False),
}


@pytest.mark.parametrize("case", ROUTES, ids=str)
def test_route(case: str) -> None:
    patch, symbol, expected = ROUTES[case]
    found = reached(patch, symbol)
    assert (found.route is not None) == expected, found


def test_dead_and_live_assignments_are_both_kept() -> None:
    found = reached(*ROUTES["assigned to a dead and to a live name"][:2])
    assert [item.assignment.target for item in found.alive] == ["c.work"]
    assert [item.assignment.target for item in found.dead] == ["c.wrok"]
    assert found.dead[0].instead == "work"


def test_the_target_of_an_assignment_is_a_symbol_of_the_patch_file() -> None:
    from tests.wiring.pairs import PATCH

    for name, expected in (("work", True), ("wrok", False)):
        patch = f"import vllm.core as c\nc.{name} = 1"
        found = reach(analysed(patch), PATCH, patch.encode(), (f"c.{name}",))[0]
        assert (found.route is not None) == expected
