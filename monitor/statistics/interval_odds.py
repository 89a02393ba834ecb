"""Odds against rows that are known only up to bounds, such as those of a learned model.

The hypothesis about such a row is a set: any p with lower_k <= p_k <= upper_k. The opponent of a bet q is the member of
the set that is nearest to q (the least sum of q_k log(q_k / p_k), the reverse information projection):

    p*_k = lambda q_k, cut off at lower_k and at upper_k, with lambda such that they sum to 1.

The bet pays q_k / p*_k. For every p of the set, sum p_k q_k / p*_k <= 1: where p*_k was cut off from below, p_k >= p*_k
and q_k / p*_k < 1 / lambda; from above, both are the other way round; so the sum of (p_k - p*_k) q_k / p*_k is at most
the sum of (p_k - p*_k) / lambda, which is 0. A bet that lies in the set pays 1: it neither wins nor loses.

One entry of such a row stands for all successors that were never recorded, as in docs/semantics.md, section 13.2.

Source: P. Grünwald, R. de Heide, W. Koolen, *Safe testing* (JRSS B 2024), theorem 1.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Final, NamedTuple

from monitor.statistics.betting_odds import MAX_TRANSITIONS, PRIOR, Learner, Odds, Transition

__all__ = ["GIVEN", "NO_DATA", "UNRECORDED", "Bounds", "IntervalLearner", "IntervalOdds", "IntervalRow", "against"]

UNRECORDED: Final = (1 << 32) - 1
"""A successor that no row has; it stands for a state that the model does not have."""
GIVEN: Final = -1
"""Instead of the entry of unrecorded successors: the row is known exactly."""
NO_DATA: Final = -2
"""Likewise: nothing is known of the row."""


class Bounds(NamedTuple):
    """Bounds of each entry of a model's rows; some distribution meets those of each row.

    `unrecorded`: for each row its entry for all successors that were never recorded, or `GIVEN`, or `NO_DATA`.
    """

    lower: Sequence[float]
    upper: Sequence[float]
    unrecorded: Sequence[int]


class IntervalRow(NamedTuple):
    """One row: expected probabilities, and bounds. `most`: upper bound of the mass that was never recorded."""

    expected: Sequence[float]
    lower: Sequence[float]
    upper: Sequence[float]
    most: float


class IntervalOdds(Odds):
    """Odds of a model some of whose rows are known only up to bounds.

    Args:
        starts, successors: as for `ModelTest`.
        expected: in given rows the probabilities; in the others what the data predict, all positive.
        bounds: of the rows.
    """

    def __init__(
        self, starts: Sequence[int], successors: Sequence[int], expected: Sequence[float], bounds: Bounds
    ) -> None:
        super().__init__(starts, successors, expected)
        self.columns = None  # odds of such a row depend on the counts of all its entries
        self.unrecorded = bounds.unrecorded
        self._lower, self._upper = bounds.lower, bounds.upper
        self._rows: dict[int, IntervalRow] = {}

    def learner(self, most: int, memory: int | None = None) -> Learner:
        """Return a learner that bets at these odds."""
        return IntervalLearner(self, most, memory)

    def bounds(self, row: int) -> IntervalRow:
        """Return a row that is not given."""
        found = self._rows.get(row)
        if found is None:
            if len(self._rows) >= MAX_TRANSITIONS:
                self._rows.clear()
            entries = slice(self.starts[row], self.starts[row + 1])
            lower, upper = tuple(self._lower[entries]), tuple(self._upper[entries])
            place = self.unrecorded[row] - self.starts[row]
            most = min(upper[place], 1.0 - (sum(lower) - lower[place]))
            found = self._rows[row] = IntervalRow(tuple(self.probabilities[entries]), lower, upper, most)
        return found

    def _look_up(self, row: int, successor: int) -> Transition | None:
        if self.unrecorded[row] < 0:
            return super()._look_up(row, successor)
        start = self.starts[row]
        index = bisect_right(self.successors, successor, start, self.starts[row + 1]) - 1
        if index < start or self.successors[index] != successor:
            index = self.unrecorded[row]
        found = self._keep(row, successor, index)
        bounds, place = self.bounds(row), index - start
        found.given = False
        found.flatter = against([p**0.5 for p in bounds.expected], bounds, place)
        found.sharper = against([p * p for p in bounds.expected], bounds, place)
        return found


class IntervalLearner(Learner):
    """Recent counts, and the bet on them at the odds of `IntervalOdds`."""

    def __init__(self, odds: IntervalOdds, most: int, memory: int | None = None) -> None:
        super().__init__(odds, most, memory)
        self._intervals = odds

    def settle(self, found: Transition) -> float:
        """Return `ratio`, and count the transition."""
        ratio = self.ratio(found)
        super().settle(found)
        return ratio

    def ratio(self, found: Transition) -> float:
        """Return q / p*, where q is proportional to `PRIOR` times what the data predict, plus the counts."""
        row = found.row
        if self._intervals.unrecorded[row] < 0:
            return super().ratio(found)
        start = self._intervals.starts[row]
        bounds = self._intervals.bounds(row)
        seen = self.counts.get
        bet = [PRIOR * p + seen(index, 0) for index, p in enumerate(bounds.expected, start)]
        return against(bet, bounds, found.index - start)


def against(bet: Sequence[float], bounds: IntervalRow, place: int) -> float:
    """Return what a bet, proportional to q > 0, pays at one entry: q / p*.

    >>> rain = IntervalRow(expected=(0.5, 0.5), lower=(0.4, 0.4), upper=(0.6, 0.6), most=0.6)
    >>> against((45, 55), rain, 0), against((80, 20), rain, 0), against((80, 20), rain, 1)
    (1.0, 1.3333333333333335, 0.5)
    """
    total = sum(bet)
    lower, upper = bounds.lower, bounds.upper
    for q, low, high in zip(bet, lower, upper, strict=True):
        if not low * total <= q <= high * total:
            break
    else:
        return 1.0
    scale = _scale(bet, bounds)
    opponent = min(max(scale * bet[place], lower[place]), upper[place])
    return bet[place] / total / opponent


def _scale(bet: Sequence[float], bounds: IntervalRow) -> float:
    """Return s such that the entries of s times the bet, cut off at the bounds, sum to 1.

    The sum is piecewise linear in s: an entry rises from the s at which it leaves its lower bound to that at which it
    meets the upper one.
    """
    turns = [(low / q, q) for q, low in zip(bet, bounds.lower, strict=True)]
    turns += [(high / q, -q) for q, high in zip(bet, bounds.upper, strict=True)]
    turns.sort()
    reached, slope, missing = 0.0, 0.0, 1.0 - sum(bounds.lower)
    for at, change in turns:
        gained = slope * (at - reached)
        if gained >= missing and slope > 0.0:
            break
        missing -= gained
        reached = at
        slope += change
    else:
        return reached
    return reached + missing / slope
