"""source: the patched files parse, callers still fit, and only declared symbols changed."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping

from ascendport.checkout.tree import PACKAGE, Checkout
from ascendport.checks.outcome import CaseResult, CheckResult, Outcome
from ascendport.checks.subject import Subject
from ascendport.errors import UserError
from ascendport.ports.digest import (
    canonical,
    digest_of,
    fits,
    index,
    normal,
    parse,
    signature,
    undecorated,
)
from ascendport.ports.manifest import Target

NAME = "source"
SUMMARY = "the patched files parse, signatures are kept, only declared symbols changed"


def run(subject: Subject) -> CheckResult:
    """One case a symbol, one for the rest of each file, one for each new file."""
    cases: list[CaseResult] = []
    for target in subject.variant.targets:
        cases += _target(subject, target)
    for new in subject.variant.new_files:
        problem = _parse_problem(subject.after.get(new.file), new.file)
        cases.append(_case(new.file, problem))
    return CheckResult.of(NAME, tuple(cases))


def _case(name: str, problem: str, **figures: str) -> CaseResult:
    outcome = Outcome.FAILED if problem else Outcome.PASSED
    return CaseResult(name, outcome, problem, figures)


def _parse_problem(text: bytes | None, file: str) -> str:
    if text is None:
        return "the file is not there after apply"
    if not file.endswith(".py"):
        return ""
    try:
        parse(text, file)
    except UserError as error:
        return str(error)
    return ""


def _target(subject: Subject, target: Target) -> Iterator[CaseResult]:
    problem = _parse_problem(subject.after.get(target.file), target.file)
    if problem:
        yield _case(target.file, problem)
        return
    before = parse(subject.before[target.file], target.file)
    after = parse(subject.after[target.file], target.file)
    source = index(parse(subject.port.text(target), target.source))
    declared = {normal(symbol) for symbol in target.symbols}
    for symbol in (*target.replace, *target.add):
        yield _symbol(subject, target, symbol, before, after, source)
    for symbol, decorator in target.decorate.items():
        yield _decorated(target.file, symbol, decorator, before, after)
    yield _rest(target.file, before, after, declared)


def _symbol(
    subject: Subject,
    target: Target,
    symbol: str,
    before: ast.Module,
    after: ast.Module,
    source: Mapping[str, list[ast.stmt]],
) -> CaseResult:
    """A declared symbol is the port's own text and, where others call it, can be called as ever."""
    now = index(after).get(normal(symbol), [])
    ours = source.get(normal(symbol), [])
    if len(now) != 1 or len(ours) != 1 or digest_of(now[0]) != digest_of(ours[0]):
        return _case(symbol, f"{target.file} does not hold the port's text of it once")
    was = index(before).get(normal(symbol), [])
    if symbol in target.add:
        problem = "the file had a symbol of this name before" if was else ""
        return _case(symbol, problem, change="added")
    users = _users(subject, target, symbol, before)
    if not users:
        return _case(symbol, "", change="replaced", called="by declared symbols only")
    old, new = _callable(was[0], before), _callable(now[0], after)
    problem = ""
    if not fits(new, old):
        problem = f"callers do not fit: it was {signature(old)}, it is {signature(new)}"
    return _case(symbol, problem, change="replaced", called=f"by {', '.join(users[:3])}")


def _decorated(
    file: str, symbol: str, decorator: str, before: ast.Module, after: ast.Module
) -> CaseResult:
    """A decorated function has the decorator, and under it the text that it had."""
    was, now = index(before).get(normal(symbol), []), index(after).get(normal(symbol), [])
    bare = undecorated(now[0], decorator) if len(now) == 1 else None
    if len(was) != 1 or bare is None or digest_of(bare) != digest_of(was[0]):
        return _case(symbol, f"{file} does not hold its old text once, under @{decorator}")
    return _case(symbol, "", change=f"decorated with {decorator}")


