"""Which device kernels can run on here, found out without importing torch."""

from __future__ import annotations

import importlib.util
import platform
from dataclasses import dataclass
from pathlib import Path

from ascendport.errors import UserError

CHOICES = ("auto", "sim", "cuda", "npu")


@dataclass(frozen=True)
class Found:
    """``kind``: cuda or npu; or empty, and the reason why there is none."""

    kind: str = ""
    reason: str = ""


def check(asked: str) -> None:
    """Raises UserError for a device that is none of `CHOICES`."""
    if asked not in CHOICES:
        raise UserError("no such device", where=asked, next=f"one of {', '.join(CHOICES)}")


def detect(asked: str, *, dev: Path = Path("/dev")) -> Found:
    """The device to run on. ``auto`` takes an NPU before a GPU.

    ``dev``: where device files lie.
    """
    check(asked)
    if asked == "sim":
        return Found(reason="the simulator is no device")
    wanted = ("npu", "cuda") if asked == "auto" else (asked,)
    reasons = []
    for kind in wanted:
        missing = _missing(kind, dev)
        if missing is None:
            return Found(kind)
        reasons.append(missing)
    return Found(reason=f"{'; '.join(reasons)} (machine {platform.node() or 'without a name'})")


def _missing(kind: str, dev: Path) -> str | None:
    """Why this kind cannot be used here; None if it can."""
    modules: tuple[str, ...] = ("torch", "triton")
    if kind == "npu":
        files, title = "davinci[0-9]*", "Ascend NPU"
        modules = ("torch", "torch_npu", "triton")
    else:
        files, title = "nvidia[0-9]*", "CUDA GPU"
    if not any(dev.glob(files)):
        return f"no {title}"
    for module in modules:
        if importlib.util.find_spec(module) is None:
            return f"{title} found, but the package {module} is not installed"
    if kind == "cuda" and importlib.util.find_spec("triton.backends.nvidia") is None:
        return f"{title} found, but triton has no backend for it (triton-ascend is installed)"
    return None
