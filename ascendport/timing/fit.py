"""Fitting the fitted constants: which values bring predictions nearest to published latencies.

Each kernel counts the same, however many rows it has; a row counts by the logarithm of its ratio,
without square, so that one kernel which the model misses does not pull the others along. A
constant that rows barely tell stays near what is published of it.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

PULL = 0.01
"""What a departure by a factor of e from a published value counts: as much as this error."""


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


def pull(values: Mapping[str, float], published: Mapping[str, float]) -> float:
    """What departing from ``published`` counts."""
    return PULL * sum(abs(math.log(values[name] / value)) for name, value in published.items())


def best(
    rows: Sequence[Known],
    candidates: Sequence[Candidate],
    without: str = "",
    published: Mapping[str, float] | None = None,
) -> Candidate:
    """The nearest candidate, where the kernel ``without`` does not count.

    ``published``: of a constant, what others say it is.
    """

    def far(candidate: Candidate) -> float:
        return distance(rows, candidate, without) + pull(candidate.values, published or {})

    return min(candidates, key=far)


def errors(rows: Sequence[Known], predicted: Sequence[float]) -> list[float]:
    """Of each row: predicted over known, less 1."""
    return [value / row.us - 1 for row, value in zip(rows, predicted, strict=True)]


def left_out(
    rows: Sequence[Known],
    candidates: Sequence[Candidate],
    published: Mapping[str, float] | None = None,
) -> list[float]:
    """The error of each row when its kernel does not count in the fit."""
    found: list[float] = [0.0] * len(rows)
    for kernel in {row.kernel for row in rows}:
        chosen = errors(rows, best(rows, candidates, kernel, published).predicted)
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
