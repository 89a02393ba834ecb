"""Data on which a bet on a transition depends: the model's probability, and the counts of observed transitions.

`monitor.statistics.model_betting` defines the bets. Compiled.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
import numpy as np

PRIOR: Final = 32.0
"""c: weight of the model's probabilities against the counts of a row, in steps."""
MEMORY: Final = 256
"""Number of steps from a row after which the row's counts are halved."""
MAX_TRANSITIONS: Final = 16_384
"""Largest number of counted transitions; beyond it, all counts are cleared. A snapshot contains all counts."""
DENSE: Final = 2048
"""If a model has at most this number of rows and of transitions, counts are arrays of at most 16 KiB."""


class Departure(msgspec.Struct, frozen=True):
    """A transition observed more often than the model predicts.

    `row`, `successor`: the transition in the model. `seen`: number of recent observations of the transition, among `of`
    steps from this row. `expected`: number of observations that the model predicts.
    """

    row: int
    successor: int
    seen: int
    of: int
    expected: float


class TransitionOdds:
    """A transition of the model, with the numbers that bets on it need.

    `odds`: 1/p. `flatter`, `sharper`: the factors q/p of the bets with these names. `given`: whether the row is known
    exactly.
    """

    def __init__(self, row: int, index: int, odds: float, flatter: float, sharper: float, *, given: bool) -> None:
        self.row = row
        self.index = index
        self.odds = odds
        self.flatter = flatter
        self.sharper = sharper
        self.given = given


class Odds:
    """Direct-mapped cache of transitions with their odds. The odds are computed when a transition occurs.

    `starts`, `successors`, `probabilities`: as for `ModelTest`. `dense`: whether counts of transitions are arrays.
    """

    def __init__(self, starts: Sequence[int], successors: Sequence[int], probabilities: Sequence[float]) -> None:
        self.starts: Sequence[int] = np.ascontiguousarray(starts, np.int64).data
        self.successors: Sequence[int] = np.ascontiguousarray(successors, np.int64).data
        self.probabilities: Sequence[float] = np.ascontiguousarray(probabilities, np.float64).data
        self.dense = max(len(starts), len(probabilities)) <= DENSE
        size = 1
        while size < min(len(probabilities), MAX_TRANSITIONS):
            size *= 2
        self._mask = size - 1
        self._kept: list[TransitionOdds | None] = [None] * size

    def learner(self, most: int, memory: int | None = None) -> AdaptiveBet:
        """Return a learner that bets at these odds; `most`, `memory`: as for `AdaptiveBet`."""
        return AdaptiveBet(self, most, memory)

    def find(self, row: int, successor: int) -> TransitionOdds | None:
        """Return the transition from a row to a successor; None if the model lacks it."""
        index = self.index_of(row, successor)
        return None if index < 0 else self.at(row, index)

    def at(self, row: int, index: int) -> TransitionOdds:
        """Return the transition of a row at this index."""
        found = self._kept[index & self._mask]
        if found is None or found.index != index:
            found = self._kept[index & self._mask] = self.transition(row, index)
        return found

    def row_of(self, index: int) -> int:
        """Return the row of a transition."""
        return _newest(self.starts, index, 0, len(self.starts))

    def index_of(self, row: int, successor: int) -> int:
        """Return the index of a transition (the last if a row lists a successor twice); -1 if the model lacks it."""
        start = self.starts[row]
        index = _newest(self.successors, successor, start, self.starts[row + 1])
        return index if index >= start and self.successors[index] == successor else -1

    def transition(self, row: int, index: int) -> TransitionOdds:
        """Compute the transition at this index."""
        roots = squares = 0.0
        for each in range(self.starts[row], self.starts[row + 1]):
            roots += math.sqrt(self.probabilities[each])
            squares += self.probabilities[each] * self.probabilities[each]
        p = self.probabilities[index]
        odds = min(1.0 / p, 1e300)  # never infinite, however small p is
        return TransitionOdds(row, index, odds, 1.0 / (math.sqrt(p) * roots), p / squares, given=True)


def _newest(ascending: Sequence[int], number: int, low: int, high: int) -> int:
    """Return the last index in low:high at which `ascending` is at most `number`; low - 1 if there is none."""
    while low < high:
        middle = (low + high) // 2
        if ascending[middle] <= number:
            low = middle + 1
        else:
            high = middle
    return low - 1


