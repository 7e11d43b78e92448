"""Statements: which run, in which order, and under which conditions."""

from __future__ import annotations

import ast

from ascendport.wiring.index import SourceIndex
from ascendport.wiring.interpreter.calls import Calls
from ascendport.wiring.interpreter.findings import Findings
from ascendport.wiring.interpreter.frame import Context, Ended, Frame, Holds
from ascendport.wiring.interpreter.imports import CATCHES_IMPORT
from ascendport.wiring.interpreter.values import (
    MAX_ITEMS,
    Env,
    LoadedModules,
    Own,
    RunTime,
    Seq,
    Values,
    merged,
)
from ascendport.wiring.syntax import exception_names, last_part, short

_GUARDS = CATCHES_IMPORT | {"AttributeError"}
"""Exceptions that foresee another vllm: a try statement that catches one is a condition."""
_ONLY_IMPORTS = {"ImportError", "ModuleNotFoundError"}

_Try = ast.Try | ast.TryStar
_Outcome = Ended | Holds | None


class Statements(Calls):
    """The whole interpreter."""

    def __init__(self, path: str, index: SourceIndex, pinned: str) -> None:
        super().__init__(path, index, pinned)
        self.functions: list[Own] = []
        self.texts: dict[int, str] = {}

    def run(self, tree: ast.Module) -> Findings:
        """Runs the file, then each of its functions that nothing called."""
        self.block(tree.body, Frame(Env()))
        while pending := [own for own in self.functions if id(own.node) not in self.entered]:
            for own in pending:
                self.enter(own, Context(deferred=True))
        return self.findings

    def block(self, body: list[ast.stmt], frame: Frame) -> Ended | None:
        ended: Ended | None = None
        for statement in body:
            outcome = self.statement(statement, frame)
            if isinstance(outcome, Holds):
                frame = frame.under(outcome.condition)
            elif outcome is not None and ended is None:
                ended = outcome
                frame = frame.never(outcome.fails or "the code above it returns")
        return ended

    def statement(self, node: ast.stmt, frame: Frame) -> _Outcome:
        match node:
            case ast.Import():
                return self.import_(node, frame)
            case ast.ImportFrom():
                return self.import_from(node, frame)
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                self.define(node, frame)
            case ast.Assign() | ast.AnnAssign() | ast.AugAssign():
                self.assignment(node, frame)
            case ast.Delete():
                for target in node.targets:
                    self.delete(target, frame)
            case ast.Expr():
                return self.expression(node.value, frame)
            case ast.Return() | ast.Raise() | ast.Continue() | ast.Break():
                if isinstance(node, ast.Return) and node.value is not None:
                    frame.returns.extend(self.eval(node.value, frame))
                return Ended()
            case ast.If():
                return self.if_(node, frame)
            case ast.Try() | ast.TryStar():
                return self.try_(node, frame)
            case ast.With() | ast.AsyncWith():
                return self.with_(node, frame)
            case ast.For() | ast.AsyncFor():
                self.for_(node, frame)
            case ast.While():
                self.eval(node.test, frame)
                self.block(node.body, frame.under(f"while {ast.unparse(node.test)}"))
                self.block(node.orelse, frame)
            case ast.Match():
                self.eval(node.subject, frame)
                for case in node.cases:
                    test = f"match {ast.unparse(node.subject)}: case {ast.unparse(case.pattern)}"
                    self.block(case.body, frame.under(test))
        return None

    def assignment(self, node: ast.Assign | ast.AnnAssign | ast.AugAssign, frame: Frame) -> None:
        if node.value is None:
            return
        values = self.eval(node.value, frame)
        if isinstance(node, ast.AugAssign):
            if isinstance(node.target, ast.Name):
                return
            values = (RunTime("augmented assignment"),)
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            self.assign(target, node.value, values, frame)

    def expression(self, node: ast.expr, frame: Frame) -> Ended | None:
        """A call that certainly fails on an import ends the block."""
        self.failed = None
        self.eval(node, frame)
        ended, self.failed = self.failed, None
        return ended

    def define(
        self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef, frame: Frame
    ) -> None:
        own = Own(node, frame.env)
        frame.env.vars[node.name] = (own,)
        if isinstance(node, ast.ClassDef):
            self.block(node.body, frame.apart())
            return
        self.functions.append(own)
        for default in [*node.args.defaults, *node.args.kw_defaults]:
            if default is not None:
                self.eval(default, frame)

    # -- branches ---------------------------------------------------------------------------

    def if_(self, node: ast.If, frame: Frame) -> _Outcome:
        text = self.written(node.test)
        truth = self.truth(node.test, frame)
        if text.endswith("TYPE_CHECKING"):
            # It never runs, yet its imports say what names in the rest of the file stand for.
            why = f"'{text}' is false with vllm {self.pinned}"
            self.block(node.body, Frame(frame.env, frame.context).never(why))
            return self.block(node.orelse, frame.under(f"if not ({text})"))
        if truth is None:
            return self.either(node, text, frame)
        why = f"'{text}' is {str(truth).lower()} with vllm {self.pinned}"
        runs, rests = frame.under(f"if {text}"), frame.under(f"if not ({text})")
        if truth:
            self.block(node.orelse, rests.never(why).apart())
            return self.block(node.body, runs)
        self.block(node.body, runs.never(why).apart())
        return self.block(node.orelse, rests)

    def either(self, node: ast.If, text: str, frame: Frame) -> _Outcome:
        """Both branches of a condition that is not known."""
        env = frame.env
        before = dict(env.vars)
        first = self.block(node.body, frame.under(f"if {text}"))
        after_body, env.vars = env.vars, dict(before)
        second = self.block(node.orelse, frame.under(f"if not ({text})"))
        if first and first.stops and not second:
            return Holds(f"if not ({text})")
        if second and second.stops and not first and node.orelse:
            env.vars = after_body
            return Holds(f"if {text}")
        if first and second and first.stops and second.stops:
            return first
        env.vars = merged(after_body, env.vars)
        return None

    def written(self, node: ast.expr) -> str:
        """The text of a condition; a loop asks for it again in each round."""
        if id(node) not in self.texts:
            self.texts[id(node)] = ast.unparse(node)
        return self.texts[id(node)]

    # -- exceptions -------------------------------------------------------------------------

    def try_(self, node: _Try, frame: Frame) -> _Outcome:
        caught = {name for handler in node.handlers for name in exception_names(handler)}
        guards = ", ".join(sorted(caught & _GUARDS))
        note = f"try/except {guards}" if guards else ""
        inner = frame.under(note) if note else frame
        mark = self.findings.mark()
        before = dict(frame.env.vars)
        ended = self.block(node.body, inner)
        handled = bool(ended and ended.fails and caught & CATCHES_IMPORT)
        if handled:
            self.findings.forget_imports(mark)
        ends = self.handlers(node, before, handled, frame)
        if not handled:
            tail = self.block(node.orelse, inner)
            ended = ended or tail
        finished = self.block(node.finalbody, frame)
        if finished:
            return finished
        if handled:
            stopping = ends and all(end is not None and end.stops for end in ends)
            return Ended() if stopping else None
        if ended and ended.stops and None in ends:
            return Holds(note or "try")
        return ended

    def handlers(
        self, node: _Try, before: dict[str, Values], handled: bool, frame: Frame
    ) -> list[Ended | None]:
        """Runs every except clause with the variables from ``before`` the try statement, and
        leaves those that any way through it gives. ``handled``: the body fails on an import."""
        env = frame.env
        after = env.vars
        ends: list[Ended | None] = []
        for handler in node.handlers:
            env.vars = dict(before)
            if handler.name:
                env.vars[handler.name] = (RunTime("exception"),)
            names = exception_names(handler)
            inside = frame.under(f"except {', '.join(sorted(names)) or 'everything'}")
            if handled and not names & CATCHES_IMPORT:
                inside = inside.never("the exception is another one")
            elif not handled and names and names <= _ONLY_IMPORTS and self.decided(node.body):
                inside = inside.never("the import succeeds")
            ends.append(self.block(handler.body, inside))
            if not inside.context.inactive:
                after = env.vars if handled else merged(after, env.vars)
        env.vars = after
        return ends

    def with_(self, node: ast.With | ast.AsyncWith, frame: Frame) -> Ended | None:
        """A block; ``with suppress(ImportError)`` is a try statement."""
        caught: set[str] = set()
        for item in node.items:
            call = item.context_expr
            self.eval(call, frame)
            if item.optional_vars is not None:
                frame.env.bind_unknown(item.optional_vars, "context manager")
            if isinstance(call, ast.Call) and last_part(call.func) == "suppress":
                caught |= {last_part(argument) for argument in call.args}
        if not caught & _GUARDS:
            return self.block(node.body, frame)
        mark = self.findings.mark()
        ended = self.block(node.body, frame.under(f"suppress {', '.join(sorted(caught))}"))
        if ended and ended.fails and caught & CATCHES_IMPORT:
            self.findings.forget_imports(mark)
            return None
        return ended

    # -- loops ------------------------------------------------------------------------------

    def for_(self, node: ast.For | ast.AsyncFor, frame: Frame) -> None:
        """Runs the body for each known item, or once for an unknown one."""
        rounds: list[Values] = []
        for value in self.eval(node.iter, frame):
            if isinstance(value, Seq):
                rounds += value.rounds
            elif isinstance(value, LoadedModules):
                rounds.append((RunTime("name of a loaded module"),))
        for item in rounds[:MAX_ITEMS] or [(RunTime(f"loop over {short(node.iter)}"),)]:
            frame.env.bind(node.target, item)
            self.block(node.body, frame)
        self.block(node.orelse, frame)
