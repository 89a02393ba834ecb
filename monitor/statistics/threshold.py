"""Betting test of `mean >= theta`. Its error rates hold for any distribution of the samples and any number of looks.

Source: I. Waudby-Smith and A. Ramdas, *Estimating means of bounded random variables by betting* (JRSS B 2024). The test
makes the bets of `monitor.statistics.anytime` at the single point theta.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from monitor.arrays import Ints, Signs
from monitor.errors import ConfigError
from monitor.statistics.anytime import bet_sizes, check_range, log_wealth
from monitor.statistics.samples import unit_array
from monitor.statistics.strength import Strength, first_decision


@dataclass(frozen=True)
class ThresholdBets:
    """Test of mean >= theta without an indifference region, for samples of any distribution on [lo, hi].

    P(reject | mean >= theta) <= alpha and P(accept | mean <= theta) <= beta, at any stopping time. The nearer the mean
    is to theta, the longer the test takes. If the mean is theta, the test stays undecided with probability at least
    1 - alpha - beta. Raises ConfigError unless theta is in [lo, hi].

    >>> samples, side = ThresholdBets(0.8, Strength(0.05, 0.05)).decide([1] * 100)
    >>> int(samples), int(side)
    (26, 1)
    """

    theta: float
    strength: Strength
    lo: float = 0.0
    hi: float = 1.0

    def __post_init__(self) -> None:
        check_range(self.lo, self.hi)
        if not self.lo <= self.theta <= self.hi:
            raise ConfigError(f"theta must lie in [{self.lo}, {self.hi}], not {self.theta}")

    def decide(self, values: ArrayLike) -> tuple[Ints, Signs]:
        """Run many tests at once on values [..., N]. Raises InputError if a value is outside [lo, hi].

        Return samples and side, as `first_decision` does.
        """
        seen = unit_array(values, self.lo, self.hi)
        sizes = bet_sizes(min(self.strength.alpha, self.strength.beta), seen)
        added = log_wealth(seen, sizes, (self.theta - self.lo) / (self.hi - self.lo))
        up, down = (np.add.accumulate(each, axis=-1) for each in added)
        true, false = up >= -math.log(self.strength.beta), down >= -math.log(self.strength.alpha)
        return first_decision(true | false, true)
