"""Fitting the fitted constants: which values bring predictions nearest to published latencies.

Each kernel counts the same, however many rows it has; a row counts by the logarithm of its ratio,
without square, so that one kernel which the model misses does not pull the others along.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Known:
    """A published latency, us. ``fitted``: counts in a fit."""

    kernel: str
    us: float
    fitted: bool = True


@dataclass(frozen=True)
class Candidate:
    """Values of the fitted constants, and what the model predicts with them for each row, us."""

    values: Mapping[str, float]
    predicted: tuple[float, ...]


def distance(rows: Sequence[Known], candidate: Candidate, without: str = "") -> float:
    """How far predictions are from what is known, a mean over kernels; ``without`` one."""
    by_kernel: dict[str, list[float]] = {}
    for row, predicted in zip(rows, candidate.predicted, strict=True):
        if row.fitted and row.kernel != without:
            ratio = abs(math.log(predicted / row.us))
            by_kernel.setdefault(row.kernel, []).append(ratio)
    return statistics.fmean(statistics.fmean(ratios) for ratios in by_kernel.values())


def best(rows: Sequence[Known], candidates: Sequence[Candidate], without: str = "") -> Candidate:
    """The nearest candidate, where the kernel ``without`` does not count."""
    return min(candidates, key=lambda candidate: distance(rows, candidate, without))


def errors(rows: Sequence[Known], predicted: Sequence[float]) -> list[float]:
    """Of each row: predicted over known, less 1."""
    return [value / row.us - 1 for row, value in zip(rows, predicted, strict=True)]


def left_out(rows: Sequence[Known], candidates: Sequence[Candidate]) -> list[float]:
    """The error of each row when its kernel does not count in the fit."""
    found: list[float] = [0.0] * len(rows)
    for kernel in {row.kernel for row in rows}:
        chosen = errors(rows, best(rows, candidates, without=kernel).predicted)
        for number, row in enumerate(rows):
            if row.kernel == kernel:
                found[number] = chosen[number]
    return found


def typical(rows: Sequence[Known], left: Sequence[float]) -> float:
    """The mean over kernels of the median left-out error: `model_error` of the constants."""
    by_kernel: dict[str, list[float]] = {}
    for row, error in zip(rows, left, strict=True):
        by_kernel.setdefault(row.kernel, []).append(abs(error))
    return statistics.fmean(statistics.median(values) for values in by_kernel.values())
