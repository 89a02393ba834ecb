"""Odds of bets on rows for which only bounds are known, such as the rows of a learned model.

The hypothesis about such a row is a set: all p with lower_k <= p_k <= upper_k. The odds of a bet q are those of the
member p* of the set that is nearest to q: p* has the least sum of q_k log(q_k / p_k) (the reverse information
projection):

    p*_k = lambda q_k, clipped to [lower_k, upper_k], with lambda such that the p*_k sum to 1.

The factor of the bet is q_k / p*_k. For every p of the set, sum p_k q_k / p*_k <= 1. Proof: if p*_k was clipped to
lower_k, then p_k >= p*_k and q_k / p*_k < 1 / lambda. If p*_k was clipped to upper_k, both inequalities are reversed.
So the sum of (p_k - p*_k) q_k / p*_k is at most the sum of (p_k - p*_k) / lambda, which is 0. If q is itself in the
set, the factor is 1, so the bet neither wins nor loses.

One entry of such a row stands for all successors that were never recorded, as in docs/semantics/learned-models.md,
section 13.2.

Source: P. Grünwald, R. de Heide, W. Koolen, *Safe testing* (JRSS B 2024), theorem 1.

Compiled.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from monitor.arrays import Floats
from monitor.statistics.betting_odds import AdaptiveBet, Odds, TransitionOdds

UNRECORDED_CELL: Final = (1 << 32) - 1
"""A successor that no row has. It represents a state that the model does not have."""
GIVEN: Final = -1
"""Index used if a row has no entry for unrecorded successors because the row is known exactly."""
NO_DATA: Final = -2
"""Index used if a row has no entry for unrecorded successors because nothing is known about the row."""


class Bounds(NamedTuple):
    """Bounds of each entry of a model's rows. At least one distribution lies within the bounds of each row.

    `unrecorded`: for each row, the index of its entry for all successors that were never recorded; or `GIVEN`, or
    `NO_DATA`.
    """

    lower: Sequence[float]
    upper: Sequence[float]
    unrecorded: Sequence[int]


class IntervalOdds(Odds):
    """Odds of a model, if only bounds are known for some of its rows.

    Args:
        starts, successors: as for `ModelTest`.
        expected: the probabilities of rows that are known exactly; for other rows the probabilities that the data
            predict, all positive.
        bounds: the bounds of the rows.

    Attributes:
        unrecorded: as in `Bounds`.
        bet: working memory for a bet: numbers proportional to q, one for each entry of a row.
    """

    def __init__(
        self, starts: Sequence[int], successors: Sequence[int], expected: Sequence[float], bounds: Bounds
    ) -> None:
        super().__init__(starts, successors, expected)
        self.dense = False
        self.unrecorded: Sequence[int] = np.ascontiguousarray(bounds.unrecorded, np.int64).data
        self._lower: Floats = np.ascontiguousarray(bounds.lower, np.float64)
        self._upper: Floats = np.ascontiguousarray(bounds.upper, np.float64)
        widest = int(np.diff(np.asarray(starts, np.int64)).max(initial=1))
        self.bet = np.zeros(widest)
        self._turns = np.zeros((2, 2 * widest))

    def learner(self, most: int, memory: int | None = None) -> AdaptiveBet:
        """Return a learner that bets at these odds."""
        return IntervalLearner(self, most, memory)

    def most(self, row: int) -> float:
        """Return an upper bound of the probability of unrecorded successors in a row with bounds."""
        entry, known = self.unrecorded[row], 0.0
        for index in range(self.starts[row], self.starts[row + 1]):
            known += self._lower[index]
        return float(min(self._upper[entry], 1.0 - (known - self._lower[entry])))

    def pays(self, row: int, index: int) -> float:
        """Return the factor q / p* of the bet in `bet` on a row with bounds, if the entry `index` is the outcome."""
        start, end = self.starts[row], self.starts[row + 1]
        lower, upper = self._lower[start:end], self._upper[start:end]
        return float(against(self.bet, lower, upper, index - start, self._turns))

    def index_of(self, row: int, successor: int) -> int:
        """Return the index of a transition; if the row lacks it, the index for unrecorded successors; else -1."""
        index = Odds.index_of(self, row, successor)
        return self.unrecorded[row] if index < 0 <= self.unrecorded[row] else index

    def transition(self, row: int, index: int) -> TransitionOdds:
        """Return the transition at entry `index`, with its odds and the factors of its bets."""
        found = Odds.transition(self, row, index)
        if self.unrecorded[row] < 0:
            return found
        start, end = self.starts[row], self.starts[row + 1]
        for n in range(start, end):
            self.bet[n - start] = self.probabilities[n] ** 0.5
        flatter = self.pays(row, index)
        for n in range(start, end):
            self.bet[n - start] = self.probabilities[n] * self.probabilities[n]
        return TransitionOdds(row, index, found.odds, flatter, self.pays(row, index), given=False)


class IntervalLearner(AdaptiveBet):
    """Recent counts, and the bet on them at the odds of `IntervalOdds`."""

    def __init__(self, odds: IntervalOdds, most: int, memory: int | None = None) -> None:
        super().__init__(odds, most, memory)
        self._intervals = odds

    def ratio(self, found: TransitionOdds) -> float:
        """Return q / p*; q is proportional to `PRIOR` times the probabilities predicted by the data, plus counts."""
        if found.given:
            return AdaptiveBet.ratio(self, found)
        odds, start, end = self._intervals, self._odds.starts[found.row], self._odds.starts[found.row + 1]
        for index in range(start, end):
            odds.bet[index - start] = self.prior * odds.probabilities[index] + self._seen.get(index)
        return odds.pays(found.row, found.index)


def against(bet: Floats, lower: Floats, upper: Floats, place: int, turns: Floats) -> float:
    """Return the factor q / p* of a bet if one entry is the outcome.

    Args:
        bet: [K] or longer, proportional to q > 0.
        lower: [K] lower bounds of p.
        upper: [K] upper bounds of p.
        place: index of the entry.
        turns: [2, 2 K] or longer, working memory.

    >>> low, high, turns = np.array([0.4, 0.4]), np.array([0.6, 0.6]), np.zeros((2, 4))
    >>> [against(np.array(bet), low, high, 0, turns) for bet in ([45.0, 55.0], [80.0, 20.0], [20.0, 80.0])]
    [1.0, 1.3333333333333335, 0.5]
    """
    total, within = 0.0, True
    for k in range(len(lower)):
        total += bet[k]
    for k in range(len(lower)):
        within = within and lower[k] * total <= bet[k] <= upper[k] * total
    if within:
        return 1.0
    scaled = _scale(bet, lower, upper, turns) * bet[place]
    return float(bet[place] / total / min(max(scaled, lower[place]), upper[place]))


def _scale(bet: Floats, lower: Floats, upper: Floats, turns: Floats) -> float:
    """Return s such that the entries of s times the bet, clipped to the bounds, sum to 1.

    The sum is piecewise linear in s. An entry increases from the s at which it leaves its lower bound to the s at which
    it reaches its upper bound. Each such s is written to row 0 of `turns`, and the change of the slope to row 1.
    """
    count, known = len(lower), 0.0
    for k in range(count):
        turns[0, k], turns[1, k] = lower[k] / bet[k], bet[k]
        turns[0, count + k], turns[1, count + k] = upper[k] / bet[k], -bet[k]
        known += lower[k]
    _sort(turns, 2 * count)
    reached, slope, missing = 0.0, 0.0, 1.0 - known
    for n in range(2 * count):
        gained = slope * (turns[0, n] - reached)
        if gained >= missing and slope > 0.0:
            return reached + missing / slope
        missing -= gained
        reached = turns[0, n]
        slope += turns[1, n]
    return reached


def _sort(turns: Floats, count: int) -> None:
    """Sort the first `count` columns of `turns` by row 0, then by row 1, with the method of `sort_pairs`."""
    gap = 1
    while 8 * gap < count:
        gap = 3 * gap + 1
    while gap > 0:
        for n in range(gap, count):
            at, change, m = turns[0, n], turns[1, n], n
            while m >= gap and (turns[0, m - gap] > at or (turns[0, m - gap] == at and turns[1, m - gap] > change)):
                turns[0, m], turns[1, m] = turns[0, m - gap], turns[1, m - gap]
                m -= gap
            turns[0, m], turns[1, m] = at, change
        gap //= 3
