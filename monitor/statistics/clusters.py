"""Means of values that come in clusters, such as the steps of an episode: values of one cluster depend on each other.

The interval is Student's, of the clusters' residuals (Cameron & Miller 2015, "A Practitioner's Guide to Cluster-Robust
Inference", section II, with their correction for few clusters): whole clusters vary, not single values.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from scipy.special import stdtrit

from monitor.arrays import Bools, Floats, Ints

ERROR: Final = 0.01
"""Error rate of an interval, in both directions together. It is small because several intervals decide together."""


@dataclass(frozen=True)
class Estimate:
    """A mean, or a ratio, with its interval. `clusters`: that it rests on; below two the interval is endless."""

    value: float
    low: float
    high: float
    clusters: int


def ratio(parts: Floats, wholes: Floats, error: float = ERROR) -> Estimate:
    """Return the sum of `parts` over the sum of `wholes`, both one for each cluster [C].

    `error`: probability that the interval misses the truth, half of it on each side. NaN where the wholes sum to 0.
    """
    count, whole = len(parts), float(wholes.sum())
    if not whole:
        return Estimate(np.nan, -np.inf, np.inf, count)
    value = float(parts.sum()) / whole
    if count < 2:
        return Estimate(value, -np.inf, np.inf, count)
    residuals = parts - value * wholes
    spread = np.sqrt(float((residuals**2).sum()) * count / (count - 1)) / whole
    reach = float(stdtrit(count - 1, 1 - error / 2)) * float(spread)
    return Estimate(value, value - reach, value + reach, count)


def proportion(parts: Floats, wholes: Floats, error: float = ERROR) -> Estimate:
    """Return such a ratio of counts of which `parts` are some of the `wholes`: its interval stays within 0 and 1.

    Where all clusters agree, none or all, their residuals say nothing. The interval is then that of as many single
    draws as there are clusters with something in them (Clopper & Pearson 1934).
    """
    found = ratio(parts, wholes, error)
    some = int((wholes > 0).sum())
    if some and found.value in (0.0, 1.0):
        reach = 1.0 - (error / 2) ** (1.0 / some)
        return Estimate(found.value, max(found.value - reach, 0.0), min(found.value + reach, 1.0), found.clusters)
    return replace(found, low=max(found.low, 0.0), high=min(found.high, 1.0))


def mean(values: Floats, clusters: Ints, error: float = ERROR) -> Estimate:
    """Return the mean of values [n], whose clusters have these numbers [n]; see `ratio`."""
    return ratio(*_sums(values, clusters), error)


def frequency(happened: Bools, clusters: Ints, error: float = ERROR) -> Estimate:
    """Return the fraction of n cases that happened, whose clusters have these numbers [n]; see `proportion`."""
    return proportion(*_sums(happened.astype(np.float64), clusters), error)


def _sums(values: Floats, clusters: Ints) -> tuple[Floats, Floats]:
    """Return the sum of the values of each cluster, and their number."""
    places = np.unique(clusters, return_inverse=True)[1]
    return np.bincount(places, values).astype(np.float64), np.bincount(places).astype(np.float64)
