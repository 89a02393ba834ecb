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
from monitor.statistics.strength import Strength, first_crossing, in_open_unit, truth


@dataclass(frozen=True)
class SprtState:
    """State of a test: `successes` among `samples` outcomes. `holds`: the decision, None before the decision.

    After the decision, outcomes are ignored.
    """

    samples: int = 0
    successes: int = 0
    holds: bool | None = None


@dataclass(frozen=True)
class Sprt:
    """Test of H0: p >= theta + delta against H1: p <= theta - delta, with an indifference region between them.

    Raises ConfigError unless `theta` is in [0, 1] and `delta` is in (0, 1).

    An end of the indifference region outside (0, 1) is moved to halfway between theta and the boundary. The region is
    then narrower than requested, so the error rates still hold, but the test needs more samples. (At the boundary a
    single failure among thousands would reject `P >= 0.95` with delta 0.05.) For theta = 1 and theta = 0 the end *is*
    the boundary: one failure rejects `P >= 1`, and one success proves `P > 0`. The caller handles `P >= 0` and
    `P <= 1`, which are true without a test.

    >>> Sprt(0.95, 0.05, Strength(0.05, 0.05)).sides
    (0.8999999999999999, 0.975)
    >>> test = Sprt(0.8, 0.05, Strength(0.05, 0.05))
    >>> test.update(test.start(), [1] * 100)
    SprtState(samples=24, successes=24, holds=True)
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
        with np.errstate(invalid="ignore"):  # zero times an infinite step is 0
            return np.where(bad > 0.0, bad * failure, 0.0) + np.where(good > 0.0, good * success, 0.0)

    def start(self) -> SprtState:
        """Return the state before the first sample."""
        return SprtState()

    def update(self, state: SprtState, outcomes: ArrayLike) -> SprtState:
        """Return the state after outcomes [N] of 0 and 1, or after the first of them that decides it."""
        seen = outcome_array(outcomes)
        if state.holds is not None or not seen.size:
            return state
        index, side, good = self._follow(state, seen)
        at = min(int(index), seen.shape[-1] - 1)
        return SprtState(state.samples + at + 1, int(good[at]), truth(side))

    def decide(self, outcomes: ArrayLike) -> tuple[Ints, Signs]:
        """Run many tests at once, each from its start, on outcomes [..., N] of 0 and 1.

        Return for each test the number of samples used [...] (N if undecided) and the side [...]: 1 if the hypothesis
        holds, -1 if it does not, 0 if undecided.
        """
        seen = outcome_array(outcomes)
        index, side, _ = self._follow(self.start(), seen)
        return np.minimum(index + 1, seen.shape[-1]), side

    def _follow(self, state: SprtState, seen: Ints) -> tuple[Ints, Signs, Ints]:
        good = state.successes + np.cumsum(seen, axis=-1)
        ratio = self.log_ratio(state.samples + np.arange(1, seen.shape[-1] + 1), good)
        return *first_crossing(ratio, self.strength), good
