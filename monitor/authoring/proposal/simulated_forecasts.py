"""Forecasts by a table of a simulator, on episodes simulated in it: how much its states tell of the event."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from monitor.arrays import Bools, Floats, Ints
from monitor.authoring.learning.cross_fitting import ForecastJudge
from monitor.authoring.learning.forecast_skill import Forecasts
from monitor.authoring.learning.outcomes import Outcomes
from monitor.authoring.proposal.paths import RecordedPath
from monitor.model.mdp import MDP

EXACT: Final = 1e6
"""Steps on which a forecast rests that is exact."""


@dataclass(frozen=True)
class SimulatedForecasts:
    """A table under a policy [S, A] as a `Forecaster` after each transition of paths."""

    model: MDP
    policy: Floats
    after: Ints
    name: str = "the table of the simulator"

    @property
    def size(self) -> int:
        """The number of states."""
        return self.model.states

    def forecasts(self, label: str, horizon: int) -> Forecasts:
        """Return P(the label holds now or within `horizon` steps) after each transition, [n]."""
        ends = np.array([self.model.is_absorbing(state) for state in range(self.model.states)])
        said, ended = (self._within(each, horizon)[self.after] for each in (self.model.labels[label], ends))
        return Forecasts(said, np.full(len(said), EXACT), ended)

    def checks(self, names: object) -> tuple[float, tuple[str, ...]]:
        """Return that nothing is to be checked: the table is the simulator's."""
        del names
        return 0.0, ()

    def _within(self, target: Bools, horizon: int) -> Floats:
        rows = np.repeat(np.arange(self.model.states * self.model.actions), np.diff(self.model.indptr))
        values = target.astype(np.float64)
        for _ in range(horizon):
            steps = self.model.probabilities * values[self.model.successors]
            after = np.bincount(rows, steps, self.policy.size).reshape(self.policy.shape)
            values = np.where(target, 1.0, (self.policy * after).sum(axis=1))
        return np.asarray(values)


def judge_of(model: MDP, policy: Floats, label: str, paths: Sequence[RecordedPath]) -> ForecastJudge:
    """Return what judges the table's forecasts of the label on paths that were simulated in it."""
    outcomes = Outcomes(0, np.ones(1, np.bool_), fraction=1.0)
    for number, path in enumerate(paths):
        holds = model.labels[label][path.states[1:], np.newaxis]
        never, ended = np.zeros_like(holds), np.zeros(len(holds), np.bool_)
        ended[-1:] = path.ended
        outcomes.add_labels((holds, never, never), ended, np.full(len(holds), number))
    after = np.concatenate([path.states[1:] for path in paths])
    return ForecastJudge(SimulatedForecasts(model, policy, after), outcomes, [label], np.zeros_like)
