"""The two sides of a bet on a transition: the model's probability, and the counts of what was observed.

`monitor.statistics.model_test` defines the bets.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
import numpy as np

__all__ = ["DENSE", "MAX_TRANSITIONS", "MEMORY", "PRIOR", "DenseLearner", "Departure", "Learner", "Odds", "Transition"]

PRIOR: Final = 32.0
"""c: weight of the model's probabilities against the counts of a row, in steps."""
MEMORY: Final = 256
"""Steps of a row after which its counts are halved."""
MAX_TRANSITIONS: Final = 16_384
"""Most transitions counted, since a snapshot holds all of them; one more clears all counts."""
DENSE: Final = 2048
"""Most transitions of a model whose counts and odds are arrays, which compiled code shares: 16 KiB for each agent."""


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

    `starts`, `successors`, `probabilities`: as for `ModelTest`. `columns`: of a small model, for compiled code: 1/p of
    all transitions, then the q/p of `flatter` and of `sharper`; 0 where not computed yet; None if the model is larger.
    """

    def __init__(self, starts: Sequence[int], successors: Sequence[int], probabilities: Sequence[float]) -> None:
        self.starts, self.successors, self.probabilities = starts, successors, probabilities
        self._sums: dict[int, tuple[float, float]] = {}
        self._found: dict[int, Transition] = {}
        dense = max(len(starts), len(probabilities)) <= DENSE
        self.columns = array("d", bytes(24 * len(probabilities))) if dense else None

    def learner(self, most: int, memory: int | None = None) -> Learner:
        """Return a learner that bets at these odds; `most`, `memory`: of `Learner`."""
        return Learner(self, most, memory) if self.columns is None else DenseLearner(self, most, memory)

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
        if self.columns is not None:
            for place, value in enumerate((found.odds, found.flatter, found.sharper)):
                self.columns[place * len(self.probabilities) + index] = value
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

    def steps(self, row: int) -> int:
        """Return n(s, a) of a row."""
        return self._rows[row]

    def seen(self, row: int) -> dict[int, int]:
        """Return the counts of a row, by index of the transition."""
        entries, counts = range(self._odds.starts[row], self._odds.starts[row + 1]), self.counts
        return {index: counts[index] for index in entries if index in counts}

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
            steps, p = self.steps(row), self._odds.probabilities[index]
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


class DenseLearner(Learner):
    """A learner whose counts are arrays, for small models: compiled code counts in the same memory.

    `seen_of`: [transitions], n(s, a, s'). `steps_of`: [rows], n(s, a). `distinct`: [1], transitions with a count;
    `most`, `memory`: as for `Learner`.
    """

    def __init__(self, odds: Odds, most: int, memory: int | None = None) -> None:
        self._odds = odds
        self.most, self.memory = most, MEMORY if memory is None else memory
        self.seen_of = array("q", bytes(8 * len(odds.probabilities)))
        self.steps_of = array("q", bytes(8 * (len(odds.starts) - 1)))
        self.distinct = array("q", (0,))

    @property
    def counts(self) -> dict[int, int]:  # type: ignore[override] # computed, not stored
        """Index of a transition -> n(s, a, s')."""
        seen = np.frombuffer(self.seen_of, np.int64)
        found = np.flatnonzero(seen)
        return dict(zip(found.tolist(), seen[found].tolist(), strict=True))

    def ratio(self, found: Transition) -> float:
        """Return q / p of a transition."""
        return (PRIOR + self.seen_of[found.index] * found.odds) / (PRIOR + self.steps_of[found.row])

    def settle(self, found: Transition) -> float:
        """Return q / p of a transition and count it, in that order: q must not depend on the outcome."""
        row, index = found.row, found.index
        seen, of = self.seen_of[index], self.steps_of[row]
        self.seen_of[index] = seen + 1
        self.steps_of[row] = of + 1
        if seen == 0:
            self.distinct[0] += 1
        if of >= self.memory:
            self._halve(row)
        if self.distinct[0] > self.most:
            self.load({})
        return (PRIOR + seen * found.odds) / (PRIOR + of)

    def load(self, counts: Mapping[int, int]) -> None:
        """Replace the counts."""
        for column in (self.seen_of, self.steps_of):
            np.frombuffer(column, np.int64)[:] = 0
        for index, seen in counts.items():
            self.seen_of[index] = seen
            self.steps_of[self._odds.row_of(index)] += seen
        self._count()

    def steps(self, row: int) -> int:
        """Return n(s, a) of a row."""
        return self.steps_of[row]

    def _halve(self, row: int) -> None:
        """Halve the counts of a row."""
        self.steps_of[row] = 0
        for index in range(self._odds.starts[row], self._odds.starts[row + 1]):
            self.seen_of[index] //= 2
            self.steps_of[row] += self.seen_of[index]
        self._count()

    def _count(self) -> None:
        self.distinct[0] = int(np.count_nonzero(np.frombuffer(self.seen_of, np.int64)))
