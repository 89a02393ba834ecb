"""One step of a world: where it may lead, with which probability or within which bounds, and what it earns.

1. While transitions are observed, the step follows the posterior noise (or, over a class of causal models, any
   distribution within the bounds of that class); beyond them, the row of the model in force.
2. The same action in the same state of the same model has the observed outcome under every causal model.
3. Action noise is Gumbel under every causal model.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from monitor.referee.row import Floats, counterfactual, limits, reachable_mean
from monitor.referee.world import Ints, Setting, World
from monitor.types import CausalModel

__all__ = ["Aim", "Row", "bounded", "certain", "mean", "mixed"]

Aim = Literal["value", "least", "most"]
"""The Gumbel-Max value, or the end of the range over a class of causal models."""


@dataclass(frozen=True, slots=True)
class Row:
    """Successors [K], their probabilities [K] (the lowest ones, where `highest` is set) and what each earns [K]."""

    successors: Ints
    probabilities: Floats
    highest: Floats | None
    earned: Floats


def certain(setting: Setting, world: World, state: int, action: int) -> Row:
    """Return the Gumbel-Max distribution of (state, action) at the present offset of a world."""
    successors, probabilities = setting.row(world.now, state, action)
    observed = setting.observed(world, state, action)
    if observed is not None:
        successors, p, q, i = observed
        probabilities = counterfactual(p, q, i)
    return _row(setting, world, (state, action), (successors, probabilities, None))


def bounded(setting: Setting, world: World, state: int, action: int, causal_model: CausalModel) -> Row:
    """Return the lowest and highest probabilities over a class of causal models, where a transition was observed."""
    observed = setting.observed(world, state, action)
    if observed is None or causal_model == "gumbel":
        return certain(setting, world, state, action)
    successors, p, q, i = observed
    step = world.seen[0]
    if (state, action, world.now.model) == (step.state, step.action, step.moment.model):
        same = np.zeros(len(successors))
        same[i] = 1.0
        return _row(setting, world, (state, action), (successors, same, None))
    lowest, highest = limits(p, q, i, causal_model)
    return _row(setting, world, (state, action), (successors, lowest, highest))


def _row(setting: Setting, world: World, at: tuple[int, int], found: tuple[Ints, Floats, Floats | None]) -> Row:
    """Return the row without impossible successors, with rewards."""
    successors, lowest, highest = found
    kept = np.flatnonzero(lowest if highest is None else highest)
    successors = successors[kept]
    earned = setting.rewards(world.now, *at, successors)
    return Row(successors, lowest[kept], None if highest is None else highest[kept], earned)


def mixed(rows: list[tuple[float, Row]]) -> Row:
    """Return the mean of several rows with weights that sum to 1; what a successor earns is its mean over the rows."""
    if len(rows) == 1:
        return rows[0][1]
    weights = np.concatenate([weight * row.probabilities for weight, row in rows])
    earned = weights * np.concatenate([row.earned for _, row in rows])
    successors, place = np.unique(np.concatenate([row.successors for _, row in rows]), return_inverse=True)
    probabilities = np.bincount(place, weights)
    return Row(successors, probabilities, None, np.bincount(place, earned) / probabilities)


def mean(row: Row, values: Floats, aim: Aim) -> float:
    """Return the mean of `values` [K] over the row, or the least or most of it within the row's bounds."""
    if row.highest is None:
        return float(row.probabilities @ values)
    return reachable_mean(row.probabilities, row.highest, values, largest=aim == "most")
