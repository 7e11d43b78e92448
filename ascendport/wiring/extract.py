"""Reads a patch file as a program: follows imports, aliases, branches, loops and calls of its
own functions far enough to say which object each assignment changes.

An abstract interpreter: a name may have several possible values, an unknown condition runs both
branches, a loop over known values runs for each of them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from packaging.version import InvalidVersion, Version

from ascendport.wiring.index import SourceIndex, Thing, What
from ascendport.wiring.model import Assignment, Kind, Where
from ascendport.wiring.summary import absolute, module_name

_MAX_DEPTH = 6
"""Calls of own functions inside calls."""
_MAX_ITEMS = 200
"""Values of a loop or alternatives of a name."""
_CATCHES_IMPORT = {"ImportError", "ModuleNotFoundError", "Exception", "BaseException"}
_CATCHES_ATTRIBUTE = {"AttributeError", "Exception", "BaseException"}


@dataclass(frozen=True)
class Const:
    value: Any


@dataclass(frozen=True)
class Seq:
    """A tuple, list, set, or a mapping (then ``keys`` is as long as ``items``)."""

    items: tuple[tuple[Value, ...], ...]
    keys: tuple[tuple[Value, ...], ...] | None = None


@dataclass(frozen=True, eq=False)
class Own:
    """A function or class that the patch file defines."""

    node: ast.AST
    env: Env


@dataclass(frozen=True)
class RunTime:
    """A value that the analysis does not follow."""

    why: str


@dataclass(frozen=True)
class Sweep:
    """Any module in ``sys.modules``."""


@dataclass(frozen=True)
class Names:
    """``x.__dict__`` or ``vars(x)``; ``of`` None: ``sys.modules``."""

    of: Value | None


Value = Thing | Const | Seq | Own | RunTime | Sweep | Names
Values = tuple[Value, ...]


class Env:
    """Variables of one scope."""

    def __init__(self, parent: Env | None = None) -> None:
        self.parent = parent
        self.vars: dict[str, Values] = {}

    def get(self, name: str) -> Values | None:
        env: Env | None = self
        while env is not None:
            if name in env.vars:
                return env.vars[name]
            env = env.parent
        return None


@dataclass(frozen=True)
class _Context:
    conditions: tuple[str, ...] = ()
    inactive: str = ""
    deferred: bool = False
    depth: int = 0

    def under(self, condition: str) -> _Context:
        return replace(self, conditions=(*self.conditions, condition))

    def never(self, why: str) -> _Context:
        return self if self.inactive else replace(self, inactive=why)


@dataclass(frozen=True)
class _Signal:
    """How a block ended early: an import or attribute failed, or it returned."""

    fails: str = ""
    attribute: bool = False
    stops: bool = False


@dataclass
class Patches:
    """What one file does."""

    assignments: list[Assignment] = field(default_factory=list)
    imports: list[tuple[int, str]] = field(default_factory=list)
    """(line, module) of the imports that certainly run when the file is imported."""
    probes: frozenset[tuple[Thing, str]] = frozenset()
    """Objects and names that the file asks for with hasattr or getattr."""


def extract(source: bytes, path: str, index: SourceIndex, pinned: str) -> Patches:
    """The assignments in the patch file ``path``. ``pinned``: version of vllm, e.g. "0.28.0".

    Raises:
        SyntaxError: the file is not valid Python.
    """
    return _Interpreter(path, index, pinned).run(ast.parse(source))


class _Interpreter:
    def __init__(self, path: str, index: SourceIndex, pinned: str) -> None:
        self.path = path
        self.module, self.is_package = module_name(path)
        self.index = index
        self.pinned = pinned
        self.found: dict[tuple[Any, ...], Assignment] = {}
        self.imports: list[tuple[int, str]] = []
        self.functions: list[Own] = []
        self.entered: set[int] = set()
        self.calls: dict[tuple[Any, ...], Values] = {}
        self.texts: dict[int, str] = {}
        self.failed: _Signal | None = None
        self.probes: set[tuple[Thing, str]] = set()
        self.globals = Env()

    def run(self, tree: ast.Module) -> Patches:
        self.block(tree.body, self.globals, _Context(), [])
        while pending := [own for own in self.functions if id(own.node) not in self.entered]:
            for own in pending:
                self.enter(own, None, None, _Context(deferred=True))
        ordered = sorted(self.found.values(), key=lambda item: item.line)
        return Patches(ordered, self.imports, frozenset(self.probes))

    # -- statements -------------------------------------------------------------------------

    def block(
        self, body: list[ast.stmt], env: Env, context: _Context, returns: list[Value]
    ) -> _Signal | None:
        outcome: _Signal | None = None
        for statement in body:
            signal = self.statement(statement, env, context, returns)
            if isinstance(signal, str):
                context = context.under(signal)
            elif signal is not None and outcome is None:
                outcome = signal
                why = signal.fails or "the code above it returns"
                context = context.never(why)
        return outcome

    def statement(
        self, node: ast.stmt, env: Env, context: _Context, returns: list[Value]
    ) -> _Signal | str | None:
        """A signal, or the condition under which the rest of the block runs."""
        match node:
            case ast.Import():
                return self.import_(node, env, context)
            case ast.ImportFrom():
                return self.import_from(node, env, context)
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                self.define(node, env, context)
            case ast.Assign():
                values = self.eval(node.value, env, context)
                for target in node.targets:
                    self.assign(target, node.value, values, env, context)
            case ast.AnnAssign():
                if node.value is not None:
                    values = self.eval(node.value, env, context)
                    self.assign(node.target, node.value, values, env, context)
            case ast.AugAssign():
                self.eval(node.value, env, context)
                if not isinstance(node.target, ast.Name):
                    unknown: Values = (RunTime("augmented assignment"),)
                    self.assign(node.target, node.value, unknown, env, context)
            case ast.Delete():
                for target in node.targets:
                    self.delete(target, env, context)
            case ast.Expr():
                return self.expression(node.value, env, context)
            case ast.Return():
                if node.value is not None:
                    returns.extend(self.eval(node.value, env, context))
                return _Signal(stops=True)
            case ast.Raise() | ast.Continue() | ast.Break():
                return _Signal(stops=True)
            case ast.If():
                return self.if_(node, env, context, returns)
            case ast.Try() | ast.TryStar():
                return self.try_(node, env, context, returns)
            case ast.With() | ast.AsyncWith():
                for item in node.items:
                    self.eval(item.context_expr, env, context)
                    if item.optional_vars is not None:
                        self.bind_unknown(item.optional_vars, env, "context manager")
                return self.with_(node, env, context, returns)
            case ast.For() | ast.AsyncFor():
                self.for_(node, env, context, returns)
            case ast.While():
                self.eval(node.test, env, context)
                test = f"while {ast.unparse(node.test)}"
                self.block(node.body, env, context.under(test), returns)
                self.block(node.orelse, env, context, returns)
            case ast.Match():
                self.eval(node.subject, env, context)
                for case in node.cases:
                    test = f"match {ast.unparse(node.subject)}: case {ast.unparse(case.pattern)}"
                    self.block(case.body, env, context.under(test), returns)
            case _:
                pass
        return None

    def import_(self, node: ast.Import, env: Env, context: _Context) -> _Signal | None:
        signal = None
        for alias in node.names:
            thing = self.index.module_thing(alias.name)
            if thing.what is What.MISSING:
                signal = self.import_fails(node, alias.name, f"no module {alias.name}", context)
            else:
                self.note_import(node, alias.name, context)
            if alias.asname:
                env.vars[alias.asname] = (thing,)
            else:
                first = alias.name.partition(".")[0]
                env.vars[first] = (self.index.module_thing(first),)
        return signal

    def import_from(self, node: ast.ImportFrom, env: Env, context: _Context) -> _Signal | None:
        source = absolute(self.module, self.is_package, node.module, node.level)
        signal = None
        if self.index.module_thing(source).what is What.MISSING:
            signal = self.import_fails(node, source, f"no module {source}", context)
        else:
            self.note_import(node, source, context)
        for alias in node.names:
            if alias.name == "*":
                for name in self.index.public(source):
                    env.vars[name] = (self.index.member(source, name),)
                continue
            thing = self.index.member(source, alias.name)
            if thing.what is What.MISSING and signal is None:
                dotted = f"{source}.{alias.name}"
                signal = self.import_fails(
                    node, dotted, f"{source} has no name {alias.name}", context
                )
            elif thing.what is What.MODULE:
                self.note_import(node, thing.module, context)
            env.vars[alias.asname or alias.name] = (thing,)
        return signal

    def import_fails(self, node: ast.stmt, target: str, why: str, context: _Context) -> _Signal:
        if not context.inactive:
            self.add(
                Assignment(
                    self.path,
                    node.lineno,
                    f"import {target}",
                    target.rpartition(".")[2],
                    Where.THING,
                    Thing(What.MISSING, target),
                    Kind.IMPORT,
                    conditions=context.conditions,
                    deferred=context.deferred,
                    why=why,
                )
            )
        return _Signal(fails=f"the import in line {node.lineno} fails: {why}")

    def note_import(self, node: ast.stmt, module: str, context: _Context) -> None:
        if not (context.deferred or context.inactive or context.conditions):
            self.imports.append((node.lineno, module))

    def unparsed(self, node: ast.expr) -> str:
        if id(node) not in self.texts:
            self.texts[id(node)] = ast.unparse(node)
        return self.texts[id(node)]

    def define(self, node: Any, env: Env, context: _Context) -> None:
        own = Own(node, env)
        env.vars[node.name] = (own,)
        if isinstance(node, ast.ClassDef):
            self.block(node.body, Env(env), context, [])
            return
        self.functions.append(own)
        for default in [*node.args.defaults, *node.args.kw_defaults]:
            if default is not None:
                self.eval(default, env, context)

    def if_(
        self, node: ast.If, env: Env, context: _Context, returns: list[Value]
    ) -> _Signal | str | None:
        text = self.unparsed(node.test)
        truth = self.truth(node.test, env, context)
        checking = text.endswith("TYPE_CHECKING")
        if checking:
            truth = False
        positive, negative = context.under(f"if {text}"), context.under(f"if not ({text})")
        if truth is False:
            why = f"'{text}' is false with vllm {self.pinned}"
            if not checking:
                self.block(node.body, Env(env), positive.never(why), [])
            else:
                self.block(node.body, env, context.never(why), [])
            return self.block(node.orelse, env, negative, returns)
        if truth is True:
            why = f"'{text}' is true with vllm {self.pinned}"
            self.block(node.orelse, Env(env), negative.never(why), [])
            return self.block(node.body, env, positive, returns)
        before = dict(env.vars)
        first = self.block(node.body, env, positive, returns)
        after_body, env.vars = env.vars, dict(before)
        second = self.block(node.orelse, env, negative, returns)
        if first and first.stops and not second:
            return f"if not ({text})"
        if second and second.stops and not first and node.orelse:
            env.vars = after_body
            return f"if {text}"
        if first and second and first.stops and second.stops:
            return first
        env.vars = _merged(after_body, env.vars)
        return None

    def try_(
        self, node: Any, env: Env, context: _Context, returns: list[Value]
    ) -> _Signal | str | None:
        caught = {name for handler in node.handlers for name in _exception_names(handler)}
        guards = caught & (_CATCHES_IMPORT | _CATCHES_ATTRIBUTE)
        note = f"try/except {', '.join(sorted(guards))}" if guards else ""
        inner = context.under(note) if note else context
        mark = set(self.found)
        before = dict(env.vars)
        signal = self.block(node.body, env, inner, returns)
        handled = bool(signal and signal.fails and caught & _CATCHES_IMPORT)
        if handled:
            self.forget_imports(mark)
        after_body = env.vars
        ends: list[_Signal | None] = []
        for handler in node.handlers:
            env.vars = dict(before)
            if handler.name:
                env.vars[handler.name] = (RunTime("exception"),)
            names = _exception_names(handler)
            what = f"except {', '.join(sorted(names)) or 'everything'}"
            inside = context.under(what)
            if handled and not names & _CATCHES_IMPORT:
                inside = inside.never("the exception is another one")
            elif (
                not handled
                and names
                and names <= {"ImportError", "ModuleNotFoundError"}
                and self.only_inside_imports(node.body)
            ):
                inside = inside.never("the import succeeds")
            ends.append(self.block(handler.body, env, inside, returns))
            if not inside.inactive:
                after_body = env.vars if handled else _merged(after_body, env.vars)
        env.vars = after_body
        if not handled:
            tail = self.block(node.orelse, env, inner, returns)
            signal = signal or tail
        finished = self.block(node.finalbody, env, context, returns)
        if handled:
            stopping = ends and all(end is not None and end.stops for end in ends)
            return finished or (_Signal(stops=True) if stopping else None)
        if finished:
            return finished
        if signal and signal.stops and any(end is None for end in ends):
            return note or "try"
        return signal

    def with_(self, node: Any, env: Env, context: _Context, returns: list[Value]) -> _Signal | None:
        """A block; ``with suppress(ImportError)`` is a try statement."""
        caught: set[str] = set()
        for item in node.items:
            call = item.context_expr
            if isinstance(call, ast.Call) and _dotted(call.func).rpartition(".")[2] == "suppress":
                caught |= {_dotted(argument).rpartition(".")[2] for argument in call.args}
        if not caught & (_CATCHES_IMPORT | _CATCHES_ATTRIBUTE):
            return self.block(node.body, env, context, returns)
        mark = set(self.found)
        inner = context.under(f"suppress {', '.join(sorted(caught))}")
        signal = self.block(node.body, env, inner, returns)
        if signal and signal.fails and caught & _CATCHES_IMPORT:
            self.forget_imports(mark)
            return None
        return signal

    def forget_imports(self, mark: set[tuple[Any, ...]]) -> None:
        """A failing import that the code foresees is no finding."""
        for key in [key for key in self.found if key not in mark]:
            if self.found[key].kind is Kind.IMPORT:
                del self.found[key]

    def only_inside_imports(self, body: list[ast.stmt]) -> bool:
        """Every import of the block is of vllm or vllm_ascend: whether it fails is known."""
        for statement in body:
            for node in ast.walk(statement):
                if isinstance(node, ast.Import):
                    if not all(self.index.inside(alias.name) for alias in node.names):
                        return False
                elif isinstance(node, ast.ImportFrom):
                    source = absolute(self.module, self.is_package, node.module, node.level)
                    if not self.index.inside(source):
                        return False
        return True

    def for_(self, node: Any, env: Env, context: _Context, returns: list[Value]) -> None:
        values = self.eval(node.iter, env, context)
        rounds: list[Values] = []
        for value in values:
            if isinstance(value, Seq):
                rounds += value.keys if value.keys is not None else value.items
            elif isinstance(value, Names) and value.of is None:
                rounds.append((RunTime("name of a loaded module"),))
        if not rounds:
            rounds = [(RunTime(f"loop over {_short(node.iter)}"),)]
        for item in rounds[:_MAX_ITEMS]:
            self.bind(node.target, item, env)
            self.block(node.body, env, context, returns)
        self.block(node.orelse, env, context, returns)

    def bind(self, target: ast.expr, values: Values, env: Env) -> None:
        if isinstance(target, ast.Name):
            env.vars[target.id] = values[:_MAX_ITEMS]
        elif isinstance(target, ast.Tuple | ast.List):
            for position, part in enumerate(target.elts):
                picked: list[Value] = []
                for value in values:
                    if isinstance(value, Seq) and position < len(value.items):
                        picked += value.items[position]
                    else:
                        picked.append(RunTime("unpacked value"))
                self.bind(part, tuple(picked), env)
        elif isinstance(target, ast.Starred):
            self.bind(target.value, (RunTime("starred value"),), env)

    def bind_unknown(self, target: ast.expr, env: Env, why: str) -> None:
        for node in ast.walk(target):
            if isinstance(node, ast.Name):
                env.vars[node.id] = (RunTime(why),)

    # -- assignments ------------------------------------------------------------------------

    def assign(
        self, target: ast.expr, value: ast.expr, values: Values, env: Env, context: _Context
    ) -> None:
        match target:
            case ast.Name():
                self.bind(target, values, env)
            case ast.Starred():
                self.assign(target.value, value, (RunTime("starred value"),), env, context)
            case ast.Tuple() | ast.List():
                parts = value.elts if isinstance(value, ast.Tuple | ast.List) else None
                for position, part in enumerate(target.elts):
                    if parts is not None and len(parts) == len(target.elts):
                        picked = self.eval(parts[position], env, context)
                        self.assign(part, parts[position], picked, env, context)
                    elif isinstance(part, ast.Name):
                        unpacked = ast.Tuple(list(target.elts))
                        self.bind(unpacked, values, env)
                    else:
                        self.assign(part, value, (RunTime("unpacked value"),), env, context)
            case ast.Attribute():
                bases = self.eval(target.value, env, context)
                self.emit(target, bases, target.attr, value, env, context)
            case ast.Subscript():
                self.assign_item(target, value, env, context)
            case _:
                pass

    def assign_item(
        self, target: ast.Subscript, value: ast.expr, env: Env, context: _Context
    ) -> None:
        names = [
            key.value
            for key in self.eval(target.slice, env, context)
            if isinstance(key, Const) and isinstance(key.value, str)
        ]
        for container in self.eval(target.value, env, context):
            self.put(target, container, names, value, env, context)

    def put(
        self,
        node: ast.AST,
        container: Value,
        names: list[str],
        value: ast.expr,
        env: Env,
        context: _Context,
    ) -> None:
        """``container[name] = value`` for each of ``names``; none: the name is not known."""
        if isinstance(container, Names) and container.of is None:
            for name in names:
                thing = self.index.module_thing(name)
                self.emit(node, (thing,), name, value, env, context, Kind.MODULE)
            if not names:
                unknown = (RunTime("key of sys.modules"),)
                self.emit(node, unknown, "?", value, env, context, Kind.MODULE)
        elif isinstance(container, Names) and container.of is not None:
            for name in names or ["?"]:
                bases = (container.of,) if names else (RunTime("name of the attribute"),)
                self.emit(node, bases, name, value, env, context)
        elif isinstance(container, Thing):
            shown = names[0] if names else "?"
            self.emit(node, (container,), shown, value, env, context, Kind.ITEM)

    def delete(self, target: ast.expr, env: Env, context: _Context) -> None:
        if isinstance(target, ast.Attribute):
            bases = self.eval(target.value, env, context)
            self.emit(target, bases, target.attr, None, env, context, Kind.DELETE)
        elif isinstance(target, ast.Subscript):
            for key in self.eval(target.slice, env, context):
                if not (isinstance(key, Const) and isinstance(key.value, str)):
                    continue
                for container in self.eval(target.value, env, context):
                    if isinstance(container, Names) and container.of is not None:
                        self.emit(
                            target, (container.of,), key.value, None, env, context, Kind.DELETE
                        )

    def emit(
        self,
        node: ast.AST,
        bases: Values,
        name: str,
        value: ast.expr | None,
        env: Env,
        context: _Context,
        kind: Kind = Kind.ATTRIBUTE,
    ) -> None:
        things = tuple(dict.fromkeys(self.named(value, env, context))) if value is not None else ()
        text = ast.unparse(node)
        if isinstance(node, ast.Call):
            shown = ast.unparse(node.args[0]) if node.args else text
            text = f"{shown}.{name}"
        usable = [base for base in bases if not _is_missing(base)] or list(bases)
        for base in usable:
            self.add(
                Assignment(
                    self.path,
                    getattr(node, "lineno", 0),
                    text,
                    name,
                    _where(base, context.deferred),
                    base if isinstance(base, Thing) else None,
                    kind,
                    things,
                    context.conditions,
                    context.inactive,
                    context.deferred,
                    base.why if isinstance(base, RunTime) else "",
                )
            )

    def add(self, assignment: Assignment) -> None:
        key = (assignment.line, assignment.target, assignment.name, assignment.base)
        known = self.found.get(key)
        if known is None or (
            not assignment.inactive
            and (known.inactive or (known.deferred and not assignment.deferred))
        ):
            self.found[key] = assignment

    def named(
        self, value: ast.expr, env: Env, context: _Context, depth: int = 0
    ) -> Iterator[Thing]:
        """Objects of other files that an expression, or an own function in it, names."""
        for node in _outermost_names(value):
            for found in self.eval(node, env, context):
                if isinstance(found, Thing):
                    yield found
                elif isinstance(found, Own) and depth < 3:
                    for inner in _outermost_names(found.node):
                        for thing in self.eval(inner, found.env, context):
                            if isinstance(thing, Thing):
                                yield thing
                            elif isinstance(thing, Own) and thing.node is not found.node:
                                name = ast.Name(getattr(thing.node, "name", ""), ast.Load())
                                yield from self.named(name, thing.env, context, depth + 1)

    # -- calls ------------------------------------------------------------------------------

    def expression(self, node: ast.expr, env: Env, context: _Context) -> _Signal | None:
        """A call that certainly fails on an import ends the block."""
        self.failed = None
        self.eval(node, env, context)
        signal, self.failed = self.failed, None
        return signal

    def enter(self, own: Own, call: ast.Call | None, env: Env | None, context: _Context) -> Values:
        """Runs an own function; without a call its parameters are unknown."""
        node: Any = own.node
        inner = Env(own.env)
        arguments: ast.arguments = node.args
        positional = [*arguments.posonlyargs, *arguments.args]
        for parameter in [*positional, *arguments.kwonlyargs]:
            inner.vars[parameter.arg] = (RunTime(f"parameter {parameter.arg}"),)
        for extra in (arguments.vararg, arguments.kwarg):
            if extra is not None:
                inner.vars[extra.arg] = (RunTime(f"parameter {extra.arg}"),)
        if call is not None and env is not None:
            defaults = list(zip(reversed(positional), reversed(arguments.defaults), strict=False))
            defaults += [
                (parameter, default)
                for parameter, default in zip(
                    arguments.kwonlyargs, arguments.kw_defaults, strict=True
                )
                if default is not None
            ]
            for parameter, default in defaults:
                inner.vars[parameter.arg] = self.eval(default, own.env, context)
            for parameter, argument in zip(positional, call.args, strict=False):
                if isinstance(argument, ast.Starred):
                    break
                inner.vars[parameter.arg] = self.eval(argument, env, context)
            for keyword in call.keywords:
                if keyword.arg is not None and keyword.arg in inner.vars:
                    inner.vars[keyword.arg] = self.eval(keyword.value, env, context)
        if not context.inactive:
            self.entered.add(id(node))
        key = (id(node), context, tuple(sorted((k, repr(v)) for k, v in inner.vars.items())))
        if key in self.calls:
            return self.calls[key]
        self.calls[key] = ()
        returns: list[Value] = []
        if isinstance(node, ast.Lambda):
            returns.extend(self.eval(node.body, inner, context))
        else:
            signal = self.block(node.body, inner, context, returns)
            if signal and signal.fails:
                self.failed = signal
        result = tuple(dict.fromkeys(returns))[:_MAX_ITEMS]
        self.calls[key] = result
        return result

    def call(self, node: ast.Call, env: Env, context: _Context) -> Values:
        text = _dotted(node.func)
        arguments = node.args
        last = text.rpartition(".")[2]
        if last in ("setattr", "__setattr__") and len(arguments) >= 3:
            self.set_attribute(node, env, context)
            return (Const(None),)
        if last in ("delattr", "__delattr__") and len(arguments) >= 2:
            for key in self.eval(arguments[1], env, context):
                if isinstance(key, Const) and isinstance(key.value, str):
                    bases = self.eval(arguments[0], env, context)
                    self.emit(node, bases, key.value, None, env, context, Kind.DELETE)
            return (Const(None),)
        if last in ("getattr", "hasattr") and len(arguments) >= 2:
            return self.get_attribute(node, last, env, context)
        if last in ("import_module", "__import__", "find_spec") and arguments:
            return self.import_call(node, last, env, context)
        if last == "vllm_version_is" and arguments:
            return self.version_is(arguments[0], env, context)
        if last in ("cast", "wraps", "cache") and len(arguments) == 2:
            return self.eval(arguments[1], env, context)
        if last in ("list", "tuple", "set", "sorted", "reversed", "dict") and len(arguments) == 1:
            return self.eval(arguments[0], env, context)
        if last == "vars" and len(arguments) == 1:
            return tuple(Names(value) for value in self.eval(arguments[0], env, context))
        if isinstance(node.func, ast.Attribute):
            found = self.method(node, node.func, env, context)
            if found is not None:
                return found
        results: list[Value] = []
        for function in self.eval(node.func, env, context):
            own = isinstance(function, Own) and not isinstance(function.node, ast.ClassDef)
            if isinstance(function, Own) and own and context.depth < _MAX_DEPTH:
                deeper = replace(context, depth=context.depth + 1)
                results += self.enter(function, node, env, deeper)
            else:
                results.append(RunTime(f"result of {_short(node.func)}()"))
        for argument in arguments:
            self.eval(argument, env, context)
        for keyword in node.keywords:
            self.eval(keyword.value, env, context)
        return tuple(results)

    def method(
        self, node: ast.Call, function: ast.Attribute, env: Env, context: _Context
    ) -> Values | None:
        if function.attr not in ("get", "items", "values", "keys", "copy", "update", "setdefault"):
            return None
        results: list[Value] = []
        for container in self.eval(function.value, env, context):
            if isinstance(container, Names) and container.of is None:
                if function.attr == "get" and node.args:
                    results += self.item(container, node.args[0], env, context)
                elif function.attr == "setdefault" and len(node.args) == 2:
                    key = self.eval(node.args[0], env, context)
                    names = [item.value for item in key if isinstance(item, Const)]
                    self.put(node, container, names, node.args[1], env, context)
                elif function.attr == "items":
                    pair = Seq(((RunTime("name of a loaded module"),), (Sweep(),)))
                    results.append(Seq(((pair,),)))
                elif function.attr in ("values", "copy"):
                    results.append(Seq(((Sweep(),),)))
            elif isinstance(container, Seq) and container.keys is not None:
                if function.attr == "items":
                    pairs = tuple(
                        (Seq((key, value)),)
                        for key, value in zip(container.keys, container.items, strict=True)
                    )
                    results.append(Seq(pairs))
                elif function.attr == "values":
                    results.append(Seq(container.items))
                elif function.attr == "keys":
                    results.append(Seq(container.keys))
            elif function.attr == "update" and isinstance(container, Names | Thing) and node.args:
                argument = node.args[0]
                if isinstance(argument, ast.Dict):
                    for key_node, value in zip(argument.keys, argument.values, strict=True):
                        if key_node is None:
                            continue
                        names = [
                            item.value
                            for item in self.eval(key_node, env, context)
                            if isinstance(item, Const)
                        ]
                        self.put(node, container, names, value, env, context)
        return tuple(results) or None

    def set_attribute(self, node: ast.Call, env: Env, context: _Context) -> None:
        bases = self.eval(node.args[0], env, context)
        value = node.args[2]
        self.eval(value, env, context)
        names = self.eval(node.args[1], env, context)
        for name in names:
            if isinstance(name, Const) and isinstance(name.value, str):
                self.emit(node, bases, name.value, value, env, context)
            else:
                shown = f"<{_short(node.args[1])}>"
                real = [base for base in bases if isinstance(base, Thing)]
                unknown: Values = (RunTime("name of the attribute"),) if real else bases
                self.emit(node, unknown, shown, value, env, context)

    def get_attribute(self, node: ast.Call, what: str, env: Env, context: _Context) -> Values:
        results: list[Value] = []
        default = node.args[2] if len(node.args) > 2 else None
        for key in self.eval(node.args[1], env, context):
            for base in self.eval(node.args[0], env, context):
                if not (isinstance(key, Const) and isinstance(key.value, str)):
                    results.append(RunTime("getattr of a computed name"))
                    continue
                if isinstance(base, Thing):
                    self.probes.add((base, key.value))
                found = self.attribute(base, key.value)
                missing = all(_is_missing(item) for item in found)
                certain = all(
                    isinstance(item, Thing)
                    and item.what is not What.UNSURE
                    and item.what is not What.OUTSIDE
                    for item in found
                )
                if what == "hasattr":
                    results.append(
                        Const(not missing) if certain else RunTime(f"hasattr {key.value}")
                    )
                elif missing and default is not None:
                    results += self.eval(default, env, context)
                else:
                    results += found
        return tuple(dict.fromkeys(results))

    def import_call(self, node: ast.Call, what: str, env: Env, context: _Context) -> Values:
        results: list[Value] = []
        for name in self.eval(node.args[0], env, context):
            if isinstance(name, Const) and isinstance(name.value, str):
                thing = self.index.module_thing(name.value)
                if what == "find_spec":
                    missing = thing.what is What.MISSING
                    results.append(Const(None) if missing else thing)
                else:
                    results.append(thing)
                    if thing.what is What.MODULE:
                        self.note_import(node, name.value, context)  # type: ignore[arg-type]
            else:
                results.append(RunTime("import of a computed name"))
        return tuple(results)

    def version_is(self, argument: ast.expr, env: Env, context: _Context) -> Values:
        results: list[Value] = []
        for wanted in self.eval(argument, env, context):
            equal = isinstance(wanted, Const) and _versions_equal(wanted.value, self.pinned)
            results.append(Const(equal) if isinstance(wanted, Const) else RunTime("version"))
        return tuple(results)

    # -- expressions ------------------------------------------------------------------------

    def eval(self, node: ast.expr, env: Env, context: _Context) -> Values:
        match node:
            case ast.Name():
                found = env.get(node.id)
                return found if found is not None else (RunTime(f"name {node.id}"),)
            case ast.Constant():
                return (Const(node.value),)
            case ast.Attribute():
                if node.attr == "modules" and _is_name(node.value, "sys"):
                    return (Names(None),)
                results: list[Value] = []
                for base in self.eval(node.value, env, context):
                    results += self.attribute(base, node.attr)
                return tuple(dict.fromkeys(results))
            case ast.Call():
                return self.call(node, env, context)
            case ast.Subscript():
                results = []
                for container in self.eval(node.value, env, context):
                    results += self.item(container, node.slice, env, context)
                return tuple(dict.fromkeys(results))
            case ast.Tuple() | ast.List() | ast.Set():
                return (Seq(tuple(self.eval(item, env, context) for item in node.elts)),)
            case ast.Dict():
                keys = tuple(self.eval(key, env, context) if key else () for key in node.keys)
                items = tuple(self.eval(item, env, context) for item in node.values)
                return (Seq(items, keys),)
            case ast.NamedExpr():
                values = self.eval(node.value, env, context)
                self.bind(node.target, values, env)
                return values
            case ast.IfExp():
                truth = self.truth(node.test, env, context)
                chosen = [node.body] if truth else [node.orelse] if truth is False else None
                both = chosen or [node.body, node.orelse]
                return tuple(
                    dict.fromkeys(v for part in both for v in self.eval(part, env, context))
                )
            case ast.BoolOp() | ast.Compare() | ast.UnaryOp(op=ast.Not()):
                decided = self.truth(node, env, context)
                if decided is not None and not isinstance(node, ast.BoolOp):
                    return (Const(decided),)
                if isinstance(node, ast.BoolOp):
                    values = tuple(
                        dict.fromkeys(
                            v for part in node.values for v in self.eval(part, env, context)
                        )
                    )
                    if decided is not None and all(isinstance(v, Const) for v in values):
                        return (Const(decided),)
                    return values
                return (RunTime(_short(node)),)
            case ast.JoinedStr():
                return self.text(node, env, context)
            case ast.BinOp(op=ast.Add()):
                left, right = (self.eval(side, env, context) for side in (node.left, node.right))
                if _strings(left) and _strings(right):
                    return tuple(
                        Const(a.value + b.value)  # type: ignore[union-attr]
                        for a in left
                        for b in right
                    )
                return (RunTime(_short(node)),)
            case ast.Lambda():
                return (Own(node, env),)
            case ast.Starred() | ast.Await():
                return self.eval(node.value, env, context)
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp():
                inner = Env(env)
                for generator in node.generators:
                    for value in self.eval(generator.iter, env, context):
                        if isinstance(value, Seq):
                            items = value.keys if value.keys is not None else value.items
                            self.bind(generator.target, tuple(v for i in items for v in i), inner)
                            break
                    else:
                        self.bind_unknown(generator.target, inner, "comprehension")
                return (Seq((self.eval(node.elt, inner, context),)),)
            case _:
                return (RunTime(_short(node)),)

    def text(self, node: ast.JoinedStr, env: Env, context: _Context) -> Values:
        whole = ""
        for part in node.values:
            if isinstance(part, ast.Constant):
                whole += str(part.value)
            elif isinstance(part, ast.FormattedValue):
                values = self.eval(part.value, env, context)
                if len(values) != 1 or not isinstance(values[0], Const):
                    return (RunTime("computed text"),)
                whole += str(values[0].value)
        return (Const(whole),)

    def attribute(self, base: Value, name: str) -> Values:
        if name == "__dict__" and not isinstance(base, RunTime):
            return (Names(base),)
        if name == "__globals__" and isinstance(base, Thing) and base.what is What.FUNCTION:
            return (Names(self.index.module_thing(base.module)),)
        if isinstance(base, Thing):
            if base.what is What.OUTSIDE and base.module == "sys" and name == "modules":
                return (Names(None),)
            return (self.index.attribute(base, name),)
        if isinstance(base, Sweep):
            return (RunTime("attribute of any loaded module"),)
        if isinstance(base, Own):
            return (RunTime("attribute of an own object"),)
        return (base if isinstance(base, RunTime) else RunTime(f"attribute {name}"),)

    def item(self, container: Value, index: ast.expr, env: Env, context: _Context) -> Values:
        keys = self.eval(index, env, context)
        results: list[Value] = []
        for key in keys:
            constant = key.value if isinstance(key, Const) else None
            if isinstance(container, Names) and container.of is None:
                if isinstance(constant, str):
                    results.append(self.index.module_thing(constant))
                else:
                    own = _short(index) == "__name__"
                    results.append(RunTime("this module") if own else Sweep())
            elif isinstance(container, Names) and isinstance(constant, str) and container.of:
                results += self.attribute(container.of, constant)
            elif isinstance(container, Seq) and container.keys is None:
                if isinstance(constant, int) and -len(container.items) <= constant < len(
                    container.items
                ):
                    results += container.items[constant]
                else:
                    results += [value for item in container.items for value in item]
            elif isinstance(container, Seq) and container.keys is not None:
                for own_key, value in zip(container.keys, container.items, strict=True):
                    if not isinstance(key, Const) or key in own_key:
                        results += value
            elif isinstance(container, Thing):
                results.append(RunTime(f"item of {container.dotted}"))
        return tuple(results) or (RunTime(_short(index)),)

    def truth(self, node: ast.expr, env: Env, context: _Context) -> bool | None:
        match node:
            case ast.UnaryOp(op=ast.Not()):
                inner = self.truth(node.operand, env, context)
                return None if inner is None else not inner
            case ast.BoolOp():
                parts = [self.truth(part, env, context) for part in node.values]
                if isinstance(node.op, ast.And):
                    return False if False in parts else None if None in parts else True
                return True if True in parts else None if None in parts else False
            case ast.Compare(ops=[operator], comparators=[other]):
                return self.compare(node.left, operator, other, env, context)
            case ast.Compare():
                return None
            case _:
                answers = {_truth_of(value) for value in self.eval(node, env, context)}
                return answers.pop() if len(answers) == 1 else None

    def compare(
        self, left: ast.expr, operator: ast.cmpop, right: ast.expr, env: Env, context: _Context
    ) -> bool | None:
        if isinstance(operator, ast.Is | ast.IsNot):
            for one, other in ((left, right), (right, left)):
                if isinstance(one, ast.Constant) and one.value is None:
                    answers = {_is_none(value) for value in self.eval(other, env, context)}
                    answer = answers.pop() if len(answers) == 1 else None
                    negate = isinstance(operator, ast.IsNot)
                    return None if answer is None else answer != negate
            return None
        texts = [self.version_text(side, env, context) for side in (left, right)]
        if texts[0] and texts[1] and any("__version__" in ast.unparse(s) for s in (left, right)):
            return _compare_versions(texts[0], operator, texts[1])
        values = [self.eval(side, env, context) for side in (left, right)]
        if all(len(side) == 1 and isinstance(side[0], Const) for side in values):
            first, second = (side[0].value for side in values)  # type: ignore[union-attr]
            if isinstance(operator, ast.Eq):
                return bool(first == second)
            if isinstance(operator, ast.NotEq):
                return bool(first != second)
        return None

    def version_text(self, node: ast.expr, env: Env, context: _Context) -> str | None:
        """The version that an expression stands for: a constant, ``Version("…")``, or vllm's."""
        if (
            isinstance(node, ast.Call)
            and len(node.args) == 1
            and _dotted(node.func).rpartition(".")[2] in ("Version", "parse")
        ):
            return self.version_text(node.args[0], env, context)
        if isinstance(node, ast.Attribute) and node.attr == "__version__":
            base = self.eval(node.value, env, context)
            known = base and isinstance(base[0], Thing) and base[0].dotted == "vllm"
            return self.pinned if known else None
        values = self.eval(node, env, context)
        only = values[0] if len(values) == 1 else None
        if isinstance(only, Const) and isinstance(only.value, str):
            return only.value
        vllms = ("vllm.__version__", "vllm.version.__version__")
        return self.pinned if isinstance(only, Thing) and only.dotted in vllms else None


