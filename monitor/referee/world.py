"""What acts when: worlds after an intervention, step by step.

1. At each time a policy and a model are in force, and the episode has ended or not: a `Moment`. The moments from some
   time on are a `Timeline`.
2. A `Frame` is what has happened so far (each step with the moment it happened in) and the timeline that follows.
   Outside all brackets it is the observed path; for a nested goal it is the path its outer world has taken up to here.
3. An intervention in a frame makes a `World`: the timeline from its offset on, with the intervention in force, beside
   the steps that were taken from there.
4. While steps were observed, action and successor follow the posterior noise; the last observed action is known, its
   outcome is not; beyond it, noise is prior. Action noise and transition noise are independent.
5. Where no other policy is in force, the state really visited sees the action really taken, on-policy or not. An
   off-policy action says nothing about action noise elsewhere.
6. Once the episode has ended, its last state is absorbing: in every model, under every action, with reward 0.

Kazemi & Paoletti, Definition 4 (counterfactual operator); rules 4 and 5 extend it to stochastic policies.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from monitor.logic.syntax import Change
from monitor.model.mdp import MDP
from monitor.policy.table import PolicyTable
from monitor.referee.row import Floats, counterfactual

__all__ = ["MAIN", "Frame", "Moment", "Setting", "Step", "Timeline", "World", "intervene", "position", "shifted"]

Ints = npt.NDArray[np.int64]
MAIN = ""
"""The name of the model the path was observed in."""


@dataclass(frozen=True, slots=True)
class Moment:
    """What is in force at one time. `policy`: a name, or the one action that is always taken."""

    policy: str | int
    model: str
    ended: bool


Timeline = tuple[tuple[int, Moment], ...]
"""Runs of (number of steps, moment); the last one holds for good and has the number 0. Neighbours differ."""


@dataclass(frozen=True, slots=True)
class Step:
    """One pair of a path, and what was in force. `action` None: not yet taken."""

    state: int
    action: int | None
    moment: Moment


@dataclass(frozen=True, slots=True)
class Frame:
    """A path, oldest step first, and the timeline after its last step."""

    steps: tuple[Step, ...]
    future: Timeline


@dataclass(frozen=True, slots=True)
class World:
    """What is in force from the present offset on.

    `seen`: the observed steps from here on. `changed`: for how many more of them another policy is in force than the
    one they were observed under; -1: for all.
    """

    seen: tuple[Step, ...]
    timeline: Timeline
    changed: int

    @property
    def now(self) -> Moment:
        """Return the present moment."""
        return self.timeline[0][1]

    def later(self) -> World:
        """Return the world one step on."""
        return _world(self.seen[1:], shifted(self.timeline), self.changed - (self.changed > 0))


def _world(seen: tuple[Step, ...], timeline: Timeline, changed: int) -> World:
    """Return a world in which nothing is kept that no longer matters, so that equal futures are equal."""
    known = seen and not (len(seen) == 1 and seen[0].action is None)
    return World(seen, timeline, changed) if known else World((), timeline, 0)


def shifted(timeline: Timeline) -> Timeline:
    """Return the timeline one step on."""
    (steps, moment), *rest = timeline
    return timeline if steps == 0 else tuple(rest) if steps == 1 else ((steps - 1, moment), *rest)


def _merged(runs: list[tuple[int, Moment]]) -> Timeline:
    merged: list[tuple[int, Moment]] = []
    for steps, moment in runs:
        if merged and merged[-1][1] == moment:
            merged[-1] = (merged[-1][0] + steps if steps else 0, moment)
        else:
            merged.append((steps, moment))
    return tuple(merged)


def position(offset: int, length: int) -> tuple[int, int]:
    """Return the offset clipped to a path of that length, and the place (from 0) it means."""
    clipped = max(-(length - 1), min(offset, length - 1))
    return clipped, length - 1 - clipped if clipped >= 0 else -clipped - 1


@dataclass(frozen=True)
class Setting:
    """What a question is asked about. `models` holds the main one as `MAIN`; `end`: the state the episode ended in."""

    models: Mapping[str, MDP]
    policies: Mapping[str, PolicyTable]
    end: int | None

    @property
    def main(self) -> MDP:
        """Return the model the path was observed in."""
        return self.models[MAIN]

    def choice(self, policy: str | int, state: int) -> Floats:
        """Return the distribution [A] of the action."""
        if isinstance(policy, int):
            return np.eye(1, self.main.actions, policy)[0]
        return self.policies[policy].distribution(state, self.main.actions)

    def row(self, moment: Moment, state: int, action: int) -> tuple[Ints, Floats]:
        """Return successors and probabilities with prior noise."""
        if moment.ended and state == self.end:
            return np.array([state]), np.ones(1)
        return self.models[moment.model].row(state, action)

    def rewards(self, moment: Moment, state: int, action: int, successors: Ints) -> Floats:
        """Return the reward of moving to each successor: the main model's, whatever model the row is from."""
        if moment.ended and state == self.end:
            return np.zeros(len(successors))
        earned = np.full(len(successors), self.main.rewards[state, action])
        extra = getattr(self.main, "transition_rewards", None)
        if extra is not None:
            row = state * self.main.actions + action
            own = slice(self.main.indptr[row], self.main.indptr[row + 1])
            earned += _looked_up(self.main.successors[own], extra[own], successors)
        return earned

    def actions(self, world: World, state: int) -> list[tuple[int, float]]:
        """Return the actions that may be taken in `state` at the present offset of `world`, with probabilities."""
        asked = self.choice(world.now.policy, state)
        if world.seen and world.seen[0].action is not None:
            step, taken = world.seen[0], world.seen[0].action
            if world.changed == 0 and state == step.state:
                return [(taken, 1.0)]
            observed = self.choice(step.moment.policy, step.state)
            if observed[taken] > 0:
                asked = counterfactual(observed, asked, taken)
        return [(int(action), float(asked[action])) for action in np.flatnonzero(asked)]

    def observed(self, world: World, state: int, action: int) -> tuple[Ints, Floats, Floats, int] | None:
        """Return successors, both rows over them, and the place of the observed one; None: no transition was observed.

        The first row is the one observed from, the second the one of (state, action) in this world.
        """
        if len(world.seen) < 2:
            return None
        step, outcome = world.seen[0], world.seen[1].state
        assert step.action is not None
        before, p = self.row(step.moment, step.state, step.action)
        after, q = self.row(world.now, state, action)
        both = np.union1d(before, after)
        return both, _looked_up(before, p, both), _looked_up(after, q, both), int(np.searchsorted(both, outcome))


