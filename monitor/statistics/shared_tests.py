"""State that the tests of several agents share. Compiled."""

from __future__ import annotations

from monitor.statistics.betting_odds import MAX_TRANSITIONS, Odds
from monitor.statistics.row_tests import RowTests


class SharedTests:
    """State that the tests of several agents share: the model's odds, the counts of all agents, and the row tests.

    Args:
        odds: the model's odds.
        most: largest number of transitions that are counted.
        rows: the test of each row; None if single rows are not tested.

    Attributes:
        entered: number of agents that have made a transition, including forgotten agents.
        transitions: number of transitions tested, for all agents, including impossible transitions.
        observed: `transitions` plus the number of transitions of rejected agents.
    """

    def __init__(self, odds: Odds, most: int = MAX_TRANSITIONS, rows: RowTests | None = None) -> None:
        self.odds = odds
        self.learner = odds.learner(most)
        self.rows = rows
        self.entered = self.transitions = self.observed = 0

    def enter(self) -> int:
        """Return the number of a new agent; numbers begin at 1."""
        self.entered += 1
        return self.entered
