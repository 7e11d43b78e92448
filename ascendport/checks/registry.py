"""The checks, by name. A check's module is imported when the check runs, not before."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module

from ascendport.checks.outcome import CheckResult
from ascendport.checks.subject import Subject
from ascendport.errors import UserError
from ascendport.ports.manifest import Kind


@dataclass(frozen=True)
class Check:
    """A check: what it proves, and for which kinds of port. Kernel and store ports may prove the
    same thing in different ways: ``store_module`` then does it for store ports."""

    name: str
    proves: str
    kinds: tuple[Kind, ...]
    store_module: str = ""

    def module(self, kind: Kind) -> str:
        """The name of the module, below this package, that does it for a kind of port."""
        if kind is Kind.STORE and self.store_module:
            return self.store_module
        return self.name.replace("-", "_")

    def run(self, subject: Subject) -> CheckResult:
        module = import_module(f"ascendport.checks.{self.module(subject.port.kind)}")
        run: Callable[[Subject], CheckResult] = module.run
        return run(subject)


CHECKS: tuple[Check, ...] = (
    Check(
        "source",
        "the patched files parse, signatures are kept, only declared symbols changed",
        (Kind.KERNEL, Kind.STORE),
    ),
    Check(
        "wiring",
        "upstream really calls the replaced code: patches land, threads hold their worker",
        (Kind.KERNEL, Kind.STORE),
        store_module="store_wiring",
    ),
    Check(
        "oracle",
        "every case gives what an independent reference gives, and touches nothing else",
        (Kind.KERNEL,),
    ),
    Check(
        "baseline",
        "every case gives what vllm-core's own kernel of that release gives",
        (Kind.KERNEL,),
    ),
    Check(
        "compile",
        "the Ascend compiler takes it for each SoC and dtype, within the Unified Buffer",
        (Kind.KERNEL,),
    ),
    Check(
        "simulate",
        "the compiled programs give the reference's values, without memory errors or hazards",
        (Kind.KERNEL,),
    ),
    Check(
        "calls",
        "the store is asked for a key once; every byte, mark and event of it is right",
        (Kind.STORE,),
    ),
    Check(
        "upstream-tests",
        "the checkout's own tests of the store pass after as they did before",
        (Kind.STORE,),
    ),
)


def select(names: Sequence[str]) -> tuple[Check, ...]:
    """The checks of these names in the registry's order; all if there are none.

    Raises:
        UserError: a name is not a check's.
    """
    known = {check.name: check for check in CHECKS}
    for name in names:
        if name not in known:
            near = get_close_matches(name, known, 1)
            hint = f"did you mean '{near[0]}'" if near else f"checks: {', '.join(known)}"
            raise UserError("no such check", where=name, next=hint)
    return tuple(check for check in CHECKS if not names or check.name in names)
