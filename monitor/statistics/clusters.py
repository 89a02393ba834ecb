"""Means of values that come in clusters, such as the steps of an episode: values of one cluster depend on each other.

The interval is Student's, of the clusters' residuals (Cameron & Miller 2015, "A Practitioner's Guide to Cluster-Robust
Inference", section II, with their correction for few clusters): whole clusters vary, not single values.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy.special import stdtrit

from monitor.arrays import Floats, Ints

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


def mean(values: Floats, clusters: Ints, error: float = ERROR) -> Estimate:
    """Return the mean of values [n], whose clusters have these numbers [n]; see `ratio`."""
    places = np.unique(clusters, return_inverse=True)[1]
    sums: Floats = np.bincount(places, values).astype(np.float64)
    sizes: Floats = np.bincount(places).astype(np.float64)
    return ratio(sums, sizes, error)
