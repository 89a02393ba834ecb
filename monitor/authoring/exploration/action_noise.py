"""Action noise: with a given probability, another action is taken instead of the chosen one.

Only actions that are available in the state are taken. With probability `slip` the chosen action is replaced. `to` says
how the replacement is drawn:
    `others`      uniformly from the others,
    `all`         uniformly from all, the chosen one included (MiniGrid's `StochasticActionWrapper`),
    `neighbours`  uniformly from the numbers below and above, modulo A (how FrozenLake slips).
If there is no action to draw from, the chosen action is taken.
"""

from __future__ import annotations

from typing import Final, Literal, assert_never

import numpy as np

from monitor.arrays import Bools, Floats
from monitor.errors import ModelError

SlipTo = Literal["others", "all", "neighbours"]

MOST_WEIGHTS: Final = 1 << 27


def slip_weights(available: Bools, slip: float, to: SlipTo) -> Floats:
    """Return the probability [S, A, A] that action b is taken if action a is chosen in state s.

    `available`: [S, A]. Rows of unavailable actions are 0. Raises ModelError if `slip` is not a probability, or if the
    result is too large.

    >>> slip_weights(np.array([[True, True, True]]), 0.2, "others")[0, 0].round(3).tolist()
    [0.8, 0.1, 0.1]
    """
    if not 0 <= slip <= 1:
        raise ModelError(f"--slip {slip:g}: a probability between 0 and 1 is needed")
    states, actions = available.shape
    if states * actions * actions > MOST_WEIGHTS:
        raise ModelError(f"--slip: {states:,} states with {actions} actions each are too many to add noise to")
    drawn = _pattern(actions, to)[np.newaxis] * available[:, np.newaxis, :]
    sums = drawn.sum(axis=2, keepdims=True)
    chosen = np.eye(actions)[np.newaxis]
    weights = np.where(sums > 0, (1 - slip) * chosen + slip * drawn / np.where(sums > 0, sums, 1.0), chosen)
    result: Floats = weights * available[:, :, np.newaxis]
    return result


def _pattern(actions: int, to: SlipTo) -> Floats:
    """Return a matrix [A, A] with 1 if action b may replace action a, else 0."""
    match to:
        case "others":
            return np.ones((actions, actions)) - np.eye(actions)
        case "all":
            return np.ones((actions, actions))
        case "neighbours":
            around = np.roll(np.eye(actions), 1, axis=1) + np.roll(np.eye(actions), -1, axis=1)
            return np.minimum(around, 1.0) * (1.0 - np.eye(actions))
        case _:
            assert_never(to)
