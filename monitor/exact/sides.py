"""Two variants of a model, in which everything unknown is as bad as possible, or as good as possible."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from monitor.arrays import Bools
from monitor.logic.polarity import negative
from monitor.model import MDP
from monitor.model.sparse_rows import frozen


class Sides(NamedTuple):
    """Variants of one model: `low` with everything unknown at its worst, `high` with everything unknown at its best."""

    low: MDP
    high: MDP


def both_sides(model: MDP, there: Bools, unknown: Mapping[str, Bools]) -> Sides:
    """Return the variants of a model with everything unknown at its worst, and at its best, for any formula.

    The variants have the labels that occur in formulas after `split_labels`. In the worst variant, an unknown label is
    false where it occurs positively, and true where it occurs negatively. `unknown`: label -> states [S] in which its
    truth is unknown. `there` [S]: states about which nothing is known. Steps in or into these states earn, in the worst
    variant, the smaller of 0 and the model's least reward, and in the best variant, the larger of 0 and the model's
    greatest reward.
    """
    least, most = model.reward_range
    return Sides(
        _side(model, there, unknown, min(least, 0.0), good=False),
        _side(model, there, unknown, max(most, 0.0), good=True),
    )


def _side(model: MDP, there: Bools, unknown: Mapping[str, Bools], reward: float, *, good: bool) -> MDP:
    labels: Mapping[str, Bools] = {
        **{name: frozen(np.where(unknown[name], good, where)) for name, where in model.labels.items()},
        **{negative(name): frozen(np.where(unknown[name], not good, where)) for name, where in model.labels.items()},
    }
    if model.reward_range == (0.0, 0.0):
        return replace(model, labels=labels)
    rewards = np.where(there[:, None], reward, model.rewards)
    of = np.repeat(np.arange(rewards.size), np.diff(model.indptr))
    extra = np.zeros(len(of)) if model.transition_rewards is None else model.transition_rewards
    extra = np.where(there[model.successors], reward - rewards.reshape(-1)[of], extra)
    return replace(model, labels=labels, rewards=frozen(rewards), transition_rewards=frozen(extra))
