"""Betting test of `mean >= theta`. Its error rates hold for any distribution of the samples and any number of looks.

Source: I. Waudby-Smith and A. Ramdas, *Estimating means of bounded random variables by betting* (JRSS B 2024). The test
is one grid point of `monitor.statistics.anytime`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from monitor.arrays import Floats, Ints, Signs
from monitor.errors import ConfigError
from monitor.statistics.anytime import Bets, bet_sizes, check_range, log_wealth
from monitor.statistics.samples import unit_array
from monitor.statistics.strength import Strength, truth


@dataclass(frozen=True)
class ThresholdBetsState:
    """State of a test. `up`, `down`: log wealth of the bets that the mean is above theta, and below it.

    `holds`: the decision, None before the decision. After the decision, samples are ignored.
    """

    bets: Bets
    up: float = 0.0
    down: float = 0.0
    holds: bool | None = None

    @property
    def samples(self) -> int:
        """Number of samples."""
        return self.bets.samples


@dataclass(frozen=True)
class ThresholdBets:
    """Test of mean >= theta for samples in [lo, hi] of any distribution, without an indifference region.

    P(reject | mean >= theta) <= alpha and P(accept | mean <= theta) <= beta, at any stopping time. The nearer the mean
    is to theta, the longer the test takes. If the mean is theta, the test stays undecided with probability at least
    1 - alpha - beta. Raises ConfigError unless theta is in [lo, hi].

    >>> test = ThresholdBets(0.8, Strength(0.05, 0.05))
    >>> test.update(test.start(), [1] * 100).samples
    26
    """

    theta: float
    strength: Strength
    lo: float = 0.0
    hi: float = 1.0

    def __post_init__(self) -> None:
        check_range(self.lo, self.hi)
        if not self.lo <= self.theta <= self.hi:
            raise ConfigError(f"theta must lie in [{self.lo}, {self.hi}], not {self.theta}")

    def start(self) -> ThresholdBetsState:
        """Return the state before the first sample."""
        return ThresholdBetsState(Bets(min(self.strength.alpha, self.strength.beta)))

    def update(self, state: ThresholdBetsState, values: ArrayLike) -> ThresholdBetsState:
        """Return the state after these values [N], or after the first of them that decides the test.

        Raises InputError if a value is outside [lo, hi].
        """
        seen = unit_array(values, self.lo, self.hi)
        if state.holds is not None or not seen.size:
            return state
        up, down, index, side = self._follow(state, seen)
        at = min(int(index), seen.shape[-1] - 1)
        _, bets = bet_sizes(state.bets, seen[: at + 1])
        return ThresholdBetsState(bets, float(up[at]), float(down[at]), truth(side))

    def decide(self, values: ArrayLike) -> tuple[Ints, Signs]:
        """Run many tests at once, each from its start, on values [..., N]. Raises InputError outside [lo, hi].

        Return for each test the number of samples used [...] (N if undecided) and the side [...]: 1 if the hypothesis
        holds, -1 if it does not, 0 if undecided.
        """
        seen = unit_array(values, self.lo, self.hi)
        if not seen.shape[-1]:
            return np.zeros(seen.shape[:-1], dtype=np.int64), np.zeros(seen.shape[:-1], dtype=np.int8)
        *_, index, side = self._follow(self.start(), seen)
        return np.minimum(index + 1, seen.shape[-1]), side

    def _follow(self, state: ThresholdBetsState, seen: Floats) -> tuple[Floats, Floats, Ints, Signs]:
        """Return the log wealths after each sample, the index of the sample that decides (N: none), and the side."""
        sizes, _ = bet_sizes(state.bets, seen)
        added = log_wealth(seen, sizes, (self.theta - self.lo) / (self.hi - self.lo))
        added[0][..., 0] += state.up
        added[1][..., 0] += state.down
        up, down = (np.add.accumulate(each, axis=-1) for each in added)
        true, false = up >= -math.log(self.strength.beta), down >= -math.log(self.strength.alpha)
        decided = true | false
        found = decided.any(axis=-1)
        at = decided.argmax(axis=-1)
        holds = np.take_along_axis(true, at[..., None], axis=-1)[..., 0]
        index = np.where(found, at, seen.shape[-1]).astype(np.int64)
        return up, down, index, np.where(found, np.where(holds, 1, -1), 0).astype(np.int8)
