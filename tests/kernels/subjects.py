"""What the tests of every kernel port need: the port, the subject of a check, pure functions."""

from __future__ import annotations

import ast
from pathlib import Path
from types import ModuleType
from typing import Any

from ascendport.checkout.tree import recognise
from ascendport.checks.outcome import CheckResult, Outcome
from ascendport.checks.subject import Options, Subject
from ascendport.patching.images import images
from ascendport.ports.catalogue import catalogue
from ascendport.ports.manifest import Port


def port(name: str) -> Port:
    """The port of this repository with that name."""
    return next(port for port in catalogue() if port.name == name)


def subject(tree: Path, name: str, options: Options) -> Subject:
    """The port ``name`` on a tree, before and after."""
    checkout, one = recognise(tree), port(name)
    made = images(checkout, one)
    return Subject(checkout, one, made.variant, made.before, made.after, options)


def pure_functions(name: str, *wanted: str) -> dict[str, Any]:
    """Functions of the port's kernel.py that need neither vllm, torch nor triton, which the file
    imports, and the file's plain constants, by name: executed alone."""
    module = ast.parse(port(name).read("kernel.py"))
    module.body = [
        node
        for node in module.body
        if (isinstance(node, ast.Assign) and _is_plain(node.value))
        or (isinstance(node, ast.FunctionDef) and node.name in wanted)
    ]
    names: dict[str, Any] = {}
    exec(compile(module, "kernel.py", "exec"), names)
    return names


def _is_plain(value: ast.expr) -> bool:
    """Whether an expression names nothing and calls nothing."""
    return not any(isinstance(node, ast.Name | ast.Call) for node in ast.walk(value))


def assert_every_case_passes(check: ModuleType, subject: Subject) -> CheckResult:
    """The check's result; no case failed and none was left out."""
    result: CheckResult = check.run(subject)
    assert result.outcome is Outcome.PASSED, result.reason
    assert all(case.outcome is Outcome.PASSED for case in result.cases)
    return result
