"""A small partially observed world, played with explicit Gumbel noise; nothing of the engine in it.

Every step has noise of its own for the observation, the action and the next state: `argmax(log p + G)`. Worlds whose
play under the deployed policy shows the observed path are kept (rejection), and played again under another policy with
the same noise. What is counted there is the counterfactual answer, by definition.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

Array = Any


@dataclass(frozen=True)
class Mind:
    """A policy: `following` [M, Z], `choice` [M, Z, A] after reading z; `sees_state`: z is the state."""

    following: Array
    choice: Array
    sees_state: bool = False
    shadows: bool = True


@dataclass(frozen=True)
class Small:
    """Rows [S, A, S], emissions [S, O], initial [S]."""

    rows: Array
    emissions: Array
    initial: Array
    nominal: Mind
    alternative: Mind


def some_mind(rng: np.random.Generator, shown: int, actions: int, *, memories: int, **how: bool) -> Mind:
    following = rng.integers(memories, size=(memories, shown))
    return Mind(following, rng.dirichlet(np.ones(actions), size=(memories, shown)), **how)


def some_world(rng: np.random.Generator, *, memories: int = 1, sees_state: bool = False, shadows: bool = True) -> Small:
    """Return a random world of 2 or 3 states, with some rows and emissions sparse."""
    states, shown, actions = (int(n) for n in rng.integers(2, 4, size=3))
    rows = rng.dirichlet(np.ones(states), size=(states, actions))
    rows[rng.random(rows.shape) < 0.2] = 0.0
    rows[..., 0] += rows.sum(axis=-1) == 0.0
    emissions = rng.dirichlet(np.ones(shown), size=states)
    width = states if sees_state else shown
    return Small(
        rows / rows.sum(axis=-1, keepdims=True),
        emissions,
        rng.dirichlet(np.ones(states)),
        some_mind(rng, width, actions, memories=memories, sees_state=sees_state),
        some_mind(rng, width, actions, memories=memories, sees_state=sees_state, shadows=shadows),
    )


class Play:
    """`count` worlds of so many steps, with all of their noise."""

    def __init__(self, world: Small, steps: int, count: int, rng: np.random.Generator) -> None:
        self._world, self._steps, self._count = world, steps, count
        states, shown = world.emissions.shape
        sizes = {"seen": shown, "action": world.rows.shape[1], "next": states}
        self._noise = {name: rng.gumbel(size=(steps, count, size)) for name, size in sizes.items()}
        self._start = _pick(np.broadcast_to(world.initial, (count, states)), rng.gumbel(size=(count, states)))

    def nominal(self) -> dict[str, Array]:
        """Return what happened: states [steps + 1, n], seen and actions [steps, n]."""
        return self._run(0, self._start, self._world.nominal, np.zeros(self._count, dtype=np.int64))

    def changed(self, happened: dict[str, Array], at: int) -> dict[str, Array]:
        """Return what would have happened from step `at` on under the alternative, with the same noise."""
        mind, memory = self._world.alternative, np.zeros(self._count, dtype=np.int64)
        if mind.shadows:
            for step in range(at):
                memory = mind.following[memory, happened["states" if mind.sees_state else "seen"][step]]
        return self._run(at, happened["states"][at], mind, memory)

    def _run(self, first: int, state: Array, mind: Mind, memory: Array) -> dict[str, Array]:
        states, seen, actions = [state], [], []
        for step in range(first, self._steps):
            seen.append(_pick(self._world.emissions[state], self._noise["seen"][step]))
            read = state if mind.sees_state else seen[-1]
            memory = mind.following[memory, read]
            actions.append(_pick(mind.choice[memory, read], self._noise["action"][step]))
            state = _pick(self._world.rows[state, actions[-1]], self._noise["next"][step])
            states.append(state)
        return {"states": np.array(states), "seen": np.array(seen), "actions": np.array(actions)}


def _pick(chances: Array, noise: Array) -> Array:
    with np.errstate(divide="ignore"):
        return np.argmax(np.log(chances) + noise, axis=-1)
