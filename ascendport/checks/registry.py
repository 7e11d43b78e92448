"""The checks, by name. A check's module is imported when the check runs, not before."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module

from ascendport.checks.outcome import CheckResult
from ascendport.checks.subject import Subject
from ascendport.errors import UserError
from ascendport.ports.manifest import Kind, Port


@dataclass(frozen=True)
class Check:
    """A check: what it proves, and for which kinds of port. Kernel and store ports may prove the
    same thing in different ways: ``store_module`` then does it for store ports."""

    name: str
    proves: str
    kinds: tuple[Kind, ...]
    store_module: str = ""
    needs_device: bool = False
    """It runs only where there is an NPU or a GPU: asked for «all» checks, nobody means it."""
    declared: bool = False
    """Only for ports whose manifest names it."""
    on_request: bool = False
    """It takes long, and runs only where it is asked for by name."""

    def proves_port(self, port: Port) -> bool:
        """Whether it is about this port: of its kind, and among what its manifest names."""
        named = port.manifest.checks
        return port.kind in self.kinds and (self.name in named if named else not self.declared)

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
        "device",
        "on the NPU or GPU that is there every case is right, and the same from run to run",
        (Kind.KERNEL,),
        needs_device=True,
    ),
    Check(
        "calls",
        "the store is asked for a key once; every byte, mark and event of it is right",
        (Kind.STORE,),
    ),
    Check(
        "upstream-tests",
        "the checkout's own tests of the store, and of the kernels, pass after as they did before",
        (Kind.KERNEL, Kind.STORE),
    ),
    Check(
        "failures",
        "each defect of the store shows in a test on the tree as it was, and in none when mended",
        (Kind.STORE,),
        declared=True,
    ),
    Check(
        "mutations",
        "each mend taken out alone makes a test fail that is named with it",
        (Kind.STORE,),
        declared=True,
        on_request=True,
    ),
    Check(
        "soak",
        "failures injected at random for minutes: nothing hangs or leaks, every request ends",
        (Kind.STORE,),
        declared=True,
        on_request=True,
    ),
)


def select(names: Sequence[str]) -> tuple[Check, ...]:
    """The checks of these names in the registry's order; without names all, but for those that
    run only on request.

    Raises:
        UserError: a name is not a check's.
    """
    known = {check.name: check for check in CHECKS}
    for name in names:
        if name not in known:
            near = get_close_matches(name, known, 1)
            hint = f"did you mean '{near[0]}'" if near else f"checks: {', '.join(known)}"
            raise UserError("no such check", where=name, next=hint)
    return tuple(
        check for check in CHECKS if (check.name in names if names else not check.on_request)
    )
