"""The ratio of two timings measured in one run, with its spread."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Ratio:
    """Median of the pairwise ratios before/after and the bounds of their middle 90 %."""

    median: float
    low: float
    high: float


def ratio(before: Sequence[float], after: Sequence[float]) -> Ratio:
    """Compares interleaved timings: the i-th of ``before`` ran next to the i-th of ``after``.

    Pair by pair, so that a machine whose speed drifts slows both sides of a ratio alike.

    Raises:
        ValueError: the lengths differ, or there are no pairs, or a time is not positive.
    """
    if len(before) != len(after) or not before:
        raise ValueError(f"{len(before)} timings before, {len(after)} after")
    if min(*before, *after) <= 0:
        raise ValueError("a time is not positive")
    ratios = sorted(b / a for b, a in zip(before, after, strict=True))
    return Ratio(statistics.median(ratios), _quantile(ratios, 0.05), _quantile(ratios, 0.95))


def _quantile(ordered: Sequence[float], q: float) -> float:
    """Linear interpolation between the two nearest of an ordered sequence."""
    at = q * (len(ordered) - 1)
    below = int(at)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (at - below)
