"""The test of a world with numbers: its noise, inverted from the observed steps, must be uniform and independent.

Each number of the noise is sorted into `CELLS` cells, equally likely in a true world whatever happened before.
So each pair of what may matter (which noise, its feature's range, the action) is a row with `CELLS` successors of known
probability, and the test of tables (`monitor.statistics.model_betting`) applies as it is: it bets that some cells come
too often, in every row by what was seen there. An interval of noise gives a uniform draw in it, which is uniform too if
the world is true; noise that did not matter is not tested.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final
from zlib import crc32

import numpy as np

from monitor.arrays import Floats, Ints
from monitor.sampled.noise import STATE, uniforms
from monitor.types import Episode, Step
from monitor.worlds import CheckedWorld, Moment

CELLS: Final = 8
"""Parts of (0, 1) that are counted."""
RANGES: Final = 3
"""Parts of a feature's range that are told apart."""


class NoiseRows:
    """The rows of the test of one world, in the form of a table's: `RANGES` x actions for each number of the noise."""

    counts = None

    def __init__(self, world: CheckedWorld) -> None:
        self._world, self.actions = world, world.actions
        rows = world.noise * RANGES * self.actions
        self.indptr: Ints = np.arange(rows + 1) * CELLS
        self.successors: Ints = np.tile(np.arange(CELLS), rows)
        self.probabilities: Floats = np.full(rows * CELLS, 1.0 / CELLS)
        self._features = world.noise_features  # the feature that each noise drives, if one each
        self._cuts = [_cuts(each.low, each.high) for each in world.features]
        self.state_names = tuple(self._name(noise, part) for noise in range(world.noise) for part in range(RANGES))
        self.action_names = world.action_names
        order = ("lowest", "2nd", "3rd", "4th", "5th", "6th", "7th", "highest")
        self.successor_names = tuple(f"in the {each} eighth of what is expected" for each in order)
        self._numbers = np.arange(max(world.noise, 1))

    def _name(self, noise: int, part: int) -> str:
        if self._features is None:
            return f"noise {noise}"
        feature, cuts = self._world.features[self._features[noise]], self._cuts[self._features[noise]]
        if cuts is None:
            return feature.name
        ends = feature.low, *cuts, feature.high
        return f"{feature.name} {ends[part]:.3g} to {ends[part + 1]:.3g}"

    def transitions(self, agent: str, before: Step, after: Step) -> Iterator[tuple[int, int]]:
        """Yield the row and the cell of each number of the noise of an observed step."""
        assert isinstance(before.state, tuple)
        assert isinstance(after.state, tuple)
        assert before.action is not None
        found = self._world.abduce(Moment(before.state, before.action, before.inputs), after.state)
        if found.posterior is not None:
            generator = np.random.Generator(np.random.Philox(key=[_seed(agent, before.episode), before.seq]))
            noise = _drawn(found.posterior(generator, 64), generator)
            matters = np.ones(self._world.noise, dtype=np.bool_)
        else:
            noise, matters = found.low, (found.low > 0.0) | (found.high < 1.0)
            if not found.is_point:
                of = uniforms(_seed(agent, before.episode), STATE, before.seq, np.zeros(1, np.int64), self._numbers)
                noise = found.within(of[0, : self._world.noise])
        for number in np.flatnonzero(matters).tolist():
            part = self._part(number, before.state)
            row = (number * RANGES + part) * self.actions + before.action
            yield row, min(int(noise[number] * CELLS), CELLS - 1)

    def _part(self, number: int, state: tuple[float, ...]) -> int:
        if self._features is None:
            return 0
        feature = self._features[number]
        cuts = self._cuts[feature]
        return 0 if cuts is None else int(np.searchsorted(cuts, state[feature], side="right"))


def _cuts(low: float, high: float) -> tuple[float, ...] | None:
    """Return where a range is divided; None if it is not bounded."""
    if not np.isfinite([low, high]).all():
        return None
    return tuple(low + (high - low) * part / RANGES for part in range(1, RANGES))


def _seed(agent: str, episode: Episode) -> int:
    return crc32(f"{agent}\0{episode!r}".encode("utf-8", "surrogatepass"))


def _drawn(posterior: tuple[Floats, Floats | None], generator: np.random.Generator) -> Floats:
    """Return one draw [m] of a posterior."""
    draws, weights = posterior
    return np.asarray(draws[generator.choice(len(draws), p=weights)])
