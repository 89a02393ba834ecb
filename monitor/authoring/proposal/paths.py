"""Paths to measure formulas on: held-out recordings, or episodes simulated in a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from monitor.arrays import Bools, Floats, Ints
from monitor.authoring.learning.abstraction_scores import Outcomes
from monitor.authoring.learning.episodes import Steps, is_end
from monitor.authoring.learning.holdout import FIELDS, HELD, NOTHING, HeldOut, Holdout
from monitor.authoring.learning.states import States
from monitor.model.mdp import MDP

LONGEST: Final = 1000
"""Most steps of a simulated episode."""


@dataclass(frozen=True)
class RecordedPath:
    """Path of an episode, or of a part of one between gaps.

    Attributes:
        states: [n + 1] states of the model. actions: [n].
        ended: the episode terminated in the last state.
    """

    states: Ints
    actions: Ints
    ended: bool


@dataclass
class Collected(Holdout):
    """Holdout that also keeps all transitions, up to a limit, for recordings that are too short to be split.

    `outcomes`: takes the steps too, to judge the model by its forecasts.
    """

    outcomes: Outcomes | None = None
    _every: list[HeldOut] = field(default_factory=list)
    _size: int = 0

    def add(self, steps: Steps) -> None:
        """Take the transitions of a batch."""
        super().add(steps)
        if self.outcomes is not None:
            self.outcomes.add(steps)
        if self._size < HELD:
            self._every.append(HeldOut(steps.state, steps.action, steps.code, steps.earlier, steps.segment))
            self._size += len(steps.state)

    def every(self) -> HeldOut:
        """Return all kept transitions, paths one after another."""
        joined = [np.concatenate([getattr(part, name) for part in (NOTHING, *self._every)]) for name in FIELDS]
        order = np.argsort(joined[-1], kind="stable")
        return HeldOut(*(values[order] for values in joined))


def paths_of(held: HeldOut, where: States) -> list[RecordedPath]:
    """Return the paths of recorded transitions, in the states of the model."""
    if not len(held.state):
        return []
    after = where.of(held.code)
    ended = is_end(held.code)
    begins = np.flatnonzero(np.concatenate([[True], np.diff(held.path) != 0]))
    found = []
    for lo, hi in zip(begins, [*begins[1:], len(held.path)], strict=True):
        states = np.append(where.of_base(held.state[lo:hi]), after[hi - 1])
        found.append(RecordedPath(states, held.action[lo:hi], bool(ended[hi - 1])))
    return found


def simulated(model: MDP, policy: Floats, steps: int, rng: np.random.Generator) -> list[RecordedPath]:
    """Return episodes of the policy [S, A] in the model, together about `steps` steps.

    An episode ends in an absorbing state, or after `LONGEST` steps. The model must have an initial distribution.
    """
    assert model.initial is not None, "episodes start somewhere"
    found: list[RecordedPath] = []
    while sum(len(path.actions) for path in found) < steps:
        states = [int(rng.choice(model.states, p=model.initial))]
        actions: list[int] = []
        while len(actions) < LONGEST and not model.is_absorbing(states[-1]):
            actions.append(int(rng.choice(model.actions, p=policy[states[-1]])))
            successors, probabilities = model.row(states[-1], actions[-1])
            states.append(int(rng.choice(successors, p=probabilities)))
        if not actions:  # episodes that end where they start
            break
        found.append(RecordedPath(np.array(states), np.array(actions), model.is_absorbing(states[-1])))
    return found


def first_steps(paths: Sequence[RecordedPath], most: int) -> list[RecordedPath]:
    """Return as many of the first paths as have at most `most` steps in total, but at least one path."""
    kept: list[RecordedPath] = []
    for path in paths:
        if kept and sum(len(each.actions) for each in kept) + len(path.actions) > most:
            break
        kept.append(path)
    return kept


def unsafe_events(path: RecordedPath, unsafe: Bools) -> list[int]:
    """Return the steps at which the path enters an unsafe state; a start in one is none."""
    holds = unsafe[path.states]
    return [int(t) + 1 for t in np.flatnonzero(holds[1:] & ~holds[:-1])]
