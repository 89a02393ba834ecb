"""Lengths of takeovers in a world with numbers, compared on simulated episodes of an agent with a guard."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from monitor.arrays import Bools, Floats, Ints
from monitor.authoring.dynamics.world_table import NearestState
from monitor.authoring.proposal.hold import HOLDS, LONGEST, Guarded
from monitor.authoring.proposal.measure import CandidateFormula
from monitor.authoring.proposal.paths import RecordedPath
from monitor.authoring.proposal.world_paths import RecordedNumbers
from monitor.exact.all_states import values
from monitor.model.mdp import MDP
from monitor.worlds import CheckedWorld
from monitor.worlds.world_policies import as_world_policy

EPISODES: Final = 2_000
"""Number of simulated episodes for each length, with the same noise. The error of unsafe fractions is about 0.01."""
NONE: Final = -1
"""Value in place of the number of remaining steps of a takeover if there is no takeover."""
TINY: Final = 1e-12


class _Alarms:
    """Whether the alarm fires, and whether it wants a takeover, in the nearest state of a table."""

    def __init__(self, table: MDP, policies: Mapping[str, object], candidate: CandidateFormula) -> None:
        assert table.observations is not None
        self._nearest = NearestState(table.observations)
        goal, least = f'P=? [ G<={candidate.horizon} !"{candidate.label}" ]', candidate.threshold
        self._fires = values(goal, model=table, policies=policies) < least
        self._wants = self._fires & (values(f"fallback@0.{goal}", model=table, policies=policies) >= least)

    def __call__(self, states: Floats) -> tuple[Bools, Bools]:
        near = self._nearest(states)
        return self._fires[near], self._wants[near]


def guarded_in_world(
    world: CheckedWorld,
    policies: Mapping[str, object],
    table: tuple[MDP, Mapping[str, object]],
    candidate: CandidateFormula,
    recorded: tuple[Sequence[RecordedPath], RecordedNumbers],
    *,
    seed: int,
) -> list[Guarded]:
    """Return the effect of a guard on episodes that begin like the recorded ones and have their length.

    The results are those of `hold.guarded`, for episodes simulated in the world. `table` is the world as a table over
    recorded states, with the policies on this table. The alarm is assumed to fire if it fires in the nearest state of
    the table, by the rules of `hold.guarded`. Inputs are resampled from the first inputs of a path, if the world
    resamples.
    """
    paths, numbers = recorded
    first = np.array([path.states[0] for path in paths])
    first = first[~world.holds(candidate.label, numbers.states[first])]
    length = int(np.clip(np.median([len(path.actions) for path in paths]), 1, LONGEST))
    if not len(first):
        return []
    alarms = _Alarms(*table, candidate)
    own, other = (as_world_policy(name, policies[name], world) for name in ("nominal", "fallback"))
    starts = first[np.arange(EPISODES) % len(first)]
    inputs = _inputs(world, numbers.inputs[starts], length, seed)
    found = []
    for hold in (0, *(hold for hold in HOLDS if hold <= length)):
        rng, states = np.random.default_rng((seed, 1)), numbers.states[starts]
        left = np.full(EPISODES, NONE)
        safe, taken = np.ones(EPISODES, np.bool_), 0
        for given in inputs:
            fires, wants = alarms(states)
            begins = (left == NONE) & wants & (hold > 0)
            acts = begins | (left > 0) | ((left == 0) & fires)
            left = np.where(begins, hold - 1, np.where(acts, np.maximum(left - 1, 0), NONE))
            luck = rng.uniform(size=EPISODES)
            actions = np.where(
                acts, *(_chosen(each.decide(each.observed(states, given)), luck) for each in (other, own))
            )
            moved = world.step(states, actions, rng.uniform(TINY, 1.0 - TINY, (EPISODES, world.noise)), given)
            taken += int((acts & safe).sum())
            states = np.where(safe[:, np.newaxis], moved, states)
            safe &= ~world.holds(candidate.label, states)
        found.append(Guarded(hold, length, float(1.0 - safe.mean()), taken / EPISODES / length))
    return found


def _chosen(decided: Floats | Ints, luck: Floats) -> Ints:
    """Return a policy's actions [n], or actions drawn from its distributions by the uniform numbers `luck` [n]."""
    if decided.ndim == 1:
        return np.asarray(decided, dtype=np.int64)
    passed = (luck[:, np.newaxis] > decided.cumsum(axis=1)).sum(axis=1)
    return np.asarray(np.minimum(passed, decided.shape[1] - 1), dtype=np.int64)


def _inputs(world: CheckedWorld, first: Floats, length: int, seed: int) -> Floats:
    """Return the inputs of each step [length, n, i], starting from the first inputs [n, i]."""
    drawn = np.repeat(first[np.newaxis], length, axis=0)
    chances = np.random.default_rng((seed, 0)).uniform(size=len(first))
    for one in np.unique(first, axis=0) if world.recorded_steps else ():
        here = (first == one).all(axis=1)
        for ahead in range(1, length):
            drawn[ahead, here] = world.resample(tuple(one.tolist()), ahead, chances[here])
    return drawn
