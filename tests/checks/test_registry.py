from importlib import import_module

import pytest

from ascendport.checks.registry import CHECKS, Check, select
from ascendport.errors import UserError


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_each_check_has_its_modules(check: Check) -> None:
    for kind in check.kinds:
        module = import_module(f"ascendport.checks.{check.module(kind)}")
        assert check.name == module.NAME
        assert callable(module.run)


def test_selection_keeps_the_order_of_the_registry() -> None:
    assert [check.name for check in select(["compile", "source"])] == ["source", "compile"]
    assert select([]) == CHECKS


def test_an_unknown_name_offers_the_nearest() -> None:
    with pytest.raises(UserError, match="oracle"):
        select(["oracel"])