def _callable(node: ast.stmt, module: ast.Module) -> ast.stmt:
    """What is called in the end. For ``name = Launcher()`` whose ``__getitem__`` returns an inner
    function that is that function: ``name[grid](...)`` calls it, as it would call a kernel."""
    if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Call):
        return node
    made_by = node.value.func
    for statement in module.body:
        if (
            isinstance(statement, ast.ClassDef)
            and isinstance(made_by, ast.Name)
            and statement.name == made_by.id
        ):
            return _launch_function(statement) or node
    return node


def _launch_function(launcher: ast.ClassDef) -> ast.stmt | None:
    for method in launcher.body:
        if isinstance(method, ast.FunctionDef) and method.name == "__getitem__":
            inner = {s.name: s for s in method.body if isinstance(s, ast.FunctionDef)}
            for statement in method.body:
                if isinstance(statement, ast.Return) and isinstance(statement.value, ast.Name):
                    return inner.get(statement.value.id)
    return None


def _users(subject: Subject, target: Target, symbol: str, before: ast.Module) -> list[str]:
    """Who uses a replaced symbol besides the declared ones: vllm through the entry, undeclared
    code of the same file, other files of the tree."""
    users = ["vllm"] if symbol == subject.variant.entry else []
    declared = {normal(name) for name in target.symbols}
    name = symbol.rpartition(".")[2]
    inside = {
        id(node) for known, nodes in index(before).items() if known in declared for node in nodes
    }
    for statement in before.body:
        if id(statement) not in inside and any(
            (isinstance(node, ast.Name) and node.id == name)
            or (isinstance(node, ast.Attribute) and node.attr == name)
            for node in ast.walk(statement)
        ):
            users.append("the rest of the file")
            break
    users += _files_that_name(subject.checkout, target.file, name)
    return users


def _files_that_name(checkout: Checkout, file: str, name: str) -> list[str]:
    """Other Python files of the package that hold ``name`` and the module's name as words."""
    module = file.rpartition("/")[2].removesuffix(".py").encode()
    word = re.compile(rb"\b" + re.escape(name.encode()) + rb"\b")
    found = []
    for path in sorted((checkout.root / PACKAGE).rglob("*.py")):
        relative = path.relative_to(checkout.root).as_posix()
        if relative == file:
            continue
        text = path.read_bytes()
        if module in text and word.search(text):
            found.append(relative)
    return found


def _rest(file: str, before: ast.Module, after: ast.Module, declared: set[str]) -> CaseResult:
    """What is not declared is the same and in the same order; import statements may be added."""
    name = f"rest of {file}"
    old, new = list(_undeclared(before, declared)), list(_undeclared(after, declared))
    at = 0
    added = 0
    for statement in new:
        if at < len(old) and canonical(old[at]) == canonical(statement):
            at += 1
        elif isinstance(statement, ast.Import | ast.ImportFrom):
            added += 1
        else:
            return _case(name, f"not declared, but different at line {statement.lineno} after")
    if at < len(old):
        return _case(name, f"not declared, but gone: line {old[at].lineno} before")
    return _case(name, "", change=f"{added} imports added" if added else "none")


def _undeclared(module: ast.Module, declared: set[str]) -> Iterator[ast.stmt]:
    """Module-level statements without the declared ones, at any depth of blocks and classes."""
    known = index(module)
    dropped = {id(node) for symbol in declared for node in known.get(symbol, [])}
    for statement in module.body:
        kept = _Without(dropped).visit(statement)
        if isinstance(kept, ast.stmt):
            yield kept


class _Without(ast.NodeTransformer):
    """Takes statements out of a copy of the tree above them; the tree itself is thrown away."""

    def __init__(self, dropped: set[int]) -> None:
        self.dropped = dropped

    def visit(self, node: ast.AST) -> ast.AST | None:
        if id(node) in self.dropped:
            return None
        return self.generic_visit(node)
