"""Reads one Python file into its summary."""

from __future__ import annotations

import ast
from typing import Any

from ascendport.wiring.reading.mentions import Mentions
from ascendport.wiring.summary import (
    ROOTS,
    ClassSummary,
    ModuleSummary,
    absolute,
    module_name,
    pack,
)
from ascendport.wiring.syntax import dotted, last_part


class _Reader(Mentions):
    """Statements and definitions."""

    def __init__(self, module: str, is_package: bool) -> None:
        super().__init__()
        self.module = module
        self.is_package = is_package
        self.stars: list[str] = []
        self.exports: list[str] | None = None
        self.imported: dict[str, None] = {}
        self.takes: dict[str, int] = {}
        self.classes: dict[str, ClassSummary] = {}
        self.class_path: list[str] = []
        self.type_checking = 0
        self.in_if = 0
        self.handlers |= {
            ast.FunctionDef: self.function,
            ast.AsyncFunctionDef: self.function,
            ast.Lambda: self.function,
            ast.ClassDef: self.class_def,
            ast.Import: self.import_,
            ast.ImportFrom: self.import_from,
            ast.Global: self.global_,
            ast.Nonlocal: self.nonlocal_,
            ast.AnnAssign: self.ann_assign,
            ast.Assign: self.assign,
            ast.ExceptHandler: self.handler,
            ast.If: self.if_,
        }

    # -- statements -------------------------------------------------------------------------

    def global_(self, node: ast.Global) -> None:
        self.scope.declared.update(node.names)
        for name in node.names:
            self.binds.setdefault(name, f"v:{node.lineno}")

    def nonlocal_(self, node: ast.Nonlocal) -> None:
        self.scope.declared.update(node.names)

    def ann_assign(self, node: ast.AnnAssign) -> None:
        self.annotation(node.annotation)
        if node.value is not None:
            self.visit(node.value)
        if node.value is not None or self.scope.kind == "c":
            self.visit(node.target)

    def assign(self, node: ast.Assign) -> None:
        if self.scope.kind == "m" and any(
            isinstance(target, ast.Name) and target.id == "__all__" for target in node.targets
        ):
            self.binds["__all__"] = f"v:{node.lineno}"
            if isinstance(node.value, ast.List | ast.Tuple):
                self.exports = [
                    item.value
                    for item in node.value.elts
                    if isinstance(item, ast.Constant) and isinstance(item.value, str)
                ]
            return
        self.visit(node.value)
        self.visit_all(node.targets)

    def handler(self, node: ast.ExceptHandler) -> None:
        if node.type is not None:
            self.visit(node.type)
        if node.name:
            self.bind(node.name, f"v:{node.lineno}")
        self.in_handler += 1
        self.visit_all(node.body)
        self.in_handler -= 1

    def if_(self, node: ast.If) -> None:
        if last_part(node.test) == "TYPE_CHECKING":
            self.type_checking += 1
            self.visit_all(node.body)
            self.type_checking -= 1
            self.visit_all(node.orelse)
            return
        self.visit(node.test)
        self.in_if += 1
        self.visit_all(node.body)
        self.visit_all(node.orelse)
        self.in_if -= 1

    def import_(self, node: ast.Import) -> None:
        for alias in node.names:
            first = alias.name.partition(".")[0]
            bound = alias.asname or first
            full = alias.name if alias.asname else first
            self.note_import(alias.name)
            self.bind(bound, f"m:{node.lineno}:{full}")
            self.scope.imports[bound] = full

    def import_from(self, node: ast.ImportFrom) -> None:
        source = absolute(self.module, self.is_package, node.module, node.level)
        self.note_import(source)
        for alias in node.names:
            if alias.name == "*":
                self.stars.append(source)
                continue
            bound = alias.asname or alias.name
            self.note_import(f"{source}.{alias.name}")
            self.bind(bound, f"n:{node.lineno}:{source}:{alias.name}")
            self.scope.imports[bound] = f"{source}.{alias.name}"
            if self.scope.late and source.partition(".")[0] in ROOTS:
                self.takes.setdefault(f"{source}|{alias.name}", node.lineno)

    def note_import(self, module: str) -> None:
        if self.scope.late or self.type_checking or self.in_if:
            return
        if module.partition(".")[0] in ROOTS:
            self.imported[module] = None

    # -- definitions ------------------------------------------------------------------------

    def function(self, node: Any) -> None:
        named = not isinstance(node, ast.Lambda)
        arguments: ast.arguments = node.args
        if named:
            self.visit_all(node.decorator_list)
        self.visit_all(arguments.defaults)
        self.visit_all([default for default in arguments.kw_defaults if default is not None])
        parameters = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        parameters += [extra for extra in (arguments.vararg, arguments.kwarg) if extra]
        for parameter in parameters:
            self.annotation(parameter.annotation)
        if named:
            self.annotation(node.returns)
            self.bind(node.name, f"f:{node.lineno}")
        scope = self.open("f", True)
        scope.binds.update(parameter.arg for parameter in parameters)
        if named:
            self.visit_all(node.body)
        else:
            self.visit(node.body)
        self.close()

    def class_def(self, node: ast.ClassDef) -> None:
        self.visit_all(node.decorator_list)
        self.visit_all(node.bases)
        self.visit_all([keyword.value for keyword in node.keywords])
        self.bind(node.name, f"c:{node.lineno}")
        self.class_path.append(node.name)
        self.self_stores.append({})
        scope = self.open("c", self.scope.late)
        for statement in node.body:
            self.visit(statement)
            if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                scope.binds.add(statement.target.id)
        self.close()
        path = ".".join(self.class_path)
        lines = _class_lines(node)
        self.classes[path] = ClassSummary(
            line=node.lineno,
            bases=[_base(base) for base in node.bases],
            attrs=pack({name: lines.get(name, node.lineno) for name in sorted(scope.binds)}),
            inst=pack(self.self_stores.pop()),
        )
        self.class_path.pop()

    # -- the result -------------------------------------------------------------------------

    def read(self, tree: ast.Module) -> ModuleSummary:
        self.visit_all(tree.body)
        for (root, rest, late), line in self.scope.chains.items():
            bound = self.binds.get(root)
            if bound is None:
                continue
            kind, _, where = bound.partition(":")
            origin = where.partition(":")[2].replace(":", ".")
            self.chain(
                f"{origin}.{rest}" if kind in "mn" else f"{self.module}.{root}.{rest}", late, line
            )
        loads = self.scope.loads.items()
        late_loads = {name: line for (name, is_late), line in loads if is_late}
        early_loads = {name: line for (name, is_late), line in loads if not is_late}
        return ModuleSummary(
            binds=self.binds,
            stars=self.stars,
            lazy=self.binds.get("__getattr__", "").startswith("f:"),
            lazy_names=self.lazy_names if "__getattr__" in self.binds else {},
            exports=self.exports,
            loads=list(self.imported),
            late=pack(late_loads),
            early=pack(early_loads),
            annotated=pack(self.annotated),
            takes=pack(self.takes),
            chains=pack(self.chains[True]),
            chains_early=pack(self.chains[False]),
            attrs=pack(self.attrs[True]),
            attrs_early=pack(self.attrs[False]),
            strings=pack(self.strings),
            classes=self.classes,
        )


def _base(node: ast.expr) -> str:
    """The base class ``a.b.C`` or ``a.b.C[int]`` as text; "?" for any other expression."""
    while isinstance(node, ast.Subscript):
        node = node.value
    text = dotted(node)
    return "?" if text.startswith("?") else text


def _class_lines(node: ast.ClassDef) -> dict[str, int]:
    lines: dict[str, int] = {}
    for statement in node.body:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            lines[statement.name] = statement.lineno
        elif isinstance(statement, ast.Assign):
            for target in statement.targets:
                if isinstance(target, ast.Name):
                    lines[target.id] = statement.lineno
        elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            lines[statement.target.id] = statement.lineno
    return lines


def empty() -> ModuleSummary:
    """The summary of a file that says nothing."""
    return _Reader("", False).read(ast.Module([], []))


def summarise(source: bytes, path: str) -> ModuleSummary | None:
    """The summary of a file; None where it is not valid Python for this interpreter.

    ``path``: POSIX path from the folder that holds the top package, e.g. ``vllm/envs.py``.
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return None
    module, is_package = module_name(path)
    return _Reader(module, is_package).read(tree)
