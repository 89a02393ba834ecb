"""Rollouts in a Gymnasium vector environment: what a user of the environment would write without this project."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from benchmarks.workloads.numbers import FEATURES, LinearWorld
from monitor.arrays import Floats, Ints

__all__ = ["VectorRollouts"]

Options = dict[str, Any]


class VectorRollouts:
    """The same linear world as an environment, `count` of them, stepped one after the other (`SyncVectorEnv`)."""

    def __init__(self, world: LinearWorld, count: int, seed: int) -> None:
        import gymnasium  # noqa: PLC0415 - each peer needs its own package only

        space = gymnasium.spaces.Box(-np.inf, np.inf, (FEATURES,), np.float64)

        class Linear(gymnasium.Env[Any, Any]):
            action_space, observation_space = gymnasium.spaces.Discrete(2), space

            def reset(self, *, seed: int | None = None, options: Options | None = None) -> tuple[Floats, Options]:
                super().reset(seed=seed)
                self.state = (options or {}).get("state", np.zeros(FEATURES))
                return self.state, {}

            def step(self, action: int) -> tuple[Floats, float, bool, bool, Options]:
                drawn = self.np_random.normal(0.0, world.scale, FEATURES)
                self.state = world.matrix @ self.state + world.push[action] + drawn
                return self.state, 0.0, False, False, {}

        self._envs, self._world = gymnasium.vector.SyncVectorEnv([partial(Linear) for _ in range(count)]), world
        self._envs.reset(seed=seed)

    def safe(self, state: Floats, policy: Callable[[Floats], Ints], steps: int) -> float:
        """Return the fraction of the environments that are nowhere far within `steps` from a state [f] on."""
        states, _ = self._envs.reset(options={"state": state})
        lost = self._world.holds("far", states)
        for _ in range(steps):
            states, *_ = self._envs.step(policy(states))
            lost |= self._world.holds("far", states)
        return float(1.0 - lost.mean())
