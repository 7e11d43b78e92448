"""Lexical scopes while a file is read: which scope a name belongs to."""

from __future__ import annotations

from ascendport.wiring.summary import ROOTS


class Scope:
    """One lexical scope while it is being read."""

    __slots__ = ("binds", "chains", "declared", "imports", "kind", "late", "loads", "parent")

    def __init__(self, kind: str, late: bool, parent: Scope | None) -> None:
        self.kind = kind  # m(odule) f(unction) c(lass) x: comprehension
        self.late = late
        self.parent = parent
        self.binds: set[str] = set()
        self.declared: set[str] = set()
        self.imports: dict[str, str] = {}
        # (name, late) → line, as long as nobody has claimed the name
        self.loads: dict[tuple[str, bool], int] = {}
        self.chains: dict[tuple[str, str, bool], int] = {}

    def owns(self, name: str, late: bool) -> bool:
        """A read of ``name`` in here, or further in, means this scope's own variable."""
        if name not in self.binds or name in self.declared:
            return False
        # A class body's own names are not seen by the functions in it.
        return not (self.kind == "c" and late and not self.late)


class Scopes:
    """The stack of scopes. What a scope does not bind itself goes up when it closes."""

    def __init__(self) -> None:
        self.scope = Scope("m", False, None)
        self.binds: dict[str, str] = {}
        """`ModuleSummary.binds`."""
        self.chains: tuple[dict[str, int], dict[str, int]] = ({}, {})
        """Dotted names under vllm or vllm_ascend → line, read by early and by late code."""
        self.in_handler = 0
        """Except clauses around."""

    def bind(self, name: str, value: str) -> None:
        """Gives ``name`` a ``value`` as in `ModuleSummary.binds`."""
        scope = self.scope
        if name in scope.declared:
            self.binds.setdefault(name, value)
            return
        scope.binds.add(name)
        if scope.kind == "m" and not (self.in_handler and name in self.binds):
            self.binds[name] = value

    def open(self, kind: str, late: bool) -> Scope:
        """Enters a scope."""
        self.scope = Scope(kind, late, self.scope)
        return self.scope

    def close(self) -> None:
        """Leaves the scope."""
        scope = self.scope
        parent = scope.parent
        assert parent is not None
        self.scope = parent
        for (name, late), line in scope.loads.items():
            if not scope.owns(name, late):
                parent.loads.setdefault((name, late), line)
        for (root, rest, late), line in scope.chains.items():
            if root in scope.imports:
                self.chain(f"{scope.imports[root]}.{rest}", late, line)
            elif not scope.owns(root, late):
                parent.chains.setdefault((root, rest, late), line)

    def chain(self, dotted: str, late: bool, line: int) -> None:
        """Keeps a dotted name that is read, if it is of interest."""
        if dotted.partition(".")[0] in ROOTS:
            self.chains[late].setdefault(dotted, line)
