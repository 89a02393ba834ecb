"""Movement of particles. The noise of an observed step is inferred (abduction), then applied in other states."""

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
from monitor.types.stream_events import State
from monitor.worlds import Abduction, CheckedWorld, Moment

__all__ = [
    "AnyPair",
    "Given",
    "Keys",
    "ParticleDynamics",
    "RowDynamics",
    "State",
    "WorldDynamics",
    "dynamics_of",
    "same",
]

AnyPair = tuple[int, int | None] | Moment
"""A state and the action taken in it (None if it is not yet taken)."""
Given = Any
"""Information about the noise of a step; each kind of dynamics has a separate type."""

BLOCK = 1024
"""Number of particles whose noise is drawn together, if the world has a `posterior` function."""


class Keys(NamedTuple):
    """Keys of the noise of particles [n] at one step: seed, number of the step in the episode, numbers of particles."""

    seed: int
    step: int
    particles: Ints


class ParticleDynamics(Protocol):
    """Movement, labels and rewards of particles in states [n], or [n, f] in a world with numbers."""

    @property
    def labels(self) -> Collection[str]:
        """The label names that `holds` accepts."""
        ...

    def holds(self, label: str, states: Any) -> Bools:  # noqa: ANN401 - Ints or Floats
        """Return whether states have a label, [n]."""
        ...

    def rewards(self, states: Any, actions: Ints, successors: Any) -> Floats:  # noqa: ANN401 - Ints or Floats
        """Return the rewards R(s, a, s') [n]."""
        ...

    def given(self, pair: AnyPair, successor: State | None) -> Given:
        """Return the information that an observed step gives about its noise; `successor`: None if unknown.

        Raises PathError if the step is impossible.
        """
        ...

    def beyond(self, given: Given) -> Given:
        """Return the information about the noise of the next step; `given`: that of a step of unknown outcome."""
        ...

    def inputs(self, keys: Keys, given: Given) -> tuple[float, ...] | Floats:
        """Return the inputs [i] of a step, or of each particle [n, i]; empty in a model without inputs."""
        ...

    def certain(self, state: AnyArray, action: Ints, given: Given) -> bool:
        """Return whether one particle, with state [1] and action [1], moves without drawing noise."""
        ...

    def move(self, keys: Keys, states: AnyArray, actions: Ints, given: Given) -> AnyArray:
        """Return the next states of particles [n]."""
        ...

    def unrecorded(self, keys: Keys, states: AnyArray, actions: Ints, given: Given) -> Bools:
        """Return for each of n particles whether its move has no recorded data, [n]."""
        ...


class RowDynamics:
    """Movement by rows, with Gumbel-Max noise.

    Args:
        rows: the rows of the world in which particles move.
        observed: the rows of the factual world; None if they are the same.
    """

    def __init__(self, rows: RowSource, observed: RowSource | None = None) -> None:
        self.rows, self._observed = rows, observed or rows
        self.labels, self.holds, self.rewards = rows.labels, rows.holds, rows.rewards

    def given(self, pair: AnyPair, successor: State | None) -> ObservedRow:
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
        """Return `NOTHING`, because nothing is observed about the noise of later steps."""
        del given
        return NOTHING

    def inputs(self, keys: Keys, given: ObservedRow) -> tuple[float, ...]:
        """Return no inputs."""
        del keys, given
        return ()

    def certain(self, state: Ints, action: Ints, given: ObservedRow) -> bool:
        """Return False, because the noise of a row must be drawn."""
        del state, action, given
        return False

    def move(self, keys: Keys, states: Ints, actions: Ints, given: ObservedRow) -> Ints:
        """Return the next states [n], which are the outcomes of the particles' rows (see `race`)."""
        return race(keys.seed, STATE, keys.step, keys.particles, self.rows.entries(states, actions), given)

    def unrecorded(self, keys: Keys, states: Ints, actions: Ints, given: ObservedRow) -> Bools:
        """Return False [n]: for rows, the exact answers report unrecorded pairs.

        See docs/semantics/learned-models.md, section 13.6.
        """
        del keys, actions, given
        return np.zeros(len(states), dtype=np.bool_)


@dataclass(frozen=True)
class _Known:
    """Information about a step of a world: the inputs and, if the outcome was observed, the noise.

    `ahead`: number of steps from the recorded inputs to this step, if this step's inputs are resampled; else 0.
    """

    inputs: tuple[float, ...]
    noise: Abduction | None = None
    ahead: int = 0


