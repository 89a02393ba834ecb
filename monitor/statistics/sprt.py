"""Wald's sequential probability ratio test of `P >= theta`, on Boolean outcomes.

Source: Kazemi & Paoletti (arXiv 2212.08712), Appendix "Decision procedures", "Qualitative Properties"; H. Younes and
R. Simmons, *Statistical probabilistic model checking* (2006). `P < theta` is the negation of `P >= theta`, tested at
`strength.negated`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from monitor.arrays import Floats, Ints, Signs
from monitor.errors import ConfigError
from monitor.statistics.samples import outcome_array
from monitor.statistics.strength import Strength, first_crossing, in_open_unit


@dataclass(frozen=True)
class Sprt:
    """Test of H0: p >= theta + delta against H1: p <= theta - delta, with an indifference region between them.

    Raises ConfigError unless `theta` is in [0, 1] and `delta` is in (0, 1).

    An end of the indifference region outside (0, 1) is moved to halfway between theta and the boundary. The region is
    then narrower than requested, so the error rates still hold, but the test needs more samples. An end at the boundary
    would be too strict: a single failure among thousands would reject `P >= 0.95` with delta 0.05. The exceptions are
    theta = 1 and theta = 0, whose end is at the boundary: one failure rejects `P >= 1`, and one success proves `P > 0`.
    The caller handles `P >= 0` and `P <= 1`, which are true without a test.

    >>> Sprt(0.95, 0.05, Strength(0.05, 0.05)).sides
    (0.8999999999999999, 0.975)
    >>> samples, side = Sprt(0.8, 0.05, Strength(0.05, 0.05)).decide([1] * 100)
    >>> int(samples), int(side)
    (24, 1)
    """

    theta: float
    delta: float
    strength: Strength

    def __post_init__(self) -> None:
        in_open_unit(self.delta, "delta")
        if not 0.0 <= self.theta <= 1.0:
            raise ConfigError(f"theta must lie in [0, 1], not {self.theta}")

    @property
    def sides(self) -> tuple[float, float]:
        """Ends (theta1, theta0) of the indifference region that the test uses."""
        below, above = self.theta - self.delta, self.theta + self.delta
        return below if below > 0.0 else self.theta / 2, above if above < 1.0 else (1.0 + self.theta) / 2

    @property
    def steps(self) -> tuple[float, float]:
        """Increments of the log ratio for a success (negative, may be -inf) and a failure (positive, may be inf)."""
        below, above = self.sides
        success = math.log(below / above) if below > 0.0 else -math.inf
        failure = math.log1p(-below) - math.log1p(-above) if above < 1.0 else math.inf
        return success, failure

    def log_ratio(self, samples: ArrayLike, successes: ArrayLike) -> Floats:
        """Return log f(x|H1)/f(x|H0) from the counts, so that rounding errors do not add up. Shapes broadcast."""
        success, failure = self.steps
        good = np.asarray(successes, dtype=np.float64)
        bad = np.asarray(samples, dtype=np.float64) - good
        with np.errstate(invalid="ignore"):  # a count of 0 contributes 0, even if its increment is infinite
            return np.where(bad > 0.0, bad * failure, 0.0) + np.where(good > 0.0, good * success, 0.0)

    def decide(self, outcomes: ArrayLike) -> tuple[Ints, Signs]:
        """Run many tests at once on outcomes [..., N] of 0 and 1. Raises InputError for other outcomes.

        Return samples and side, as `first_decision` does.
        """
        seen = outcome_array(outcomes)
        ratio = self.log_ratio(np.arange(1, seen.shape[-1] + 1), np.cumsum(seen, axis=-1))
        return first_crossing(ratio, self.strength)
