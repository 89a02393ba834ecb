"""A learned world as a table over recorded states, so that policies can be suggested with the algorithms for tables.

A step leads to the nearest of these states (kernel-based reinforcement learning, Ormoneit and Sen 2002). The
probabilities of such a table are coarse, so formulas are evaluated on the world itself.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from scipy.spatial import cKDTree

from monitor.arrays import AnyArray, Floats, Ints
from monitor.authoring.dynamics.steps import RecordedSteps
from monitor.model.mdp import MDP
from monitor.worlds.location_scale import LocationScale

STATES: Final = 1_500
"""Largest number of recorded states in the table. They are drawn at random from all recorded states."""
DRAWS: Final = 30
"""Number of next states that are drawn for each state and action."""


class NearestState:
    """Finds the nearest of the states [S, f]. Each number is in units of its standard deviation."""

    def __init__(self, states: AnyArray) -> None:
        spread = states.std(axis=0)
        self._spread = np.where(spread > 0.0, spread, 1.0)
        self._tree = cKDTree(states / self._spread)

    def __call__(self, x: Floats) -> Ints:
        """Return the index of the nearest state, [n], for points `x` [n, f]."""
        return np.asarray(self._tree.query(x / self._spread)[1], np.int64)


def world_table(world: LocationScale, steps: RecordedSteps, seed: int) -> tuple[MDP, Floats]:
    """Return the table [S <= 1,500], and the inputs [S, i] recorded with its states.

    Its rows are computed with these inputs.

    The table has the actions and labels of the world, and the states as observations [S, f].
    """
    rng = np.random.default_rng(seed)
    rows = steps[np.sort(rng.permutation(len(steps))[:STATES])]
    nearest = NearestState(rows.x)
    here, inputs = np.repeat(rows.x, DRAWS, axis=0), np.repeat(rows.w, DRAWS, axis=0)
    numbers = np.repeat(np.arange(len(rows)), DRAWS)
    transitions = []
    for action in range(len(steps.actions)):
        noise = rng.uniform(1e-9, 1 - 1e-9, (len(here), world.noise))
        moved: Floats = world.step(here, np.full(len(here), action), noise, inputs)
        successors = nearest(moved)
        transitions += [(s, action, t, 1 / DRAWS) for s, t in zip(numbers.tolist(), successors.tolist(), strict=True)]
    table = MDP.from_transitions(
        states=len(rows),
        actions=len(steps.actions),
        transitions=transitions,
        labels={label: np.flatnonzero(world.holds(label, rows.x)).tolist() for label in world.labels},
        observations=rows.x,
        action_names=steps.actions,
        source="recorded states",
    )
    return table, rows.w
