"""State distribution of a world at each step, the decided part of its formula, and the world's most likely paths."""

from __future__ import annotations

import heapq
from typing import Final

import msgspec
import numpy as np

from monitor.arrays import Floats
from monitor.causal import CounterfactualWorld
from monitor.errors import LimitError
from monitor.exact.value_table import ValueTable
from monitor.logic import FALSE, TRUE

MOST_CELLS: Final = 20_000_000
"""Largest product of states, obligations and steps. A computation of this size takes about ten seconds."""
BEAM: Final = 64
"""Number of partial paths that are kept at each step in the search for the most likely paths."""


class Distribution(msgspec.Struct, frozen=True):
    """Distribution of a world, with one entry for each step. The first entry is at the intervention state.

    `states`: state -> its probability. `violated`, `satisfied`: probability that the path up to and including this step
    has already violated or satisfied the formula. `reward`: expected reward that counts, up to and including this step.
    """

    states: tuple[dict[int, float], ...]
    violated: tuple[float, ...]
    satisfied: tuple[float, ...]
    reward: tuple[float, ...]


class Route(msgspec.Struct, frozen=True):
    """One path of a world from its intervention state, with its probability."""

    probability: float
    states: tuple[int, ...]


def distribution_of(world: CounterfactualWorld, value_table: ValueTable, states: int) -> Distribution:
    """Return the distribution until the formula is decided on every path. Raises LimitError above `MOST_CELLS`.

    This is the forward product of docs/semantics/formulas.md, section 6.1, with mass [states] for each obligation. In
    addition, it keeps the probability of the paths on which the formula is already decided.
    """
    automaton, labelling = value_table.automaton, value_table.labelling
    mass = {automaton.start: np.zeros(states)}
    mass[automaton.start][world.path[0][0]] = 1.0
    found: list[dict[int, float]] = []
    violated: list[float] = []
    satisfied: list[float] = []
    reward: list[float] = []
    visited = 0
    for offset in range(automaton.horizon(automaton.start) or world.observed + 1):
        where = np.add.reduce(list(mass.values()))
        present = np.flatnonzero(where)
        visited += len(present) * len(mass)
        if visited > MOST_CELLS:
            raise LimitError(
                f"the world has too many states to be drawn ({len(present):,} reachable after {offset} steps)"
            )
        found.append({int(state): float(where[state]) for state in present})
        ahead: dict[int, Floats] = {}
        collected = 0.0
        for state in present:
            here = [(obligation, weights[state]) for obligation, weights in mass.items() if weights[state] > 0.0]
            for action, choice in world.choices(offset, int(state)):
                label_set = labelling.one(offset, int(state), action)
                successors, chances = world.row(offset, int(state), action)
                for obligation, weight in here:
                    rest = obligation if obligation in (FALSE, TRUE) else automaton.step(obligation, label_set)
                    if obligation not in (FALSE, TRUE) and automaton.rewards(obligation):
                        collected += weight * choice * float(_reward(world, offset, int(state), action))
                    if rest not in ahead:
                        ahead[rest] = np.zeros(states)
                    ahead[rest][successors] += weight * choice * chances
        violated.append(float(ahead[FALSE].sum()) if FALSE in ahead else 0.0)
        satisfied.append(float(ahead[TRUE].sum()) if TRUE in ahead else 0.0)
        reward.append(collected + (reward[-1] if reward else 0.0))
        mass = ahead
    return Distribution(tuple(found), tuple(violated), tuple(satisfied), tuple(reward))


def _reward(world: CounterfactualWorld, offset: int, state: int, action: int) -> float:
    return float(world.law.expected_rewards(offset, np.array([state]), np.array([action]))[0])


def likeliest(world: CounterfactualWorld, steps: int, count: int) -> tuple[Route, ...]:
    """Return the `count` most likely paths of `steps` steps that a beam search finds, most likely first.

    The search may miss a path if many paths are about equally likely. Each returned probability is exact.
    """
    routes = [Route(1.0, (world.path[0][0],))]
    for offset in range(steps):
        further: dict[tuple[int, ...], float] = {}
        for route in routes:
            state = route.states[-1]
            for action, choice in world.choices(offset, state):
                successors, chances = world.row(offset, state, action)
                for successor, chance in zip(successors.tolist(), chances.tolist(), strict=True):
                    path = (*route.states, successor)
                    further[path] = further.get(path, 0.0) + route.probability * choice * chance
        best = heapq.nlargest(BEAM, further.items(), key=lambda item: item[1])
        routes = [Route(chance, path) for path, chance in best if chance > 0.0]
    return tuple(routes[:count])
