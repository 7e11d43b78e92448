"""Every case of every kernel port on every release: hours, so only with ``-m slow``."""

from __future__ import annotations

from types import ModuleType

import pytest

from ascendport.checks import baseline, oracle, simulate
from ascendport.checks.outcome import Outcome
from ascendport.checks.subject import Options
from ascendport.ports.catalogue import catalogue
from ascendport.ports.manifest import Kind
from tests.conftest import RELEASES, ReleaseTree
from tests.kernels.subjects import subject

PORTS = [port.name for port in catalogue() if port.kind is Kind.KERNEL]


@pytest.mark.slow
@pytest.mark.ascend
@pytest.mark.network
@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("check", [oracle, baseline, simulate], ids=lambda check: check.NAME)
@pytest.mark.parametrize("port", PORTS)
def test_no_case_fails(
    port: str, check: ModuleType, release: str, release_tree: ReleaseTree
) -> None:
    options = Options(socs=("Ascend910B3",))
    result = check.run(subject(release_tree(release), port, options))
    assert result.outcome is Outcome.PASSED, result.reason
