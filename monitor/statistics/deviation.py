"""Deviation of an agent's actions from a policy: over its last steps, beyond the policy's own randomness.

At a step in state s the agent took action a; a draw from the policy pi would have been another one with probability
1 - pi(a|s), and two draws differ with probability 1 - sum_b pi(b|s)^2. The difference,

    x = sum_b pi(b|s)^2 - pi(a|s),

is 0 on average if the agent draws from pi, and its variance is then sum_b pi(b|s)^3 - (sum_b pi(b|s)^2)^2. For a
deterministic policy x is 1 if the agent acted otherwise, else 0, and the variance is 0. So the mean of x over the last
steps is the fraction of them on which the agent deviates from pi; `CHANCE` standard deviations, which may be random,
are subtracted first (docs/semantics.md, section 11.3).

It detects actions that the policy takes rarely or never. An agent that always takes one of several equally likely
actions takes none of those, and is not detected.
"""

from __future__ import annotations

import math
from collections import deque
from typing import Final

import msgspec

__all__ = ["CHANCE", "LEAST", "NOTABLE", "WINDOW", "Deviation", "DeviationState"]

WINDOW: Final = 100
"""Last steps over which the fraction is computed."""
LEAST: Final = 20
"""Fewest steps for a fraction other than 0: one step of two is not half."""
CHANCE: Final = 4.0
"""Standard deviations attributed to chance: one window in 30,000 of an agent that follows the policy exceeds them."""
NOTABLE: Final = 0.1
"""Fraction from which a deviation is reported: on the page, in the log, and by the alert CfmonAgentDeviates."""


class DeviationState(msgspec.Struct, frozen=True, array_like=True):
    """A `Deviation` as plain data, oldest first; `variances` is empty if all are 0."""

    excesses: list[int | float] = []
    variances: list[float] = []


class Deviation:
    """Deviation of one agent over its last steps.

    Attributes:
        fraction: of these steps, those that deviate from the policy beyond chance, in [0, 1]; 0 before `LEAST` steps.

    >>> agent = Deviation()
    >>> for other in (0, 1) * 20:
    ...     agent.push(other, 0.0)
    >>> agent.fraction, agent.steps
    (0.5, 40)
    """

    fraction: float

    def __init__(self) -> None:
        self.fraction = 0.0
        self._excesses: deque[int | float] = deque()
        self._variances: deque[float] = deque()
        self._excess: float = 0.0
        self._variance = 0.0
        self._pushed = 0

    @property
    def steps(self) -> int:
        """Number of steps that the fraction is of, up to `WINDOW`."""
        return len(self._excesses)

    def push(self, excess: float, variance: float) -> None:
        """Add a step: x, and its variance if the agent follows the policy."""
        if len(self._excesses) == WINDOW:
            self._excess -= self._excesses.popleft()
            self._variance -= self._variances.popleft()
        self._excesses.append(excess)
        self._variances.append(variance)
        self._excess += excess
        self._variance += variance
        self._pushed += 1
        if self._pushed == WINDOW:  # rounding errors do not accumulate over more steps than these
            self._sum()
        elif self._excess > 0.0 or self.fraction:
            self._compare()

    def dump(self) -> DeviationState:
        """Return the state as plain data."""
        return DeviationState(list(self._excesses), list(self._variances) if any(self._variances) else [])

    @classmethod
    def load(cls, state: DeviationState) -> Deviation:
        """Return the deviation that was dumped."""
        made = cls()
        made._excesses.extend(state.excesses)
        made._variances.extend(state.variances or [0.0] * len(state.excesses))
        made._sum()
        return made

    def _sum(self) -> None:
        self._excess, self._variance = math.fsum(self._excesses), math.fsum(self._variances)
        self._pushed = 0
        self._compare()

    def _compare(self) -> None:
        """Compute the fraction."""
        self.fraction = 0.0
        if self._excess > 0.0 and len(self._excesses) >= LEAST:
            beyond = self._excess - CHANCE * math.sqrt(max(self._variance, 0.0))
            self.fraction = min(max(beyond, 0.0) / len(self._excesses), 1.0)
