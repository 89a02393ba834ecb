"""Betting test of `mean >= theta` with an indifference region. Its error rates hold for any distribution on [lo, hi].

Source: I. Waudby-Smith and A. Ramdas, *Estimating means of bounded random variables by betting* (JRSS B 2024), with
their aGRAPA bets (section B.3), under which wealth grows nearly fastest. See `monitor.statistics.anytime`.

The indifference region extends from `below` to `above` and contains theta. Two bets run at the same time. `up` bets
against a mean of at most `below`, and `down` bets against a mean of at least `above`. The first bet whose wealth
reaches its threshold decides.

Error rates. The test accepts when the wealth of `up` reaches 1/beta. If the mean is at most `below`, this wealth is a
nonnegative supermartingale that starts at 1. So by Ville's inequality it reaches 1/beta with probability at most beta.
The same is true of `down` and alpha. The only assumptions are that each sample lies in [lo, hi], and that its mean
given all earlier samples is the tested mean.

Termination. Every mean is larger than `below` or smaller than `above`, so the wealth of at least one bet grows. The
test ends with probability 1, even if the mean is theta.

If all samples equal some c near theta, both sides are eventually rejected. An example is c = 0 for two interventions
that never differ. Then the test waits until both sides are rejected, and compares c with theta. Each answer still
requires that the wealth of its bet reaches the threshold, so the error rates are the same.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from monitor.arrays import Floats, Ints, Signs
from monitor.errors import ConfigError
from monitor.statistics.anytime import check_range, log_wealth_down, log_wealth_up, predicted
from monitor.statistics.equal import TIE
from monitor.statistics.samples import unit_array
from monitor.statistics.strength import Strength, first_decision


@dataclass(frozen=True)
class RegionBets:
    """Test of mean >= theta for samples in [lo, hi]. If the mean is within `delta` of theta, either answer is correct.

    P(reject | mean >= theta + delta) <= alpha and P(accept | mean <= theta - delta) <= beta, for any distribution. An
    end of the region outside (lo, hi) is moved to halfway between theta and the boundary, as in `Sprt`. `strict`
    (mean > theta) matters only if all samples are theta. Raises ConfigError unless `theta` is in [lo, hi] and
    `delta` > 0.

    >>> test = RegionBets(0.0, 0.02, Strength(0.05, 0.05), -1.0, 1.0)
    >>> int(test.decide([0.0] * 1000)[1]), int(test.decide([0.0, 1.0] * 50)[0])
    (1, 16)
    """

    theta: float
    delta: float
    strength: Strength
    lo: float = 0.0
    hi: float = 1.0
    strict: bool = False

    def __post_init__(self) -> None:
        check_range(self.lo, self.hi)
        if not self.lo <= self.theta <= self.hi:
            raise ConfigError(f"theta must lie in [{self.lo}, {self.hi}], not {self.theta}")
        if not 0.0 < self.delta < math.inf:
            raise ConfigError(f"delta must be a positive number, not {self.delta}")

    @property
    def sides(self) -> tuple[float, float]:
        """Ends (below, above) of the indifference region that the test uses."""
        below, above = self.theta - self.delta, self.theta + self.delta
        return (
            below if below > self.lo else (self.theta + self.lo) / 2.0,
            above if above < self.hi else (self.theta + self.hi) / 2.0,
        )

    def decide(self, values: ArrayLike) -> tuple[Ints, Signs]:
        """Run many tests at once on values [..., N]. Raises InputError if a value is outside [lo, hi].

        Return samples and side, as `first_decision` does.
        """
        seen = unit_array(values, self.lo, self.hi)
        below, theta, above = (self._unit(value) for value in (self.sides[0], self.theta, self.sides[1]))
        least = self.delta / (self.hi - self.lo)
        mean, variance = predicted(seen)
        up = log_wealth_up(seen, _size(np.maximum(mean - below, least), variance), below)
        down = log_wealth_down(seen, _size(np.maximum(above - mean, least), variance), above)
        up, down = np.add.accumulate(up, axis=-1), np.add.accumulate(down, axis=-1)
        larger = np.logical_or.accumulate(up >= -math.log(self.strength.beta), axis=-1)
        smaller = np.logical_or.accumulate(down >= -math.log(self.strength.alpha), axis=-1)
        low, high = np.minimum.accumulate(seen, axis=-1), np.maximum.accumulate(seen, axis=-1)
        # True while all samples equal some c that is at most halfway from theta to an end of the region.
        alike = (high - low <= TIE) & (high >= (theta + below) / 2.0) & (high <= (theta + above) / 2.0)
        alike &= below < theta < above
        meets = high - theta > TIE if self.strict else high - theta >= -TIE
        holds = np.where(larger & smaller, np.where(alike, meets, up >= down), larger)
        return first_decision(np.where(alike, larger & smaller, larger | smaller), holds)

    def _unit(self, value: float) -> float:
        return (value - self.lo) / (self.hi - self.lo)


def _size(gap: Floats, variance: Floats) -> Floats:
    """Return the sizes of bets under which wealth grows nearly fastest, if the mean is `gap` from the point."""
    return np.asarray(gap / (variance + gap * gap))
