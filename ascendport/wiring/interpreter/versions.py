"""Comparing version numbers as packaging does (PEP 440)."""

from __future__ import annotations

import ast
import operator
from typing import Any

from packaging.version import InvalidVersion, Version

_OPERATORS = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


def same_version(text: Any, pinned: str) -> bool:
    """``text`` is that version; False where it is no version at all."""
    try:
        return Version(str(text)) == Version(pinned)
    except InvalidVersion:
        return False


def compare_versions(left: str, comparison: ast.cmpop, right: str) -> bool | None:
    """``left <comparison> right``; None for other operators and for what is no version."""
    compare = _OPERATORS.get(type(comparison))
    try:
        return bool(compare(Version(left), Version(right))) if compare else None
    except InvalidVersion:
        return None
