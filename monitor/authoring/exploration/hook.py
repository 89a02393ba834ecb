"""Environments that return their own transition probabilities: `successors(state, action)`.

The environment, or the environment that it wraps, has these methods. Only `successors` is required:

    successors(state, action)   [(probability, next state, reward, terminated), ...]; empty: the action is unavailable
    initial_states()            [(probability, state), ...]; without it, the observation after `reset(seed=...)`
    observe(state)              what a policy sees; without it, the state itself if it consists of numbers
    action_names                list of names

A state is a number, a text, a Boolean, or a tuple of these. The number of actions is the size of the Discrete action
space, or the attribute `actions`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from monitor.authoring.exploration.copies import action_count
from monitor.authoring.exploration.explorable import Arrival, Environment, SimulatorSnapshot
from monitor.authoring.exploration.identity import Flat, flat, key_of
from monitor.errors import ModelError
from monitor.user_code import explained


def hook_of(environment: Environment) -> Environment | None:
    """Return the environment, or the unwrapped environment, if it has a method `successors`; else None."""
    candidates = (environment, getattr(environment, "unwrapped", None))
    return next((each for each in candidates if callable(getattr(each, "successors", None))), None)


class HookSimulator:
    """An environment explored by its own method `successors`; see `Explorable`. `seeds`: seeds of resets, if needed."""

    aliasing = False
    identified = "the states of successors(state, action)"
    variables: Sequence[str] = ()

    def __init__(
        self,
        environment: Environment,
        seeds: Sequence[int],
        labeller: Callable[[Any], Iterable[str]] | None = None,
    ) -> None:
        hook = hook_of(environment)
        assert hook is not None, "the caller has looked"
        self._hook, self._environment, self._seeds, self._labeller = hook, environment, tuple(seeds), labeller
        self.actions = _count(environment, hook)
        names = tuple(str(name) for name in getattr(hook, "action_names", ()))
        self.action_names: Sequence[str] = names

    def starts(self) -> list[Arrival]:
        """Return the initial states."""
        if not hasattr(self._hook, "initial_states"):
            states = self._call("reset", lambda: [self._environment.reset(seed=seed)[0] for seed in self._seeds])
            return [self._arrival(state, probability=1 / len(states)) for state in states]
        listed = self._call("initial_states", lambda: [(float(p), state) for p, state in self._hook.initial_states()])
        return [self._arrival(state, probability=p) for p, state in listed if p > 0]

    def step(self, snapshot: SimulatorSnapshot, action: int) -> list[Arrival]:
        """Return the successors of a state, with the rewards and probabilities that `successors` gives."""
        where = f"successors({snapshot!r:.80}, {action})"
        listed = self._call(
            where,
            lambda: [
                (float(p), state, float(reward), bool(end))
                for p, state, reward, end in self._hook.successors(snapshot, action)
            ],
        )
        return [
            self._arrival(state, probability=p, rewards=(reward, reward), terminated=end)
            for p, state, reward, end in listed
            if p != 0
        ]

    def labels(self, snapshot: SimulatorSnapshot) -> Iterable[str]:
        """Return the labels that the user's function gives to the state."""
        labeller = self._labeller
        if labeller is None:
            return ()
        found: list[str] = self._call("the function of the labels", lambda: [str(name) for name in labeller(snapshot)])
        return found

    def _arrival(self, state: SimulatorSnapshot, **more: Any) -> Arrival:  # noqa: ANN401 - fields of Arrival
        return Arrival(key_of(state, "a state of the environment"), self._observed(state), state, **more)

    def _observed(self, state: SimulatorSnapshot) -> Flat | None:
        raw = state
        if hasattr(self._hook, "observe"):
            raw = self._call("observe", lambda: self._hook.observe(state))
        if hasattr(self._environment, "observation_space"):
            return flat(self._environment.observation_space, raw) if raw is not state or self._fits(raw) else None
        try:
            return np.atleast_1d(np.asarray(raw, dtype=np.float64)).reshape(-1)
        except (TypeError, ValueError):
            return None

    def _fits(self, raw: Environment) -> bool:
        """Return whether a state is an observation of the environment."""
        try:
            return bool(self._environment.observation_space.contains(raw))
        except Exception:  # noqa: BLE001 - a space of the user
            return False

    def _call(self, what: str, function: Callable[[], Any]) -> Any:  # noqa: ANN401 - what the function returns
        try:
            return function()
        except Exception as error:
            raise ModelError(f"the environment's {what} failed ({explained(error)})") from error


def _count(environment: Environment, hook: Environment) -> int:
    if getattr(environment, "action_space", None) is not None:
        return action_count(environment)
    count = getattr(hook, "actions", None)
    if count is None or int(count) < 1:
        raise ModelError(
            "the number of actions is unknown: give the environment action_space = Discrete(n), or actions = n"
        )
    return int(count)
