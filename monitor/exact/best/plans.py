"""Plans with few changes, as small trees. The first change is certain, and the likeliest later changes are listed."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from monitor.causal import CounterfactualWorld
from monitor.exact.best.values import BestValues, Lookback

BRANCHES = 3
"""Largest number of next changes that a plan lists after a change. These are the likeliest ones."""
LEAST = 0.01
"""Least probability of a listed change."""
BEAM = 64
"""Largest number of pairs (state, obligation) followed at each step. The likeliest pairs are followed."""


class PlannedChange(msgspec.Struct, frozen=True):
    """One changed decision of a plan."""

    offset: int
    """Number of steps from this decision to the last pair of the path."""
    state: int
    """The state at this decision. At the first change it is the observed state."""
    taken: int | None
    """The action of the unchanged decision; `null` if it is not yet taken, or if it is random."""
    proposed: int
    """The action to take instead."""
    probability: float
    """Lower bound of the probability that the plan reaches this change; 1 for the first change. It is a lower bound
    because only the 64 likeliest states are followed at each step.
    """
    further: float = 0.0
    """Lower bound of the probability that the plan reaches this change and another change after it."""
    then: tuple[PlannedChange, ...] = ()
    """The likeliest changes after this change, likeliest first."""


class _Node(NamedTuple):
    state: int
    slot: int


class Planner:
    """Plans on one path.

    Args:
        values: the values of the goal's measure.
        found: the decisions of the plans.
        world: the counterfactual world without any change.
        repeats: see `Observed`.
    """

    def __init__(self, values: BestValues, found: Lookback, world: CounterfactualWorld, *, repeats: bool) -> None:
        self._values, self._found, self._world, self._repeats = values, found, world, repeats

    def plan(self, changes: int) -> PlannedChange | None:
        """Return the plan with at most `changes` changes; None if the plan changes nothing."""
        first = self._found.plan_values.first[changes]
        if first is None:
            return None
        slot = 0
        for level in range(first.level):
            slot = self._values.slot_after(self._found.layout, level, slot, self._world.path[level][0])
        return self._change(first.level, _Node(first.state, slot), first.proposed, 1.0, changes)

    def _change(self, level: int, node: _Node, action: int, chance: float, left: int) -> PlannedChange:
        """Return a change with the changes that follow it. `left`: number of changes left, this one included."""
        choices = self._choices(level, node.state)
        taken = choices[0][0] if len(choices) == 1 and not self._not_taken(level, node.state) else None
        after = list(self._next(level, node, action, chance, left - 1))
        then = tuple(
            self._change(at, there, int(self._found.chosen[at, there.state, there.slot, left - 1]), p, left - 1)
            for p, at, there in heapq.nlargest(BRANCHES, after)
            if p >= LEAST
        )
        further = min(sum(p for p, _, _ in after), chance)
        return PlannedChange(self._world.observed - level, node.state, taken, action, chance, further, then)

    def _next(
        self, level: int, node: _Node, action: int, chance: float, left: int
    ) -> Iterator[tuple[float, int, _Node]]:
        """Yield the probability, level and node of each next change after an action."""
        if not left:
            return
        masses = self._moved(level, {node: chance}, action)
        for at in range(level + 1, len(self._found.chosen)):
            going: dict[_Node, float] = {}
            for there, mass in heapq.nlargest(BEAM, masses.items(), key=lambda item: item[1]):
                if self._found.chosen[at, there.state, there.slot, left] >= 0:
                    yield mass, at, there
                else:
                    going[there] = mass
            masses = self._moved(at, going)

    def _moved(self, level: int, masses: dict[_Node, float], action: int | None = None) -> dict[_Node, float]:
        """Return the distribution over nodes after one more step, without nodes whose obligation is decided.

        Decisions are unchanged if `action` is None.
        """
        ahead: dict[_Node, float] = {}
        for (state, slot), mass in masses.items():
            further = self._values.slot_after(self._found.layout, level, slot, state)
            if further < 0:
                continue
            for chosen, weight in self._choices(level, state) if action is None else [(action, 1.0)]:
                for successor, chance in zip(*self._world.row(level, state, chosen), strict=True):
                    there = _Node(int(successor), further)
                    if chance > 0.0:
                        ahead[there] = ahead.get(there, 0.0) + mass * weight * float(chance)
        return ahead

    def _choices(self, level: int, state: int) -> list[tuple[int, float]]:
        taken = self._world.path[level][1]
        if self._repeats and taken is not None and self._world.nominal.dynamics.available(state)[taken]:
            return [(taken, 1.0)]
        return self._world.choices(level, state)

    def _not_taken(self, level: int, state: int) -> bool:
        """Return whether this is the observed state at a level whose action is not yet taken."""
        return self._world.path[level] == (state, None)
