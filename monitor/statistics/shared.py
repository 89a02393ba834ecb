"""State that the tests of several agents share."""

from __future__ import annotations

from array import array

from monitor.statistics.betting_odds import MAX_TRANSITIONS, Odds
from monitor.statistics.row_tests import RowTests

__all__ = ["Shared"]


class Shared:
    """The model's odds, the counts of all agents, and the test of each row.

    `most`: transitions counted. `rows`: None: single rows are not tested. `entered`: agents that have made a
    transition, forgotten ones included. `totals`: [2], `transitions` and `observed`, which compiled code counts too.
    """

    def __init__(self, odds: Odds, most: int = MAX_TRANSITIONS, rows: RowTests | None = None) -> None:
        self.odds = odds
        self.learner = odds.learner(most)
        self.rows = rows
        self.entered = 0
        self.totals = array("q", (0, 0))

    @property
    def transitions(self) -> int:
        """Number of transitions tested in all, impossible ones included."""
        return self.totals[0]

    @transitions.setter
    def transitions(self, number: int) -> None:
        self.totals[0] = number

    @property
    def observed(self) -> int:
        """The same with those of rejected agents."""
        return self.totals[1]

    @observed.setter
    def observed(self, number: int) -> None:
        self.totals[1] = number

    def enter(self) -> int:
        """Return the number of a new agent, from 1."""
        self.entered += 1
        return self.entered