def _looked_up(keys: Ints, values: Floats, wanted: Ints) -> Floats:
    """Return the value of each wanted key, 0 where it is not among the (ascending) keys."""
    if not len(keys):
        return np.zeros(len(wanted))
    places = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where(keys[places] == wanted, values[places], 0.0)


def intervene(frame: Frame, start: int, change: Change, action: int | None) -> World:
    """Return the world of `change` made at step `start` of a frame. `action`: the index of the one `do(..)` names."""
    seen = frame.steps[start:]
    timeline = _merged([*((1, step.moment) for step in seen), *frame.future])
    if change.kind == "nominal" or change.steps == 0:
        return _world(seen, timeline, 0)

    def forced(moment: Moment) -> Moment:
        if change.kind == "model":
            return replace(moment, model=change.name)
        return replace(moment, policy=change.name if action is None else action)

    if change.steps is None:
        after = _merged([(steps, forced(moment)) for steps, moment in timeline])
    else:
        during, rest = _split(timeline, change.steps)
        after = _merged([*((steps, forced(moment)) for steps, moment in during), *rest])
    lasts = -1 if change.steps is None else change.steps
    return _world(seen, after, 0 if change.kind == "model" else lasts)


def _split(timeline: Timeline, at: int) -> tuple[Timeline, Timeline]:
    """Return the first `at` steps of a timeline, and what follows."""
    first: list[tuple[int, Moment]] = []
    while at > 0:
        (steps, moment), *rest = timeline
        taken = at if steps == 0 else min(steps, at)
        first.append((taken, moment))
        at -= taken
        if steps == taken:
            timeline = tuple(rest)
        elif steps > 0:
            timeline = ((steps - taken, moment), *rest)
    return tuple(first), timeline
