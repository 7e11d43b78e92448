"""What the analysis of patches finds."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from ascendport.wiring.things import Read, Thing


class Kind(StrEnum):
    """What the statement does to its target."""

    ATTRIBUTE = "attribute"
    ITEM = "item"
    """An entry of a mapping or list that belongs to vllm: ``REGISTRY["x"] = …``."""
    DELETE = "delete"
    MODULE = "module"
    """A whole module: ``sys.modules["vllm.x"] = …``."""
    IMPORT = "import"
    """Not an assignment: an import that fails, so that the rest of the file never runs."""


class Where(StrEnum):
    """What the object that is assigned to is."""

    THING = "thing"
    """A module, a class, a function or a module-level value: see ``Assignment.base``."""
    SWEEP = "every loaded module"
    OWN = "own"
    """Something that the patch file defines: no patch of anybody else's code."""
    STATE = "state"
    """A value known only when a function runs (``request.status = …``): no patch."""
    RUN_TIME = "run-time value"
    """A value that import-time code computes in a way that the analysis does not follow."""


@dataclass(frozen=True)
class Assignment:
    """One patch as written."""

    file: str
    line: int
    target: str
    """As written, e.g. ``penalties.bincount``."""
    name: str
    """The attribute (or item) assigned."""
    where: Where
    base: Thing | None
    kind: Kind = Kind.ATTRIBUTE
    values: tuple[Thing, ...] = ()
    """Objects that the assigned expression names: an imported function, what a wrapper calls."""
    conditions: tuple[str, ...] = ()
    """Texts of the conditions it stands under, outermost first."""
    inactive: str = ""
    """Why it never runs with the pinned vllm; "" when it may."""
    deferred: bool = False
    """Runs when a function is called later, not when the patch is imported."""
    why: str = ""
    """A failing import: what is missing. A run-time value: where it comes from."""

    @property
    def conditional(self) -> bool:
        return bool(self.conditions) and not self.inactive

    @property
    def place(self) -> str:
        return f"{self.file}:{self.line}"


class Verdict(StrEnum):
    """How an assignment ends."""

    LIVE = "live"
    ADDED = "added"
    """A name that vllm lacks and that vllm_ascend itself reads."""
    NO_SUCH_NAME = "no such name"
    NO_SUCH_OBJECT = "no such module or class"
    NEVER_READ = "never read"
    ONLY_AT_IMPORT = "read only at import"
    COPIED_BEFORE = "copied before"
    REDUNDANT = "redundant"
    """Nothing reads the name there, and every copy that is read is patched itself."""
    INACTIVE = "inactive"
    OUTSIDE = "outside vllm"
    UNKNOWN = "unknown"

    @property
    def dead(self) -> bool:
        return self in _DEAD

    @property
    def alive(self) -> bool:
        return self in (Verdict.LIVE, Verdict.ADDED)


_DEAD = frozenset(
    {
        Verdict.NO_SUCH_NAME,
        Verdict.NO_SUCH_OBJECT,
        Verdict.NEVER_READ,
        Verdict.ONLY_AT_IMPORT,
        Verdict.COPIED_BEFORE,
    }
)


@dataclass(frozen=True)
class Judged:
    """An assignment and its verdict."""

    assignment: Assignment
    verdict: Verdict
    reason: str = ""
    reads: tuple[Read, ...] = ()
    """A few of those who read the name there, the nearest first."""
    instead: str = ""
    """Dead ones: the most alike name that the object does have, and that is read."""
    also_held: tuple[str, ...] = ()
    """Modules that hold an own, unpatched copy of the name and are loaded before the patch."""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Wiring:
    """All patches of one tree against one vllm."""

    vllm: str
    judged: tuple[Judged, ...]
    own: int = 0
    """Assignments on objects of the patch files themselves: not judged."""
    state: int = 0
    """Assignments on run-time objects in functions: not judged."""
    unreadable: tuple[str, ...] = ()
    """Files that are not valid Python for this interpreter."""
    counts: dict[str, int] = field(default_factory=dict)
