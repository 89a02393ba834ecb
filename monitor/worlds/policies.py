"""Policies over the numbers of a world: functions, or ONNX networks, that decide for many states at once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from monitor.arrays import Bools, Floats, Ints
from monitor.errors import MonitorError, PolicyError
from monitor.policy.network import Network
from monitor.user_code import explained
from monitor.worlds.checked import CheckedWorld


class WorldPolicy:
    """A policy over a world.

    Args:
        name: in messages.
        decide: states [n, f] -> actions [n] or distributions [n, A].
        actions: their number.
    """

    def __init__(self, name: str, decide: Callable[[Floats], Any], actions: int) -> None:
        self.name, self._decide, self._actions = name, decide, actions

    def decide(self, states: Floats) -> Any:  # noqa: ANN401 - checked by the sampled engine
        """Return what the policy chooses. Raises PolicyError if it fails."""
        try:
            return self._decide(states)
        except MonitorError:
            raise
        except Exception as error:
            raise PolicyError(f"policy {self.name!r} fails ({explained(error)})") from error

    def likely(self, state: tuple[float, ...]) -> Floats:
        """Return the probabilities [A] of the actions in one state."""
        chosen = np.asarray(self.decide(np.array([state])))
        if chosen.shape == (1, self._actions) and chosen.dtype.kind == "f":
            return np.asarray(chosen[0], dtype=np.float64)
        if chosen.shape != (1,) or not 0 <= int(chosen[0]) < self._actions:
            raise PolicyError(
                f"policy {self.name!r} gives {chosen!r:.80} for one state; it needs an action below {self._actions}, "
                "or a distribution over them"
            )
        likely = np.zeros(self._actions)
        likely[int(chosen[0])] = 1.0
        return likely

    def choices(self, state: tuple[float, ...]) -> list[tuple[int, float]]:
        """Return the actions the policy takes in `state` with positive probability, and those probabilities."""
        likely = self.likely(state)
        return [(int(a), float(likely[a])) for a in np.flatnonzero(likely)]


class WorldSight:
    """What a policy network sees of a world: the state itself, with every action available."""

    def __init__(self, world: CheckedWorld) -> None:
        self.actions, self.width = world.actions, len(world.features)

    def observations(self, states: Floats) -> Floats:
        """Return the states."""
        return states

    def available(self, states: Floats) -> Bools:
        """Return that every action is."""
        return np.ones((len(states), self.actions), dtype=np.bool_)


def as_world_policy(name: str, policy: object, world: CheckedWorld) -> WorldPolicy:
    """Return a policy given as a function, a network, or the path of a manifest. Raises PolicyError."""
    if isinstance(policy, WorldPolicy):
        return policy
    if isinstance(policy, str | Path):
        from monitor.policy.onnx_policy import load_network  # noqa: PLC0415 - onnxruntime only where a file is named

        policy = load_network(policy, WorldSight(world))
    if isinstance(policy, Network):
        if policy.kind != "observation":
            raise PolicyError(f"policy {name!r}: its input is {policy.kind}; in a world with numbers it is observation")
        return WorldPolicy(name, _batched(policy), world.actions)
    if not callable(policy):
        raise PolicyError(
            f"policy {name!r} is a {type(policy).__name__}; in a world with numbers a policy is a function of states "
            "[n, f] that gives actions [n] or distributions [n, A], or the path of a manifest"
        )
    return WorldPolicy(name, policy, world.actions)


def _batched(network: Network) -> Callable[[Floats], Ints | Floats]:
    """Return the choice of a network, in batches of the size that it takes."""
    size, choose = network.batch, network.choose

    def decide(states: Floats) -> Ints | Floats:
        if len(states) <= size:
            return choose(states)
        return np.concatenate([choose(states[n : n + size]) for n in range(0, len(states), size)])

    return decide
