"""Whether the transitions that happen still follow the model: a test that never ends and may be looked at always.

Against the model money is bet at every transition, at the model's own odds. From (s, a) it says p; a bet says q, a
distribution over the same successors; after s' the stake is multiplied by q(s') / p(s'). If the model is true, that is
1 on average whatever q is, so what a player owns is a nonnegative martingale: nobody gets rich against a true model.
By Ville's inequality P(the wealth ever reaches 1/alpha) <= alpha. So the model is doubted when it does, and alpha is
the probability that this ever happens to a true model, in a stream without end. The wealth is called an e-value.

Bets, each with an equal part of the wealth, since the mean of martingales is one:

- `learned` says q(s') = (c p(s') + n(s, a, s')) / (c + n(s, a)), n counted before the step. It learns any deviation,
  but in each row for itself. Counts of a row are halved when they sum to `MEMORY`, so that it can learn anew.
- `flatter` says q ~ p^1/2: unlikely successors are likelier than the model says, in all rows alike; it needs to learn
  nothing. `sharper` says q ~ p^2: they are rarer.
- `glitches`, twice: a step that the model calls impossible would end every game at once, and a sensor's one wrong
  reading is no proof. So these two bet against "at most a part `impossible` of the steps is impossible", on 10 and on
  100 times that part (r): times r / impossible if it is, else times (1 - r) / (1 - impossible). That is a martingale
  at the rate `impossible` and falls below it. To the other bets such a step is no game: times 1. One wrong reading
  makes two such steps, there and back, and 100 times 100 is proof enough at the start of a stream: who hands the steps
  in passes over the one after an impossible one, wherever it leads (`monitor.runtime.agent`).

A bet may begin at any step: that of step t, 2^k <= t < 2^(k+1), gets the part `1 / (2^k (k+1) (k+2))` of the wealth,
which lies idle until then; all parts sum to 1. So what was lost while the model was true does not count when the world
changes at step t; what it takes to win is more by log(1/part) at worst: .7 nats at the first step, 19 at the millionth.

What is asked, and what is not. The proof looks at one step, given all that was seen before. So the policy may be
anything, may change and may follow our own alarms; agents share counts and may take turns; q may depend on all the
past, so counts may be forgotten at will; and one may stop, or look, at any time. Asked is, given what was seen before:

- Neither whether a transition is seen nor when depends on where it led. If just the bad outcomes are lost on the way,
  the transitions seen do not follow the model, and that is doubted rightly.
- Agents have chance of their own. Of two simulations with one seed the second only repeats the first, which no bet at
  the model's odds forgives: they are doubted, in a true model too.

Several agents: `monitor.statistics.fleet`.

Source: Ville 1939; G. Shafer, *Testing by betting* (JRSS A 2021); A. Ramdas et al., *Game-theoretic statistics and safe
anytime-valid inference* (Statistical Science 2023). The predictive of `learned` is Dirichlet's, centred on the model.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import msgspec

from monitor.errors import ConfigError
from monitor.statistics import betting_odds
from monitor.statistics.betting_odds import (
    Departure,
    Learner,
    Odds,
    Shared,
)

__all__ = ["ModelTest", "ModelTestState", "check_levels"]

OWN_PLACES: Final = 512
"""The same for the counts of one agent of several."""
GLITCHES: Final = (10.0, 100.0)
"""How many times as many impossible steps as allowed are bet on."""


class ModelTestState(msgspec.Struct, frozen=True, array_like=True):
    """All that a test has come to, as plain data.

    `stakes`: what each bet owns of what has begun. `counts`: place of a transition in the model -> how often it was
    seen lately. `capped`: its wealth has once reached the fleet's cap.
    """

    transitions: int
    stakes: list[float]
    counts: dict[int, int]
    capped: bool = False


class ModelTest:
    """The test of one model, for all that happens in it, or for one of several agents.

    Args:
        starts, successors, probabilities: the model's rows; row r occupies `starts[r]:starts[r+1]`, successors
            ascending. Read one by one at each step: a memory view gives them ten times as fast as an array.
        alpha: the probability that a true model is ever doubted.
        impossible: which part of the steps may contradict the model without its being wrong.
        shared: what the tests of other agents have in common with this one, which learns from their counts too.
        cap: the wealth at which `share` stops.

    Attributes:
        doubted: the wealth has reached 1/alpha. For good: the test has ended, and further steps change nothing.
        transitions: how many were tested, impossible ones included.

    Raises:
        ConfigError: alpha outside (0, 1), or impossible outside (0, 0.005].

    >>> coin = ModelTest([0, 2], [0, 1], [0.5, 0.5])  # one row, two successors
    >>> for _ in range(40):
    ...     coin.step(0, 1)
    >>> coin.doubted, coin.transitions, round(coin.log10_e, 1)
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
        shared: Shared | None = None,
        cap: float = math.inf,
    ) -> None:
        check_levels(alpha, impossible)
        self.doubted = False
        self.transitions = 0
        self._shared = shared
        self._odds = Odds(starts, successors, probabilities) if shared is None else shared.odds
        self._own = Learner(self._odds, betting_odds.PLACES if shared is None else OWN_PLACES)
        self._bets = 5 if shared is None else 6
        self._enough = 1.0 / alpha
        self._cap = cap
        self._near = self._bets * (min(self._enough, self._cap) - 1.0)
        self._losses = tuple((1.0 - times * impossible) / (1.0 - impossible) for times in GLITCHES)
        self._learned = self._together = self._flatter = self._sharper = self._rare = self._often = 0.0
        self._part = 0.0
        self._capped = False

    @property
    def wealth(self) -> float:
        """Evidence against the model, as an e-value: 1 is none, 1000 a thousand to one."""
        return _idle(self.transitions) + self._staked() / self._bets

    @property
    def log10_e(self) -> float:
        """The same as log10: 0 is none, 3 a thousand to one."""
        return math.log10(self.wealth)

    @property
    def share(self) -> float:
        """The wealth stopped where it reached the cap, and no more than that."""
        return self._cap if self._capped else self.wealth

    def departures(self, most: int = 3) -> list[Departure]:
        """What speaks loudest against the model, beside impossible steps: those are no transitions of it."""
        return self._own.departures(most)

    def step(self, row: int, successor: int) -> None:
        """Bet on one transition from the row, and see where it led."""
        if self.doubted:
            return
        place = self._odds.place(row, successor)
        if place is None:
            self.contradict()
            return
        part = self._begin()
        own, shared = self._own, self._shared
        self._learned = learned = (self._learned + part) * own.ratio(place)
        own.see(place)
        if shared is not None:
            self._together = (self._together + part) * shared.learner.ratio(place)
            shared.see(place)
        self._flatter = flatter = (self._flatter + part) * place.flatter
        self._sharper = sharper = (self._sharper + part) * place.sharper
        self._rare = rare = (self._rare + part) * self._losses[0]
        self._often = often = (self._often + part) * self._losses[1]
        if learned + self._together + flatter + sharper + rare + often >= self._near:
            self._look()

    def contradict(self) -> None:
        """Take a step that the model calls impossible."""
        if self.doubted:
            return
        part = self._begin()
        self._learned += part
        if self._shared is not None:
            self._together += part
            self._shared.transitions += 1
        self._flatter += part
        self._sharper += part
        self._rare = (self._rare + part) * GLITCHES[0]
        self._often = (self._often + part) * GLITCHES[1]
        self._look()

    def dump(self) -> ModelTestState:
        """Plain data, and its own."""
        stakes = [self._learned, self._together, self._flatter, self._sharper, self._rare, self._often]
        return ModelTestState(self.transitions, stakes, dict(self._own.counts), self._capped)

    def load(self, state: ModelTestState) -> None:
        """Go on where a test of the same model, with the same settings, stood."""
        self.transitions = state.transitions
        self._part = _part(max(state.transitions, 1))
        self._learned, self._together, self._flatter, self._sharper, self._rare, self._often = state.stakes
        self._own.load(state.counts)
        self._capped = state.capped
        self._look()

    def _begin(self) -> float:
        """What each bet gets to begin with at the next step."""
        self.transitions += 1
        if self.transitions & (self.transitions - 1) == 0:
            self._part = _part(self.transitions)
        return self._part

    def _staked(self) -> float:
        return self._learned + self._together + self._flatter + self._sharper + self._rare + self._often

    def _look(self) -> None:
        wealth = self.wealth
        self.doubted = wealth >= self._enough
        if wealth >= self._cap:
            self._capped = True
        if self._capped:
            self._near = self._bets * (self._enough - 1.0)


def check_levels(alpha: float, impossible: float) -> None:
    """Raise ConfigError if the level of a test, or the part that may be impossible, makes no sense."""
    if not 0.0 < alpha < 1.0:
        raise ConfigError(f"trust.alpha is {alpha}; it must be a probability above 0 and below 1")
    if not 0.0 < impossible <= 0.005:
        raise ConfigError(f"trust.impossible is {impossible}; it must be above 0, and at most 0.005")


def _part(step: int) -> float:
    """What the bet of this step (>= 1) begins with: those of the k-th doubling sum to 1 / ((k + 1)(k + 2))."""
    k = step.bit_length() - 1
    return 1.0 / ((k + 1) * (k + 2) << k)


def _idle(steps: int) -> float:
    """What has not begun after so many steps: 1 less their parts.

    >>> math.isclose(_idle(1000), 1.0 - sum(map(_part, range(1, 1001))))
    True
    """
    if steps == 0:
        return 1.0
    k = steps.bit_length() - 1
    return 1.0 / (k + 1) - (steps - (1 << k) + 1) * _part(steps)