def _where(base: Value, deferred: bool) -> Where:
    if isinstance(base, Thing):
        return Where.THING
    if isinstance(base, Sweep):
        return Where.SWEEP
    if isinstance(base, Own | Const | Seq):
        return Where.OWN
    if isinstance(base, RunTime) and "own object" in base.why:
        return Where.OWN
    return Where.STATE if deferred else Where.RUN_TIME


def _is_missing(value: Value) -> bool:
    return isinstance(value, Thing) and value.what is What.MISSING


def _truth_of(value: Value) -> bool | None:
    if isinstance(value, Const):
        return bool(value.value)
    if isinstance(value, Seq):
        return bool(value.items)
    if isinstance(value, Thing) and value.what in (What.MODULE, What.CLASS, What.FUNCTION):
        return True
    return None


def _is_none(value: Value) -> bool | None:
    if isinstance(value, Const):
        return value.value is None
    if isinstance(value, Thing) and value.what in (What.MODULE, What.CLASS, What.FUNCTION):
        return False
    return False if isinstance(value, Own | Seq) else None


def _merged(first: dict[str, Values], second: dict[str, Values]) -> dict[str, Values]:
    merged = dict(first)
    for name, values in second.items():
        if name in merged and merged[name] is not values:
            merged[name] = tuple(dict.fromkeys((*merged[name], *values)))[:_MAX_ITEMS]
        else:
            merged[name] = values
    return merged


