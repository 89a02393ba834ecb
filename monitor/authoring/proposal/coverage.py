"""On how much data a policy's value rests: the probability that it takes recorded actions only."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from monitor.arrays import Bools, Floats
from monitor.authoring.proposal.paths import RecordedPath
from monitor.authoring.proposal.policies import draws_of
from monitor.exact.inputs import tables
from monitor.model.mdp import MDP
from monitor.statistics.clusters import Estimate, ratio


def recorded_weight(model: MDP, policy: object, unsafe: Bools, horizon: int) -> Floats:
    """Return P(every action within `horizon` steps was recorded in its state) under a policy, in each state, [S].

    Paths end in states that are `unsafe` [S], and in absorbing ones. 1 for a model that was not learned. Backward
    induction; `policy`: as for `monitor.values`.
    """
    if model.counts is None:
        return np.ones(model.states)
    law = tables({"nominal": policy}, model)["nominal"]
    chances = np.stack([law.distribution(state, model.actions) for state in range(model.states)])
    stays = np.array([model.is_absorbing(state) for state in range(model.states)]) | unsafe
    recorded = (draws_of(model) > 0) & (chances > 0)
    rows = np.repeat(np.arange(model.states * model.actions), np.diff(model.indptr))
    weights = np.ones(model.states)
    for _ in range(horizon):
        after = np.bincount(rows, model.probabilities * weights[model.successors], model.states * model.actions)
        weights = np.where(stays, 1.0, (chances * recorded * after.reshape(recorded.shape)).sum(axis=1))
    return weights


def over_paths(weights: Floats, paths: Sequence[RecordedPath]) -> Estimate:
    """Return the mean weight in the states [S] that the paths visit."""
    sums = np.array([weights[path.states].sum() for path in paths])
    return ratio(sums, np.array([float(len(path.states)) for path in paths]))
