"""Forecasts of labels by a learned world, for a comparison with tables."""

from __future__ import annotations

from functools import cache
from typing import Final

import numpy as np

from monitor.arrays import Bools, Floats, Ints
from monitor.authoring.dynamics.fitted_policy import FittedPolicy
from monitor.authoring.dynamics.steps import RecordedSteps
from monitor.authoring.learning.forecast_skill import ForecastSet
from monitor.authoring.learning.model_problem import ModelProblem
from monitor.authoring.learning.model_report import HORIZONS
from monitor.authoring.proposal.rules import LONGEST
from monitor.worlds import with_inputs
from monitor.worlds.location_scale import LocationScale

MOST: Final = 1_000
"""Largest number of held-out transitions with a forecast. If there are more, a random sample is used."""
BLOCK: Final = 100
"""Number of transitions whose forecasts are computed together."""
DRAWS: Final = 200
"""Number of draws for each forecast. The draws add a variance of at most 0.5 % of the base rate's squared error."""


class ForecastingWorld:
    """A learned world, under the policy of the recordings, as a `Forecaster`.

    Args:
        world: the world and the policy.
        problems: reasons why the world is not good enough.
        steps: recorded steps that the world was not learned from. Other transitions have no forecast.
        paths: [n] paths of the held-out transitions, one path after another.
        seed: seed of the draws.
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
        (self._world, self._policy), self._seed = world, seed
        self._problems = tuple(map(ModelProblem, problems))
        at, self._steps, self._after = _steps_of(paths, steps), steps, _following(steps)
        known = np.flatnonzero(at >= 0)
        self._rows = np.sort(np.random.default_rng(seed).permutation(known)[:MOST])
        self._at, self._count = at[self._rows], len(paths)
        self._first = cache(self._first_time)

    def forecasts(self, label: str, horizon: int) -> ForecastSet:
        """Return P(the label holds now or within `horizon` steps) after each transition, [n]; NaN: no forecast."""
        assert horizon <= LONGEST, "further steps are not drawn"
        ahead = max(HORIZONS) if horizon <= max(HORIZONS) else LONGEST  # a comparison needs only `HORIZONS`
        found = np.full(self._count, np.nan)
        found[self._rows] = (self._first(label, ahead) <= horizon).mean(axis=1)
        return ForecastSet(found, np.full(self._count, float(DRAWS)))

    def checks(self, names: object) -> tuple[float, tuple[ModelProblem, ...]]:
        """Return NaN and the world's problems.

        NaN stands for the gain from a history, which is not measured for a world.
        """
        del names
        return np.nan, self._problems

    def _first_time(self, label: str, ahead: int) -> Ints:
        """Return the step at which a label first holds in each draw, [rows, DRAWS].

        If the label does not hold within `ahead` steps, the result is `ahead` + 1.
        """
        rng = np.random.default_rng(self._seed)
        blocks = np.array_split(self._at, np.arange(BLOCK, len(self._at), BLOCK))
        drawn = (self._drawn(label, at, ahead, rng) for at in blocks if len(at))
        return np.concatenate([np.zeros((0, DRAWS), np.int64), *drawn])

    def _drawn(self, label: str, at: Ints, ahead: int, rng: np.random.Generator) -> Ints:
        x = np.repeat(self._steps.x_next[at], DRAWS, axis=0)
        first = np.full(len(x), ahead + 1)
        for k, w in enumerate(self._inputs(at, ahead, rng)):
            holds: Bools = self._world.holds(label, x)
            first[holds & (first > ahead)] = k
            if k == ahead:
                break
            seen = with_inputs(x, w) if self._policy.width > x.shape[1] else x
            chances = self._policy.probabilities(seen).cumsum(axis=1)[:, :-1]
            a = (rng.uniform(size=(len(x), 1)) > chances).sum(axis=1)
            x = self._world.step(x, a, rng.uniform(1e-9, 1 - 1e-9, (len(x), self._world.noise)), w)
        return first.reshape(-1, DRAWS)

    def _inputs(self, at: Ints, longest: int, rng: np.random.Generator) -> Floats:
        """Return the inputs of the coming steps, [longest + 1, draws, i]: recorded inputs, then resampled inputs."""
        now = self._steps.w[self._after[at]]
        found = np.empty((longest + 1, len(at) * DRAWS, now.shape[1]))
        found[0] = np.repeat(now, DRAWS, axis=0)
        if self._world.resample is None:  # the world has no inputs
            return found
        for n, w in enumerate(now):
            chances = rng.uniform(size=DRAWS)
            for ahead in range(1, longest + 1):
                found[ahead, n * DRAWS : (n + 1) * DRAWS] = self._world.resample(w, ahead, chances)
        return found


def _steps_of(paths: Ints, steps: RecordedSteps) -> Ints:
    """Return the recorded step of each transition, [n]; -1 if its next state was not recorded.

    Steps and transitions are in the order of their rows within a path. Only the last transition of a path may lack its
    next state.
    """
    rows, found = steps.by_path(), np.full(len(paths), -1)
    different, begins, counts = np.unique(paths, return_index=True, return_counts=True)
    for path, begin, count in zip(different.tolist(), begins, counts, strict=True):
        known = rows.get(path, np.zeros(0, np.int64))[:count]
        found[begin : begin + len(known)] = known
    return found


def _following(steps: RecordedSteps) -> Ints:
    """Return for each step the next step of the same path, or the step itself if there is none."""
    after = np.arange(len(steps))
    for rows in steps.by_path().values():
        after[rows[:-1]] = rows[1:]
    return after
