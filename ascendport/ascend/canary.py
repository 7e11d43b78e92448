"""Proves at each run that the compiler still tells a kernel that fits from one that does not.

A compile check is worth nothing if the toolchain accepts or refuses whatever it is given. So a
pair of kernels with known verdicts goes through the same functions as the kernels under check.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ascendport.ascend.bishengir import CompileRequest, Program, compile_many
from ascendport.ascend.diagnostics import Kind, Refusal
from ascendport.ascend.lowering import LoweringRequest, lower_all
from ascendport.ascend.soc import Family, Soc

# With multi-buffering off as well, A2 and A3 have no fallback left to try: 0.1 s instead of 0.3.
_NO_FALLBACK = "--enable-code-motion=false"

Compile = Callable[[Sequence[CompileRequest]], list[Program | Refusal]]


@dataclass(frozen=True)
class CanaryResult:
    """The verdict on the toolchain, not on a kernel."""

    alive: bool
    """Every part gave both verdicts as expected: the compile check can be trusted."""
    reason: str
    """One line; empty if alive."""


def prove(socs: Sequence[Soc], *, compile_all: Compile = compile_many) -> CanaryResult:
    """Compiles the pair for every part. About 0.7 s for the three defaults on two idle CPUs.

    Call it in a process meant for compiling: it imports triton.

    Args:
        socs: the parts that are about to be relied on; at least one.
        compile_all: what compiles; the tests put broken ones here.

    Raises:
        ValueError: no part given, which would prove nothing.
    """
    if not socs:
        raise ValueError("no part to prove")
    from ascendport.ascend import canary_kernels

    tiles = {"overflows": canary_kernels.OVERFLOWS, "fits": canary_kernels.FITS}
    requests: list[tuple[str, CompileRequest]] = []
    for name, tile in tiles.items():
        launch = LoweringRequest.of_launch(
            canary_kernels.canary,
            {"out_ptr": "*fp32", "in_ptr": "*fp32", "BLOCK": tile},
            {"multibuffer": False},
        )
        for part, front in lower_all(launch, socs).items():
            if isinstance(front, Refusal):
                return CanaryResult(False, f"{part.name}: canary: {front.reason}")
            flags = (*front.flags, _NO_FALLBACK)
            requests.append((name, CompileRequest(front.text, part, front.multibuffer, flags)))
    # The slowest first: A5, whose compiler cannot be kept from its fallbacks.
    requests.sort(key=lambda item: item[1].soc.family is not Family.A5)
    results = compile_all([request for _, request in requests])
    for (name, request), result in zip(requests, results, strict=True):
        part_name = request.soc.name
        if name == "fits" and isinstance(result, Refusal):
            why = f"{part_name}: the kernel that fits was refused: {result.reason}"
            return CanaryResult(False, why)
        if name == "overflows" and isinstance(result, Program):
            return CanaryResult(False, f"{part_name}: a kernel that cannot fit was accepted")
        if isinstance(result, Refusal) and result.kind is not Kind.OVERFLOW:
            why = f"{part_name}: the overflow was taken for: {result.reason}"
            return CanaryResult(False, why)
    return CanaryResult(True, "")
