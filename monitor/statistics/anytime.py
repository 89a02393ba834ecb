"""Betting: confidence that holds at every number of samples at once, so one may look after each and stop at will.

Source: I. Waudby-Smith and A. Ramdas, *Estimating means of bounded random variables by betting* (JRSS B 2024), hedged
capital, Theorem 3, with the predictable plug-in bets of their Section 4.2.

To doubt that the mean of samples x in [0, 1] is m (or less), bet on it: capital 1, and at each sample it is multiplied
by 1 + bet (x - m), the bet chosen before the sample is seen. If the mean is at most m the capital is a nonnegative
supermartingale, so (Ville) it ever reaches 1/alpha with probability at most alpha. `up` bets that the mean is larger
than m, `down` that it is smaller. Every bet is cut to c/m (or c/(1 - m)), c = 1/2, so no capital is ever lost for good.

With these bets `up` falls in m and `down` rises in m. So the means not doubted by either form an interval, whose ends
are found by bisection over any set of points; between two points the outer one is the honest end.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from monitor.arrays import Floats
from monitor.errors import ConfigError
from monitor.statistics.samples import unit_array
from monitor.statistics.strength import in_open_unit

__all__ = [
    "Bets",
    "ConfidenceSequence",
    "Pot",
    "bet_sizes",
    "check_range",
    "gain_down",
    "gain_up",
    "log_capital",
    "predicted",
]

CUT = 0.5
"""No bet stakes more than this part of the capital: the paper's c, of which it recommends 1/2 or 3/4."""
CHUNK = 1 << 18
"""Samples times points worked on at once: a few MB."""


@dataclass(frozen=True)
class Bets:
    """What the size of the next bet depends on: the samples before it, in [0, 1]. `level`: the alpha it aims at.

    `total`: their sum; `spread`: the sum of (x_i - mean of the first i)^2. The first bets think of one more sample 1/2
    and one more square 1/4. The size is valid whatever it is; this one makes the interval about as narrow as can be.
    """

    level: float
    samples: int = 0
    total: float = 0.0
    spread: float = 0.0


def predicted(bets: Bets, values: Floats) -> tuple[Floats, Floats, Bets]:
    """Return mean and variance [..., N] as guessed before each of values [..., N], and `bets` after the last.

    With leading axes, `bets` after is that of the first row.
    """
    count = bets.samples + np.arange(values.shape[-1] + 1)
    start = np.zeros((*values.shape[:-1], 1))
    total = np.add.accumulate(np.concatenate([start + bets.total, values], axis=-1), axis=-1)
    mean = (0.5 + total) / (1.0 + count)
    squares = (values - mean[..., 1:]) ** 2
    spread = np.add.accumulate(np.concatenate([start + bets.spread, squares], axis=-1), axis=-1)
    variance = (0.25 + spread) / (1.0 + count)
    last = (0,) * (values.ndim - 1) + (-1,)
    after = replace(bets, samples=int(count[-1]), total=float(total[last]), spread=float(spread[last]))
    return mean[..., :-1], variance[..., :-1], after


def bet_sizes(bets: Bets, values: Floats) -> tuple[Floats, Bets]:
    """The size [..., N] of the bet on each of values [..., N], from those before it alone, and `bets` after the last.

    sqrt(2 log(1/level) / (variance t log(1 + t))) for sample t. With leading axes, `bets` after is that of the first.
    """
    _, variance, after = predicted(bets, values)
    t = bets.samples + np.arange(1, values.shape[-1] + 1)
    return np.sqrt(2.0 * math.log(1.0 / bets.level) / (variance * t * np.log1p(t))), after


def gain_up(values: Floats, sizes: Floats, points: ArrayLike) -> Floats:
    """Return what each sample adds to the log capital of `up`, the bet that the mean is above `points`."""
    m = np.asarray(points, dtype=np.float64)
    with np.errstate(divide="ignore"):  # at the border nothing can be lost, and the bet is not cut
        return np.asarray(np.log1p(np.minimum(sizes, CUT / m) * (values - m)))


def gain_down(values: Floats, sizes: Floats, points: ArrayLike) -> Floats:
    """Return what each sample adds to the log capital of `down`, the bet that the mean is below `points`."""
    m = np.asarray(points, dtype=np.float64)
    with np.errstate(divide="ignore"):  # likewise
        return np.asarray(np.log1p(np.minimum(sizes, CUT / (1.0 - m)) * (m - values)))


