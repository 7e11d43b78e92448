"""Calls: the file's own functions are followed, and the builtins that patches are made with."""

from __future__ import annotations

import ast
from abc import abstractmethod
from dataclasses import replace
from typing import Any

from ascendport.wiring.index import SourceIndex
from ascendport.wiring.interpreter.frame import Context, Ended, Frame
from ascendport.wiring.interpreter.imports import Imports
from ascendport.wiring.interpreter.lookup import attribute, entries
from ascendport.wiring.interpreter.values import (
    MAX_ITEMS,
    Const,
    Env,
    LoadedModules,
    Namespace,
    Own,
    RunTime,
    Seq,
    Sweep,
    Value,
    Values,
    is_missing,
    texts,
    unique,
)
from ascendport.wiring.syntax import last_part, short
from ascendport.wiring.things import Thing, What

_MAX_DEPTH = 6
"""Calls of own functions inside calls that are followed."""
_CONTAINERS = ("list", "tuple", "set", "sorted", "reversed", "dict")
_METHODS = ("get", "items", "values", "keys", "copy", "update", "setdefault")


class Calls(Imports):
    """Follows calls. A function that is met twice with the same arguments runs once."""

    def __init__(self, path: str, index: SourceIndex, pinned: str) -> None:
        super().__init__(path, index, pinned)
        self.entered: set[int] = set()
        """Ids of the nodes of own functions that ran as active code."""
        self.failed: Ended | None = None
        """A failing import in an own function, left by the call."""
        self._results: dict[tuple[Any, ...], Values] = {}

    @abstractmethod
    def block(self, body: list[ast.stmt], frame: Frame) -> Ended | None:
        """Runs the statements; how they ended, if early."""

    def call(self, node: ast.Call, frame: Frame) -> Values:
        found = self.builtin(node, frame)
        if found is None and isinstance(node.func, ast.Attribute) and node.func.attr in _METHODS:
            found = self.method(node, node.func, frame)
        return self.function(node, frame) if found is None else found

    def builtin(self, node: ast.Call, frame: Frame) -> Values | None:
        """A call known by the last part of its name; None for any other."""
        count = len(node.args)
        match last_part(node.func):
            case "setattr" | "__setattr__" if count >= 3:
                self.set_attribute(node, frame)
                return (Const(None),)
            case "delattr" | "__delattr__" if count >= 2:
                self.delete_attribute(node, frame)
                return (Const(None),)
            case "hasattr" if count >= 2:
                return self.has_attribute(node, frame)
            case "getattr" if count >= 2:
                return self.get_attribute(node, frame)
            case "import_module" | "__import__" if count:
                return self.import_call(node, frame)
            case "find_spec" if count:
                return self.find_spec(node, frame)
            case "vllm_version_is" if count:
                return self.version_is(node.args[0], frame)
            case "cast" | "wraps" | "cache" if count == 2:
                return self.eval(node.args[1], frame)
            case name if name in _CONTAINERS and count == 1:
                return self.eval(node.args[0], frame)
            case "vars" if count == 1:
                return tuple(Namespace(value) for value in self.eval(node.args[0], frame))
        return None

    # -- own functions ----------------------------------------------------------------------

    def function(self, node: ast.Call, frame: Frame) -> Values:
        context = replace(frame.context, depth=frame.context.depth + 1)
        results: list[Value] = []
        for function in self.eval(node.func, frame):
            own = isinstance(function, Own) and not isinstance(function.node, ast.ClassDef)
            if isinstance(function, Own) and own and context.depth <= _MAX_DEPTH:
                results += self.enter(function, context, node, frame)
            else:
                results.append(RunTime(f"result of {short(node.func)}()"))
        for argument in [*node.args, *(keyword.value for keyword in node.keywords)]:
            self.eval(argument, frame)
        return tuple(results)

    def enter(
        self,
        own: Own,
        context: Context,
        call: ast.Call | None = None,
        caller: Frame | None = None,
    ) -> Values:
        """Runs an own function; without a call its parameters are unknown."""
        node: Any = own.node
        inner = Frame(Env(own.env), context)
        _parameters(node.args, inner.env)
        if call is not None and caller is not None:
            self.defaults(node.args, Frame(own.env, context), inner.env)
            self.arguments(node.args, call, replace(caller, context=context), inner.env)
        if not context.inactive:
            self.entered.add(id(node))
        variables = sorted((name, repr(values)) for name, values in inner.env.vars.items())
        key = (id(node), context, tuple(variables))
        if key not in self._results:
            self._results[key] = ()  # What a function that calls itself sees.
            self._results[key] = self.body(node, inner)
        return self._results[key]

    def body(self, node: ast.FunctionDef | ast.Lambda, frame: Frame) -> Values:
        if isinstance(node, ast.Lambda):
            return unique(self.eval(node.body, frame))[:MAX_ITEMS]
        ended = self.block(node.body, frame)
        if ended and ended.fails:
            self.failed = ended
        return unique(frame.returns)[:MAX_ITEMS]

    def defaults(self, parameters: ast.arguments, scope: Frame, env: Env) -> None:
        """Binds the parameters that have default values."""
        positional = [*parameters.posonlyargs, *parameters.args]
        pairs: list[tuple[ast.arg, ast.expr | None]] = [
            *zip(reversed(positional), reversed(parameters.defaults), strict=False),
            *zip(parameters.kwonlyargs, parameters.kw_defaults, strict=True),
        ]
        for parameter, default in pairs:
            if default is not None:
                env.vars[parameter.arg] = self.eval(default, scope)

    def arguments(self, parameters: ast.arguments, call: ast.Call, caller: Frame, env: Env) -> None:
        """Binds the parameters that the call gives; what follows a ``*`` stays unknown."""
        positional = [*parameters.posonlyargs, *parameters.args]
        for parameter, argument in zip(positional, call.args, strict=False):
            if isinstance(argument, ast.Starred):
                break
            env.vars[parameter.arg] = self.eval(argument, caller)
        for keyword in call.keywords:
            if keyword.arg is not None and keyword.arg in env.vars:
                env.vars[keyword.arg] = self.eval(keyword.value, caller)

    # -- builtins and methods ---------------------------------------------------------------

    def has_attribute(self, node: ast.Call, frame: Frame) -> Values:
        """``hasattr(x, name)``."""
        results: list[Value] = []
        for name, _, found in self.asked(node, frame):
            certain = isinstance(found, Thing) and found.what not in (What.UNSURE, What.OUTSIDE)
            if not name:
                results.append(found)
            elif certain:
                results.append(Const(not is_missing(found)))
            else:
                results.append(RunTime(f"hasattr {name}"))
        return unique(results)

    def get_attribute(self, node: ast.Call, frame: Frame) -> Values:
        """``getattr(x, name, default)``."""
        default = node.args[2] if len(node.args) > 2 else None
        results: list[Value] = []
        for _, _, found in self.asked(node, frame):
            if is_missing(found) and default is not None:
                results += self.eval(default, frame)
            else:
                results.append(found)
        return unique(results)

    def asked(self, node: ast.Call, frame: Frame) -> list[tuple[str, Value, Value]]:
        """(name, object, its attribute) that a hasattr or getattr asks for; name "": unknown."""
        found: list[tuple[str, Value, Value]] = []
        for key in self.eval(node.args[1], frame):
            name = next(iter(texts((key,))), "")
            for base in self.eval(node.args[0], frame):
                if not name:
                    found.append(("", base, RunTime("getattr of a computed name")))
                    continue
                if isinstance(base, Thing):
                    self.findings.probes.add((base, name))
                found.append((name, base, attribute(self.index, base, name)))
        return found

    def method(self, node: ast.Call, function: ast.Attribute, frame: Frame) -> Values | None:
        """A method of a mapping; None where no value is one."""
        results: list[Value] = []
        for container in self.eval(function.value, frame):
            match container:
                case LoadedModules():
                    results += self.of_modules(node, container, function.attr, frame)
                case Seq(items=items, keys=tuple(keys)):
                    results += _of_mapping(items, keys, function.attr)
                case Namespace() | Thing() if function.attr == "update" and node.args:
                    self.update(node, container, node.args[0], frame)
        return tuple(results) or None

    def of_modules(self, node: ast.Call, modules: LoadedModules, name: str, frame: Frame) -> Values:
        match name, node.args:
            case "get", [key, *_]:
                return entries(self.index, modules, self.eval(key, frame), key)
            case "setdefault", [key, value]:
                self.put(node, modules, texts(self.eval(key, frame)), value, frame)
            case "items", _:
                pair = Seq(((RunTime("name of a loaded module"),), (Sweep(),)))
                return (Seq(((pair,),)),)
            case "values" | "copy", _:
                return (Seq(((Sweep(),),)),)
        return ()

    def update(self, node: ast.Call, container: Value, changes: ast.expr, frame: Frame) -> None:
        """``container.update({name: value})``; other arguments are not followed."""
        if isinstance(changes, ast.Dict):
            for key, value in zip(changes.keys, changes.values, strict=True):
                if key is not None:
                    self.put(node, container, texts(self.eval(key, frame)), value, frame)


def _parameters(parameters: ast.arguments, env: Env) -> None:
    """Binds every parameter as unknown."""
    named = [*parameters.posonlyargs, *parameters.args, *parameters.kwonlyargs]
    for parameter in [*named, parameters.vararg, parameters.kwarg]:
        if parameter is not None:
            env.vars[parameter.arg] = (RunTime(f"parameter {parameter.arg}"),)


def _of_mapping(items: tuple[Values, ...], keys: tuple[Values, ...], name: str) -> Values:
    match name:
        case "items":
            pairs = zip(keys, items, strict=True)
            return (Seq(tuple((Seq(pair),) for pair in pairs)),)
        case "values":
            return (Seq(items),)
        case "keys":
            return (Seq(keys),)
    return ()
