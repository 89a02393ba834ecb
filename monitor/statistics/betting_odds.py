"""The two sides of a bet on a transition: the model's probability, and the counts of what was observed.

`monitor.statistics.model_test` defines the bets.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

__all__ = ["MAX_TRANSITIONS", "MEMORY", "PRIOR", "Departure", "Learner", "Odds", "Transition"]

PRIOR: Final = 32.0
"""c: weight of the model's probabilities against the counts of a row, in steps."""
MEMORY: Final = 256
"""Steps of a row after which its counts are halved."""
MAX_TRANSITIONS: Final = 16_384
"""Most transitions counted, since a snapshot holds all of them; one more clears all counts."""


class Departure(msgspec.Struct, frozen=True):
    """A transition observed more often than the model predicts.

    `row`, `successor`: in the model. `seen`: how often lately, in `of` steps from that row. `expected`: by the model.
    """

    row: int
    successor: int
    seen: int
    of: int
    expected: float


class Transition:
    """A transition of the model: its row and index there, 1/p, and q/p of the two bets without counts.

    `given`: the row is known exactly.
    """

    __slots__ = ("flatter", "given", "index", "odds", "row", "sharper")

    def __init__(self, row: int, index: int, p: float, roots: float, squares: float) -> None:
        self.given = True
        self.row = row
        self.index = index
        self.odds = min(1.0 / p, 1e300)  # never infinite, however small p is
        self.flatter = 1.0 / (math.sqrt(p) * roots)
        self.sharper = p / squares


class Odds:
    """The model's odds, computed once for each transition that occurs.

    `starts`, `successors`, `probabilities`: as for `ModelTest`.
    """

    def __init__(self, starts: Sequence[int], successors: Sequence[int], probabilities: Sequence[float]) -> None:
        self.starts, self.successors, self.probabilities = starts, successors, probabilities
        self._sums: dict[int, tuple[float, float]] = {}
        self._found: dict[int, Transition] = {}

    def learner(self, most: int, memory: int | None = None) -> Learner:
        """Return a learner that bets at these odds; `most`, `memory`: of `Learner`."""
        return Learner(self, most, memory)

    def find(self, row: int, successor: int) -> Transition | None:
        """Return the transition, None if the model lacks it."""
        found = self._found.get(row << 32 | successor)
        return found if found is not None else self._look_up(row, successor)

    def row_of(self, index: int) -> int:
        """Return the row of a transition."""
        return bisect_right(self.starts, index) - 1

    def _look_up(self, row: int, successor: int) -> Transition | None:
        start, end = self.starts[row], self.starts[row + 1]
        index = bisect_left(self.successors, successor, start, end)
        if index == end or self.successors[index] != successor:
            return None
        return self._keep(row, successor, index)

    def _keep(self, row: int, successor: int, index: int) -> Transition:
        """Return the transition at this index, and cache it under its successor."""
        if len(self._found) >= MAX_TRANSITIONS:
            self._found.clear()
            self._sums.clear()
        if row not in self._sums:
            chances = self.probabilities[self.starts[row] : self.starts[row + 1]]
            self._sums[row] = sum(map(math.sqrt, chances)), sum(p * p for p in chances)
        found = self._found[row << 32 | successor] = Transition(row, index, self.probabilities[index], *self._sums[row])
        return found


class Learner:
    """Recent counts and the bet on them: q(s') / p(s') = (c + n(s, a, s') / p(s')) / (c + n(s, a)).

    `counts`: index of a transition -> n(s, a, s'), at most `most` of them. `memory`: steps of a row after which its
    counts are halved; `MEMORY` if None.
    """

    def __init__(self, odds: Odds, most: int, memory: int | None = None) -> None:
        self._odds = odds
        self._most = most
        self._memory = MEMORY if memory is None else memory
        self.counts: dict[int, int] = {}
        self._rows: dict[int, int] = {}

    def ratio(self, found: Transition) -> float:
        """Return q / p of a transition."""
        return (PRIOR + self.counts.get(found.index, 0) * found.odds) / (PRIOR + self._rows.get(found.row, 0))

    def settle(self, found: Transition) -> float:
        """Return q / p of a transition and count it, in that order: q must not depend on the outcome."""
        row, index, counts = found.row, found.index, self.counts
        seen, of = counts.get(index, 0), self._rows.get(row, 0)
        counts[index] = seen + 1
        self._rows[row] = of + 1
        if of >= self._memory:
            self._halve(row)
        if len(counts) > self._most:
            self.load({})
        return (PRIOR + seen * found.odds) / (PRIOR + of)

    def seen(self, row: int) -> dict[int, int]:
        """Return the counts of a row, by index of the transition."""
        entries = range(self._odds.starts[row], self._odds.starts[row + 1])
        return {index: self.counts[index] for index in entries if index in self.counts}

    def by_row(self) -> dict[int, dict[int, int]]:
        """Return row -> its counts, as `seen` returns them."""
        found: dict[int, dict[int, int]] = {}
        for index, seen in self.counts.items():
            found.setdefault(self._odds.row_of(index), {})[index] = seen
        return found

    def departures(self, most: int) -> list[Departure]:
        """Return the transitions with most evidence against the model: n log(n / (N p)), in rows with N steps."""
        found: list[tuple[float, Departure]] = []
        for index, seen in self.counts.items():
            row = self._odds.row_of(index)
            steps, p = self._rows[row], self._odds.probabilities[index]
            if seen > steps * p:
                evidence = seen * math.log(seen / (steps * p))
                found.append((evidence, Departure(row, self._odds.successors[index], seen, steps, steps * p)))
        found.sort(key=lambda each: -each[0])
        return [departure for _, departure in found[:most]]

    def load(self, counts: Mapping[int, int]) -> None:
        """Replace the counts."""
        self.counts, self._rows = dict(counts), {}
        for index, seen in counts.items():
            row = self._odds.row_of(index)
            self._rows[row] = self._rows.get(row, 0) + seen

    def _halve(self, row: int) -> None:
        """Halve the counts of a row."""
        self._rows[row] = 0
        for index in range(self._odds.starts[row], self._odds.starts[row + 1]):
            if index in self.counts:
                self.counts[index] //= 2
                self._rows[row] += self.counts[index]
