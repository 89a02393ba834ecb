"""Distribution of a world's hidden state at each step, given the whole path. It is used for pictures.

A smoother multiplies the weights carried forward by the probability of later observations.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Final

import numpy as np

from monitor.causal.row import Row
from monitor.errors import LimitError
from monitor.hidden.filtering import summed
from monitor.hidden.observation_values import HiddenWorld
from monitor.hidden.pair_chain import Change, PairChain
from monitor.hidden.trace import Trace
from monitor.logic import RewardAutomaton

MOST_PLACES: Final = 20_000
"""Largest number of places (a state with the memory of a policy) at one step."""

StateWeights = dict[int, float]
"""State -> its probability."""
_Free = Mapping[tuple[int, int, int | None], float]
"""State, memory and the state in which the episode has ended -> probability, beyond the path."""


def course_of(
    world: HiddenWorld, trace: Trace, change: Change, *, start: int, steps: int, terminated: bool
) -> list[StateWeights]:
    """Return the distribution of the state at each of `steps` steps from pair `start` on, given the whole path.

    `change`: the intervention at pair `start`. Beyond the path, the distribution is a prediction. Raises LimitError if
    there are too many possibilities.
    """
    never = RewardAutomaton(steps + len(trace), steps + len(trace))  # an obligation that is never decided
    chain = PairChain(
        trace,
        change,
        automaton=never,
        masks=np.zeros(world.model.states, np.int64),
        tables=world.tables,
        tail=None,
        deepest=trace.last - start,
    )
    later, found = trace.hindsight(start), list[StateWeights]()
    for number, nodes in chain.pairs():
        size = int(nodes.begin[-1])
        weights = np.asarray(nodes.weights)[:size, -1]
        weights = weights * np.repeat(later[number - start], np.diff(nodes.begin))
        here = summed(np.asarray(nodes.other)[:size] // len(nodes.live), weights)
        found.append({state: weight for state, weight in zip(*(part.tolist() for part in here), strict=True) if weight})
    free: dict[tuple[int, int, int | None], float] = defaultdict(float)
    dynamics, true = change.dynamics or world.model, trace[trace.last].split()[0].tolist()
    for place, state, action, memory, weight in chain.departures(nodes):
        _move(free, dynamics.row(state, action), (state, memory, true[place] if terminated else None), weight)
    while len(found) < steps:
        if len(free) > MOST_PLACES:
            raise LimitError(f"more than {MOST_PLACES:,} states and memories are possible at one step ahead")
        ahead: StateWeights = defaultdict(float)
        for (state, _, _), weight in free.items():
            ahead[state] += weight
        found.append(dict(ahead))
        free = _ahead(world, change, free, offset=len(found) - 1)
    return found[:steps]


def _ahead(world: HiddenWorld, change: Change, free: _Free, *, offset: int) -> dict[tuple[int, int, int | None], float]:
    """Return the distribution after one more step beyond the path."""
    acting = change.reader if change.takes_over(offset) and change.reader is not None else world.nominal
    dynamics, after = change.dynamics or world.model, defaultdict[tuple[int, int, int | None], float](float)
    for (state, memory, end), weight in free.items():
        for shown, chance in acting.readings(world.model, state):
            remembered, choice = acting.read(memory, shown)
            for action in np.flatnonzero(choice).tolist():
                share = weight * chance * float(choice[action])
                _move(after, dynamics.row(state, action), (state, remembered, end), share)
    return after


def _move(
    into: dict[tuple[int, int, int | None], float],
    row: Row,
    place: tuple[int, int, int | None],
    weight: float,
) -> None:
    """Add the successors of a state to `into`; the state in which the episode has ended is absorbing."""
    state, memory, end = place
    if state == end:
        into[place] += weight
        return
    for successor, chance in zip(row[0].tolist(), row[1].tolist(), strict=True):
        into[successor, memory, end] += weight * chance
