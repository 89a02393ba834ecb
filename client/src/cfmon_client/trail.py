"""Publish the steps of one environment: each state, with the action taken in it and the reward for reaching it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from cfmon_client.message import plain
from cfmon_client.steps import Steps

__all__ = ["ActionOf", "StateOf", "Trail"]

StateOf = Callable[[Any, Mapping[str, Any]], object]
"""Function that returns the state to publish, or the inputs, from an observation and its info."""

ActionOf = Callable[[Any], object]
"""Function that returns the action to publish, an index or a name, from the environment's action."""


class _Failed:
    """Stand-in for a value whose function raised an exception. The publisher counts and logs it as `error`."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def tolist(self) -> object:
        raise self._error


class Trail:
    """Holds the newest state until the action taken in it is known. Never raises."""

    def __init__(self, steps: Steps, state_of: StateOf, action_of: ActionOf, inputs_of: StateOf | None = None) -> None:
        self._steps = steps
        self._state_of = state_of
        self._action_of = action_of
        self._inputs_of = inputs_of or _no_inputs
        self._held: tuple[object, object, object] | None = None

    def begin(self, observation: Any, info: Mapping[str, Any]) -> None:  # noqa: ANN401 - of any environment
        """Begin an episode. If another episode is open, end it in its newest state, as truncated."""
        self.finish()
        self.hold(observation, info)

    def hold(self, observation: Any, info: Mapping[str, Any] = MappingProxyType({})) -> None:  # noqa: ANN401 - of any environment
        """Keep an observation as the state in which the next action will be taken."""
        self._held = (*self._state(observation, info), None)

    def act(self, action: Any) -> None:  # noqa: ANN401 - of any environment
        """Publish the held state with the action that is taken in it."""
        if self._held is not None:
            state, inputs, reward = self._held
            self._steps.step(state, _guarded(self._action_of, action), inputs=inputs, reward=reward)

    def arrive(
        self,
        observation: Any,  # noqa: ANN401 - of any environment
        reward: object,
        info: Mapping[str, Any],
        *,
        terminated: bool,
        truncated: bool,
    ) -> None:
        """Hold the state that the action led to, or publish this state if it ends the episode."""
        state, inputs = self._state(observation, info)
        if terminated or truncated:
            self._steps.end(state, terminated=terminated, truncated=truncated, inputs=inputs, reward=reward)
            self._held = None
        else:
            self._held = (state, inputs, reward)

    def finish(self) -> None:
        """End the open episode, if any, in its newest state, as truncated."""
        if self._held is not None and self._steps.episode is not None:
            state, inputs, reward = self._held
            self._steps.end(state, truncated=True, inputs=inputs, reward=reward)
        self._held = None

    def _state(self, observation: Any, info: Mapping[str, Any]) -> tuple[object, object]:  # noqa: ANN401 - of any environment
        return _guarded(self._state_of, observation, info), _guarded(self._inputs_of, observation, info)


def _no_inputs(_observation: object, _info: object) -> None:
    return None


def _guarded(function: Callable[..., object], *arguments: object) -> object:
    """Call the function now and return its value as plain numbers, because an environment may reuse its arrays."""
    try:
        return plain(function(*arguments))
    except Exception as error:  # noqa: BLE001 - nothing is raised into the agent's loop
        return _Failed(error)
