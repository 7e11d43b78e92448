from importlib import import_module
from pathlib import Path

import pytest

from ascendport.checks.registry import CHECKS, Check, select
from ascendport.errors import UserError
from ascendport.ports.manifest import Kind
from tests.patching.conftest import make_port


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_each_check_has_its_modules(check: Check) -> None:
    for kind in check.kinds:
        module = import_module(f"ascendport.checks.{check.module(kind)}")
        assert check.name == module.NAME
        assert callable(module.run)


def test_selection_keeps_the_order_of_the_registry() -> None:
    assert [check.name for check in select(["compile", "source"])] == ["source", "compile"]
    assert select([check.name for check in CHECKS]) == CHECKS


def test_what_takes_long_runs_on_request_only() -> None:
    left_out = [check.name for check in CHECKS if check not in select([])]
    assert left_out == ["mutations", "soak"]
    assert [check.name for check in select(["soak"])] == ["soak"]


@pytest.mark.parametrize(
    ("kind", "named", "proved"),
    [
        pytest.param("store", (), {"source", "wiring", "calls", "upstream-tests"}, id="store"),
        pytest.param("store", ("source", "soak"), {"source", "soak"}, id="named"),
        pytest.param("kernel", ("soak", "oracle"), {"oracle"}, id="not-of-its-kind"),
    ],
)
def test_a_manifest_names_the_checks_that_prove_it(
    tmp_path: Path, kind: str, named: tuple[str, ...], proved: set[str]
) -> None:
    made = make_port(tmp_path / "zz", "zz", {"any": []}, {"a.py": b""})
    manifest = made.manifest.model_copy(update={"kind": Kind(kind), "checks": named})
    port = made.model_copy(update={"manifest": manifest})
    assert {check.name for check in CHECKS if check.proves_port(port)} == proved


def test_an_unknown_name_offers_the_nearest() -> None:
    with pytest.raises(UserError, match="oracle"):
        select(["oracel"])
