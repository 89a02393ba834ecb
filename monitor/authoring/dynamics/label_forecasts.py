"""Forecasts of labels by a learned world, for a comparison with tables."""

from __future__ import annotations

from functools import cache
from typing import Final

import numpy as np

from monitor.arrays import Bools, Floats, Ints
from monitor.authoring.dynamics.fitted_policy import FittedPolicy
from monitor.authoring.dynamics.steps import RecordedSteps
from monitor.authoring.learning.forecast_skill import ForecastSet
from monitor.authoring.proposal.rules import LONGEST
from monitor.worlds import with_inputs
from monitor.worlds.location_scale import LocationScale

MOST: Final = 1_000
"""Held-out transitions after which a forecast is made, drawn from all."""
BLOCK: Final = 100
"""Transitions whose forecasts are made at once."""
DRAWS: Final = 200
"""Of a forecast. They add at most half a percent of the squared error of always forecasting the frequency."""


class ForecastingWorld:
    """A learned world, under the policy of the recordings, as a `Forecaster`.

    Args:
        world: the world, and the policy.
        problems: why the world is not good enough.
        steps: the recorded steps that it was not learned from; other transitions have no forecast.
        paths: [n] of the held-out transitions, one path after another.
        seed: of the draws.
    """

    name = "a world with numbers"
    size = None

    def __init__(
        self,
        world: tuple[LocationScale, FittedPolicy],
        problems: tuple[str, ...],
        steps: RecordedSteps,
        paths: Ints,
        seed: int,
    ) -> None:
        (self._world, self._policy), self._problems, self._seed = world, problems, seed
        at, self._steps, self._after = _steps_of(paths, steps), steps, _following(steps)
        known = np.flatnonzero(at >= 0)
        self._rows = np.sort(np.random.default_rng(seed).permutation(known)[:MOST])
        self._at, self._count = at[self._rows], len(paths)
        self._first = cache(self._first_time)

    def forecasts(self, label: str, horizon: int) -> ForecastSet:
        """Return P(the label holds now or within `horizon` steps) after each transition, [n]; NaN: not made."""
        assert horizon <= LONGEST, "further steps are not drawn"
        found = np.full(self._count, np.nan)
        found[self._rows] = (self._first(label) <= horizon).mean(axis=1)
        return ForecastSet(found, np.full(self._count, float(DRAWS)))

    def checks(self, names: object) -> tuple[float, tuple[str, ...]]:
        """Return the gain of a history, which is not computed, and why the world is not good enough."""
        del names
        return np.nan, self._problems

    def _first_time(self, label: str) -> Ints:
        """Return the step at which a label first holds in each draw, [rows, DRAWS]; after all horizons if in none."""
        rng = np.random.default_rng(self._seed)
        blocks = np.array_split(self._at, np.arange(BLOCK, len(self._at), BLOCK))
        drawn = (self._drawn(label, at, rng) for at in blocks if len(at))
        return np.concatenate([np.zeros((0, DRAWS), np.int64), *drawn])

    def _drawn(self, label: str, at: Ints, rng: np.random.Generator) -> Ints:
        x = np.repeat(self._steps.x_next[at], DRAWS, axis=0)
        first = np.full(len(x), LONGEST + 1)
        for k, w in enumerate(self._inputs(at, rng)):
            holds: Bools = self._world.holds(label, x)
            first[holds & (first > LONGEST)] = k
            seen = with_inputs(x, w) if self._policy.width > x.shape[1] else x
            chances = self._policy.probabilities(seen).cumsum(axis=1)[:, :-1]
            a = (rng.uniform(size=(len(x), 1)) > chances).sum(axis=1)
            x = self._world.step(x, a, rng.uniform(1e-9, 1 - 1e-9, (len(x), self._world.noise)), w)
        return first.reshape(-1, DRAWS)

    def _inputs(self, at: Ints, rng: np.random.Generator) -> Floats:
        """Return the inputs of the steps to come, [LONGEST + 1, draws, i]: those recorded next, then resampled ones."""
        now = self._steps.w[self._after[at]]
        found = np.empty((LONGEST + 1, len(at) * DRAWS, now.shape[1]))
        found[0] = np.repeat(now, DRAWS, axis=0)
        if self._world.resample is None:  # the world has no inputs
            return found
        for n, w in enumerate(now):
            chances = rng.uniform(size=DRAWS)
            for ahead in range(1, LONGEST + 1):
                found[ahead, n * DRAWS : (n + 1) * DRAWS] = self._world.resample(w, ahead, chances)
        return found


def _steps_of(paths: Ints, steps: RecordedSteps) -> Ints:
    """Return the recorded step that each transition is, [n]; -1 where its next state was not recorded.

    Both are in the order of their rows within a path. A path lacks the next state of its last transition at most.
    """
    rows, found = steps.by_path(), np.full(len(paths), -1)
    different, begins, counts = np.unique(paths, return_index=True, return_counts=True)
    for path, begin, count in zip(different.tolist(), begins, counts, strict=True):
        known = rows.get(path, np.zeros(0, np.int64))[:count]
        found[begin : begin + len(known)] = known
    return found


def _following(steps: RecordedSteps) -> Ints:
    """Return the step after each step of the same path; the step itself if there is none."""
    after = np.arange(len(steps))
    for rows in steps.by_path().values():
        after[rows[:-1]] = rows[1:]
    return after