class WorldDynamics:
    """Movement by the step function of a world with numbers. Its noise is inferred from the observed steps.

    Args:
        world: the world in which particles move.
        observed: the dynamics of the factual world; None if they are the same.
    """

    def __init__(self, world: CheckedWorld, observed: WorldDynamics | None = None) -> None:
        self.world, self._observed = world, observed or self
        self.labels, self.holds, self.rewards = world.labels, world.holds, world.rewards
        self._components = np.arange(world.noise)

    def given(self, pair: AnyPair, successor: State | None) -> _Known:
        """Return the inputs and the noise of a step. Raises PathError if no noise explains it."""
        assert isinstance(pair, Moment)
        if successor is None:
            return _Known(pair.inputs)
        if self._observed is not self:
            return self._observed.given(pair, successor)
        assert isinstance(successor, tuple)
        return _Known(pair.inputs, self.world.abduce(pair, successor))

    def beyond(self, given: _Known) -> _Known:
        """Return the forecast inputs or, if the world resamples inputs, the known inputs with `ahead` larger by 1."""
        if self.world.recorded_steps:
            return _Known(given.inputs, ahead=given.ahead + 1)
        return _Known(self.world.forecast(given.inputs))

    def certain(self, state: Floats, action: Ints, given: _Known) -> bool:
        """Return True if the noise is known exactly, if there is no noise, or if the observed pair is repeated.

        In these cases the step needs no draw.
        """
        if given.ahead:
            return False
        if not self.world.noise:
            return True
        noise = given.noise
        return noise is not None and (noise.is_point or bool(self._happened(noise, state, action)[0]))

    def move(self, keys: Keys, states: Floats, actions: Ints, given: _Known) -> Floats:
        """Return the next states [n, f]. The observed pair leads to the observed successor."""
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
        """Return for which particles the world extrapolates. Repeating the observed step is no extrapolation."""
        if not self.world.learned_from:
            return np.zeros(len(states), dtype=np.bool_)
        found = self.world.unrecorded(states, actions, self.inputs(keys, given))
        return found if given.noise is None else found & ~self._happened(given.noise, states, actions)

    def inputs(self, keys: Keys, given: _Known) -> tuple[float, ...] | Floats:
        """Return the inputs [i] of a step or, if inputs are resampled, the inputs of each particle [n, i]."""
        if not given.ahead:
            return given.inputs
        last = keys.step - given.ahead  # the same at all steps, so all inputs of a particle are from one recording
        chances = uniforms(keys.seed, INPUTS, last, keys.particles, np.zeros(1, dtype=np.int64))[:, 0]
        return self.world.resample(given.inputs, given.ahead, chances)

    def _fresh(self, keys: Keys) -> Floats:
        """Return uniform numbers [n, m], the same in all worlds that are compared."""
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
        """Return which particles repeat the observed step.

        The successor of these particles is copied and not computed, because `step` may round.
        """
        if self._observed is not self:
            return np.zeros(len(states), dtype=np.bool_)
        happened: Bools = (actions == noise.action) & same(states, noise.state)
        return happened


@lru_cache(maxsize=64)
def _posterior(noise: Abduction, seed: int, step: int, block: int) -> tuple[Floats, Floats | None]:
    """Return draws [BLOCK, m] for the particles of a block, and their cumulative weights; None if weights are equal."""
    assert noise.posterior is not None
    counter = np.random.Philox(key=[seed, 4 * step + POSTERIOR], counter=[0, 0, 0, block])
    draws, weights = noise.posterior(np.random.Generator(counter), BLOCK)
    return draws, None if weights is None else np.cumsum(weights)


def dynamics_of(
    model: MDP | Simulator | VectorSimulator | CheckedWorld, main: ParticleDynamics | None = None
) -> ParticleDynamics:
    """Return the dynamics of a model; `main`: the dynamics of the observed model, if the observed model is another."""
    if isinstance(model, CheckedWorld):
        assert main is None or isinstance(main, WorldDynamics)
        return WorldDynamics(model, main)
    assert main is None or isinstance(main, RowDynamics)
    return RowDynamics(as_rows(model), None if main is None else main.rows)


def same(states: AnyArray, state: State) -> Bools:
    """Return for each of states [n] or [n, f] whether it equals `state`.

    >>> same(np.array([[1.0, 2.0], [1.0, 3.0]]), (1.0, 3.0)).tolist()
    [False, True]
    """
    equal: Bools = states == np.asarray(state)
    return equal if equal.ndim == 1 else np.asarray(equal.all(axis=1))
