"""Agents in a plant of their own, watched by a monitor: what was sent, and the noise that nobody sees."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from monitor import Monitor
from monitor.arrays import Floats
from monitor.types import Instant, Notice, Observation, StreamSettings

__all__ = ["SHA", "Life", "lived", "met", "settings"]

SHA = {"nominal": "a" * 64, "careful": "b" * 64}
NO_INPUTS: tuple[float, ...] = ()


def settings(window: int) -> StreamSettings:
    return StreamSettings(
        encoder="features", window=window, max_lag=1e9, policies={sha: name for name, sha in SHA.items()}
    )


class Life(NamedTuple):
    """An episode: the states, one more than actions and noise, and what the monitor said."""

    states: list[Floats]
    actions: list[int]
    noises: list[Floats]
    inputs: list[tuple[float, ...]]
    who: list[str]
    notices: list[Notice]

    def rerun(self, world: Any, begin: int, steps: int, chooses: Callable[[int, Floats], int]) -> list[Floats]:
        """The states of the same plant with the same noise from a step on, with other actions."""
        states = [self.states[begin]]
        for k in range(begin, begin + steps):
            action = np.array([chooses(k, states[-1])])
            states.append(world.step(states[-1], action, self.noises[k], np.array([self.inputs[k]])))
        return states


def lived(
    monitor: Monitor,
    world: Any,
    policies: Mapping[str, Callable[[Floats], Any]],
    acting: Callable[[int, float], str],
    rng: np.random.Generator,
    *,
    start: float,
    steps: int,
    episode: str = "e",
    inputs: Callable[[], tuple[float, ...]] = lambda: NO_INPUTS,
    end: Mapping[str, bool] = {},
) -> Life:
    """Run a plant with one feature for some steps; `acting`: who acts at a step in a state; `end`: of the episode."""
    life = Life([np.array([[start]])], [], [], [], [], [])
    for seq in range(steps):
        state, given = life.states[-1], inputs()
        who = acting(seq, float(state[0, 0]))
        action, noise = np.asarray(policies[who](state)).astype(np.int64), rng.uniform(size=(1, world.noise))
        ends: Any = end if seq == steps - 1 else {}
        told = (float(state[0, 0]),), str(world.actions[int(action[0])])
        message = Observation("it", episode, seq, *told, inputs=given or None, policy=SHA[who], **ends)
        now = Instant(1000.0 + seq, float(seq))
        life.notices.extend([*monitor.observe(message, now), *monitor.evaluate(now)])
        life.who.append(who)
        life.actions.append(int(action[0]))
        life.noises.append(noise)
        life.inputs.append(given)
        life.states.append(world.step(state, action, noise, np.array([given])))
    return life


def met(world: Any, label: str, states: list[Floats]) -> bool:
    """Whether a label holds in none of the states."""
    return not any(world.holds(label, state)[0] for state in states)
