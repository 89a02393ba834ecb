"""Means of values that form clusters, such as the steps of an episode. Values of one cluster may depend on each other.

The intervals are Student's t intervals from the residuals of clusters, not of single values (Cameron & Miller 2015, "A
Practitioner's Guide to Cluster-Robust Inference", section II, with their correction for few clusters).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from scipy.special import stdtrit

from monitor.arrays import Bools, Floats, Ints

ERROR: Final = 0.01
"""Error rate of an interval, for both sides together. It is small because callers use several intervals together."""


@dataclass(frozen=True)
class Estimate:
    """A mean or a ratio over `clusters` clusters, with its interval; infinite for fewer than two clusters."""

    value: float
    low: float
    high: float
    clusters: int


def ratio(parts: Floats, wholes: Floats, error: float = ERROR) -> Estimate:
    """Return the ratio of the sum of `parts` [C] to the sum of `wholes` [C], with one entry for each of C clusters.

    `error`: probability that the interval misses the true ratio, one half on each side. The ratio is NaN if the wholes
    sum to 0.
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
    """Return the ratio of counts, as `ratio` does, with an interval within [0, 1].

    `parts` [C] must count some of the cases that `wholes` [C] counts.

    If the proportion is 0 in all clusters, or 1 in all clusters, the residuals give no information. Then the interval
    is that of independent draws, one for each nonempty cluster (Clopper & Pearson 1934).
    """
    found = ratio(parts, wholes, error)
    some = int((wholes > 0).sum())
    if some and found.value in (0.0, 1.0):
        reach = 1.0 - (error / 2) ** (1.0 / some)
        return Estimate(found.value, max(found.value - reach, 0.0), min(found.value + reach, 1.0), found.clusters)
    return replace(found, low=max(found.low, 0.0), high=min(found.high, 1.0))


def mean(values: Floats, clusters: Ints, error: float = ERROR) -> Estimate:
    """Return the mean of values [n]; `clusters` [n]: the number of each value's cluster. See `ratio`."""
    return ratio(*_sums(values, clusters), error)


def frequency(happened: Bools, clusters: Ints, error: float = ERROR) -> Estimate:
    """Return the fraction of n cases with an event; `clusters` [n]: the cluster of each case. See `proportion`."""
    return proportion(*_sums(happened.astype(np.float64), clusters), error)


def _sums(values: Floats, clusters: Ints) -> tuple[Floats, Floats]:
    """Return, for each cluster, the sum and the number of its values."""
    places = np.unique(clusters, return_inverse=True)[1]
    return np.bincount(places, values).astype(np.float64), np.bincount(places).astype(np.float64)
