"""One test for each row of the model, to locate a contradiction.

The hypothesis about a row is: given everything observed before, the row's transitions (of all agents) have the model's
probabilities, except for a fraction `impossible` of the transitions. In a learned model, they have some probabilities
within the row's bounds. The wealth of a row is the mean of two bets. Each is an e-process that may begin at any visit,
as in `monitor.statistics.model_betting`:

- `learned` uses counts of this row alone, which are halved after `ROW_MEMORY` visits. This memory is longer than the
  memory of the test of the model, because a small deviation takes many visits.
- `missing` bets that steps with probability 0 in the row occur at `MISSING` times the permitted rate. If the row has
  bounds, `learned` covers its unrecorded successors, and the factor of `missing` is 1.

Wealth above `MOST_WEALTH` is discarded, so that a repaired environment is recognised soon. e-BH
(`monitor.statistics.e_bh`) over all rows that have data finds the wrong rows. e-BH is needed because rows depend on
each other: each agent's path visits many rows.

Compiled.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from monitor.statistics.betting_odds import MAX_TRANSITIONS, Odds, TransitionOdds
from monitor.statistics.e_bh import LEVEL, discoveries
from monitor.statistics.late_bets import idle_after, part_of

ROW_MEMORY: Final = 1024
"""Number of visits of a row after which the row's counts are halved."""
MOST_ROWS: Final = 4096
"""Largest number of rows tested, because a snapshot contains all their tests. The rows visited first are tested."""
MISSING: Final = 100.0
"""Rate of impossible steps on which `missing` bets, as a multiple of `impossible`."""
MOST_WEALTH: Final = 1e12


class RejectedRow(msgspec.Struct, frozen=True):
    """A rejected row, with the successor whose observed fraction differs most from the model's probability.

    `evidence`: the e-value of the row. `seen`: number of steps to `successor` among the `visits` newest visits.
    `probability`: the model's probability of `successor`. `impossible`: number of visits whose successor has
    probability 0 in the row.
    """

    row: int
    evidence: float
    successor: int
    seen: int
    visits: int
    probability: float
    impossible: int


class RowState(msgspec.Struct, frozen=True, array_like=True):
    """State of the test of one row as plain data. `counts`: index of a transition in the model -> recent count."""

    visits: int
    learned: float
    missing: float
    impossible: int
    counts: dict[int, int]


class RowTest:
    """Test of one row: number of visits, recent number of visits with a successor of probability 0, and the wealths."""

    def __init__(self) -> None:
        self.visits = self.impossible = 0
        self.learned = self.missing = 0.0
        self._part = 0.0  # initial wealth of each bet that begins at the next visit

    def visit(self) -> float:
        """Count a visit, and return the initial wealth of each bet that begins at this visit."""
        self.visits += 1
        if self.visits & (self.visits - 1) == 0:
            self._part = part_of(self.visits)
        return self._part

    def dump(self, counts: dict[int, int]) -> RowState:
        """Return the state as plain data; `counts`: the counts of the row."""
        return RowState(self.visits, self.learned, self.missing, self.impossible, counts)

    def load(self, state: RowState) -> None:
        """Restore the state."""
        self.visits, self.impossible = state.visits, state.impossible
        self.learned, self.missing = state.learned, state.missing
        self._part = part_of(max(state.visits, 1))


