"""Transition distribution of one step in a world: successors, probabilities or bounds on them, and rewards.

1. At an observed transition, the step follows the posterior noise or, over a class of causal models, any distribution
   within the bounds of this class. Beyond the observed transitions, the step follows the row of the model in force.
2. If state, action and model are as observed, the outcome is as observed too, under every causal model.
3. Action noise is Gumbel noise under every causal model.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from monitor.arrays import Floats, Ints
from monitor.referee.row import counterfactual, extreme_mean, limits
from monitor.referee.world import CounterfactualWorld, Setting, looked_up
from monitor.types.specs import CausalModel

Aim = Literal["value", "least", "most"]
"""The Gumbel-Max value, or the lower or upper bound over a class of causal models."""


@dataclass(frozen=True, slots=True)
class Row:
    """Successors [K], their probabilities [K] (lower bounds if `highest` is set) and rewards [K]."""

    successors: Ints
    probabilities: Floats
    highest: Floats | None
    rewards: Floats


def row(setting: Setting, world: CounterfactualWorld, at: tuple[int, int], causal_model: CausalModel) -> Row:
    """Return the row of the pair `at` (state, action) at the current offset of a world; with bounds unless `gumbel`."""
    successors, probabilities = setting.row(world.now, *at)
    highest: Floats | None = None
    if len(world.seen) > 1:
        successors, probabilities, highest = _posterior(setting, world, at, causal_model)
    kept = np.flatnonzero(probabilities if highest is None else highest)
    successors = successors[kept]
    rewards = setting.rewards(world.now, *at, successors)
    return Row(successors, probabilities[kept], None if highest is None else highest[kept], rewards)


def _posterior(
    setting: Setting, world: CounterfactualWorld, at: tuple[int, int], causal_model: CausalModel
) -> tuple[Ints, Floats, Floats | None]:
    """Return successors, probabilities (or lower bounds) and upper bounds, given the transition observed now."""
    step, outcome = world.seen[0], world.seen[1].state
    assert step.action is not None
    observed, asked = setting.row(step.regime, step.state, step.action), setting.row(world.now, *at)
    both = np.union1d(observed[0], asked[0])
    p, q, i = looked_up(*observed, both), looked_up(*asked, both), int(np.searchsorted(both, outcome))
    if causal_model == "gumbel":
        return both, counterfactual(p, q, i), None
    if (at, world.now.model) == ((step.state, step.action), step.regime.model):
        return both, np.eye(1, len(both), i)[0], None
    assert causal_model != "world", "a table is evaluated"
    return both, *limits(p, q, i, causal_model)


def mixed(rows: list[tuple[float, Row]]) -> Row:
    """Return the mixture of weighted rows without bounds; a successor's reward is its mean over the rows."""
    weights = np.concatenate([weight * one.probabilities for weight, one in rows])
    rewards = weights * np.concatenate([one.rewards for _, one in rows])
    successors, index = np.unique(np.concatenate([one.successors for _, one in rows]), return_inverse=True)
    probabilities: Floats = np.bincount(index, weights).astype(np.float64)
    return Row(successors, probabilities, None, np.bincount(index, rewards) / probabilities)


def mean(one: Row, values: Floats, aim: Aim) -> float:
    """Return the mean of `values` [K] over the row, or its minimum or maximum within the row's bounds."""
    if one.highest is None:
        return float(one.probabilities @ values)
    return extreme_mean(one.probabilities, one.highest, values, largest=aim == "most")
