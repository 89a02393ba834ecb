"""Noise distributions as quantile functions, which make noise an invertible function of a uniform number."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, Protocol

import numpy as np
from scipy.special import ndtr, ndtri, stdtr, stdtrit

from monitor.arrays import Floats
from monitor.errors import ModelError

KNOTS: Final = 2048
"""Number of points in the table of an empirical distribution. The wide normal part (`WIDE`) adds half as many."""
AT_ONCE: Final = 20_000
"""Number of pairs of a point and a residual that are evaluated at once."""
TABLES: Final = 256
"""Number of tables that are kept, because a command reads the same world several times.

A table takes 50 kB, and its residuals 32 bytes each: 1,000 of them in a learned world.
"""
TAIL: Final = 8.0
"""Half-width of a table's range around a normal distribution's centre, in standard deviations. On each side, less than
1e-15 of the probability is outside."""
UNSEEN: Final = 0.001
"""Weight of the wide normal distribution that is mixed with the smoothed residuals."""
WIDE: Final = 4.0
"""Standard deviation of the wide normal distribution, as a multiple of the residuals' standard deviation."""


class NoiseDistribution(Protocol):
    """Interface of a distribution over the reals: its quantile function and its cumulative distribution function."""

    def quantile(self, u: Floats) -> Floats:
        """Return the quantiles of probabilities in (0, 1)."""
        ...

    def cumulative(self, z: Floats) -> Floats:
        """Return P(Z <= z), also for infinite z."""
        ...


class Normal:
    """The standard normal distribution."""

    def quantile(self, u: Floats) -> Floats:
        """Return the quantiles of probabilities in (0, 1)."""
        return np.asarray(ndtri(u))

    def cumulative(self, z: Floats) -> Floats:
        """Return P(Z <= z)."""
        return np.asarray(ndtr(z))


class Student:
    """Student's t distribution with `freedom` degrees of freedom, not scaled."""

    def __init__(self, freedom: float) -> None:
        self._freedom = freedom

    def quantile(self, u: Floats) -> Floats:
        """Return the quantiles of probabilities in (0, 1)."""
        return np.asarray(stdtrit(self._freedom, u))

    def cumulative(self, z: Floats) -> Floats:
        """Return P(Z <= z)."""
        return np.asarray(np.where(np.isinf(z), z > 0, stdtr(self._freedom, np.where(np.isinf(z), 0.0, z))))


class Empirical:
    """Residuals smoothed by a normal kernel (Silverman 1986), as a table with linear interpolation between its knots.

    A wide normal distribution, with a thousandth of the probability, is added. So numbers between or beyond the
    residuals are unlikely, but not impossible.

    Args:
        residuals: two or more distinct numbers.
        bandwidth: the bandwidth of the kernel; None means Silverman's rule of thumb.
    """

    def __init__(self, residuals: Sequence[float], bandwidth: float | None = None) -> None:
        self._knots, self._chances = _table(tuple(residuals), bandwidth)

    def quantile(self, u: Floats) -> Floats:
        """Return the quantiles of probabilities in (0, 1)."""
        return np.asarray(np.interp(u, self._chances, self._knots))

    def cumulative(self, z: Floats) -> Floats:
        """Return P(Z <= z)."""
        return np.asarray(np.interp(z, self._knots, self._chances))


@lru_cache(maxsize=TABLES)
def _table(residuals: tuple[float, ...], bandwidth: float | None) -> tuple[Floats, Floats]:
    """Return the knots of an empirical distribution, and the probability up to each. Raises ModelError."""
    values = np.sort(np.asarray(residuals, dtype=np.float64))
    spread = min(float(values.std(ddof=1)), float(np.subtract(*np.percentile(values, [75, 25]))) / 1.34)
    width = bandwidth or 0.9 * (spread or float(values.std(ddof=1))) * len(values) ** -0.2
    if not 0.0 < width < math.inf:
        raise ModelError("residuals need two or more different numbers, or a bandwidth")
    centre, wide = float(values.mean()), WIDE * max(float(values.std()), width)
    knots = np.union1d(
        np.linspace(values[0] - TAIL * width, values[-1] + TAIL * width, KNOTS),
        np.linspace(centre - TAIL * wide, centre + TAIL * wide, KNOTS // 2),
    )
    parts = np.array_split(knots, np.arange(0, len(knots), max(1, AT_ONCE // len(values)))[1:])
    seen = np.concatenate([ndtr((part[:, np.newaxis] - values) / width).mean(axis=1) for part in parts])
    chances = (1 - UNSEEN) * seen + UNSEEN * ndtr((knots - centre) / wide)
    chances += np.arange(len(knots)) * 1e-15  # strictly increasing, even where the density is nearly 0
    return knots, (chances - chances[0]) / (chances[-1] - chances[0])
