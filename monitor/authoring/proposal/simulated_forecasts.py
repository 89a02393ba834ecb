"""Judge how well the states of a simulator's table predict the event, on episodes simulated in the table."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from monitor.arrays import Bools, Floats
from monitor.authoring.learning.cross_fitting import ForecastJudge
from monitor.authoring.learning.forecast_skill import EXACT, ForecastSet
from monitor.authoring.proposal.paths import RecordedPath, outcomes_of
from monitor.authoring.proposal.policies import expected
from monitor.model.mdp import MDP


def judge_of(model: MDP, policy: Floats, label: str, paths: Sequence[RecordedPath]) -> ForecastJudge:
    """Return a judge of the table's forecasts of a label. The policy [S, A] acted on the simulated `paths`."""
    ends = np.array([model.is_absorbing(state) for state in range(model.states)])
    after = np.concatenate([path.states[1:] for path in paths])

    def forecasts(name: str, horizon: int) -> ForecastSet:
        said, ended = (_within(model, policy, each, horizon)[after] for each in (model.labels[name], ends))
        return ForecastSet(said, np.full(len(said), EXACT), ended)

    return ForecastJudge(forecasts, outcomes_of(paths, model.labels[label]), [label], np.zeros_like)


def _within(model: MDP, policy: Floats, target: Bools, horizon: int) -> Floats:
    """Return P(the target holds now or within `horizon` steps) in each state, [S]."""
    values = target.astype(np.float64)
    for _ in range(horizon):
        values = np.where(target, 1.0, (policy * expected(model, values)).sum(axis=1))
    return np.asarray(values)