class RowTests:
    """Tests of the rows of a model, on the transitions of all agents.

    Args:
        odds: the model's odds.
        tested: number of rows that can be rejected.
        impossible: fraction of the steps that may be impossible in a correct model.

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
        self._odds = odds
        self._learner = odds.learner(MAX_TRANSITIONS, ROW_MEMORY)
        self._calm = (1.0 - MISSING * impossible) / (1.0 - impossible)  # factor of `missing` at a possible step
        self._near = 2.0 * (1.0 / LEVEL - 1.0)  # smallest sum of both wealths at which a row may be rejected
        self._most = min(MOST_ROWS, len(odds.starts) - 1)
        self._tests: dict[int, RowTest] = {}
        self._suspects: set[int] = set()  # no other row can be rejected

    def step(self, found: TransitionOdds) -> None:
        """Bet on a transition, and settle the bet by this transition."""
        test = self._test(found.row)
        if test is None:
            return
        part = test.visit()
        test.learned = (test.learned + part) * self._learner.settle(found)
        test.missing = (test.missing + part) * (self._calm if found.given else 1.0)
        if test.learned + test.missing >= self._near:
            self._suspects.add(found.row)
            test.learned = min(test.learned, MOST_WEALTH)

    def contradict(self, row: int) -> None:
        """Settle the bets by a step that has probability 0 in the row."""
        test = self._test(row)
        if test is None:
            return
        part = test.visit()
        test.learned += part
        test.missing = min((test.missing + part) * MISSING, MOST_WEALTH)
        test.impossible += 1
        if test.impossible > ROW_MEMORY:
            test.impossible //= 2
        self._suspects.add(row)

    def _test(self, row: int) -> RowTest | None:
        """Return the test of a row, or a new test at its first visit; None if there are already `MOST_ROWS` tests."""
        test = self._tests.get(row)
        if test is None and len(self._tests) < self._most:
            test = self._tests[row] = RowTest()
        return test

    def rejected(self) -> list[tuple[int, float]]:
        """Return (row, e-value) of the rows that e-BH rejects now, strongest evidence first."""
        if not self._suspects:
            return []
        suspects = sorted(self._suspects)
        evidence = [self.wealth(row) for row in suspects]
        found = discoveries([each / self.tested for each in evidence])
        self._suspects = {row for row, each in zip(suspects, evidence, strict=True) if each * LEVEL >= 1.0}
        return [(suspects[place], evidence[place]) for place in found]

    def wrong(self, most: int | None = None) -> list[RejectedRow]:
        """Return the rows that e-BH rejects now, at most `most`, and how each deviates from the model."""
        return [self._described(row, evidence) for row, evidence in self.rejected()[:most]]

    def dump(self) -> dict[int, RowState]:
        """Return the state of each visited row as plain data."""
        counts = self._learner.by_row()
        return {row: test.dump(counts.get(row, {})) for row, test in self._tests.items()}

    def load(self, states: Mapping[int, RowState]) -> None:
        """Restore the state of tests of the same model with the same settings."""
        self._suspects = set(states)
        self._tests = {}
        counts: dict[int, int] = {}
        for row, state in states.items():
            test = self._test(row)
            if test is None:
                break
            test.load(state)
            counts |= state.counts
        self._learner.load(counts)

    def wealth(self, row: int) -> float:
        """Return the e-value of a row; 1 if it was not visited."""
        test = self._tests.get(row)
        return 1.0 if test is None else idle_after(test.visits) + (test.learned + test.missing) / 2.0

    def _described(self, row: int, evidence: float) -> RejectedRow:
        odds, counts = self._odds, self._learner.seen(row)
        impossible = self._tests[row].impossible
        visits = sum(counts.values()) + impossible

        def deviation(index: int) -> float:
            return abs(counts.get(index, 0) / max(visits, 1) - odds.probabilities[index])

        index = max(range(odds.starts[row], odds.starts[row + 1]), key=deviation)
        seen, p = counts.get(index, 0), odds.probabilities[index]
        return RejectedRow(row, evidence, odds.successors[index], seen, visits, p, impossible)


def joined_rows(states: Sequence[Mapping[int, RowState]]) -> dict[int, RowState]:
    """Join the row tests of several monitors to tests over the agents of all these monitors.

    The e-values of a row are averaged, because a mean of e-values is an e-value even if they are dependent. The
    e-values may be dependent: if one monitor was divided into several, all parts include the observations before the
    division. So the product of the e-values might not be an e-value. The counts of a row are those of the monitor with
    the most visits of the row.
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
