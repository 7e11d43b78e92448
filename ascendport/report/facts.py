"""Results as plain data with stable keys: what --json writes and what the tables show."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import ascendport

if TYPE_CHECKING:
    from ascendport.checkout.tree import Checkout
    from ascendport.checks.outcome import CheckResult
    from ascendport.errors import UserError
    from ascendport.patching.plan import Plan
    from ascendport.patching.status import PortStatus
    from ascendport.ports.manifest import Port

Facts = dict[str, Any]

_PACKAGES = ("triton-ascend", "triton", "ascendnpu-ir", "torch", "torch-npu", "numpy", "vllm")


def checkout(tree: Checkout) -> Facts:
    return {
        "path": str(tree.root),
        "layout": tree.layout.value,
        "release": tree.release,
        "commit": tree.commit,
    }


def environment(**more: Any) -> Facts:
    """Versions of what takes part, read from package metadata; nothing is imported."""
    from importlib import metadata

    versions = {}
    for name in _PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return {
        "ascendport": ascendport.__version__,
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "packages": versions,
        **more,
    }


def ports(found: Sequence[Port]) -> Facts:
    return {
        "ports": [
            {
                "name": port.name,
                "kind": port.kind.value,
                "summary": port.manifest.summary,
                "task": port.manifest.task,
                "variants": [
                    {"name": variant.name, "releases": list(variant.releases())}
                    for variant in port.manifest.variants
                ],
                "folder": str(port.folder),
            }
            for port in found
        ]
    }


def status(tree: Checkout, states: Sequence[PortStatus]) -> Facts:
    return {
        "checkout": checkout(tree),
        "ports": [
            {
                "name": state.port.name,
                "kind": state.port.kind.value,
                "status": state.status.value,
                "variant": state.variant,
                "reason": state.reason,
                "forced": state.forced,
                "files": list(state.files),
                "difference": state.difference,
            }
            for state in states
        ],
    }


def verify(
    tree: Checkout, results: Mapping[str, Sequence[CheckResult]], environment: Facts
) -> Facts:
    return {
        "checkout": checkout(tree),
        "environment": environment,
        "ports": [
            {"name": name, "checks": [_check(result) for result in checks]}
            for name, checks in results.items()
        ],
    }


def _check(result: CheckResult) -> Facts:
    return {
        "check": result.check,
        "outcome": result.outcome.value,
        "reason": result.reason,
        "cases": [
            {
                "case": case.case,
                "outcome": case.outcome.value,
                "reason": case.reason,
                "figures": dict(case.figures),
            }
            for case in result.cases
        ],
    }


def plan(made: Plan, *, dry_run: bool) -> Facts:
    return {
        "checkout": checkout(made.checkout),
        "dry_run": dry_run,
        "ports": [
            {
                "name": port.port,
                "status": port.outcome.value,
                "variant": port.variant,
                "forced": port.forced,
                "reason": port.reason,
            }
            for port in made.ports
        ],
        "changes": [
            {"file": change.file, "action": change.action.value} for change in made.changes
        ],
    }


def error(problem: UserError) -> Facts:
    return {"error": {"what": problem.what, "where": problem.where, "next": problem.next}}