class PlaceCounts:
    """Counts by place: an array if `dense`, else a dict of the counts above 0. `size`: number of counts above 0."""

    def __init__(self, places: int, *, dense: bool) -> None:
        self.size = 0
        self._all = array("q", bytes(8 * places if dense else 0))
        self._put: dict[int, int] | None = None if dense else {}

    def get(self, place: int) -> int:
        """Return the count of a place, 0 if it has none."""
        return self._all[place] if self._put is None else self._put.get(place, 0)

    def put(self, place: int, count: int) -> None:
        """Replace a count."""
        if self._put is None:
            self.size += (count != 0) - (self._all[place] != 0)
            self._all[place] = count
        else:
            if count:
                self._put[place] = count
            else:
                self._put.pop(place, None)
            self.size = len(self._put)

    def clear(self) -> None:
        """Remove all counts."""
        for place in range(len(self._all)):
            self._all[place] = 0
        if self._put is not None:
            self._put.clear()
        self.size = 0

    def by_place(self) -> dict[int, int]:
        """Return the counts by place."""
        if self._put is not None:
            return dict(self._put)
        return {place: self._all[place] for place in range(len(self._all)) if self._all[place] != 0}


class AdaptiveBet:
    """The bet that learns from recent counts: q(s') / p(s') = (c + n(s, a, s') / p(s')) / (c + n(s, a)).

    At most `most` transitions are counted. `prior`: c. `memory`: number of steps from a row after which the row's
    counts are halved; None means `MEMORY`.
    """

    def __init__(self, odds: Odds, most: int, memory: int | None = None) -> None:
        self.prior = PRIOR
        self.memory = MEMORY if memory is None else memory
        self._odds = odds
        self._most = most
        self._seen = PlaceCounts(len(odds.probabilities), dense=odds.dense)  # n(s, a, s') by index of the transition
        self._steps = PlaceCounts(len(odds.starts) - 1, dense=odds.dense)  # n(s, a) by row

    @property
    def counts(self) -> dict[int, int]:
        """The counts: index of a transition -> n(s, a, s')."""
        return self._seen.by_place()

    def ratio(self, found: TransitionOdds) -> float:
        """Return q / p of a transition."""
        return (self.prior + self._seen.get(found.index) * found.odds) / (self.prior + self._steps.get(found.row))

    def settle(self, found: TransitionOdds) -> float:
        """Return q / p of a transition, then count it. Counting comes last: q must not depend on the outcome."""
        ratio = self.ratio(found)
        steps = self._steps.get(found.row)
        self._seen.put(found.index, self._seen.get(found.index) + 1)
        self._steps.put(found.row, steps + 1)
        if steps >= self.memory:
            self._halve(found.row)
        if self._seen.size > self._most:
            self.load({})
        return ratio

    def seen(self, row: int) -> dict[int, int]:
        """Return the counts of a row, by index of the transition."""
        entries = range(self._odds.starts[row], self._odds.starts[row + 1])
        return {index: self._seen.get(index) for index in entries if self._seen.get(index) > 0}

    def by_row(self) -> dict[int, dict[int, int]]:
        """Return row -> counts of the row, by index of the transition."""
        found: dict[int, dict[int, int]] = {}
        for index, seen in self.counts.items():
            found.setdefault(self._odds.row_of(index), {})[index] = seen
        return found

    def departures(self, most: int) -> list[Departure]:
        """Return the transitions with the most evidence against the model.

        The evidence is n log(n / (N p)) for n observations among N steps of the row.
        """
        found: list[tuple[float, Departure]] = []
        for index, seen in self.counts.items():
            row = self._odds.row_of(index)
            steps, p = self._steps.get(row), self._odds.probabilities[index]
            if seen > steps * p:
                evidence = seen * math.log(seen / (steps * p))
                found.append((evidence, Departure(row, self._odds.successors[index], seen, steps, steps * p)))
        found.sort(key=lambda each: -each[0])
        return [departure for _, departure in found[:most]]

    def load(self, counts: Mapping[int, int]) -> None:
        """Replace the counts."""
        self._seen.clear()
        self._steps.clear()
        for index, seen in counts.items():
            row = self._odds.row_of(index)
            self._seen.put(index, seen)
            self._steps.put(row, self._steps.get(row) + seen)

    def _halve(self, row: int) -> None:
        """Halve the counts of a row."""
        left = 0
        for index in range(self._odds.starts[row], self._odds.starts[row + 1]):
            seen = self._seen.get(index)
            if seen > 0:
                self._seen.put(index, seen // 2)
                left += seen // 2
        self._steps.put(row, left)
