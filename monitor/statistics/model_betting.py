"""Test of the model on the observed transitions. It is an e-process, so it is valid at every step of an endless stream.

At every transition the test bets against the model, at the model's own odds. From (s, a) the model predicts p. A bet is
a distribution q over the same successors. The observed s' multiplies the wealth of the bet by q(s') / p(s'). If the
model is correct, this factor is 1 on average for every q, so the wealth is a nonnegative martingale. By Ville's
inequality, P(the wealth reaches 1/alpha at any time) <= alpha. When the wealth reaches 1/alpha, the model is rejected.
The wealth is an e-value.

There are several bets, each with an equal part of the wealth. This is valid because a mean of martingales is a
martingale.

- `learned`: q(s') = (c p(s') + n(s, a, s')) / (c + n(s, a)), with n counted before the step. This bet learns any
  deviation, but in each row separately. The counts of a row are halved after more than `MEMORY` steps, to follow
  changes. `together`: the same bet with the counts of all agents, if there are several agents.
- `flatter`: q ~ p^1/2, which bets that unlikely successors are more frequent than predicted, in all rows. This bet
  needs no counts. `sharper`: q ~ p^2, which bets that unlikely successors are less frequent than predicted.
- `glitches`, two bets. An impossible step would multiply any wealth by infinity, but one wrong reading of a sensor is
  no proof. So these bets test the hypothesis "at most a fraction `impossible` of the steps is impossible". They bet
  that the rate r of impossible steps is 10 times, or 100 times, this fraction. The factor is r / impossible for an
  impossible step, else (1 - r) / (1 - impossible). The wealth is a martingale if the true rate is `impossible`, and a
  supermartingale if the true rate is lower. The other bets skip an impossible step (factor 1). One wrong reading causes
  two impossible steps, into the wrong state and back. At the start of a stream, two factors of 100 would be enough for
  a rejection. So the caller skips the step after an impossible step, whatever its successor is
  (`monitor.runtime.agent_monitor`).

A bet may begin at any step. Each bet gets a fraction of the initial wealth (`monitor.statistics.late_bets`). So if the
environment changes at step t, the bet that begins at step t has none of the earlier losses. The cost is
log(1/fraction): 0.7 nats at the first step, 19 nats at the millionth.

Assumptions. The proof considers one step, given everything observed before. So the policy is arbitrary, may change and
may react to alarms. Agents may share counts and take turns. q may depend on the whole past, so counts may be dropped at
any time. The test may be read or stopped at any time. The proof requires two conditions, given everything observed
before:

- Whether and when a transition is observed does not depend on its successor. Otherwise the observed transitions do not
  follow the model, for example if only bad outcomes are lost on the way, and the rejection is justified.
- The randomness of agents is independent. If two simulations have the same seed, the second repeats the first, so even
  a correct model is rejected.

Several agents: `monitor.statistics.fleet`. Rows estimated from data: `monitor.statistics.interval_betting`.

Source: Ville 1939; G. Shafer, *Testing by betting* (JRSS A 2021); A. Ramdas et al., *Game-theoretic statistics and safe
anytime-valid inference* (Statistical Science 2023). `learned` is the predictive distribution of a Dirichlet prior that
is centred on the model.

Compiled.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import msgspec

from monitor.errors import ConfigError
from monitor.statistics import betting_odds
from monitor.statistics.betting_odds import Departure, Odds, TransitionOdds
from monitor.statistics.late_bets import idle_after, part_of
from monitor.statistics.shared_tests import SharedTests

OWN_TRANSITIONS: Final = 512
"""Largest number of transitions counted for one agent of several."""
RARE: Final = 10.0
"""Rate of impossible steps on which the first bet on glitches bets, as a multiple of `impossible`."""
OFTEN: Final = 100.0
"""The rate of the second bet on glitches, as a multiple of `impossible`."""
OWN_BETS: Final = 5
"""Number of bets that use no data of other agents. With several agents there is one more bet, `together`."""
MOST_HIGHEST: Final = 1e12
"""With several agents, a rejected test ends when the highest wealth of the agent's own bets reaches this value."""


