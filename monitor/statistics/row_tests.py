"""One test for each row of the model, so that a contradiction has a place.

The hypothesis of a row: given everything observed before, its transitions, those of all agents, have the model's
probabilities (of a learned model: some probabilities within the row's bounds), but for a fraction `impossible` of them.
Its wealth is the mean of two bets, each an e-process that begins at any visit, as in `monitor.statistics.model_test`:

- `learned`, with counts of this row alone that are halved at `ROW_MEMORY`: longer than those of the test of the model,
  because a small deviation takes many visits.
- `missing`: on steps to which the row gives probability 0, at `MISSING` times the permitted rate. Where bounds have an
  entry for unrecorded successors, `learned` covers them and this bet pays 1.

Wealth above `MOST_WEALTH` is given away, so that a repaired environment is recognised soon. Which rows are wrong is
decided by e-BH (`monitor.statistics.discoveries`) over all rows that have data: rows depend on each other, because each
agent's path runs through many of them.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from monitor.statistics.betting_odds import MAX_TRANSITIONS, Odds, Transition
from monitor.statistics.discoveries import LEVEL, discoveries
from monitor.statistics.late_bets import idle_after, part_of

__all__ = ["ROW_MEMORY", "RowState", "RowTests", "WrongRow", "joined_rows"]

ROW_MEMORY: Final = 1024
"""Visits of a row after which its counts are halved."""
MOST_ROWS: Final = 4096
"""Most rows tested: the first that are visited, since a snapshot holds all of them."""
MISSING: Final = 100.0
"""Rate of impossible steps bet on, as a multiple of `impossible`."""
MOST_WEALTH: Final = 1e12


class WrongRow(msgspec.Struct, frozen=True):
    """A row that is rejected, with the entry whose observed fraction differs most from the model's probability.

    `evidence`: the e-value of the row. `seen`: steps to `successor` among the newest `visits` counted. `probability`:
    of `successor` in the model. `impossible`: of the visits, those to states to which the row gives probability 0.
    """

    row: int
    evidence: float
    successor: int
    seen: int
    visits: int
    probability: float
    impossible: int


class RowState(msgspec.Struct, frozen=True, array_like=True):
    """Test of one row as plain data. `counts`: index of a transition in the model -> recent count."""

    visits: int
    learned: float
    missing: float
    impossible: int
    counts: dict[int, int]


class RowTests:
    """Tests of the rows of a model, on the transitions of all agents.

    Args:
        odds: the model's odds.
        tested: number of rows that can be rejected.
        impossible: fraction of the steps that may be impossible in a correct model.

    Attributes, for compiled code:
        learner: counts of the rows.
        place_of: of each row, the place of each visited row in `counts` and `stakes`, else -1; None on a larger model.
        counts: two for each place, visits, and those that led to states of probability 0.
        stakes: three for each place, the wealth of `learned` and of `missing`, and what each begins with next.
        calm: what `missing` pays at a possible step. near: sum of both wealths from which on a row may be rejected.

    >>> from monitor.statistics.betting_odds import Odds
    >>> odds = Odds([0, 2, 4], [0, 1, 0, 1], [0.5, 0.5, 0.5, 0.5])  # two rows, two successors
    >>> tests = RowTests(odds, 2, 0.0001)
    >>> for n in range(40):
    ...     tests.step(odds.find(0, n % 2))
    ...     tests.step(odds.find(1, 1))
    >>> [(wrong.row, wrong.successor, wrong.seen, wrong.visits) for wrong in tests.wrong()]
    [(1, 0, 0, 40)]
    """

    def __init__(self, odds: Odds, tested: int, impossible: float) -> None:
        self.tested = tested
        self.learner = odds.learner(MAX_TRANSITIONS, ROW_MEMORY)
        self.calm = (1.0 - MISSING * impossible) / (1.0 - impossible)
        self.near = 2.0 * (1.0 / LEVEL - 1.0)
        self._odds = odds
        self._most = min(MOST_ROWS, len(odds.starts) - 1)
        self._places: dict[int, int] = {}
        self._suspects: set[int] = set()  # no other row can be rejected
        self.place_of = array("q", (-1,)) * (len(odds.starts) - 1) if odds.columns is not None else None
        self.counts = array("q", bytes(16 * self._most))
        self.stakes = array("d", bytes(24 * self._most))

    def step(self, found: Transition) -> None:
        """Bet on a transition, and settle the bet by it."""
        place = self._places.get(found.row)
        if place is None and (place := self.open(found.row)) is None:
            return
        part, at, stakes = self._visit(place), 3 * place, self.stakes
        stakes[at] = learned = (stakes[at] + part) * self.learner.settle(found)
        stakes[at + 1] = missing = (stakes[at + 1] + part) * (self.calm if found.given else 1.0)
        if learned + missing >= self.near:
            self._suspects.add(found.row)
            stakes[at] = min(learned, MOST_WEALTH)

    def contradict(self, row: int) -> None:
        """Settle the bets by a step to which the row gives probability 0."""
        place = self._places.get(row)
        if place is None and (place := self.open(row)) is None:
            return
        part, at, stakes, counts = self._visit(place), 3 * place, self.stakes, self.counts
        stakes[at] += part
        stakes[at + 1] = min((stakes[at + 1] + part) * MISSING, MOST_WEALTH)
        counts[2 * place + 1] += 1
        if counts[2 * place + 1] > ROW_MEMORY:
            counts[2 * place + 1] //= 2
        self._suspects.add(row)

    def open(self, row: int) -> int | None:
        """Return the place of a row that is visited for the first time; None if there are too many."""
        place = len(self._places)
        if place >= self._most:
            return None
        self._places[row] = place
        if self.place_of is not None:
            self.place_of[row] = place
        return place

    def _visit(self, place: int) -> float:
        """Count a visit; return the wealth that each bet begins with."""
        visits = self.counts[2 * place] + 1
        self.counts[2 * place] = visits
        if visits & (visits - 1) == 0:
            self.stakes[3 * place + 2] = part_of(visits)
        return self.stakes[3 * place + 2]

    @property
    def suspected(self) -> bool:
        """Return whether any row might be rejected."""
        return bool(self._suspects)

    def rejected(self) -> list[tuple[int, float]]:
        """Return the rows that e-BH rejects now, each with its e-value, the strongest evidence first."""
        if not self._suspects:
            return []
        suspects = sorted(self._suspects)
        evidence = [self.wealth(row) for row in suspects]
        found = discoveries([each / self.tested for each in evidence])
        self._suspects = {row for row, each in zip(suspects, evidence, strict=True) if each * LEVEL >= 1.0}
        return [(suspects[place], evidence[place]) for place in found]

    def wrong(self, most: int | None = None) -> list[WrongRow]:
        """Return the rows that e-BH rejects now, at most so many, and how far off each is."""
        return [self._described(row, evidence) for row, evidence in self.rejected()[:most]]

    def dump(self) -> dict[int, RowState]:
        """Return the state of each visited row as plain data."""
        counts = self.learner.by_row()
        found = {}
        for row, place in self._places.items():
            visits, impossible = self.counts[2 * place : 2 * place + 2]
            learned, missing = self.stakes[3 * place : 3 * place + 2]
            found[row] = RowState(visits, learned, missing, impossible, counts.get(row, {}))
        return found

    def load(self, states: Mapping[int, RowState]) -> None:
        """Restore the state of tests of the same model with the same settings."""
        self._places.clear()
        self._suspects = set(states)
        for column in (self.counts, self.stakes):  # in place: compiled code knows where they are
            column[:] = array(column.typecode, bytes(8 * len(column)))
        if self.place_of is not None:
            self.place_of[:] = array("q", (-1,)) * len(self.place_of)
        counts: dict[int, int] = {}
        for row, state in states.items():
            if (place := self.open(row)) is None:
                break
            stakes = state.learned, state.missing, part_of(max(state.visits, 1))
            self.counts[2 * place : 2 * place + 2] = array("q", (state.visits, state.impossible))
            self.stakes[3 * place : 3 * place + 3] = array("d", stakes)
            counts |= state.counts
        self.learner.load(counts)

    def wealth(self, row: int) -> float:
        """Return the e-value of a row; 1 if it was not visited."""
        if (place := self._places.get(row)) is None:
            return 1.0
        learned, missing = self.stakes[3 * place : 3 * place + 2]
        return idle_after(self.counts[2 * place]) + (learned + missing) / 2.0

    def _described(self, row: int, evidence: float) -> WrongRow:
        odds, counts = self._odds, self.learner.seen(row)
        impossible = self.counts[2 * self._places[row] + 1]
        visits = sum(counts.values()) + impossible

        def deviation(index: int) -> float:
            return abs(counts.get(index, 0) / max(visits, 1) - odds.probabilities[index])

        index = max(range(odds.starts[row], odds.starts[row + 1]), key=deviation)
        seen, p = counts.get(index, 0), odds.probabilities[index]
        return WrongRow(row, evidence, odds.successors[index], seen, visits, p, impossible)


def joined_rows(states: Sequence[Mapping[int, RowState]]) -> dict[int, RowState]:
    """Return the tests of the agents of several monitors, from those of each.

    The mean of e-values is one, whatever they have in common: parts of one monitor share what it observed before it was
    divided, so their product would count that twice. A row takes the counts of the monitor that has most of it.
    """
    found: dict[int, RowState] = {}
    for row in dict.fromkeys(row for state in states for row in state):
        each = [state[row] for state in states if row in state]
        most = max(each, key=lambda state: sum(state.counts.values()))
        found[row] = RowState(
            visits=max(state.visits for state in each),
            learned=sum(state.learned for state in each) / len(states),
            missing=sum(state.missing for state in each) / len(states),
            impossible=most.impossible,
            counts=most.counts,
        )
    return dict(sorted(found.items(), key=lambda item: -item[1].visits)[:MOST_ROWS])
