"""State that the tests of several agents share. Compiled."""

from __future__ import annotations

from monitor.statistics.betting_odds import MAX_TRANSITIONS, Odds
from monitor.statistics.row_tests import RowTests


class SharedTests:
    """The model's odds, the counts of all agents, and the test of each row.

    Args:
        odds: the model's odds.
        most: transitions counted.
        rows: None: single rows are not tested.

    Attributes:
        entered: agents that have made a transition, forgotten ones included.
        transitions: tested in all, impossible ones included.
        observed: the same with those of rejected agents.
    """

    def __init__(self, odds: Odds, most: int = MAX_TRANSITIONS, rows: RowTests | None = None) -> None:
        self.odds = odds
        self.learner = odds.learner(most)
        self.rows = rows
        self.entered = self.transitions = self.observed = 0

    def enter(self) -> int:
        """Return the number of a new agent, from 1."""
        self.entered += 1
        return self.entered
