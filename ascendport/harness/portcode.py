"""A port's own Python: its cases and its reference, loaded from the port's folder."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from ascendport.errors import UserError
from ascendport.harness.case import Array, Case, Workload
from ascendport.ports.manifest import Port


@dataclass(frozen=True)
class PortCode:
    """What a kernel port's ``cases.py`` and ``reference.py`` hold.

    ``interpreter``: why the port's kernels cannot run under Triton's interpreter; empty if they
    can. ``contested``: upstream's test functions that expect what the port does not give, and why
    it does not.
    """

    cases: tuple[Case, ...]
    workload: Callable[..., Workload]
    launch: Callable[..., None]
    reference: Callable[[Workload, str], Mapping[str, Array]]
    interpreter: str = ""
    cases_file: Path = Path()
    contested: Mapping[str, str] = field(default_factory=dict)

    def of(self, variant: str, names: tuple[str, ...] = ()) -> tuple[Case, ...]:
        """The cases for a variant; only the named ones where names are given.

        Raises:
            UserError: a name that no case has.
        """
        known = [case.name for case in self.cases]
        strange = [name for name in names if name not in known]
        if strange:
            raise UserError(
                f"no such case: {', '.join(strange)}",
                where=self.cases_file,
                next=f"choose from {', '.join(known)}",
            )
        return tuple(
            case
            for case in self.cases
            if case.applies_to(variant) and (not names or case.name in names)
        )


def load_file(path: Path, name: str) -> ModuleType:
    """Runs one Python file as module ``name``, without byte code.

    Raises:
        UserError: the file is missing, is not Python, or raises.
    """
    module = ModuleType(name)
    module.__file__ = str(path)
    sys.modules[name] = module
    try:
        exec(compile(path.read_bytes(), str(path), "exec"), module.__dict__)
    except Exception as error:
        sys.modules.pop(name, None)
        raise UserError(
            f"cannot run it ({type(error).__name__}: {error})", where=path, next="mend that file"
        ) from error
    return module


def _get(module: ModuleType, name: str, path: Path) -> Any:
    try:
        return getattr(module, name)
    except AttributeError:
        raise UserError(f"does not define {name}", where=path, next="define it") from None


def load_cases(path: Path, name: str = "port") -> tuple[ModuleType, PortCode]:
    """A ``cases.py`` on its own: enough to launch, not enough to judge."""
    module = load_file(path, f"_ascendport_{name}_cases")
    cases = tuple(_get(module, "CASES", path))
    names = [case.name for case in cases]
    if len(set(names)) != len(names):
        raise UserError("two cases share a name", where=path, next="rename one")

    def no_reference(workload: Workload, variant: str) -> Mapping[str, Array]:
        raise LookupError("only cases.py was loaded")

    return module, PortCode(
        cases=cases,
        workload=_get(module, "workload", path),
        launch=_get(module, "launch", path),
        reference=no_reference,
        interpreter=str(getattr(module, "INTERPRETER", "")),
        cases_file=path,
        contested=dict(getattr(module, "CONTESTED", {})),
    )


def load_port(port: Port) -> PortCode:
    """The cases and the reference of a kernel port.

    Raises:
        UserError: a file is missing, does not run, or lacks a name of the protocol.
    """
    from dataclasses import replace

    _, code = load_cases(port.folder / port.manifest.cases, port.name)
    path = port.folder / port.manifest.reference
    module = load_file(path, f"_ascendport_{port.name}_reference")
    return replace(code, reference=_get(module, "reference", path))
