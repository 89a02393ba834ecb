"""How a world spreads: where it may be at each step, what is decided of the formula by then, its likeliest paths."""

from __future__ import annotations

import heapq
from typing import Final

import msgspec
import numpy as np

from monitor.arrays import Floats
from monitor.causal import World
from monitor.errors import LimitError
from monitor.exact.value_table import ValueTable
from monitor.logic import FALSE, TRUE

__all__ = ["Distribution", "Route", "likeliest", "spread"]


MOST_CELLS: Final = 20_000_000
"""States times obligations times steps a spread may visit: some ten seconds."""
BEAM: Final = 64
"""Partial paths kept at each step in the search for the likeliest."""


class Distribution(msgspec.Struct, frozen=True):
    """One entry for each step, the first at the intervention state.

    `states`: state -> probability to be there. `broken`, `kept`: probability that the formula is decided by what has
    been seen up to and including this step. `gained`: expected reward that counts, up to and including it.
    """

    states: tuple[dict[int, float], ...]
    broken: tuple[float, ...]
    kept: tuple[float, ...]
    gained: tuple[float, ...]


class Route(msgspec.Struct, frozen=True):
    """One path of a world from its intervention state on, and the probability that the world takes just it."""

    probability: float
    states: tuple[int, ...]


def spread(world: World, value_table: ValueTable, states: int) -> Distribution:
    """Follow a world until its formula is decided, whatever happens. LimitError where that is too much to visit.

    The forward product of docs/semantics.md, section 6.1, with the decided part kept: mass [states] per obligation.
    """
    automaton, labelling = value_table.automaton, value_table.labelling
    mass = {automaton.start: np.zeros(states)}
    mass[automaton.start][world.path[0][0]] = 1.0
    seen: list[dict[int, float]] = []
    broken: list[float] = []
    kept: list[float] = []
    gained: list[float] = []
    visited = 0
    for offset in range(automaton.horizon(automaton.start) or world.observed + 1):
        where = np.add.reduce(list(mass.values()))
        present = np.flatnonzero(where)
        visited += len(present) * len(mass)
        if visited > MOST_CELLS:
            raise LimitError(f"the world reaches too many states to be drawn ({len(present):,} after {offset} steps)")
        seen.append({int(state): float(where[state]) for state in present})
        ahead: dict[int, Floats] = {}
        gain = 0.0
        for state in present:
            owing = [(owed, weights[state]) for owed, weights in mass.items() if weights[state] > 0.0]
            for action, share in world.choices(offset, int(state)):
                letter = labelling.one(offset, int(state), action)
                successors, chances = world.row(offset, int(state), action)
                for owed, weight in owing:
                    rest = owed if owed in (FALSE, TRUE) else automaton.step(owed, letter)
                    if owed not in (FALSE, TRUE) and automaton.rewards(owed):
                        gain += weight * share * float(_gain(world, offset, int(state), action))
                    if rest not in ahead:
                        ahead[rest] = np.zeros(states)
                    ahead[rest][successors] += weight * share * chances
        broken.append(float(ahead[FALSE].sum()) if FALSE in ahead else 0.0)
        kept.append(float(ahead[TRUE].sum()) if TRUE in ahead else 0.0)
        gained.append(gain + (gained[-1] if gained else 0.0))
        mass = ahead
    return Distribution(tuple(seen), tuple(broken), tuple(kept), tuple(gained))


def _gain(world: World, offset: int, state: int, action: int) -> float:
    return float(world.law.expected_rewards(offset, np.array([state]), np.array([action]))[0])


def likeliest(world: World, steps: int, count: int) -> tuple[Route, ...]:
    """The `count` likeliest paths of so many steps that a beam search finds, likeliest first.

    A path may be missed where many are about as likely; the probability of each that is given is exact.
    """
    routes = [Route(1.0, (world.path[0][0],))]
    for offset in range(steps):
        further: dict[tuple[int, ...], float] = {}
        for route in routes:
            state = route.states[-1]
            for action, share in world.choices(offset, state):
                successors, chances = world.row(offset, state, action)
                for successor, chance in zip(successors.tolist(), chances.tolist(), strict=True):
                    path = (*route.states, successor)
                    further[path] = further.get(path, 0.0) + route.probability * share * chance
        best = heapq.nlargest(BEAM, further.items(), key=lambda item: item[1])
        routes = [Route(chance, path) for path, chance in best if chance > 0.0]
    return tuple(routes[:count])
