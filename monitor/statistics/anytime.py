"""Confidence sequences by betting. They are valid at all numbers of samples at once, so one may stop at any time.

Source: I. Waudby-Smith and A. Ramdas, *Estimating means of bounded random variables by betting* (JRSS B 2024), hedged
capital, Theorem 3, with the predictable plug-in bets of their Section 4.2.

To test that the mean of samples x in [0, 1] is at most m, bet against this hypothesis. The wealth is 1 at the start.
Each sample multiplies the wealth by 1 + bet (x - m), where the bet is chosen before the sample is seen. If the mean is
at most m, the wealth is a nonnegative supermartingale. By Ville's inequality, the probability that it reaches 1/alpha
at any time is then at most alpha. `up` bets that the mean is larger than m, and `down` bets that it is smaller. Bets
are truncated to c/m (or c/(1 - m)), c = 1/2, so that wealth stays positive.

With these bets, the wealth of `up` decreases in m and the wealth of `down` increases in m. So the means m that neither
bet rejects form an interval. Bisection over a set of points finds the ends of the interval. If an end lies between two
points, the outer point is used, so that the interval stays valid.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from monitor.arrays import Floats
from monitor.errors import ConfigError
from monitor.statistics.samples import unit_array
from monitor.statistics.strength import in_open_unit

TRUNCATION = 0.5
"""Largest fraction of the wealth that a bet may lose: c in the paper, which recommends 1/2 or 3/4."""


def predicted(values: Floats) -> tuple[Floats, Floats]:
    """Return the mean and variance [..., N], estimated before each of the values [..., N] in [0, 1] is seen.

    Estimates include one additional sample 1/2 and one additional square 1/4. The variance is estimated from the sum of
    (x_i - mean of the first i)^2. Bets of any size are valid. If these estimates choose the sizes, the interval is
    nearly as narrow as possible.
    """
    count = np.arange(values.shape[-1] + 1)
    start = np.zeros((*values.shape[:-1], 1))
    total = np.add.accumulate(np.concatenate([start, values], axis=-1), axis=-1)
    mean = (0.5 + total) / (1.0 + count)
    added = (values - mean[..., 1:]) ** 2
    squares = np.add.accumulate(np.concatenate([start, added], axis=-1), axis=-1)
    variance = (0.25 + squares) / (1.0 + count)
    return mean[..., :-1], variance[..., :-1]


def bet_sizes(level: float, values: Floats) -> Floats:
    """Return the size [..., N] of the bet on each of values [..., N]. `level`: the alpha for which bets are optimised.

    A size depends only on earlier values: it is sqrt(2 log(1/level) / (variance t log(1 + t))) for sample t.
    """
    _, variance = predicted(values)
    t = np.arange(1, values.shape[-1] + 1)
    return np.asarray(np.sqrt(2.0 * math.log(1.0 / level) / (variance * t * np.log1p(t))))


def log_wealth_up(values: Floats, sizes: Floats, points: ArrayLike) -> Floats:
    """Return the increments of the log wealth of `up`, the bet that the mean is above `points`."""
    m = np.asarray(points, dtype=np.float64)
    with np.errstate(divide="ignore"):  # at m = 0 the bet cannot lose, so it is not truncated
        return np.asarray(np.log1p(np.minimum(sizes, TRUNCATION / m) * (values - m)))


def log_wealth_down(values: Floats, sizes: Floats, points: ArrayLike) -> Floats:
    """Return the increments of the log wealth of `down`, the bet that the mean is below `points`."""
    m = np.asarray(points, dtype=np.float64)
    with np.errstate(divide="ignore"):  # at m = 1 the bet cannot lose, so it is not truncated
        return np.asarray(np.log1p(np.minimum(sizes, TRUNCATION / (1.0 - m)) * (m - values)))


def log_wealth(values: Floats, sizes: Floats, points: ArrayLike) -> tuple[Floats, Floats]:
    """Return the increments of the log wealth of `up` and of `down`; values, sizes and points in [0, 1] broadcast."""
    return log_wealth_up(values, sizes, points), log_wealth_down(values, sizes, points)


@dataclass(frozen=True)
class ConfidenceSequence:
    """Confidence sequence for the mean of samples in [lo, hi]: P(the interval misses it at some time) <= alpha.

    `points`: number of points of a grid on which the interval's ends lie. The ends are at most one grid step outside
    the exact ends. Raises ConfigError unless `alpha` is in (0, 1), lo < hi, and there are at least two points.

    >>> [round(end, 3) for end in ConfidenceSequence(0.05).interval([1.0, 0.0, 1.0, 1.0] * 250)]
    [0.695, 0.803]
    """

    alpha: float
    lo: float = 0.0
    hi: float = 1.0
    points: int = 1001

    def __post_init__(self) -> None:
        in_open_unit(self.alpha, "alpha")
        check_range(self.lo, self.hi)
        if self.points < 2:
            raise ConfigError(f"points must be 2 or more, not {self.points}")

    def interval(self, values: ArrayLike) -> tuple[float, float]:
        """Return the intersection of the intervals after each of the values [N].

        More values can only shrink the interval. With probability at most alpha, the interval misses the mean, and may
        be empty. Raises InputError if a value is outside [lo, hi].
        """
        seen = unit_array(values, self.lo, self.hi)
        if not seen.size:
            return self.lo, self.hi
        sizes = bet_sizes(self.alpha / 2.0, seen)
        grid = np.linspace(0.0, 1.0, self.points)
        limit = math.log(2.0 / self.alpha)

        def rejected(n: int, side: int) -> bool:
            return bool(np.add.accumulate(log_wealth(seen, sizes, grid[n])[side]).max() >= limit)

        low = bisect_left(range(self.points), True, key=lambda n: not rejected(n, 0))  # noqa: FBT003 - what is sought
        high = bisect_left(range(self.points), True, key=lambda n: rejected(n, 1))  # noqa: FBT003 - likewise
        return (
            self._scaled(grid[low - 1]) if low else self.lo,
            self._scaled(grid[high]) if high < self.points else self.hi,
        )

    def _scaled(self, point: float) -> float:
        return min(self.lo + float(point) * (self.hi - self.lo), self.hi)  # rounding may exceed hi


def check_range(lo: float, hi: float) -> None:
    """Raise ConfigError unless lo < hi, both finite."""
    if not -math.inf < lo < hi < math.inf:
        raise ConfigError(f"lo must be below hi, both finite, not {lo} and {hi}")
