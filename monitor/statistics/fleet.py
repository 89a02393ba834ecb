"""Whether the model itself is wrong: what the tests of several agents come to together.

Each agent has a test of its own, so that one that lives in another world says nothing of the others. Of the model
itself the tests of all agents say, together: with S_i the wealth of agent i, stopped where it reaches
`cap` = alpha^-2/3 and cut off there, every product over the agents of 1 - f + f S_i, 0 <= f <= 1, is a nonnegative
supermartingale that begins with 1, for each step changes one factor only; so is their mean over some `FRACTIONS` f.
When it reaches 1/alpha, the model is doubted. One agent multiplies it by `cap` at most, whatever it says: alone it
comes to about a quarter of that, and it takes two.
A large f adds up what all agents show a little of, a small one lets the others forgive what some have lost. Of an agent
that is forgotten only what it lost remains: a name that comes again must not count again.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from monitor.statistics.betting_odds import Departure, Odds, Shared
from monitor.statistics.model_test import ModelTest, check_levels

__all__ = ["FRACTIONS", "Fleet", "FleetState"]

FRACTIONS: Final = (1.0, 0.1, 0.01, 0.001)
"""f: how much of the wealth is at stake on each agent."""


class FleetState(msgspec.Struct, frozen=True, array_like=True):
    """A `Fleet` as plain data. `lost`: log of what forgotten agents lost, for each fraction."""

    counts: dict[int, int]
    lost: list[float]
    transitions: int
    doubted: bool
    log10_e: float


class Fleet:
    """What the tests of several agents come to together: whether the model itself is wrong.

    Args, Raises: as for `ModelTest`.

    Attributes:
        doubted: their wealth has reached 1/alpha. For good.
        log10_e: of their wealth when it was last looked at.

    >>> coin = Fleet([0, 2], [0, 1], [0.5, 0.5])
    >>> liar, other = coin.join(), coin.join()
    >>> for _ in range(100):
    ...     liar.step(0, 1)
    >>> coin.combine([liar, other])
    >>> liar.doubted, coin.doubted
    (True, False)
    """

    def __init__(
        self,
        starts: Sequence[int],
        successors: Sequence[int],
        probabilities: Sequence[float],
        *,
        alpha: float = 0.001,
        impossible: float = 0.0001,
    ) -> None:
        check_levels(alpha, impossible)
        self._shared = Shared(Odds(starts, successors, probabilities))
        self.cap = alpha ** (-2.0 / 3.0)
        self.doubted = False
        self.log10_e = 0.0
        self._rows = starts, successors, probabilities
        self._alpha, self._impossible = alpha, impossible
        self._lost = [0.0] * len(FRACTIONS)

    def join(self) -> ModelTest:
        """The test of an agent that is new."""
        return ModelTest(*self._rows, alpha=self._alpha, impossible=self._impossible, shared=self._shared, cap=self.cap)

    @property
    def transitions(self) -> int:
        """How many were tested in all."""
        return self._shared.transitions

    def departures(self, most: int = 3) -> list[Departure]:
        """The same as for one agent, in the steps of all."""
        return self._shared.learner.departures(most)

    def combine(self, tests: Iterable[ModelTest]) -> None:
        """Combine the tests of all known agents."""
        if self.doubted:
            return
        gains = [test.share - 1.0 for test in tests]
        logs = [
            lost + sum(math.log1p(fraction * gain) for gain in gains)
            for fraction, lost in zip(FRACTIONS, self._lost, strict=True)
        ]
        most = max(logs)
        log_e = most + math.log(sum(math.exp(each - most) for each in logs) / len(logs))
        self.log10_e = log_e / math.log(10.0)
        self.doubted = log_e >= -math.log(self._alpha)

    def forget(self, test: ModelTest) -> None:
        """Leave an agent out from now on, but not what it lost."""
        gain = test.share - 1.0
        self._lost = [lost + min(0.0, math.log1p(f * gain)) for f, lost in zip(FRACTIONS, self._lost, strict=True)]

    def dump(self) -> FleetState:
        """Plain data, and its own."""
        counts = dict(self._shared.learner.counts)
        return FleetState(counts, list(self._lost), self.transitions, self.doubted, self.log10_e)

    def load(self, state: FleetState) -> None:
        """Go on where a fleet in the same model, with the same settings, stood."""
        self._shared.learner.load(state.counts)
        self._shared.transitions = state.transitions
        self._lost = list(state.lost)
        self.doubted, self.log10_e = state.doubted, state.log10_e
