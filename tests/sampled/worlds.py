"""What the tests of sampled answers share: samplers over small worlds, and bounds on the error of a mean."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from monitor.exact import tables
from monitor.exact.evaluators import Evaluators
from monitor.logic import parse
from monitor.logic.syntax import Goal, Probability, Reward
from monitor.model import MDP
from monitor.sampled import Enumerated, Sampler
from tests.exact.small import Small

__all__ = ["FALSE_ALARM", "error_bound", "goal", "model_of", "sampler", "sampler_of", "width"]

FALSE_ALARM = 1e-6
"""Of each family of comparisons as a whole."""


def goal(text: str) -> Goal:
    parsed = parse(text)
    assert isinstance(parsed, Goal)
    return parsed


def model_of(case: dict[str, Any]) -> MDP:
    return MDP.from_transitions(
        states=case["states"],
        actions=case["actions"],
        transitions=case["transitions"],
        rewards=case["rewards"],
        labels=case["labels"],
    )


def sampler_of(model: MDP, policies: dict[str, Any], seed: int, models: dict[str, MDP] | None = None) -> Sampler:
    return Sampler(Enumerated(Evaluators(model, tables(policies, model), models)), seed)


def sampler(small: Small, seed: int) -> Sampler:
    return sampler_of(small.model, small.policies, seed, small.models)


def width(asked: Goal, rewards: npt.NDArray[np.float64]) -> float:
    """The width of the range an outcome lies in."""
    match asked.measure:
        case Probability():
            span = 1.0
        case Reward(low, high):
            span = (high - low + 1) * float(max(rewards.max(), 0.0) - min(rewards.min(), 0.0))
    return span * (1 if asked.world.baseline is None else 2)


def error_bound(outcomes: npt.NDArray[np.float64], span: float, chance: float) -> float:
    """How far the mean is from the truth at most, but for `chance` (Maurer & Pontil, "Empirical Bernstein", 2009)."""
    count, log = len(outcomes), math.log(4.0 / chance)  # two-sided
    return math.sqrt(2.0 * float(outcomes.var(ddof=1)) * log / count) + 7.0 * span * log / (3.0 * (count - 1))
