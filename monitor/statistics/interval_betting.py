"""Test of a model if only bounds of its rows are known, for example because it was learned from data.

The hypothesis is that each row is some distribution within its bounds, and is the same at every step. The bets are
those of `monitor.statistics.model_betting`, at the odds of `monitor.statistics.interval_odds`. At these odds, no row
within the bounds makes a bet profitable on average. So if the bounds are correct, the wealth is a nonnegative
supermartingale. Let the bounds be correct with probability 1 - delta, and let the level be alpha. If the data are from
the environment of the agent, the probability that the model is ever rejected is at most alpha + delta, for any policy.

These rules apply to a row with bounds:

- A step to a successor that was never recorded is not impossible. One entry of the row stands for all successors that
  were never recorded, and every bet covers this entry. A wrong sensor reading may look like an unrecorded successor. So
  the upper bound of the entry is raised by `impossible`, and the lower bounds of the other entries are lowered to
  match.
- `learned` begins with the probabilities that the data predict instead of the model's probabilities. `flatter` and
  `sharper` are powers of the probabilities that the data predict.
- No step is impossible, so the two bets on glitches bet on unrecorded successors instead. They bet that such successors
  occur at the rate (c p + m) / (c + n). Here m is the number of unrecorded successors among the n recent steps in all
  rows with bounds, and p is the entry's predicted probability. If this rate is within the upper bound, the factor of
  these bets is 1.

A row without data has no bounds, so its steps are not tested. Compiled.
"""

from __future__ import annotations

import math

import msgspec

from monitor.statistics.betting_odds import TransitionOdds
from monitor.statistics.interval_odds import NO_DATA, IntervalOdds
from monitor.statistics.model_betting import ModelTest, ModelTestState
from monitor.statistics.shared_tests import SharedTests


class IntervalModelTest(ModelTest):
    """Test of a model on the transitions of one of several agents. For some rows, only bounds may be known.

    Args:
        odds: the model's odds, the same object as in `shared`.
        shared, alpha, impossible, cap: as for `ModelTest`.
    """

    def __init__(
        self,
        odds: IntervalOdds,
        shared: SharedTests,
        *,
        alpha: float = 0.001,
        impossible: float = 0.0001,
        cap: float = math.inf,
    ) -> None:
        rows = odds.starts, odds.successors, odds.probabilities
        super().__init__(*rows, alpha=alpha, impossible=impossible, shared=shared, cap=cap)
        self._intervals = odds
        self._given_rare_factor, self._given_often_factor = self._rare_factor, self._often_factor
        self._steps = self._unrecorded = 0

    def covers(self, row: int) -> bool:
        """Return whether steps from the row are tested: the row has data or is known exactly."""
        return self._intervals.unrecorded[row] != NO_DATA

    def step(self, row: int, successor: int) -> None:
        """Bet on a transition from the row, and settle the bet by its successor.

        `successor`: `UNRECORDED_CELL` for a state that the model does not have.
        """
        if self.covers(row):
            ModelTest.step(self, row, successor)

    def dump(self) -> ModelTestState:
        """Return the state as plain data."""
        return msgspec.structs.replace(super().dump(), unrecorded=(self._steps, self._unrecorded))

    def load(self, state: ModelTestState) -> None:
        """Restore the state of a test of the same model with the same settings."""
        super().load(state)
        self._steps, self._unrecorded = state.unrecorded

    def settle(self, found: TransitionOdds) -> None:
        """Settle the bets by a transition."""
        if found.given:
            self._rare_factor, self._often_factor = self._given_rare_factor, self._given_often_factor
        elif not self._ended:
            self._rare_factor = self._often_factor = self._bet_on_unrecorded(found)
        ModelTest.settle(self, found)

    def _bet_on_unrecorded(self, found: TransitionOdds) -> float:
        """Return the factor of both bets on unrecorded successors, and count the step."""
        entry, most, prior = self._intervals.unrecorded[found.row], self._intervals.most(found.row), self.own.prior
        rate = (prior * self._odds.probabilities[entry] + self._unrecorded) / (prior + self._steps)
        self._unrecorded += found.index == entry
        self._steps += 1
        if self._steps > self.own.memory:
            self._steps //= 2
            self._unrecorded //= 2
        if rate <= most:
            return 1.0  # no bet
        return rate / most if found.index == entry else (1.0 - rate) / (1.0 - most)
