"""Results as plain data with stable keys: what --json writes and what the tables show."""

from __future__ import annotations

import os
import platform
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import ascendport

if TYPE_CHECKING:
    from ascendport.checkout.tree import Checkout
    from ascendport.checks.outcome import CheckResult
    from ascendport.commands import Exported, Simulation
    from ascendport.errors import UserError
    from ascendport.explain.model import Explanation
    from ascendport.explain.run import Problem
    from ascendport.patching.drift import Drift
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
    tree: Checkout,
    results: Mapping[str, Sequence[CheckResult]],
    environment: Facts,
    forced: Collection[str] = (),
) -> Facts:
    return {
        "checkout": checkout(tree),
        "environment": environment,
        "ports": [
            {
                "name": name,
                "forced": name in forced,
                "checks": [_check(result) for result in checks],
            }
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


def plan(
    made: Plan, *, dry_run: bool, drifts: Mapping[str, Sequence[Drift]] | None = None
) -> Facts:
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
                "conflict": port.conflict,
                "drift": [_drift(one) for one in (drifts or {}).get(port.port, ())],
            }
            for port in made.ports
        ],
        "changes": [
            {
                "file": change.file,
                "action": change.action.value,
                "copy": str(made.checkout.path(change.copy)) if change.copy else None,
            }
            for change in made.changes
        ],
    }


def exported(found: Exported) -> Facts:
    return {
        "checkout": checkout(found.tree),
        "where": found.where,
        "commits": [
            {
                "port": commit.port,
                "subject": commit.subject,
                "message": commit.message,
                "files": [change.file for change in commit.changes],
            }
            for commit in found.commits
        ],
    }


def _drift(one: Drift) -> Facts:
    return {
        "file": one.file,
        "symbol": one.symbol,
        "reason": one.reason,
        "release": one.release or None,
        "base": one.base,
        "theirs": one.theirs,
        "ours": one.ours,
        "upstream_diff": one.upstream,
        "port_diff": one.port,
    }


def explained(found: Simulation, environment: Facts, trace: str | None) -> Facts:
    """What simulate shows; times in us, modelled."""
    from dataclasses import asdict

    shown = asdict(found.shown)
    for launch in shown["launches"]:
        del launch["events"]
    return {
        "checkout": checkout(found.tree),
        "environment": environment,
        "port": found.port,
        "variant": found.variant,
        "case": shown["case"],
        "soc": asdict(found.soc),
        "side": shown["side"],
        "outcome": "passed" if found.shown.clean else "failed",
        "values": {
            "outcome": "failed" if shown["difference"] else "passed",
            "difference": shown["difference"],
        },
        "findings": found.shown.findings,
        "latency": _latency(found.shown),
        "launches": shown["launches"],
        "other": _other(found.other),
        "trace": trace,
    }


def _latency(side: Explanation) -> Facts | None:
    from dataclasses import asdict

    whole = side.latency
    return {**asdict(whole), "source": "modelled"} if whole else None


def _other(side: Explanation | Problem) -> Facts:
    from ascendport.explain.model import Explanation

    if not isinstance(side, Explanation):
        return {"side": side.side, "outcome": "not_run", "reason": side.reason}
    return {
        "side": side.side,
        "outcome": "passed" if side.clean else "failed",
        "difference": side.difference,
        "findings": side.findings,
        "kinds": sorted({one.kind for launch in side.launches for one in launch.findings}),
        "latency": _latency(side),
    }


def error(problem: UserError) -> Facts:
    return {"error": {"what": problem.what, "where": problem.where, "next": problem.next}}
