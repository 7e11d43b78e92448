"""The Ascend parts that a kernel can be compiled for, with the constants that programs depend on.

Vector cores and Unified Buffer are what `bishengir-compile` (ascendnpu-ir 1.2.0) writes into the
attributes of every module (VECTOR_CORE_COUNT, UB_SIZE); a test compares this table with them.
Clock and L2 are from hicann/runtime, src/platform/platform_config/*.ini; they are not published
there for Ascend 950, so they are None.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from enum import StrEnum
from functools import cache

from ascendport.errors import UserError

_MODULE = "VECTOR_CORE_COUNT and UB_SIZE of the module that ascendnpu-ir 1.2.0 emits"
_INI = "MHz and L2: hicann/runtime, src/platform/platform_config/*.ini"


class Family(StrEnum):
    """A hardware generation: one compiler, one instruction set."""

    A2 = "A2"
    A3 = "A3"
    A5 = "A5"


@dataclass(frozen=True)
class Soc:
    """One part. For A3 the figures are of one die, which is what a launch sees."""

    name: str
    """As `--target` and vllm-ascend's SOC_VERSION spell it."""
    family: Family
    vector_cores: int
    ub_bytes: int
    """Unified Buffer that a program may use, a vector core."""
    mhz: int | None
    """Clock of the AI core; None where no source gives it."""
    l2_mib: int | None
    compiler: str
    """File name of the compiler in ascendnpuir/bin."""
    source: str

    @property
    def target(self) -> str:
        """The compiler flag that selects the part."""
        return f"--target={self.name}"


_UB_C220 = 192 * 1024
_UB_C310 = 2031616 // 8
"""248 KiB: 256 KiB less what the compiler keeps for itself."""

# name: vector cores, MHz, L2 MiB
_A2 = {
    "Ascend910B1": (48, 1850, 192),
    "Ascend910B2": (48, 1800, 192),
    "Ascend910B2C": (48, 1800, 192),
    "Ascend910B3": (40, 1800, 192),
    "Ascend910B4": (40, 1500, 96),
    "Ascend910B4-1": (40, 1500, 168),
}
_A3 = {
    "Ascend910_9362": (40, 1500, 168),
    "Ascend910_9372": (40, 1800, 192),
    "Ascend910_9381": (48, 1800, 192),
    "Ascend910_9382": (48, 1800, 192),
    "Ascend910_9391": (48, 1850, 192),
    "Ascend910_9392": (48, 1850, 192),
}
# vector cores: suffixes. Ascend910_95xx are older names of the same parts.
_A5 = {
    "Ascend950PR_": {
        8: ("950z",),
        56: ("9579", "957a", "957b", "957c", "957d"),
        64: ("9589", "958a", "958b", "958c", "958d"),
        72: ("9599", "959a", "959b"),
    },
    "Ascend950DT_": {
        16: ("950x", "950y"),
        56: ("9571", "9572", "9573", "9574", "9575", "9576", "9577", "9578"),
        64: ("9581", "9582", "9583", "9584", "9585", "9586", "9587", "9588"),
        72: ("9591", "9592", "9595", "9596", "95A1", "95A2"),
    },
    "Ascend910_": {
        8: ("950z",),
        56: ("9579", "957b", "957d"),
        64: ("9581", "9589", "958a", "958b"),
        72: ("9599",),
    },
}

DEFAULTS = ("Ascend910B3", "Ascend910_9391", "Ascend950PR_9589")
"""One part of each family: what is checked when the user names none."""

SHORT = dict(zip(Family, DEFAULTS, strict=True))
"""Family name → the part that stands for it."""


@cache
def table() -> dict[str, Soc]:
    """Every known part by name, families in order."""
    rows = [
        Soc(name, family, cores, _UB_C220, mhz, l2, "bishengir-compile", f"{_MODULE}; {_INI}")
        for family, parts in ((Family.A2, _A2), (Family.A3, _A3))
        for name, (cores, mhz, l2) in parts.items()
    ]
    rows += [
        Soc(
            prefix + suffix,
            Family.A5,
            cores,
            _UB_C310,
            None,
            None,
            "bishengir-compile-a5",
            _MODULE,
        )
        for prefix, by_cores in _A5.items()
        for cores, suffixes in by_cores.items()
        for suffix in suffixes
    ]
    return {row.name: row for row in rows}


def soc(name: str) -> Soc:
    """The part called ``name``, in any letter case; ``A2``, ``A3``, ``A5`` give the default one.

    Raises:
        UserError: no such part (near matches are named), or a 310P, for which vllm-ascend
            installs no Triton kernels.
    """
    wanted = name.strip().lower()
    by_lower = {known.lower(): part for known, part in table().items()}
    by_lower |= {family.lower(): table()[part] for family, part in SHORT.items()}
    if wanted in by_lower:
        return by_lower[wanted]
    if "310p" in wanted:
        raise UserError(
            "Triton kernels are never installed for 310P",
            where=name,
            next=f"choose one of {', '.join(DEFAULTS)}",
        )
    near = difflib.get_close_matches(wanted, by_lower, n=3, cutoff=0.6)
    hint = ", ".join(by_lower[match].name for match in near) or ", ".join(DEFAULTS)
    raise UserError("unknown SoC", where=name, next=f"near matches: {hint}")
