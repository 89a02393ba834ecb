"""How particles move: what an observed step says about its noise, and where that noise leads from other states."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

import numpy as np

from monitor.arrays import AnyArray, Bools, Floats, Ints
from monitor.errors import PathError
from monitor.model import MDP
from monitor.sampled.noise import INPUTS, NOTHING, POSTERIOR, STATE, ObservedRow, race, uniforms
from monitor.sampled.particle_rows import RowSource, as_rows
from monitor.sampled.simulator import Simulator, VectorSimulator
from monitor.types import State
from monitor.worlds import Abduction, CheckedWorld, Moment

__all__ = ["Given", "Keys", "Pair", "ParticleDynamics", "RowDynamics", "State", "WorldDynamics", "dynamics_of", "same"]

Pair = tuple[int, int | None] | Moment
"""A state and the action taken there; None: not yet taken."""
Given = Any
"""What is known of the noise of a step; each kind of dynamics has its own."""

BLOCK = 1024
"""Particles whose noise is drawn together where a world draws from its posterior itself."""


class Keys(NamedTuple):
    """Keys of the noise of particles [n] at one step: the seed, the step's number in the episode, their numbers."""

    seed: int
    step: int
    particles: Ints


class ParticleDynamics(Protocol):
    """Movement, labels and rewards of particles in states [n], or [n, f] in a world with numbers."""

    @property
    def labels(self) -> Collection[str]:
        """The names that `holds` knows."""
        ...

    def holds(self, label: str, states: Any) -> Bools:  # noqa: ANN401 - Ints or Floats
        """Return whether states carry a label, [n]."""
        ...

    def rewards(self, states: Any, actions: Ints, successors: Any) -> Floats:  # noqa: ANN401 - likewise
        """R(s, a, s'), [n]."""
        ...

    def given(self, pair: Pair, successor: State | None) -> Given:
        """Return what an observed step says about its noise; `successor` None: its outcome is not known.

        Raises PathError if the step is impossible.
        """
        ...

    def beyond(self, given: Given) -> Given:
        """Return the same for the step after one whose outcome is not known."""
        ...

    def inputs(self, keys: Keys, given: Given) -> tuple[float, ...] | Floats:
        """Return the inputs [i] of a step, or of each particle [n, i]; none in a model without inputs."""
        ...

    def certain(self, state: AnyArray, action: Ints, given: Given) -> bool:
        """Return whether one particle, state [1] and action [1], moves without noise of its own."""
        ...

    def move(self, keys: Keys, states: AnyArray, actions: Ints, given: Given) -> AnyArray:
        """Return the next states of particles [n]."""
        ...

    def unrecorded(self, keys: Keys, states: AnyArray, actions: Ints, given: Given) -> Bools:
        """Return which of particles [n] move as nothing recorded shows, [n]."""
        ...


class RowDynamics:
    """Movement by rows, under Gumbel-Max noise.

    Args:
        rows: of the world that particles move in.
        observed: of the observed world; None: the same.
    """

    def __init__(self, rows: RowSource, observed: RowSource | None = None) -> None:
        self.rows, self._observed = rows, observed or rows
        self.labels, self.holds, self.rewards = rows.labels, rows.holds, rows.rewards

    def given(self, pair: Pair, successor: State | None) -> ObservedRow:
        """Return the observed row and its outcome. Raises PathError if the model gives the outcome probability 0."""
        if successor is None:
            return NOTHING
        state, action = pair[0], pair[1]
        assert action is not None
        begin, end, keys, chances = self._observed.entries(np.array([state]), np.array([action]))
        row = slice(int(begin[0]), int(end[0]))
        chance = float(chances[row][keys[row] == successor].sum())
        if chance <= 0.0:
            raise PathError(
                f"the model gives {successor} probability 0 after state {state}, action {action}; "
                "the path or the model is wrong"
            )
        assert isinstance(successor, int)
        return ObservedRow(keys[row], chances[row], successor, chance)

    def beyond(self, given: ObservedRow) -> ObservedRow:
        """Return that nothing is known."""
        del given
        return NOTHING

    def inputs(self, keys: Keys, given: ObservedRow) -> tuple[float, ...]:
        """Return none."""
        del keys, given
        return ()

    def certain(self, state: Ints, action: Ints, given: ObservedRow) -> bool:
        """Return False: the noise of a row is drawn."""
        del state, action, given
        return False

    def move(self, keys: Keys, states: Ints, actions: Ints, given: ObservedRow) -> Ints:
        """Return the outcomes [n] of the rows' races."""
        return race(keys.seed, STATE, keys.step, keys.particles, self.rows.entries(states, actions), given)

    def unrecorded(self, keys: Keys, states: Ints, actions: Ints, given: ObservedRow) -> Bools:
        """Return False [n]: exact answers say what was recorded of rows (docs/semantics.md, section 13.6)."""
        del keys, actions, given
        return np.zeros(len(states), dtype=np.bool_)


@dataclass(frozen=True)
class _Known:
    """What is known of a step of a world: its inputs and, if its outcome was observed, its noise.

    `ahead`: how many steps before it the inputs were recorded, if its own are resampled.
    """

    inputs: tuple[float, ...]
    noise: Abduction | None = None
    ahead: int = 0


