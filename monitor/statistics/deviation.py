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
from array import array
from typing import Final

import msgspec

__all__ = [
    "CHANCE",
    "EXCESS",
    "FRACTION",
    "HELD",
    "LEAST",
    "NOTABLE",
    "PUSHED",
    "VARIANCE",
    "WINDOW",
    "Deviation",
    "DeviationState",
]

WINDOW: Final = 100
"""Last steps over which the fraction is computed."""
LEAST: Final = 20
"""Fewest steps for a fraction other than 0: one step of two is not half."""
CHANCE: Final = 4.0
"""Standard deviations attributed to chance: one window in 30,000 of an agent that follows the policy exceeds them."""
NOTABLE: Final = 0.1
"""Fraction from which a deviation is reported: on the page, in the log, and by the alert CfmonAgentDeviates."""
EXCESS, VARIANCE, FRACTION, HELD, PUSHED = range(5)
"""Places in `Deviation.sums`."""


class DeviationState(msgspec.Struct, frozen=True, array_like=True):
    """A `Deviation` as plain data, oldest first; `variances` is empty if all are 0."""

    excesses: list[int | float] = []
    variances: list[float] = []


class Deviation:
    """Deviation of one agent over its last steps.

    Attributes:
        ring: x of each of the last `WINDOW` steps, then its variances, for compiled code.
        sums: their sums, the fraction, and as whole numbers how many steps there are, and how many were pushed since
            the sums were last computed anew; `EXCESS` to `PUSHED`. The next step goes to `PUSHED` (modulo `WINDOW`).

    >>> agent = Deviation()
    >>> for other in (0, 1) * 20:
    ...     agent.push(other, 0.0)
    >>> agent.fraction, agent.steps
    (0.5, 40)
    """

    def __init__(self) -> None:
        self.ring = array("d", bytes(16 * WINDOW))
        self.sums = array("d", bytes(8 * (PUSHED + 1)))

    @property
    def fraction(self) -> float:
        """Of the last steps, those that deviate from the policy beyond chance, in [0, 1]; 0 before `LEAST` steps."""
        return self.sums[FRACTION]

    @property
    def steps(self) -> int:
        """Number of steps that the fraction is of, up to `WINDOW`."""
        return int(self.sums[HELD])

    def push(self, excess: float, variance: float) -> None:
        """Add a step: x, and its variance if the agent follows the policy."""
        ring, sums = self.ring, self.sums
        place = int(sums[PUSHED])
        if sums[HELD] == WINDOW:
            sums[EXCESS] -= ring[place]
            sums[VARIANCE] -= ring[WINDOW + place]
        else:
            sums[HELD] += 1.0
        ring[place], ring[WINDOW + place] = excess, variance
        sums[EXCESS] += excess
        sums[VARIANCE] += variance
        sums[PUSHED] = place + 1
        if place + 1 == WINDOW:  # rounding errors do not accumulate over more steps than these
            self._sum()
        elif sums[EXCESS] > 0.0 or sums[FRACTION]:
            self._compare()

    def dump(self) -> DeviationState:
        """Return the state as plain data."""
        excesses, variances = self._in_order(0), self._in_order(WINDOW)
        whole = [int(x) if x.is_integer() else x for x in excesses]  # shorter in a snapshot
        return DeviationState(whole, variances if any(variances) else [])

    @classmethod
    def load(cls, state: DeviationState) -> Deviation:
        """Return the deviation that was dumped."""
        made = cls()
        steps = len(state.excesses)
        made.ring[:steps] = array("d", state.excesses)
        if state.variances:
            made.ring[WINDOW : WINDOW + steps] = array("d", state.variances)
        made.sums[HELD], made.sums[PUSHED] = steps, steps
        made._sum()
        return made

    def _in_order(self, column: int) -> list[float]:
        """Return a column of the ring, which begins there, oldest first."""
        held, place = self.ring[column : column + self.steps].tolist(), int(self.sums[PUSHED])
        return held if len(held) < WINDOW else held[place:] + held[:place]

    def _sum(self) -> None:
        sums = self.sums
        for place, column in ((EXCESS, 0), (VARIANCE, WINDOW)):
            sums[place] = math.fsum(self.ring[column : column + self.steps])
        if sums[PUSHED] == WINDOW:
            sums[PUSHED] = 0.0
        self._compare()

    def _compare(self) -> None:
        """Compute the fraction."""
        sums = self.sums
        sums[FRACTION] = 0.0
        if sums[EXCESS] > 0.0 and sums[HELD] >= LEAST:
            beyond = sums[EXCESS] - CHANCE * math.sqrt(max(sums[VARIANCE], 0.0))
            sums[FRACTION] = min(max(beyond, 0.0) / sums[HELD], 1.0)
