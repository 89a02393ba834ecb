"""Test models without a table of rows: transform each observation, and test whether the results are uniform.

In a world with numbers, the noise inferred from observed steps must be uniform and independent. Each number of the
noise falls into one of `CELLS` cells, which are equally likely in a correct world, whatever happened before. So each
combination of noise number, range of its feature, and action is a row with `CELLS` successors of known probability.
Therefore the test of tables (`monitor.statistics.model_betting`) applies without change. In every row separately, the
test bets that some cells occur too often. If only an interval of the noise is known, a uniform sample from this
interval is tested; in a correct world the sample is uniform in (0, 1). Noise that did not matter is not tested.

With hidden states, each observation is compared with its distribution given the earlier observations. If the model is
correct, the randomised probability integral transform of an observation is uniform in (0, 1) and independent of all
earlier observations (D. Cox & E. Snell, "A general definition of residuals", 1968).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Final
from zlib import crc32

import numpy as np

from monitor.arrays import Bools, Floats, Ints
from monitor.errors import MonitorError
from monitor.hidden.filtering import NOTHING, Filter
from monitor.sampled.noise import STATE, uniforms
from monitor.types.stream_events import Step
from monitor.worlds import Abduction, CheckedWorld, Moment

ORDER: Final = ("lowest", "2nd", "3rd", "4th", "5th", "6th", "7th", "highest")
CELLS: Final = len(ORDER)
"""Number of equal parts of (0, 1) into which the noise is divided."""
DRAWS: Final = 64
"""Number of samples of a posterior, of which one is tested."""
RANGES: Final = 3
"""Number of equal parts of a feature's range. Each part has rows of its own."""


class UniformRows(ABC):
    """Rows of `CELLS` cells, equally likely if the model is correct, in the form of a table. A row is a pair of names.

    Args:
        state_names: first parts of the names of rows.
        action_names: second parts of the names of rows.
    """

    counts = None

    def __init__(self, state_names: Sequence[str], action_names: Sequence[str]) -> None:
        self.state_names, self.action_names, self.actions = tuple(state_names), tuple(action_names), len(action_names)
        rows = len(state_names) * self.actions
        self.indptr: Ints = np.arange(rows + 1) * CELLS
        self.successors: Ints = np.tile(np.arange(CELLS), rows)
        self.probabilities: Floats = np.full(rows * CELLS, 1.0 / CELLS)
        self.successor_names = tuple(f"in the {each} eighth of what is expected" for each in ORDER)

    @abstractmethod
    def transitions(self, agent: str, before: Step, after: Step) -> Iterator[tuple[int, int]]:
        """Yield the rows that an observed step tests, and the cell of each."""
        raise NotImplementedError


class NoiseRows(UniformRows):
    """The rows of the test of one world: `RANGES` x actions for each number of the noise."""

    def __init__(self, world: CheckedWorld) -> None:
        self._world = world
        self._features = world.noise_features  # the feature that each noise drives, if there is one
        self._cuts = [_cuts(each.low, each.high) for each in world.features]
        names = [self._name(noise, part) for noise in range(world.noise) for part in range(RANGES)]
        super().__init__(names, world.action_names)

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
        assert before.action is not None
        try:
            noise, matters = self._noise(agent, before, self._world.abduce(_moment(before), after.state))
        except MonitorError:
            return  # the world or its posterior fails at this step; verdicts that use the step report this
        for number in np.flatnonzero(matters).tolist():
            part = self._part(number, before.state)
            row = (number * RANGES + part) * self.actions + before.action
            yield row, min(int(noise[number] * CELLS), CELLS - 1)

    def _noise(self, agent: str, before: Step, found: Abduction) -> tuple[Floats, Bools]:
        """Return the noise [m] of a step, or one sample of it if it is unknown, and which of its numbers mattered."""
        seed = seed_of(agent, before)
        if found.posterior is not None:
            generator = np.random.Generator(np.random.Philox(key=[seed, before.seq]))
            draws, weights = found.posterior(generator, DRAWS)
            return draws[generator.choice(DRAWS, p=weights)], np.ones(self._world.noise, dtype=np.bool_)
        matters = (found.low > 0.0) | (found.high < 1.0)
        if found.is_point:
            return found.low, matters
        fresh = uniforms(seed, STATE, before.seq, np.zeros(1, np.int64), np.arange(self._world.noise))
        return found.within(fresh)[0], matters

    def _part(self, number: int, state: tuple[float, ...]) -> int:
        if self._features is None:
            return 0
        feature = self._features[number]
        cuts = self._cuts[feature]
        return 0 if cuts is None else int(np.searchsorted(cuts, state[feature], side="right"))


def seed_of(agent: str, step: Step) -> int:
    """Return the seed of the samples in the test of a step."""
    return crc32(f"{agent}\0{step.episode!r}".encode("utf-8", "surrogatepass"))


def _cuts(low: float, high: float) -> tuple[float, ...] | None:
    """Return the points that divide a range; None if the range is not bounded."""
    if not np.isfinite([low, high]).all():
        return None
    return tuple(low + (high - low) * part / RANGES for part in range(1, RANGES))


def _moment(step: Step) -> Moment:
    return Moment(step.state, step.action, step.inputs)


class ObservationRows(UniformRows):
    """The rows of the test of one model: one for each action after which something was observed."""

    def __init__(self, beliefs: Filter) -> None:
        self._filter = beliefs
        model = beliefs.model
        names = model.action_names or tuple(str(action) for action in range(model.actions))
        super().__init__(["observation" if model.emissions is not None else "state"], names)

    def transitions(self, agent: str, before: Step, after: Step) -> Iterator[tuple[int, int]]:
        """Yield the row of the action, and the cell of the observation after it; nothing without observation."""
        if after.state is None or before.action is None or after.inputs == NOTHING:
            return
        chances = self._filter.predicted(after.inputs)
        below = sum(chance for seen, chance in chances.items() if seen < after.state)
        only = np.zeros(1, np.int64)
        fresh = float(uniforms(seed_of(agent, after), STATE, after.seq, only, only)[0, 0])
        yield before.action, min(int((below + fresh * chances[after.state]) * CELLS), CELLS - 1)
