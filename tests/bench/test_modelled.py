"""Modelled rows: one for each case, whatever its launcher does."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ascendport.bench import modelled
from ascendport.bench.rows import Row
from ascendport.checks.subject import Options
from tests.evil import texts
from tests.evil.build import subject

pytestmark = pytest.mark.ascend

OPTIONS = Options(socs=("Ascend910B3",), cases=("rows-3",), timeout_s=120.0)
TAGGED = 'frozenset({"compile", "bench"})'


def _row(folder: Path, before: str, after: str, cases: str = texts.CASES) -> Row:
    cases = texts.changed('frozenset({"compile"})', TAGGED, cases)
    given = subject(folder, after, before=before, cases=cases, options=OPTIONS)
    [row] = modelled.rows(given)
    return row


def test_before_and_after_are_modelled(tmp_path: Path) -> None:
    row = _row(tmp_path, texts.VICTIM, texts.RIGHT)
    assert row.before is not None and row.after is not None
    assert 1.0 < row.after < 100.0
    assert row.after != row.before  # another tile
    assert "%" in row.reason


@pytest.mark.slow
def test_two_launches_through_a_tensor_of_the_launcher_add_up(tmp_path: Path) -> None:
    row = _row(tmp_path, texts.RETURNS, texts.RETURNS, texts.RETURNING_CASES)
    once = _row(tmp_path / "once", texts.VICTIM, texts.RIGHT)
    assert row.before == row.after
    assert row.after is not None and once.after is not None
    assert row.after > 1.5 * once.after


@pytest.mark.parametrize(
    "name", ["fails-on-results", pytest.param("launches-by-results", marks=pytest.mark.slow)]
)
def test_a_launcher_that_fails_on_results_has_no_latency(tmp_path: Path, name: str) -> None:
    evil = texts.EVIL_RETURNS[name]
    row = _row(tmp_path, texts.RETURNS, evil, texts.RETURNING_CASES)
    assert row.after is None
    assert "after: " in row.reason


def test_a_copy_has_the_strides_of_the_original() -> None:
    wide = np.arange(40, dtype=np.int32).reshape(4, 10)
    part = wide[:, 2:5]
    twin = modelled._twin(part)
    assert twin.strides == part.strides
    assert (twin == part).all()
    twin[...] = 0
    assert part[1, 0] == 12
