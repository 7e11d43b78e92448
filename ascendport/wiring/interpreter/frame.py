"""Where the interpreter stands: the scope, and what is known about whether the code runs."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from ascendport.wiring.interpreter.values import Env, Value


@dataclass(frozen=True)
class Context:
    """Whether, and when, the code at hand runs. The fields are those of `Assignment`."""

    conditions: tuple[str, ...] = ()
    inactive: str = ""
    deferred: bool = False
    depth: int = 0
    """Calls of own functions around it."""

    @property
    def certain(self) -> bool:
        """The code runs whenever the file is imported."""
        return not (self.deferred or self.inactive or self.conditions)


@dataclass(frozen=True, eq=False)
class Frame:
    """A scope, its context, and where the values of ``return`` go."""

    env: Env
    context: Context = Context()
    returns: list[Value] = field(default_factory=list)

    def under(self, condition: str) -> Frame:
        """The same code under one more condition."""
        conditions = (*self.context.conditions, condition)
        return replace(self, context=replace(self.context, conditions=conditions))

    def never(self, why: str) -> Frame:
        """Code that does not run; the outermost reason stays."""
        if self.context.inactive:
            return self
        return replace(self, context=replace(self.context, inactive=why))

    def apart(self) -> Frame:
        """A scope inside this one, whose names and return values do not come out."""
        return Frame(Env(self.env), self.context)


@dataclass(frozen=True)
class Ended:
    """A block ended early: an import failed (``fails`` says which), or else it returned."""

    fails: str = ""

    @property
    def stops(self) -> bool:
        """It returned, raised or left a loop by itself."""
        return not self.fails


@dataclass(frozen=True)
class Holds:
    """The rest of the block runs only under this condition."""

    condition: str
