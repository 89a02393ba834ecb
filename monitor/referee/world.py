"""Worlds after an intervention: the policy and model in force at each time.

1. A `Regime` is the policy and the model in force at one time, and whether the episode has ended. A `Timeline` has the
   regimes from some time on.
2. A `Frame` is the path so far (each step with its regime) and the timeline after the path. For a goal that is not
   nested, the path is the observed path. For a nested goal, the path is that of the outer world up to the current
   state.
3. An intervention in a frame makes a `CounterfactualWorld`. This world has the timeline from the intervention's offset
   on, with the intervention in force, and the steps that were observed from this offset on.
4. At observed steps, action and successor follow the posterior noise. The outcome of the last observed action is not
   known. After the last observed action, noise has its prior distribution. Action noise and transition noise are
   independent.
5. If no other policy is in force, the observed action is taken in the observed state, even if the policy would not take
   it. An action that the policy would not take gives no information about action noise in other states.
6. After the episode has ended, its last state is absorbing, in every model, under every action, with reward 0.

Definitions: docs/semantics/worlds.md, section 2, and for stochastic policies docs/semantics/formulas.md, section 7.
Kazemi & Paoletti, Definition 4 (counterfactual operator); rules 4 and 5 extend it to stochastic policies.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from monitor.arrays import Floats, Ints
from monitor.errors import LimitError, PathError
from monitor.logic.syntax import InterventionRef
from monitor.model.mdp import MDP
from monitor.policy.table import PolicyTable
from monitor.referee.row import counterfactual
from monitor.types.stream_events import UNKNOWN_POLICY

MAIN = ""
"""The name of the model in which the path was observed."""
LONGEST_TAKEOVER = 10_000
"""Largest number of steps of a timed intervention."""


@dataclass(frozen=True, slots=True)
class Regime:
    """Policy and model in force at one time. `policy`: a name, or the action that is always taken."""

    policy: str | int
    model: str
    ended: bool


Timeline = tuple[Regime, ...]
"""One regime for each step. The last regime stays in force, and differs from the previous one."""


@dataclass(frozen=True, slots=True)
class PathStep:
    """One pair of a path and its regime. `action`: None if not yet taken."""

    state: int
    action: int | None
    regime: Regime


@dataclass(frozen=True, slots=True)
class Frame:
    """A path, oldest step first, and the timeline after its last step."""

    steps: tuple[PathStep, ...]
    future: Timeline


@dataclass(frozen=True, slots=True)
class CounterfactualWorld:
    """Timeline from the current offset on, and the steps observed from this offset on.

    `seen`: the observed steps. `changed`: number of observed steps at which the policy in force differs from the policy
    that acted.
    """

    seen: tuple[PathStep, ...]
    timeline: Timeline
    changed: int = 0

    @property
    def now(self) -> Regime:
        """The current regime."""
        return self.timeline[0]

    @property
    def future(self) -> Timeline:
        """The timeline from the next offset on."""
        return self.timeline[1:] or self.timeline

    def later(self) -> CounterfactualWorld:
        """Return the world at the next offset."""
        return _world(self.seen[1:], self.future, self.changed - 1)


def _world(seen: tuple[PathStep, ...], timeline: Timeline, changed: int) -> CounterfactualWorld:
    """Return a world without irrelevant parts, so that worlds with the same future are equal."""
    if not seen or (len(seen) == 1 and seen[0].action is None):
        return CounterfactualWorld((), timeline)
    return CounterfactualWorld(seen, timeline, min(max(changed, 0), len(seen)))


def intervene(frame: Frame, start: int, change: InterventionRef, action: int | None) -> CounterfactualWorld:
    """Return the world after `change` at step `start` of a frame. `action`: the index of the action in `do(..)`.

    Raises:
        LimitError: the intervention lasts more than `LONGEST_TAKEOVER` steps.
    """
    if change.steps is not None and change.steps > LONGEST_TAKEOVER:
        raise LimitError(f"the referee supports takeovers of at most {LONGEST_TAKEOVER:,} steps, not {change.steps:,}")
    seen = frame.steps[start:]
    regimes = [*(step.regime for step in seen), *frame.future]
    lasts = 0 if change.kind == "nominal" else len(regimes) if change.steps is None else change.steps
    if change.steps is not None:
        regimes += regimes[-1:] * max(0, lasts + 1 - len(regimes))
    if change.kind == "model":
        forced = [replace(regime, model=change.name) for regime in regimes[:lasts]]
    else:
        forced = [replace(regime, policy=change.name if action is None else action) for regime in regimes[:lasts]]
    regimes = forced + regimes[lasts:]
    while len(regimes) > 1 and regimes[-1] == regimes[-2]:
        regimes.pop()
    return _world(seen, tuple(regimes), 0 if change.kind == "model" else lasts)


def position(offset: int, length: int) -> tuple[int, int]:
    """Return the offset clipped to a path of `length` pairs, and the index (from 0) of the pair at this offset."""
    clipped = max(-(length - 1), min(offset, length - 1))
    return clipped, length - 1 - clipped if clipped >= 0 else -clipped - 1


@dataclass(frozen=True)
class Setting:
    """Models and policies of a query. `models[MAIN]` is the main model; `end`: the state in which the episode ended."""

    models: Mapping[str, MDP]
    policies: Mapping[str, PolicyTable]
    end: int | None

    @property
    def main(self) -> MDP:
        """The model in which the path was observed."""
        return self.models[MAIN]

    def actions(self, world: CounterfactualWorld, state: int) -> list[tuple[int, float]]:
        """Return the actions that may be taken in `state` at the current offset of a world, with probabilities."""
        step = world.seen[0] if world.seen else None
        if step is None or step.action is None:
            distribution = self._choice(world.now.policy, state)
        elif world.changed == 0 and state == step.state:
            return [(step.action, 1.0)]
        else:
            distribution = self._choice(world.now.policy, state)
            if distribution.max() < 1:  # a certain action does not depend on noise
                observed = self._choice(step.regime.policy, step.state)
                if 0 < observed[step.action] < 1:  # otherwise the action gives no information
                    distribution = counterfactual(observed, distribution, step.action)
        return [(int(action), float(distribution[action])) for action in np.flatnonzero(distribution)]

    def _choice(self, policy: str | int, state: int) -> Floats:
        """Return the distribution [A] of the action with prior noise."""
        if policy == UNKNOWN_POLICY:
            raise PathError(f"in state {state} acts a policy that acted on the path and is not known")
        if isinstance(policy, str):
            return self.policies[policy].distribution(state, self.main.actions)
        always: Floats = np.eye(1, self.main.actions, policy)[0]
        return always

    def row(self, regime: Regime, state: int, action: int) -> tuple[Ints, Floats]:
        """Return successors and probabilities [K] with prior noise."""
        if regime.ended and state == self.end:
            return np.array([state]), np.ones(1)
        return self.models[regime.model].row(state, action)

    def rewards(self, regime: Regime, state: int, action: int, successors: Ints) -> Floats:
        """Return the main model's reward [K] of moving to each successor, also for a row of another model."""
        if regime.ended and state == self.end:
            return np.zeros(len(successors))
        rewards = np.full(len(successors), self.main.rewards[state, action])
        extra = self.main.transition_rewards
        if extra is not None:
            first, last = self.main.indptr[state * self.main.actions + action :][:2]
            rewards += looked_up(self.main.successors[first:last], extra[first:last], successors)
        return rewards


def looked_up(keys: Ints, values: Floats, wanted: Ints) -> Floats:
    """Return the value of each wanted key; 0 for a wanted key that is not in `keys` (ascending)."""
    indices = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where(keys[indices] == wanted, values[indices], 0.0)