def log_capital(values: Floats, sizes: Floats, points: ArrayLike) -> tuple[Floats, Floats]:
    """What each sample adds to the log capital of `up` and of `down`. Values, sizes and points in [0, 1] broadcast.

    Summed over the samples: the log capital against the mean `points` at each time.
    """
    return gain_up(values, sizes, points), gain_down(values, sizes, points)


@dataclass(frozen=True)
class Pot:
    """A confidence sequence so far: `low`, `high` hold the mean, at all times at once. `up`, `down`: log capital [M].

    Ends only ever come nearer. In the error's case (probability alpha at most) they may pass each other.
    """

    bets: Bets
    up: Floats
    down: Floats
    low: float
    high: float

    @property
    def samples(self) -> int:
        """How many were seen."""
        return self.bets.samples


@dataclass(frozen=True)
class ConfidenceSequence:
    """P(at some time the mean of samples in [lo, hi] lies outside the interval) <= alpha.

    `points`: the interval's ends lie on a grid of so many, and no further out than one step of it from the exact ends.
    One step of memory each, and nothing of the samples is kept. `alpha` in (0, 1), lo < hi, two points or more, else
    ConfigError.

    >>> sequence = ConfidenceSequence(0.05)
    >>> pot = sequence.update(sequence.start(), [1.0, 0.0, 1.0, 1.0] * 250)
    >>> round(pot.low, 3), round(pot.high, 3)
    (0.695, 0.803)
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

    def start(self) -> Pot:
        """No sample yet: anything from lo to hi."""
        none = np.zeros(self.points)
        return Pot(Bets(self.alpha / 2.0), none, none, self.lo, self.hi)

    def update(self, pot: Pot, values: ArrayLike) -> Pot:
        """The sequence after values [N] in [lo, hi] (else InputError), having looked after each of them."""
        seen = unit_array(values, self.lo, self.hi)
        sizes, bets = bet_sizes(pot.bets, seen)
        grid = np.linspace(0.0, 1.0, self.points)
        up, down, most_up, most_down = pot.up, pot.down, pot.up, pot.down
        rows = max(1, CHUNK // self.points)
        for i in range(0, seen.size, rows):
            gains = log_capital(seen[i : i + rows, None], sizes[i : i + rows, None], grid)
            ups, downs = (np.add.accumulate(gain, axis=0) for gain in gains)
            most_up, most_down = (
                np.maximum(most_up, up + ups.max(axis=0)),
                np.maximum(most_down, down + downs.max(axis=0)),
            )
            up, down = up + ups[-1], down + downs[-1]
        line = math.log(2.0 / self.alpha)  # half the alpha for each side
        refuted_low, refuted_high = np.flatnonzero(most_up >= line), np.flatnonzero(most_down >= line)
        low = self._scaled(grid[refuted_low[-1]]) if refuted_low.size else self.lo
        high = self._scaled(grid[refuted_high[0]]) if refuted_high.size else self.hi
        return Pot(bets, up, down, max(pot.low, low), min(pot.high, high))

    def interval(self, values: ArrayLike) -> tuple[float, float]:
        """The ends that `update` comes to from the start, where all values [N] are at hand.

        By bisection, since `up` falls in the point and `down` rises: log2(points) passes and not as many as points.
        """
        seen = unit_array(values, self.lo, self.hi)
        if not seen.size:
            return self.lo, self.hi
        sizes, _ = bet_sizes(Bets(self.alpha / 2.0), seen)
        grid = np.linspace(0.0, 1.0, self.points)
        line = math.log(2.0 / self.alpha)

        def refuted(n: int, side: int) -> bool:
            return bool(np.add.accumulate(log_capital(seen, sizes, grid[n])[side]).max() >= line)

        low = bisect_left(range(self.points), True, key=lambda n: not refuted(n, 0))  # noqa: FBT003 - what is sought
        high = bisect_left(range(self.points), True, key=lambda n: refuted(n, 1))  # noqa: FBT003 - likewise
        return (
            self._scaled(grid[low - 1]) if low else self.lo,
            self._scaled(grid[high]) if high < self.points else self.hi,
        )

    def _scaled(self, point: float) -> float:
        return min(self.lo + float(point) * (self.hi - self.lo), self.hi)  # rounding may lead beyond


def check_range(lo: float, hi: float) -> None:
    """Refuse an interval that is none: ConfigError."""
    if not -math.inf < lo < hi < math.inf:
        raise ConfigError(f"lo must be below hi, both finite, not {lo} and {hi}")
