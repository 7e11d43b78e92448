"""What the expressions of a file mention: names, attributes, dotted names, strings."""

from __future__ import annotations

import ast
import re
from typing import Any

from ascendport.wiring.reading.scopes import Scopes
from ascendport.wiring.syntax import last_part

_DOTTED = re.compile(r"^vllm(?:_ascend)?(?:\.\w+)+(?:[.:]\w+)*$")
_LAZY = re.compile(r"^(?=.*[.:])[.:\w]+$")
_IDENTIFIER = re.compile(r"^[A-Za-z_]\w{3,80}$")


class Mentions(Scopes):
    """Walks a syntax tree and collects fields of `ModuleSummary`; pairs are (early, late)."""

    def __init__(self) -> None:
        super().__init__()
        self.lazy_names: dict[str, str] = {}
        self.annotated: dict[str, int] = {}
        self.attrs: tuple[dict[str, int], dict[str, int]] = ({}, {})
        self.strings: dict[str, int] = {}
        self.self_stores: list[dict[str, int]] = []
        """For each class around: attributes that its methods set on ``self`` or ``cls``."""
        self.handlers: dict[type[ast.AST], Any] = {
            ast.Name: self.name,
            ast.Attribute: self.attribute,
            ast.Constant: self.constant,
            ast.ListComp: self.comprehension,
            ast.SetComp: self.comprehension,
            ast.DictComp: self.comprehension,
            ast.GeneratorExp: self.comprehension,
            ast.Call: self.call,
            ast.Subscript: self.subscript,
            ast.Expr: self.expr,
            ast.Dict: self.dict_,
            ast.MatchAs: self.match_name,
            ast.MatchStar: self.match_name,
            ast.MatchMapping: self.match_name,
        }
        """Type of node → method; the children of any other node are visited."""

    def visit(self, node: Any) -> None:
        handler = self.handlers.get(type(node))
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
        if last_part(node.func) in ("setattr", "__setattr__", "delattr", "__delattr__"):
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

    def annotation(self, node: ast.AST | None) -> None:
        if node is None:
            return
        for inner in ast.walk(node):
            if isinstance(inner, ast.Name):
                self.annotated.setdefault(inner.id, inner.lineno)
            elif isinstance(inner, ast.Attribute):
                self.annotated.setdefault(inner.attr, inner.lineno)
