"""The betting test of `mean >= theta` with an indifference region: its strength holds for every law on [lo, hi].

Source: I. Waudby-Smith and A. Ramdas, *Estimating means of bounded random variables by betting* (JRSS B 2024), with
their bets aGRAPA (section B.3): nearly those that let the capital grow fastest. See `monitor.statistics.anytime`.

The region goes from `below` to `above`, with theta inside. Two capitals are played at once: `up` against a mean of
`below` or less, `down` against a mean of `above` or more. The first that reaches its line decides.

Strength. To say true, `up` must reach 1/beta; if the mean is `below` or less, `up` is a nonnegative supermartingale
that starts at 1, so by Ville's inequality it ever does with probability at most beta. Likewise for alpha and `down`.
The only assumptions: each sample has that mean given those before it, and lies in [lo, hi].

A decision. Every mean lies above `below` or under `above`, so at least one of the capitals grows, and the test ends
with probability 1: also where the mean is theta itself.

Samples that are all one and the same c near theta (two interventions that never differ: c = 0) refute both sides sooner
or later. There the test waits until both are refuted, and then compares c with theta. Each answer still needs its own
line to be reached, so the strength is the same.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from monitor.arrays import Bools, Floats, Ints, Signs
from monitor.errors import ConfigError
from monitor.statistics.anytime import Bets, check_range, gain_down, gain_up, predicted
from monitor.statistics.equal import TIE
from monitor.statistics.samples import unit_array
from monitor.statistics.strength import Strength, truth

__all__ = ["RegionBets", "RegionBetsState"]

Flags = Bools


@dataclass(frozen=True)
class RegionBetsState:
    """State of a test. `up`, `down`: log capitals; `above`, `below`: whether they have reached their lines.

    `low`, `high`: extremes of the samples, moved to [0, 1]. `holds`: the decision, None while there is none; after it
    no more samples are taken.
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
        """Return how many were seen."""
        return self.bets.samples


@dataclass(frozen=True)
class _Course:
    """All intermediate states of tests, each field [..., N]."""

    up: Floats
    down: Floats
    above: Flags
    below: Flags
    low: Floats
    high: Floats


@dataclass(frozen=True)
class RegionBets:
    """Decide mean >= theta for samples in [lo, hi]: either answer will do within `delta` of theta.

    P(says false | mean >= theta + delta) <= alpha and P(says true | mean <= theta - delta) <= beta, whatever the law.
    A side of the region that would leave (lo, hi) goes half the way from theta to the border instead, as in `Sprt`.
    `strict` (mean > theta) matters only where all samples are theta. `theta` in [lo, hi], `delta` > 0, else
    ConfigError.

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
        """Return the ends (below, above) of the indifference region, as they are used."""
        below, above = self.theta - self.delta, self.theta + self.delta
        return (
            below if below > self.lo else (self.theta + self.lo) / 2.0,
            above if above < self.hi else (self.theta + self.hi) / 2.0,
        )

    def start(self) -> RegionBetsState:
        """Return the state before the first sample."""
        return RegionBetsState(Bets(min(self.strength.alpha, self.strength.beta)))

    def update(self, state: RegionBetsState, values: ArrayLike) -> RegionBetsState:
        """Return the state after values [N] in [lo, hi] (else InputError), or after the first that decides it."""
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
        """Many tests at once, each from its start: values [..., N] in [lo, hi], else InputError.

        Returns the samples each took [...] (N if undecided) and its side [...]: 1 holds, -1 does not, 0 undecided.
        """
        seen = unit_array(values, self.lo, self.hi)
        if not seen.shape[-1]:
            return np.zeros(seen.shape[:-1], dtype=np.int64), np.zeros(seen.shape[:-1], dtype=np.int8)
        index, side = self._decided(self._follow(self.start(), seen))
        return np.minimum(index + 1, seen.shape[-1]), side

    def _follow(self, state: RegionBetsState, seen: Floats) -> _Course:
        """Play both bets on samples [..., N] in [0, 1]."""
        below, above = (self._unit(side) for side in self.sides)
        least = self.delta / (self.hi - self.lo)
        mean, variance, _ = predicted(state.bets, seen)
        up = gain_up(seen, _size(np.maximum(mean - below, least), variance), below)
        down = gain_down(seen, _size(np.maximum(above - mean, least), variance), above)
        up, down = _running(np.add, state.up, up), _running(np.add, state.down, down)
        return _Course(
            up,
            down,
            state.above | np.logical_or.accumulate(up >= -math.log(self.strength.beta), axis=-1),
            state.below | np.logical_or.accumulate(down >= -math.log(self.strength.alpha), axis=-1),
            _running(np.minimum, state.low, seen),
            _running(np.maximum, state.high, seen),
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
        """Return where all samples so far are one c, at most half the way from theta to a side of the region."""
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
    """Return of each row of values [..., N] the one at its index [...]."""
    return np.asarray(np.take_along_axis(values, index[..., None], axis=-1)[..., 0])


def _size(gap: Floats, variance: Floats) -> Floats:
    """Return the bets that make the capital grow fastest, nearly, if the mean is `gap` away."""
    return np.asarray(gap / (variance + gap * gap))


def _running(operation: np.ufunc, start: float, values: Floats) -> Floats:
    """Return the running sum, minimum or maximum of values [..., N], begun at `start`."""
    first = np.full((*values.shape[:-1], 1), start)
    return np.asarray(operation.accumulate(np.concatenate([first, values], axis=-1), axis=-1)[..., 1:])
