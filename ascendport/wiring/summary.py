"""What one Python file says about names: a compact summary of its syntax tree.

A summary is a small JSON object of packed strings, so that a few thousand of them load in a
fraction of a second and can be searched with ``str.find``. Packed means ``" name:12 other:40 "``:
name and the line where it is first met, each framed by spaces.

*Late* code runs when a function is called; *early* code runs once, when the file is imported.
A patch that rebinds a name after the import reaches late reads only.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from typing import Any, TypedDict

ANALYSIS_VERSION = 4
"""Raise it whenever the content of summaries changes: cached ones are then made anew."""

_ROOTS = ("vllm", "vllm_ascend")
_DOTTED = re.compile(r"^vllm(?:_ascend)?(?:\.\w+)+(?:[.:]\w+)*$")
_LAZY = re.compile(r"^(?=.*[.:])[.:\w]+$")
_IDENTIFIER = re.compile(r"^[A-Za-z_]\w{3,80}$")


class ClassSummary(TypedDict):
    """A class: dotted bases as far as the file tells, own attributes, what methods set."""

    line: int
    bases: list[str]
    attrs: str
    """Packed: bound in the class body."""
    inst: str
    """Packed: set on ``self`` or ``cls`` in methods."""


class ModuleSummary(TypedDict):
    """One file."""

    binds: dict[str, str]
    """Module-level name → ``"f:12"`` function, ``"c:12"`` class, ``"v:12"`` other value,
    ``"m:12:a.b"`` module a.b, ``"n:12:a.b:c"`` name c taken from a.b. Later bindings win,
    except that a binding in an except clause does not replace one in its try body."""
    stars: list[str]
    """Modules of ``from m import *``."""
    lazy: bool
    """Defines a module-level ``__getattr__``."""
    lazy_names: dict[str, str]
    """Names that tables of strings map to modules: ``{"Name": "a.b"}``, for lazy imports."""
    exports: list[str] | None
    """``__all__`` where it is a plain list of strings."""
    loads: list[str]
    """Modules that importing this file surely imports at once: those under a condition are left
    out. ``from m import n`` gives both m and m.n, whether n is a module or not."""
    late: str
    """Packed: globals read by late code."""
    early: str
    """Packed: globals read by early code."""
    annotated: str
    """Packed: names in annotations."""
    takes: str
    """Packed ``module|name``: ``from module import name`` in late code."""
    chains: str
    """Packed dotted names under vllm or vllm_ascend that late code reads as attributes."""
    chains_early: str
    attrs: str
    """Packed: attribute names that late code loads from anything."""
    attrs_early: str
    strings: str
    """Packed: string constants that look like names or dotted vllm paths."""
    classes: dict[str, ClassSummary]
    """By qualified name inside the file."""


def pack(names: Mapping[str, int]) -> str:
    """``{"a": 3, "b": 5}`` → ``" a:3 b:5 "``; empty → ``" "``."""
    return " " + "".join(f"{name}:{line} " for name, line in names.items())


def line_of(packed: str, name: str) -> int | None:
    """The line that ``packed`` gives for ``name``, or None."""
    at = packed.find(f" {name}:")
    if at < 0:
        return None
    start = at + len(name) + 2
    return int(packed[start : packed.index(" ", start)])


def names_in(packed: str) -> Iterator[str]:
    """The names of a packed string."""
    for part in packed.split():
        yield part.rpartition(":")[0]


def module_name(path: str) -> tuple[str, bool]:
    """``"vllm/a/__init__.py"`` → ``("vllm.a", True)``; ``"vllm/b.py"`` → ``("vllm.b", False)``."""
    dotted = path.removesuffix(".py").replace("/", ".")
    if dotted.endswith(".__init__"):
        return dotted.removesuffix(".__init__"), True
    return dotted, False


def absolute(module: str, is_package: bool, target: str | None, level: int) -> str:
    """The module that ``from <dots><target> import …`` in ``module`` names."""
    if level == 0:
        return target or ""
    parts = module.split(".")
    keep = len(parts) - level + (1 if is_package else 0)
    base = ".".join(parts[: max(keep, 0)])
    return f"{base}.{target}" if target and base else (target or base)


class _Scope:
    """One lexical scope while it is being read."""

    __slots__ = ("binds", "chains", "declared", "imports", "kind", "late", "loads", "parent")

    def __init__(self, kind: str, late: bool, parent: _Scope | None) -> None:
        self.kind = kind  # m(odule) f(unction) c(lass) x: comprehension
        self.late = late
        self.parent = parent
        self.binds: set[str] = set()
        self.declared: set[str] = set()
        self.imports: dict[str, str] = {}
        # (name, late) → line, as long as nobody has claimed the name
        self.loads: dict[tuple[str, bool], int] = {}
        self.chains: dict[tuple[str, str, bool], int] = {}


class _Reader:
    """Walks one file. Attributes accumulate the fields of `ModuleSummary`."""

    def __init__(self, module: str, is_package: bool) -> None:
        self.module = module
        self.is_package = is_package
        self.binds: dict[str, str] = {}
        self.stars: list[str] = []
        self.lazy_names: dict[str, str] = {}
        self.exports: list[str] | None = None
        self.imported: dict[str, None] = {}
        self.annotated: dict[str, int] = {}
        self.takes: dict[str, int] = {}
        self.attrs: tuple[dict[str, int], dict[str, int]] = ({}, {})
        self.strings: dict[str, int] = {}
        self.classes: dict[str, ClassSummary] = {}
        self.class_path: list[str] = []
        self.self_stores: list[dict[str, int]] = []
        self.in_handler = 0
        self.type_checking = 0
        self.in_if = 0
        self.scope = _Scope("m", False, None)
        self.handlers = {
            ast.Name: self.name,
            ast.Attribute: self.attribute,
            ast.Constant: self.constant,
            ast.FunctionDef: self.function,
            ast.AsyncFunctionDef: self.function,
            ast.Lambda: self.function,
            ast.ClassDef: self.class_def,
            ast.Import: self.import_,
            ast.ImportFrom: self.import_from,
            ast.ListComp: self.comprehension,
            ast.SetComp: self.comprehension,
            ast.DictComp: self.comprehension,
            ast.GeneratorExp: self.comprehension,
            ast.Global: self.global_,
            ast.Nonlocal: self.nonlocal_,
            ast.AnnAssign: self.ann_assign,
            ast.Assign: self.assign,
            ast.Call: self.call,
            ast.Subscript: self.subscript,
            ast.ExceptHandler: self.handler,
            ast.If: self.if_,
            ast.Expr: self.expr,
            ast.Dict: self.dict_,
            ast.MatchAs: self.match_name,
            ast.MatchStar: self.match_name,
            ast.MatchMapping: self.match_name,
        }

    # -- the walk ---------------------------------------------------------------------------

    def visit(self, node: Any) -> None:
        handler: Any = self.handlers.get(type(node))
        if handler is not None:
            handler(node)
        else:
            self.children(node)

    def children(self, node: Any) -> None:
        for field in node._fields:
            value = getattr(node, field, None)
            if value.__class__ is list:
                for item in value:
                    if isinstance(item, ast.AST):
                        self.visit(item)
            elif isinstance(value, ast.AST):
                self.visit(value)

    def visit_all(self, nodes: list[Any]) -> None:
        for node in nodes:
            self.visit(node)

    def bind(self, name: str, value: str) -> None:
        scope = self.scope
        if name in scope.declared:
            self.binds.setdefault(name, value)
            return
        scope.binds.add(name)
        if scope.kind == "m" and not (self.in_handler and name in self.binds):
            self.binds[name] = value

    # -- names ------------------------------------------------------------------------------

    def name(self, node: ast.Name) -> None:
        scope = self.scope
        if isinstance(node.ctx, ast.Load):
            key = (node.id, scope.late)
            if key not in scope.loads:
                scope.loads[key] = node.lineno
        else:
            home = scope
            while home.kind == "x" and home.parent is not None and node.id not in home.binds:
                home = home.parent
            kept, self.scope = self.scope, home
            self.bind(node.id, f"v:{node.lineno}")
            self.scope = kept

    def attribute(self, node: ast.Attribute) -> None:
        late = self.scope.late
        parts = [node.attr]
        inner = node.value
        while isinstance(inner, ast.Attribute):
            parts.append(inner.attr)
            inner = inner.value
        if isinstance(node.ctx, ast.Load):
            loaded = parts
        else:
            loaded = parts[1:]
            own = isinstance(inner, ast.Name) and inner.id in ("self", "cls")
            if own and len(parts) == 1 and self.self_stores:
                self.self_stores[-1].setdefault(node.attr, node.lineno)
        attrs = self.attrs[late]
        for name in loaded:
            if name not in attrs:
                attrs[name] = node.lineno
        if isinstance(inner, ast.Name):
            if loaded:
                key = (inner.id, ".".join(reversed(loaded)), late)
                if key not in self.scope.chains:
                    self.scope.chains[key] = node.lineno
            load = (inner.id, late)
            if load not in self.scope.loads:
                self.scope.loads[load] = node.lineno
        else:
            self.visit(inner)

    def constant(self, node: ast.Constant) -> None:
        value = node.value
        if value.__class__ is str and (_IDENTIFIER.match(value) or _DOTTED.match(value)):
            self.strings.setdefault(value.replace(":", "."), node.lineno)

    def call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Name) and node.func.id in ("getattr", "hasattr"):
            args = node.args
            named = args[1] if len(args) > 1 else None
            if (
                isinstance(named, ast.Constant)
                and isinstance(named.value, str)
                and named.value.isidentifier()
            ):
                self.visit(ast.copy_location(ast.Attribute(args[0], named.value, ast.Load()), node))
                self.visit_all(args[2:])
                return
        if _last(node.func) in ("setattr", "__setattr__", "delattr", "__delattr__"):
            # The name that is set is no mention of it.
            self.visit_all([node.func, *node.args[:1], *node.args[2:]])
            if len(node.args) > 1 and not isinstance(node.args[1], ast.Constant):
                self.visit(node.args[1])
            return
        self.children(node)

    def subscript(self, node: ast.Subscript) -> None:
        self.visit(node.value)
        if isinstance(node.ctx, ast.Load) or not isinstance(node.slice, ast.Constant):
            self.visit(node.slice)

    def expr(self, node: ast.Expr) -> None:
        if not isinstance(node.value, ast.Constant):
            self.children(node)

    def dict_(self, node: ast.Dict) -> None:
        for key, value in zip(node.keys, node.values, strict=True):
            if isinstance(key, ast.Constant) and isinstance(value, ast.Constant):
                name, where = key.value, value.value
                if isinstance(name, str) and isinstance(where, str) and _LAZY.match(where):
                    self.lazy_names[name] = where
        self.children(node)

    def match_name(self, node: Any) -> None:
        name = getattr(node, "name", None) or getattr(node, "rest", None)
        if name:
            self.bind(name, f"v:{node.lineno}")
        self.children(node)

    # -- statements -------------------------------------------------------------------------

    def global_(self, node: ast.Global) -> None:
        self.scope.declared.update(node.names)
        for name in node.names:
            self.binds.setdefault(name, f"v:{node.lineno}")

    def nonlocal_(self, node: ast.Nonlocal) -> None:
        self.scope.declared.update(node.names)

    def annotation(self, node: ast.AST | None) -> None:
        if node is None:
            return
        for inner in ast.walk(node):
            if isinstance(inner, ast.Name):
                self.annotated.setdefault(inner.id, inner.lineno)
            elif isinstance(inner, ast.Attribute):
                self.annotated.setdefault(inner.attr, inner.lineno)

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
        checking = (
            isinstance(node.test, ast.Name | ast.Attribute)
            and (getattr(node.test, "id", None) or getattr(node.test, "attr", None))
            == "TYPE_CHECKING"
        )
        if checking:
            self.type_checking += 1
            self.visit_all(node.body)
            self.type_checking -= 1
        else:
            self.visit(node.test)
            self.in_if += 1
            self.visit_all(node.body)
            self.visit_all(node.orelse)
            self.in_if -= 1
            return
        self.visit_all(node.orelse)

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
            if self.scope.late and source.partition(".")[0] in _ROOTS:
                self.takes.setdefault(f"{source}|{alias.name}", node.lineno)

    def note_import(self, module: str) -> None:
        if self.scope.late or self.type_checking or self.in_if:
            return
        if module.partition(".")[0] in _ROOTS:
            self.imported[module] = None

    # -- scopes -----------------------------------------------------------------------------

    def open(self, kind: str, late: bool) -> _Scope:
        self.scope = _Scope(kind, late, self.scope)
        return self.scope

    def close(self) -> None:
        scope = self.scope
        parent = scope.parent
        assert parent is not None
        self.scope = parent
        owned = scope.binds - scope.declared
        for key, line in scope.loads.items():
            name, late = key
            # A class body's own names are not seen by the functions in it.
            if name in owned and not (scope.kind == "c" and late and not scope.late):
                continue
            if key not in parent.loads:
                parent.loads[key] = line
        for chain, line in scope.chains.items():
            root, rest, late = chain
            if root in scope.imports:
                self.chain(scope.imports[root] + "." + rest, late, line)
            elif root in owned and not (scope.kind == "c" and late and not scope.late):
                continue
            elif chain not in parent.chains:
                parent.chains[chain] = line

    def chain(self, dotted: str, late: bool, line: int) -> None:
        if dotted.partition(".")[0] in _ROOTS:
            self.chain_sets[late].setdefault(dotted, line)

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
            bases=[base for base in map(_dotted, node.bases) if base],
            attrs=pack({name: lines.get(name, node.lineno) for name in sorted(scope.binds)}),
            inst=pack(self.self_stores.pop()),
        )
        self.class_path.pop()

    def comprehension(self, node: Any) -> None:
        first = node.generators[0]
        self.visit(first.iter)
        scope = self.open("x", self.scope.late)
        for generator in node.generators:
            for inner in ast.walk(generator.target):
                if isinstance(inner, ast.Name):
                    scope.binds.add(inner.id)
        for index, generator in enumerate(node.generators):
            if index:
                self.visit(generator.iter)
            self.visit_all(generator.ifs)
        if isinstance(node, ast.DictComp):
            self.visit(node.key)
            self.visit(node.value)
        else:
            self.visit(node.elt)
        self.close()

    # -- the result -------------------------------------------------------------------------

    def read(self, tree: ast.Module) -> ModuleSummary:
        self.chain_sets: tuple[dict[str, int], dict[str, int]] = ({}, {})
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
            chains=pack(self.chain_sets[True]),
            chains_early=pack(self.chain_sets[False]),
            attrs=pack(self.attrs[True]),
            attrs_early=pack(self.attrs[False]),
            strings=pack(self.strings),
            classes=self.classes,
        )


def _dotted(node: ast.expr) -> str:
    """``a.b.C`` or ``a.b.C[int]`` as text; "?" for any other expression."""
    while isinstance(node, ast.Subscript):
        node = node.value
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return "?"
    return ".".join([node.id, *reversed(parts)])


def _last(node: ast.expr) -> str:
    """The last part of a dotted name."""
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


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
