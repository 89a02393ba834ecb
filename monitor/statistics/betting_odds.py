"""What a model says of each transition, and what was counted of it: the two sides of a bet.

`monitor.statistics.model_test` says what the bets are.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

__all__ = ["MEMORY", "PLACES", "PRIOR", "Departure", "Learner", "Odds", "Place", "Shared"]

PRIOR: Final = 32.0
"""c: how many steps the model's own word weighs against what was counted in a row."""
MEMORY: Final = 256
"""Steps of a row after which its counts are halved."""
PLACES: Final = 16_384
"""Different transitions counted at most, since all are written with a snapshot; with one more, all are forgotten."""


class Departure(msgspec.Struct, frozen=True):
    """A transition that was seen more often than the model lets expect.

    `row`, `successor`: in the model. `seen`: how often lately, of `of` steps from that row. `expected`: of as many.
    """

    row: int
    successor: int
    seen: int
    of: int
    expected: float


class Place:
    """A transition of the model: its row and place there, 1/p, and q/p of the bets that learn nothing."""

    __slots__ = ("flatter", "index", "odds", "row", "sharper")

    def __init__(self, row: int, index: int, p: float, roots: float, squares: float) -> None:
        self.row = row
        self.index = index
        self.odds = min(1.0 / p, 1e300)  # never infinite, however small p is
        self.flatter = 1.0 / (math.sqrt(p) * roots)
        self.sharper = p / squares


class Odds:
    """The model's odds, worked out once for each transition that happens.

    `starts`, `successors`, `probabilities`: as for `ModelTest`.
    """

    def __init__(self, starts: Sequence[int], successors: Sequence[int], probabilities: Sequence[float]) -> None:
        self.starts, self._successors, self._probabilities = starts, successors, probabilities
        self._sums: dict[int, tuple[float, float]] = {}
        self._places: dict[int, Place] = {}

    def place(self, row: int, successor: int) -> Place | None:
        """The transition, None if the model has none such."""
        found = self._places.get(row << 32 | successor)
        return found if found is not None else self._look_up(row, successor)

    def row_of(self, index: int) -> int:
        """The row in which a transition lies."""
        return bisect_right(self.starts, index) - 1

    def successor(self, index: int) -> int:
        """Where a transition leads."""
        return self._successors[index]

    def probability(self, index: int) -> float:
        """How likely the model says it is."""
        return self._probabilities[index]

    def _look_up(self, row: int, successor: int) -> Place | None:
        start, end = self.starts[row], self.starts[row + 1]
        index = bisect_left(self._successors, successor, start, end)
        if index == end or self._successors[index] != successor:
            return None
        if len(self._places) >= PLACES:
            self._places.clear()
            self._sums.clear()
        if row not in self._sums:
            chances = self._probabilities[start:end]
            self._sums[row] = sum(map(math.sqrt, chances)), sum(p * p for p in chances)
        place = self._places[row << 32 | successor] = Place(row, index, self._probabilities[index], *self._sums[row])
        return place


class Learner:
    """What was counted lately: q(s') / p(s') = (c + n(s, a, s') / p(s')) / (c + n(s, a)).

    `counts`: place of a transition -> n(s, a, s'), at most `most` of them.
    """

    def __init__(self, odds: Odds, most: int) -> None:
        self._odds = odds
        self._most = most
        self.counts: dict[int, int] = {}
        self._rows: dict[int, int] = {}

    def ratio(self, place: Place) -> float:
        """Q / p of a transition."""
        return (PRIOR + self.counts.get(place.index, 0) * place.odds) / (PRIOR + self._rows.get(place.row, 0))

    def see(self, place: Place) -> None:
        """Count one; after the bet on it, for q knows nothing of where it leads."""
        self.counts[place.index] = self.counts.get(place.index, 0) + 1
        seen = self._rows[place.row] = self._rows.get(place.row, 0) + 1
        if seen > MEMORY:
            self._halve(place.row)
        if len(self.counts) > self._most:
            self.load({})

    def departures(self, most: int) -> list[Departure]:
        """The transitions that speak loudest against the model: n log(n / (N p)), in rows with N steps."""
        found: list[tuple[float, Departure]] = []
        for index, seen in self.counts.items():
            row = self._odds.row_of(index)
            steps, p = self._rows[row], self._odds.probability(index)
            if seen > steps * p:
                evidence = seen * math.log(seen / (steps * p))
                found.append((evidence, Departure(row, self._odds.successor(index), seen, steps, steps * p)))
        found.sort(key=lambda each: -each[0])
        return [departure for _, departure in found[:most]]

    def load(self, counts: Mapping[int, int]) -> None:
        """Have counted this, and nothing else."""
        self.counts, self._rows = dict(counts), {}
        for index, seen in counts.items():
            row = self._odds.row_of(index)
            self._rows[row] = self._rows.get(row, 0) + seen

    def _halve(self, row: int) -> None:
        """Forget half of what was counted in a row."""
        self._rows[row] = 0
        for index in range(self._odds.starts[row], self._odds.starts[row + 1]):
            if index in self.counts:
                self.counts[index] //= 2
                self._rows[row] += self.counts[index]


class Shared:
    """What the tests of several agents have in common: the model's odds, and what all of them counted.

    `transitions`: tested in all, impossible ones included.
    """

    def __init__(self, odds: Odds) -> None:
        self.odds = odds
        self.learner = Learner(odds, PLACES)
        self.transitions = 0

    def see(self, place: Place) -> None:
        """One of the agents made this transition."""
        self.transitions += 1
        self.learner.see(place)
