"""How much an agent's actions deviate from a policy over its last steps, beyond the randomness of the policy itself.

At a step in state s the agent took action a. A draw from the policy pi differs from a with probability 1 - pi(a|s). Two
draws from pi differ from each other with probability 1 - sum_b pi(b|s)^2. The difference of these probabilities,

    x = sum_b pi(b|s)^2 - pi(a|s),

is 0 on average if the agent draws from pi. Its variance is then sum_b pi(b|s)^3 - (sum_b pi(b|s)^2)^2. For a
deterministic policy, x is 1 if the agent took another action, else 0, and the variance is 0. So the mean of x over the
last steps is the fraction of steps on which the agent deviates from pi. Chance may explain a part of the sum of x, so
`CHANCE` standard deviations are subtracted from the sum first (docs/semantics/streams.md, section 11.3).

This measure detects actions that the policy takes rarely or never. It does not detect an agent that always takes the
same action although the policy takes several actions equally often.

Compiled.
"""

from __future__ import annotations

import math
from array import array
from math import fsum
from typing import Final

import msgspec

WINDOW: Final = 100
"""Number of last steps over which the fraction is computed."""
LEAST: Final = 20
"""With fewer steps, the fraction is set to 0, because few steps do not give a meaningful fraction."""
CHANCE: Final = 4.0
"""Number of standard deviations attributed to chance. If the agent follows the policy, one window in 30,000 exceeds
this number."""
NOTABLE: Final = 0.1
"""Smallest fraction that is reported on the page, in the log, and by the alert CfmonAgentDeviates."""


class DeviationState(msgspec.Struct, frozen=True, array_like=True):
    """State of a `Deviation` as plain data, oldest step first; `variances` is empty if all variances are 0."""

    excesses: list[int | float] = []
    variances: list[float] = []


class Deviation:
    """Deviation of one agent over its last steps.

    Attributes:
        fraction: fraction of the last steps that deviate from the policy beyond chance, in [0, 1]; 0 before `LEAST`
            steps.
        steps: number of these last steps, up to `WINDOW`.

    >>> agent = Deviation()
    >>> for other in (0, 1) * 20:
    ...     agent.push(other, 0.0)
    >>> agent.fraction, agent.steps
    (0.5, 40)
    """

    def __init__(self) -> None:
        self.fraction = 0.0
        self.steps = 0
        self._excess = self._variance = 0.0  # sums over the last steps
        self._next = 0  # place of the next step
        self._held = array("d", bytes(16 * WINDOW))  # x of the last steps, then their variances
        self._ring = self._held  # the same memory; in compiled code, a typed view of it

    def push(self, excess: float, variance: float) -> None:
        """Add a step, with x (`excess`) and the variance of x if the agent follows the policy."""
        place = self._next
        if self.steps == WINDOW:
            self._excess -= self._ring[place]
            self._variance -= self._ring[WINDOW + place]
        else:
            self.steps += 1
        self._ring[place] = excess
        self._ring[WINDOW + place] = variance
        self._excess += excess
        self._variance += variance
        self._next = place + 1
        if self._next == WINDOW:  # compute the sums again, so that rounding errors do not accumulate
            self._sum()
        elif self._excess > 0.0 or self.fraction > 0.0:
            self._compare()

    def dump(self) -> DeviationState:
        """Return the state as plain data."""
        excesses, variances = self._in_order(0), self._in_order(WINDOW)
        whole = [int(x) if x.is_integer() else x for x in excesses]  # shorter in a snapshot
        return DeviationState(whole, variances if any(variances) else [])

    @classmethod
    def load(cls, state: DeviationState) -> Deviation:
        """Return the deviation with a state from `dump`."""
        made = Deviation()
        made.steps = made._next = len(state.excesses)
        for column, values in ((0, state.excesses), (WINDOW, state.variances)):
            for place, value in enumerate(values, column):
                made._ring[place] = value
        made._sum()
        return made

    def _in_order(self, column: int) -> list[float]:
        """Return the numbers of one column, 0 for x or 1 for variances, oldest step first."""
        held = self._held[column : column + self.steps].tolist()
        return held if len(held) < WINDOW else held[self._next :] + held[: self._next]

    def _sum(self) -> None:
        """Compute the sums from all steps."""
        self._excess, self._variance = fsum(self._held[:WINDOW]), fsum(self._held[WINDOW:])
        if self._next == WINDOW:
            self._next = 0
        self._compare()

    def _compare(self) -> None:
        """Compute the fraction."""
        self.fraction = 0.0
        if self._excess > 0.0 and self.steps >= LEAST:
            beyond = self._excess - CHANCE * math.sqrt(max(self._variance, 0.0))
            self.fraction = min(max(beyond, 0.0) / self.steps, 1.0)