class ModelTestState(msgspec.Struct, frozen=True, array_like=True):
    """State of a test as plain data.

    `wealths`: wealth of each kind of bet. `counts`: index of a transition in the model -> recent count. `capped`: True
    after the wealth has reached the fleet's cap. `unrecorded`: number of recent steps from learned rows, and how many
    of these steps had a successor that was never recorded. `number`, `highest`: as in `ModelTest`. `rejected_at`: the
    wealth at the rejection, 0 before a rejection.
    """

    transitions: int
    wealths: list[float]
    counts: dict[int, int]
    capped: bool = False
    unrecorded: tuple[int, int] = (0, 0)
    number: int = 0
    highest: float = 0.0
    rejected_at: float = 0.0


class ModelTest:
    """Test of a model, on all transitions or on the transitions of one of several agents.

    Args:
        starts, successors, probabilities: the model's rows; row r occupies `starts[r]:starts[r+1]`, successors
            ascending. A memory view is ten times as fast as an array, because single entries are read at each step.
        alpha: the probability that a correct model is rejected at any time.
        impossible: fraction of the steps that may be impossible in a correct model.
        shared: state shared with the tests of other agents; the bet `together` uses its counts.
        cap: the wealth at which `capped_wealth` stops.

    Attributes:
        rejected: True after the wealth has reached 1/alpha, so that the model is rejected. Further steps change
            nothing, except `highest` if there are several agents.
        transitions: number of transitions tested, including impossible ones.
        number: number of this agent among the agents with the same `shared`, in the order of their first transitions; 0
            before its first transition.
        own: counts of this agent.

    Raises:
        ConfigError: alpha outside (0, 1), or impossible outside (0, 0.005].

    >>> coin = ModelTest([0, 2], [0, 1], [0.5, 0.5])  # one row, two successors
    >>> for _ in range(40):
    ...     coin.step(0, 1)
    >>> coin.rejected, coin.transitions, round(coin.log10_e, 1)
    (True, 34, 3.1)
    """

    def __init__(
        self,
        starts: Sequence[int],
        successors: Sequence[int],
        probabilities: Sequence[float],
        *,
        alpha: float = 0.001,
        impossible: float = 0.0001,
        shared: SharedTests | None = None,
        cap: float = math.inf,
    ) -> None:
        check_levels(alpha, impossible)
        self.rejected = False
        self.transitions = self.number = 0
        self._shared = shared
        self._odds = Odds(starts, successors, probabilities) if shared is None else shared.odds
        self.own = self._odds.learner(betting_odds.MAX_TRANSITIONS if shared is None else OWN_TRANSITIONS)
        self._bets = OWN_BETS if shared is None else OWN_BETS + 1
        self._enough = 1.0 / alpha
        self._cap = cap
        self._learned = self._together = self._flatter = self._sharper = self._rare = self._often = 0.0  # wealths
        self._part = 0.0  # initial wealth of each bet that begins at the next step
        self._highest = 0.0  # highest sum so far of the wealths of the agent's own bets
        self._near = self._bets * (min(self._enough, self._cap) - 1.0)  # least sum that can decide
        self._rare_factor = (1.0 - RARE * impossible) / (1.0 - impossible)  # at a possible step
        self._often_factor = (1.0 - OFTEN * impossible) / (1.0 - impossible)
        self._rejected_at = 0.0
        self._capped = self._ended = False

    @property
    def wealth(self) -> float:
        """Evidence against the model, as an e-value: 1 is no evidence, 1000 is a thousand to one."""
        return self._wealth()

    @property
    def highest(self) -> float:
        """The highest wealth so far of the bets that do not use data of other agents.

        This wealth never exceeds an e-process of this agent's own transitions, even if other agents depend on these
        transitions. Other agents only influence when the model is rejected; after a rejection no new bets begin.
        """
        return self._highest / OWN_BETS

    @property
    def log10_e(self) -> float:
        """Log10 of the wealth: 0 is no evidence, 3 is a thousand to one."""
        return math.log10(self._wealth())

    @property
    def capped_wealth(self) -> float:
        """The wealth, stopped at the cap."""
        return self._cap if self._capped else self._wealth()

    def departures(self, most: int = 3) -> list[Departure]:
        """Return the transitions with the most evidence against the model, excluding impossible transitions."""
        return self.own.departures(most)

    def covers(self, row: int) -> bool:  # noqa: ARG002 - used by the subclass, which does not cover each row
        """Return whether steps from the row are tested."""
        return True

    def step(self, row: int, successor: int) -> None:
        """Bet on a transition from the row, and settle the bet by its successor."""
        index = self._odds.index_of(row, successor)
        if index < 0:
            self.contradict(row)
        else:
            self.settle(self._odds.at(row, index))

    def contradict(self, row: int | None = None) -> None:
        """Settle the bets by an impossible step from `row` (None if unknown)."""
        shared = self._shared
        if shared is not None:
            shared.observed += 1
            if shared.rows is not None and row is not None:
                shared.rows.contradict(row)
        if self._ended:
            return
        part = self._begin()
        self._learned += part
        if shared is not None and not self.rejected:
            self._together += part
            shared.transitions += 1
        self._flatter += part
        self._sharper += part
        self._rare = (self._rare + part) * RARE
        self._often = (self._often + part) * OFTEN
        self._highest = max(self._highest, self._wealth_of_bets() - self._together)
        self._look()

    def dump(self) -> ModelTestState:
        """Return the state as plain data."""
        return ModelTestState(
            transitions=self.transitions,
            wealths=[self._learned, self._together, self._flatter, self._sharper, self._rare, self._often],
            counts=self.own.counts,
            capped=self._capped,
            number=self.number,
            highest=self.highest,
            rejected_at=self._rejected_at,
        )

    def load(self, state: ModelTestState) -> None:
        """Restore the state of a test of the same model with the same settings."""
        self._learned, self._together, self._flatter, self._sharper, self._rare, self._often = state.wealths
        self.transitions, self._part = state.transitions, part_of(max(state.transitions, 1))
        self.own.load(state.counts)
        self._capped, self._rejected_at, self.rejected = state.capped, state.rejected_at, state.rejected_at > 0.0
        self._highest, self.number = state.highest * OWN_BETS, state.number
        if self._shared is not None and state.transitions > 0 == state.number:
            self.number = self._shared.enter()  # the state is from a version without numbers of agents
        self._look()

    def settle(self, found: TransitionOdds) -> None:
        """Settle the bets by a transition."""
        shared = self._shared
        if shared is not None:
            shared.observed += 1
            if shared.rows is not None:
                shared.rows.step(found)
        if self._ended:
            return
        part = self._begin()
        self._learned = (self._learned + part) * self.own.settle(found)
        if shared is not None and not self.rejected:
            shared.transitions += 1
            self._together = (self._together + part) * shared.learner.settle(found)
        self._flatter = (self._flatter + part) * found.flatter
        self._sharper = (self._sharper + part) * found.sharper
        self._rare = (self._rare + part) * self._rare_factor
        self._often = (self._often + part) * self._often_factor
        alone = self._learned + self._flatter + self._sharper + self._rare + self._often
        self._highest = max(self._highest, alone)
        if alone + self._together >= self._near:
            self._look()

    def _begin(self) -> float:
        """Count a transition, and return the initial wealth of each new bet, which changes at step 1, 2, 4, 8, ..."""
        if self.rejected:
            return 0.0
        self.transitions += 1
        if self.transitions & (self.transitions - 1) == 0:
            self._part = part_of(self.transitions)
            if self.transitions == 1 and self._shared is not None:
                self.number = self._shared.enter()
        return self._part

    def _wealth_of_bets(self) -> float:
        return self._learned + self._together + self._flatter + self._sharper + self._rare + self._often

    def _wealth(self) -> float:
        return self._rejected_at or idle_after(self.transitions) + self._wealth_of_bets() / self._bets

    def _look(self) -> None:
        """Test the wealth against the thresholds."""
        wealth = self._wealth()
        if wealth >= self._enough:
            self.rejected, self._rejected_at = True, wealth
        if wealth >= self._cap:
            self._capped = True
        if self.rejected:
            self._ended = self._shared is None or self.highest >= MOST_HIGHEST
            self._near = OWN_BETS * MOST_HIGHEST
        elif self._capped:
            self._near = self._bets * (self._enough - 1.0)


def check_levels(alpha: float, impossible: float) -> None:
    """Raise ConfigError if the level of a test or the fraction of impossible steps is out of range."""
    if not 0.0 < alpha < 1.0:
        raise ConfigError(f"trust.alpha is {alpha}; it must be a probability above 0 and below 1")
    if not 0.0 < impossible <= 0.005:
        raise ConfigError(f"trust.impossible is {impossible}; it must be above 0, and at most 0.005")