def _strings(values: Values) -> bool:
    return all(isinstance(v, Const) and isinstance(v.value, str) for v in values)


def _exception_names(handler: ast.ExceptHandler) -> set[str]:
    if handler.type is None:
        return {"BaseException"}
    parts: Iterable[ast.expr] = (
        handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    )
    return {ast.unparse(part).rpartition(".")[2] for part in parts}


def _is_name(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _dotted(node: ast.AST) -> str:
    """``a.b`` as text; other expressions end in what follows their last dot, or "?"."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    parts.append(node.id if isinstance(node, ast.Name) else "?")
    return ".".join(reversed(parts))


def _short(node: ast.AST) -> str:
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= 60 else text[:57] + "..."


def _outermost_names(node: ast.AST) -> list[ast.expr]:
    """Names and dotted names in a tree, each at its longest."""
    found: list[ast.expr] = []
    queue: list[ast.AST] = [node]
    while queue:
        current = queue.pop(0)
        if isinstance(current, ast.Attribute):
            inner: ast.expr = current
            while isinstance(inner, ast.Attribute):
                inner = inner.value
            if isinstance(inner, ast.Name):
                found.append(current)
                continue
        if isinstance(current, ast.Name):
            found.append(current)
            continue
        queue.extend(ast.iter_child_nodes(current))
    return found


def _versions_equal(text: Any, pinned: str) -> bool:
    try:
        return Version(str(text)) == Version(pinned)
    except InvalidVersion:
        return False


def _compare_versions(left: str, operator: ast.cmpop, right: str) -> bool | None:
    try:
        first, second = Version(left), Version(right)
    except InvalidVersion:
        return None
    match operator:
        case ast.Eq():
            return first == second
        case ast.NotEq():
            return first != second
        case ast.Lt():
            return first < second
        case ast.LtE():
            return first <= second
        case ast.Gt():
            return first > second
        case ast.GtE():
            return first >= second
    return None
