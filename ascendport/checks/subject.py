"""What a check is given: one port on one checkout, before and after, in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from ascendport.checkout.tree import Checkout
from ascendport.harness.case import Case
from ascendport.ports.manifest import Baseline, Port, Variant


@dataclass(frozen=True)
class Options:
    """What the user asked of the checks."""

    socs: tuple[str, ...] = ()
    """SoC names; empty: the three defaults (A2, A3, A5)."""
    cases: tuple[str, ...] = ()
    """Case names; empty: all."""
    seed: int = 0
    large: bool = False
    """Also the cases tagged ``large`` under the interpreter."""
    timeout_s: float = 600.0
    """Longest time for one child process."""
    repeats: int = 20
    """How often a device runs each case."""
    minutes: float = 1.0
    """How long a soak lasts."""

    def left_out(self, name: str, tags: frozenset[str]) -> str:
        """Why a case does not run under the interpreter; empty: it runs.

        A large case runs where it is asked for, by ``large`` or by its name.
        """
        if "large" in tags and not self.large and name not in self.cases:
            return "large (--large runs it)"
        return ""


def _silent(message: str, done: int, total: int) -> None:
    """Progress that nobody watches."""


@dataclass(frozen=True)
class Subject:
    """One port on one checkout.

    ``before`` and ``after`` map checkout-relative POSIX paths to file contents for every file
    that this or another port touches: the pristine tree and the same tree with this port in it,
    whatever is on disk. A file absent from ``before`` is new.
    """

    checkout: Checkout
    port: Port
    variant: Variant
    before: Mapping[str, bytes]
    after: Mapping[str, bytes]
    options: Options = field(default_factory=Options)
    progress: Callable[[str, int, int], None] = _silent
    """Called with (what, done, total)."""

    def own(self, texts: Mapping[str, bytes]) -> dict[str, bytes]:
        """Of ``before`` or ``after``, the files that this port touches."""
        files = {target.file for target in self.variant.targets}
        files |= {new.file for new in self.variant.new_files}
        return {file: text for file, text in texts.items() if file in files}

    def entry(self, case: Case) -> str:
        """The name in the variant's first target that a case calls."""
        return case.entry or self.variant.entry

    @property
    def baseline(self) -> Baseline | None:
        """vllm-core's own code for the variant's entry."""
        return self.variant.baseline or self.port.manifest.baseline

    def for_child(self) -> Subject:
        """The same without its progress callback, which cannot travel to another process."""
        return replace(self, progress=_silent)
