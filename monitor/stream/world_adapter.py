"""Map an observation to the features and inputs of a world with numbers, or to the reason why it is no step."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np

from monitor.arrays import Floats
from monitor.errors import InputError, MonitorError, PathError
from monitor.stream.adapter import RELATIVE, Adapter, Pair, excess_of, seen_state
from monitor.types.specs import StreamSettings
from monitor.types.stream_events import Break, Observation, RawInputs, RawState
from monitor.worlds import CheckedWorld, Feature, Moment, numbers_of
from monitor.worlds.world_policies import WorldPolicy


class WorldAdapter(Adapter):
    """Mapping of one agent's observations to a world with numbers.

    A world or a policy is the user's code and may fail in any state. Even then no message makes a method raise. A step
    that the world cannot explain breaks the path, with the world's error as the reason. If the policy fails, the action
    is not compared.

    Args:
        world: the world.
        settings: SHA-256 of the file of each known policy.
        nominal: the agent's configured policy, with which actions are compared.
    """

    def __init__(self, world: CheckedWorld, settings: StreamSettings, nominal: WorldPolicy) -> None:
        super().__init__(settings)
        self._world, self._nominal = world, nominal
        self._asked: tuple[Any, Floats | None] = (), None  # the last state and inputs, and nominal's choice there

    def read(self, observation: Observation) -> Pair:
        """Return features, action and inputs of an observation. Raises InputError."""
        world = self._world
        state = _numbers(seen_state(observation), world.features, "state")
        inputs = _numbers(observation.inputs, world.inputs, "inputs")
        if problem := world.outside(state, inputs):
            raise InputError("out_of_range", f"{problem}; send it in the unit and range of the world")
        return state, self._action(observation), inputs

    def encode_action(self, raw: float | str) -> int:
        """Return the number of an action. Raises InputError."""
        action = self._world.named_actions.find(raw)
        if action is None:
            names = ", ".join(self._world.action_names)
            raise InputError("unknown_action", f"{raw!r:.80} is not an action of the world; send one of {names}")
        return action

    def unavailable(self, pair: Pair) -> Break | None:
        """Return None, because every action is available in every state."""
        del pair
        return None

    def goes_on(self, pair: Pair, state: object, action: object) -> bool:
        """Return False, so that `entry` reads all numbers."""
        del pair, state, action
        return False

    def possible(self, pair: Pair, following: Pair) -> bool:
        """Return whether some noise of the world leads from the pair to the state of the following pair."""
        return self._problem(pair, following[0]) is None

    def impossible(self, pair: Pair, following: Pair) -> Break:
        """Return the break of the path at a transition that is not `possible`."""
        error = self._problem(pair, following[0])
        impossible = isinstance(error, PathError)
        return Break("impossible_step", str(error), unpredicted=impossible, failed=not impossible)

    def _problem(self, pair: Pair, successor: tuple[float, ...]) -> MonitorError | None:
        try:
            self._world.abduce(Moment(*pair), successor)
        except MonitorError as error:
            return error
        return None

    def contradicts(self, pair: Pair, successor: tuple[float, ...], reward: float) -> str:
        """Describe in a sentence how a reward differs from the world's reward.

        The text is empty if it does not differ, or if the world has no rewards.
        """
        world = self._world
        if not world.has_rewards:
            return ""
        before, after = np.array([pair[0]]), np.array([successor])
        try:
            expected = float(world.rewards(before, np.array([pair[1]]), after)[0])
        except MonitorError as error:
            return str(error)
        if abs(reward - expected) <= RELATIVE * max(abs(expected), abs(reward), 1.0):
            return ""
        return (
            f"{world.shown(pair[0])} by {world.action_names[pair[1]]!r} to {world.shown(successor)} earned {reward:g}, "
            f"the world says {expected:g}"
        )

    def has(self, pair: Pair) -> bool:
        """Return whether the world has a pair."""
        state, action, inputs = pair
        world = self._world
        if not isinstance(state, tuple) or (len(state), len(inputs)) != (len(world.features), len(world.inputs)):
            return False
        return not world.outside(state, inputs) and (action is None or action < world.actions)

    def off_policy(self, pair: Pair) -> bool:
        """Return whether nominal never takes the action of a pair in its state."""
        likely = self._likely(pair[0], pair[2])
        return likely is not None and likely[pair[1]] == 0.0

    def excess(self, pair: Pair) -> tuple[float, float]:
        """Return a step's deviation from nominal and its variance (`monitor.statistics.deviation`)."""
        likely = self._likely(pair[0], pair[2])
        if likely is None:
            return 0.0, 0.0
        return excess_of(likely, pair[1])

    def _likely(self, state: tuple[float, ...], inputs: tuple[float, ...]) -> Floats | None:
        """Return nominal's probabilities at a step, computed once per step; None if the policy fails."""
        if self._asked[0] != (state, inputs):
            likely: Floats | None = None  # if this policy fails, verdicts are undecided and give the reason
            with suppress(MonitorError):
                likely = self._nominal.likely(self._nominal.seen(state, inputs))
            self._asked = (state, inputs), likely
        return self._asked[1]


def _numbers(given: RawState | RawInputs | None, named: tuple[Feature, ...], key: str) -> tuple[float, ...]:
    """Return numbers in the order of their names, from a list or a map. Raises InputError."""
    try:
        return numbers_of(() if given is None else given, named, key)
    except ValueError as error:
        raise InputError("unknown_state", f"{error}: send a list, or a map of names") from None
