"""Betting test of `mean >= theta` with an indifference region. Its error rates hold for any distribution on [lo, hi].

Source: I. Waudby-Smith and A. Ramdas, *Estimating means of bounded random variables by betting* (JRSS B 2024), with
their aGRAPA bets (section B.3), under which wealth grows nearly fastest. See `monitor.statistics.anytime`.

The indifference region extends from `below` to `above` and contains theta. Two bets run at the same time. `up` bets
against a mean of at most `below`, and `down` bets against a mean of at least `above`. The first bet whose wealth
reaches its threshold decides.

Error rates. The test accepts when the wealth of `up` reaches 1/beta. If the mean is at most `below`, this wealth is a
nonnegative supermartingale that starts at 1. So by Ville's inequality it reaches 1/beta with probability at most beta.
The same is true of `down` and alpha. The only assumptions are that each sample lies in [lo, hi] and has the mean in
question, given the samples before it.

Termination. Every mean is larger than `below` or smaller than `above`, so the wealth of at least one bet grows. The
test ends with probability 1, even if the mean is theta.

If all samples equal some c near theta, both sides are eventually rejected. An example is c = 0 for two interventions
that never differ. Then the test waits until both sides are rejected, and compares c with theta. Each answer still needs
its own threshold, so the error rates are the same.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from monitor.arrays import Bools, Floats, Ints, Signs
from monitor.errors import ConfigError
from monitor.statistics.anytime import Bets, check_range, log_wealth_down, log_wealth_up, predicted
from monitor.statistics.equal import TIE
from monitor.statistics.samples import running, unit_array
from monitor.statistics.strength import Strength, truth

Flags = Bools


@dataclass(frozen=True)
class RegionBetsState:
    """State of a test. `up`, `down`: log wealths; `above`, `below`: True after these have reached their thresholds.

    `low`, `high`: extremes of the samples, rescaled to [0, 1]. `holds`: the decision, None before the decision. After
    the decision, samples are ignored.
    """

    bets: Bets
    up: float = 0.0
    down: float = 0.0
    above: bool = False
    below: bool = False
    low: float = math.inf
    high: float = -math.inf
    holds: bool | None = None

    @property
    def samples(self) -> int:
        """Number of samples."""
        return self.bets.samples


@dataclass(frozen=True)
class _Course:
    """All intermediate states of tests; each field has the shape [..., N]."""

    up: Floats
    down: Floats
    above: Flags
    below: Flags
    low: Floats
    high: Floats


@dataclass(frozen=True)
class RegionBets:
    """Test of mean >= theta for samples in [lo, hi]. If the mean is within `delta` of theta, either answer is correct.

    P(reject | mean >= theta + delta) <= alpha and P(accept | mean <= theta - delta) <= beta, for any distribution. An
    end of the region outside (lo, hi) is moved to halfway between theta and the boundary, as in `Sprt`. `strict`
    (mean > theta) matters only if all samples are theta. Raises ConfigError unless `theta` is in [lo, hi] and
    `delta` > 0.

    >>> test = RegionBets(0.0, 0.02, Strength(0.05, 0.05), -1.0, 1.0)
    >>> test.update(test.start(), [0.0] * 1000).holds, test.update(test.start(), [0.0, 1.0] * 50).samples
    (True, 16)
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

    def start(self) -> RegionBetsState:
        """Return the state before the first sample."""
        return RegionBetsState(Bets(min(self.strength.alpha, self.strength.beta)))

    def update(self, state: RegionBetsState, values: ArrayLike) -> RegionBetsState:
        """Return the state after these values [N], or after the first of them that decides the test.

        Raises InputError if a value is outside [lo, hi].
        """
        seen = unit_array(values, self.lo, self.hi)
        if state.holds is not None or not seen.size:
            return state
        course = self._follow(state, seen)
        index, side = self._decided(course)
        at = min(int(index), seen.shape[-1] - 1)
        _, _, bets = predicted(state.bets, seen[: at + 1])
        return replace(
            state,
            bets=bets,
            up=float(course.up[at]),
            down=float(course.down[at]),
            above=bool(course.above[at]),
            below=bool(course.below[at]),
            low=float(course.low[at]),
            high=float(course.high[at]),
            holds=truth(side),
        )

    def decide(self, values: ArrayLike) -> tuple[Ints, Signs]:
        """Run many tests at once, each from its start, on values [..., N]. Raises InputError outside [lo, hi].

        Return for each test the number of samples used [...] (N if undecided) and the side [...]: 1 if the hypothesis
        holds, -1 if it does not, 0 if undecided.
        """
        seen = unit_array(values, self.lo, self.hi)
        if not seen.shape[-1]:
            return np.zeros(seen.shape[:-1], dtype=np.int64), np.zeros(seen.shape[:-1], dtype=np.int8)
        index, side = self._decided(self._follow(self.start(), seen))
        return np.minimum(index + 1, seen.shape[-1]), side

    def _follow(self, state: RegionBetsState, seen: Floats) -> _Course:
        """Run both bets on samples [..., N] in [0, 1]."""
        below, above = (self._unit(side) for side in self.sides)
        least = self.delta / (self.hi - self.lo)
        mean, variance, _ = predicted(state.bets, seen)
        up = log_wealth_up(seen, _size(np.maximum(mean - below, least), variance), below)
        down = log_wealth_down(seen, _size(np.maximum(above - mean, least), variance), above)
        up, down = running(np.add, state.up, up), running(np.add, state.down, down)
        return _Course(
            up,
            down,
            state.above | np.logical_or.accumulate(up >= -math.log(self.strength.beta), axis=-1),
            state.below | np.logical_or.accumulate(down >= -math.log(self.strength.alpha), axis=-1),
            running(np.minimum, state.low, seen),
            running(np.maximum, state.high, seen),
        )

    def _decided(self, course: _Course) -> tuple[Ints, Signs]:
        """Return the index of the first sample that decides each state (N: none does), and the side."""
        waits = self._near(course)
        decided = np.where(waits, course.above & course.below, course.above | course.below)
        found, at = decided.any(axis=-1), decided.argmax(axis=-1)
        above, below, near = (_at(flags, at) for flags in (course.above, course.below, waits))
        off = _at(course.high, at) - self._unit(self.theta)
        equal = off >= -TIE if not self.strict else off > TIE
        further = np.where(near, equal, _at(course.up, at) >= _at(course.down, at))
        holds = np.where(above & below, further, above)
        index = np.where(found, at, course.up.shape[-1]).astype(np.int64)
        return index, np.where(found, np.where(holds, 1, -1), 0).astype(np.int8)

    def _near(self, course: _Course) -> Flags:
        """Return where all samples so far equal some c, at most halfway from theta to an end of the region."""
        theta = self._unit(self.theta)
        below, above = (self._unit(side) for side in self.sides)
        if not below < theta < above:
            return np.zeros(course.high.shape, dtype=np.bool_)
        alike = course.high - course.low <= TIE
        inside = (course.high >= (theta + below) / 2.0) & (course.high <= (theta + above) / 2.0)
        return np.asarray(alike & inside)

    def _unit(self, value: float) -> float:
        return (value - self.lo) / (self.hi - self.lo)


T = TypeVar("T", bound=np.generic)


def _at(values: NDArray[T], index: Ints) -> NDArray[T]:
    """Return, for each row of values [..., N], the value at the row's index [...]."""
    return np.asarray(np.take_along_axis(values, index[..., None], axis=-1)[..., 0])


def _size(gap: Floats, variance: Floats) -> Floats:
    """Return the sizes of the bets under which wealth grows nearly fastest, if the mean is at distance `gap`."""
    return np.asarray(gap / (variance + gap * gap))
