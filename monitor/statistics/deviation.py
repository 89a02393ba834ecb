"""How far an agent's actions depart from a policy: over its last steps, and beyond what the policy leaves to chance.

At a step in state s the agent took action a; a draw of the policy pi would have been another one with probability
1 - pi(a|s), and two draws of the policy differ with probability 1 - sum_b pi(b|s)^2. The difference,

    x = sum_b pi(b|s)^2 - pi(a|s),

is 0 on average if the agent draws from pi, whatever led to s, and its variance is then sum_b pi(b|s)^3 -
(sum_b pi(b|s)^2)^2. Of a deterministic policy x is 1 where the agent acted otherwise, 0 elsewhere, and the variance 0.
So the mean of x over the last steps is the share of them on which pi would have acted otherwise, beyond what it allows;
what chance alone may add, `CHANCE` standard deviations, is taken off first (docs/semantics.md, section 11.3).

It sees actions that the policy takes seldom or never. An agent that always takes one of several equally likely actions
takes none of those, and is not seen.
"""

from __future__ import annotations

import math
from collections import deque
from typing import Final

import msgspec

__all__ = ["CHANCE", "LEAST", "NOTABLE", "WINDOW", "Deviation", "DeviationState"]

WINDOW: Final = 100
"""Steps of which the share is told."""
LEAST: Final = 20
"""Where there are fewer steps, nothing is said of them: one step of two is no half."""
CHANCE: Final = 4.0
"""Standard deviations that are put down to chance: one window in 30,000 of a faithful agent has more."""
NOTABLE: Final = 0.1
"""The share from which on a person is told: on the page, in the log, and by the alert CfmonAgentDeviates."""


class DeviationState(msgspec.Struct, frozen=True, array_like=True):
    """A `Deviation` as plain data, oldest first; `variances` is empty where all are 0."""

    excesses: list[int | float] = []
    variances: list[float] = []


class Deviation:
    """The last steps of one agent.

    >>> agent = Deviation()
    >>> for other in (0, 1) * 20:
    ...     agent.push(other, 0.0)
    >>> agent.share, agent.steps
    (0.5, 40)
    """

    def __init__(self) -> None:
        self._excesses: deque[int | float] = deque()
        self._variances: deque[float] = deque()
        self._excess: float = 0.0
        self._variance = 0.0
        self._pushed = 0

    @property
    def steps(self) -> int:
        """How many the share is of, up to `WINDOW`."""
        return len(self._excesses)

    @property
    def share(self) -> float:
        """The share of the last steps on which the policy would have acted otherwise, beyond what it allows.

        0 before `LEAST` steps.
        """
        if self._excess <= 0.0 or len(self._excesses) < LEAST:
            return 0.0
        beyond = self._excess - CHANCE * math.sqrt(max(self._variance, 0.0))
        return min(max(beyond, 0.0) / len(self._excesses), 1.0)

    def push(self, excess: float, variance: float) -> None:
        """Take one step over: x, and its variance if the agent followed the policy."""
        if len(self._excesses) == WINDOW:
            self._excess -= self._excesses.popleft()
            self._variance -= self._variances.popleft()
        self._excesses.append(excess)
        self._variances.append(variance)
        self._excess += excess
        self._variance += variance
        self._pushed += 1
        if self._pushed == WINDOW:  # what rounding has added up to is gone after as many steps
            self._sum()

    def dump(self) -> DeviationState:
        """Plain data, and its own."""
        return DeviationState(list(self._excesses), list(self._variances) if any(self._variances) else [])

    @classmethod
    def load(cls, state: DeviationState) -> Deviation:
        """The inverse of `dump`."""
        made = cls()
        made._excesses.extend(state.excesses)
        made._variances.extend(state.variances or [0.0] * len(state.excesses))
        made._sum()
        return made

    def _sum(self) -> None:
        self._excess, self._variance = math.fsum(self._excesses), math.fsum(self._variances)
        self._pushed = 0