class WorldDynamics:
    """Movement by the step of a world with numbers; its noise is inverted from the observed steps.

    Args:
        world: that particles move in.
        observed: dynamics of the observed world; None: the same.
    """

    def __init__(self, world: CheckedWorld, observed: WorldDynamics | None = None) -> None:
        self.world, self._observed = world, observed or self
        self.labels, self.holds, self.rewards = world.labels, world.holds, world.rewards
        self._components = np.arange(world.noise)

    def given(self, pair: Pair, successor: State | None) -> _Known:
        """Return the inputs and the noise of a step. Raises PathError if no noise explains it."""
        assert isinstance(pair, Moment)
        if successor is None:
            return _Known(pair.inputs)
        if self._observed is not self:
            return self._observed.given(pair, successor)
        assert isinstance(successor, tuple)
        return _Known(pair.inputs, self.world.abduce(pair, successor))

    def beyond(self, given: _Known) -> _Known:
        """Return the inputs that the world forecasts, or those that its own are resampled from."""
        if self.world.recorded_steps:
            return _Known(given.inputs, ahead=given.ahead + 1)
        return _Known(self.world.forecast(given.inputs))

    def certain(self, state: Floats, action: Ints, given: _Known) -> bool:
        """Return whether the noise is a point, does not exist, or led to the observed outcome."""
        if given.ahead:
            return False
        if not self.world.noise:
            return True
        noise = given.noise
        return noise is not None and (noise.is_point or bool(self._happened(noise, state, action)[0]))

    def move(self, keys: Keys, states: Floats, actions: Ints, given: _Known) -> Floats:
        """Return the next states [n, f]: the observed one where the observed action is taken in the observed state."""
        noise = given.noise
        if noise is None:
            return self.world.step(states, actions, self._fresh(keys), self.inputs(keys, given))
        happened = self._happened(noise, states, actions)
        if happened.all():
            return np.repeat(np.array([noise.successor]), len(states), axis=0)
        moved = self.world.step(states, actions, self._drawn(noise, keys), given.inputs)
        moved[happened] = noise.successor
        return moved

    def unrecorded(self, keys: Keys, states: Floats, actions: Ints, given: _Known) -> Bools:
        """Return where the world extrapolates; not where what was observed happens again."""
        if not self.world.learned_from:
            return np.zeros(len(states), dtype=np.bool_)
        found = self.world.unrecorded(states, actions, self.inputs(keys, given))
        return found if given.noise is None else found & ~self._happened(given.noise, states, actions)

    def inputs(self, keys: Keys, given: _Known) -> tuple[float, ...] | Floats:
        """Return the inputs [i] of a step or, where they are resampled, those of each particle [n, i]."""
        if not given.ahead:
            return given.inputs
        last = keys.step - given.ahead  # one number for all steps, so that the inputs of a particle belong together
        chances = uniforms(keys.seed, INPUTS, last, keys.particles, np.zeros(1, dtype=np.int64))[:, 0]
        return self.world.resample(given.inputs, given.ahead, chances)

    def _fresh(self, keys: Keys) -> Floats:
        """Return uniform numbers [n, m], the same for all worlds that are compared."""
        return uniforms(keys.seed, STATE, keys.step, keys.particles, self._components)

    def _drawn(self, noise: Abduction, keys: Keys) -> Floats:
        """Draw the noise [n, m] of an observed step from its posterior."""
        if noise.posterior is None:
            return noise.within(self._fresh(keys))
        seed, step, particles = keys
        drawn = np.empty((len(particles), self.world.noise))
        blocks = particles // BLOCK
        for block in np.unique(blocks).tolist():
            here = blocks == block
            draws, weights = _posterior(noise, seed, step, block)
            if weights is None:
                drawn[here] = draws[particles[here] % BLOCK]
            else:
                chance = uniforms(seed, POSTERIOR, step, particles[here], np.zeros(1, dtype=np.int64))[:, 0]
                drawn[here] = draws[np.minimum(np.searchsorted(weights, chance), BLOCK - 1)]
        return drawn

    def _happened(self, noise: Abduction, states: Floats, actions: Ints) -> Bools:
        """Return where what was observed happens again: rounding in `step` must not move it."""
        if self._observed is not self:
            return np.zeros(len(states), dtype=np.bool_)
        happened: Bools = (actions == noise.action) & same(states, noise.state)
        return happened


@lru_cache(maxsize=64)
def _posterior(noise: Abduction, seed: int, step: int, block: int) -> tuple[Floats, Floats | None]:
    """Return draws [BLOCK, m] for the particles of a block, and their cumulated weights; None: all weigh the same."""
    assert noise.posterior is not None
    counter = np.random.Philox(key=[seed, 4 * step + POSTERIOR], counter=[0, 0, 0, block])
    draws, weights = noise.posterior(np.random.Generator(counter), BLOCK)
    return draws, None if weights is None else np.cumsum(weights)


def dynamics_of(
    model: MDP | Simulator | VectorSimulator | CheckedWorld, main: ParticleDynamics | None = None
) -> ParticleDynamics:
    """Return the dynamics of a model; `main`: of the model that was observed, if it is another one, of its kind."""
    if isinstance(model, CheckedWorld):
        assert main is None or isinstance(main, WorldDynamics)
        return WorldDynamics(model, main)
    assert main is None or isinstance(main, RowDynamics)
    return RowDynamics(as_rows(model), None if main is None else main.rows)


def same(states: AnyArray, state: State) -> Bools:
    """Return which of states [n] or [n, f] are `state`.

    >>> same(np.array([[1.0, 2.0], [1.0, 3.0]]), (1.0, 3.0)).tolist()
    [False, True]
    """
    equal: Bools = states == np.asarray(state)
    return equal if equal.ndim == 1 else np.asarray(equal.all(axis=1))
