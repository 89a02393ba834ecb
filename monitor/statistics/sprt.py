"""Wald's sequential test of `P >= theta`, on outcomes that are true or false.

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

__all__ = ["Sprt", "SprtState"]


@dataclass(frozen=True)
class SprtState:
    """What a test has seen: `successes` among `samples` outcomes. `holds`: its decision, None while there is none.

    A state that has decided counts the samples up to that decision and takes no more. One that has not when the
    samples run out is undecided, which is a verdict too.
    """

    samples: int = 0
    successes: int = 0
    holds: bool | None = None


@dataclass(frozen=True)
class Sprt:
    """H0: p >= theta + delta against H1: p <= theta - delta; what lies between is indifferent.

    `theta` in [0, 1], `delta` in (0, 1), else ConfigError.

    A side of the indifference region that would leave (0, 1) goes half the way from theta to the border instead. The
    region is then narrower than asked for, so the strength holds wherever it was asked for; the price is samples. (At
    the border itself a single failure among thousands would refute `P >= 0.95` with delta .05.) For theta = 1 and
    theta = 0 no room is left and the side *is* the border: one failure refutes `P >= 1`, one success proves `P > 0`.
    `P >= 0` and `P <= 1` are true without a test, and it is for the caller to see that.

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
        """The ends (theta1, theta0) of the indifference region, as they are used."""
        below, above = self.theta - self.delta, self.theta + self.delta
        return below if below > 0.0 else self.theta / 2, above if above < 1.0 else (1.0 + self.theta) / 2

    @property
    def steps(self) -> tuple[float, float]:
        """What a success (negative, may be -inf) and a failure (positive, may be inf) add to the log ratio."""
        below, above = self.sides
        success = math.log(below / above) if below > 0.0 else -math.inf
        failure = math.log1p(-below) - math.log1p(-above) if above < 1.0 else math.inf
        return success, failure

    def log_ratio(self, samples: ArrayLike, successes: ArrayLike) -> Floats:
        """Log f(x|H1)/f(x|H0) after so many samples, from the counts: no sum of rounding errors. Shapes broadcast."""
        success, failure = self.steps
        good = np.asarray(successes, dtype=np.float64)
        bad = np.asarray(samples, dtype=np.float64) - good
        with np.errstate(invalid="ignore"):  # zero times an infinite step is no step
            return np.where(bad > 0.0, bad * failure, 0.0) + np.where(good > 0.0, good * success, 0.0)

    def start(self) -> SprtState:
        """No sample yet."""
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
        """Many tests at once, each from its start: outcomes [..., N] of 0 and 1.

        Returns the samples each took [...] (N if undecided) and its side [...]: 1 holds, -1 does not, 0 undecided.
        """
        seen = outcome_array(outcomes)
        index, side, _ = self._follow(self.start(), seen)
        return np.minimum(index + 1, seen.shape[-1]), side

    def _follow(self, state: SprtState, seen: Ints) -> tuple[Ints, Signs, Ints]:
        good = state.successes + np.cumsum(seen, axis=-1)
        ratio = self.log_ratio(state.samples + np.arange(1, seen.shape[-1] + 1), good)
        return *first_crossing(ratio, self.strength), good
