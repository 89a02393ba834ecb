"""Convert a policy's raw output to actions, with masks, ties and softmax. Pure; used for tables and by agents."""

from __future__ import annotations

import numpy as np

from monitor.arrays import AnyArray, Bools, Floats, Ints
from monitor.errors import PolicyError
from monitor.policy.manifest import Manifest, RecurrentManifest

_SUM_TOLERANCE = 1e-5
"""Tolerance of the sum of probabilities. They are 32-bit floats, often from a softmax over many actions, with rounding
errors of about 1e-7 for each action. For 16-bit floats the tolerance is one rounding error, about 1e-3.
"""


def chosen_actions(raw: AnyArray, manifest: Manifest | RecurrentManifest, available: Bools, states: Ints) -> Ints:
    """Return the greedy action of each state, [n]: the lowest-numbered action among those with the highest score.

    `raw`: [n, A] scores or [n] actions; `available`: [n, A], used with a mask; `states`: [n], for error messages.
    Raises PolicyError.
    """
    if manifest.output.kind == "action":
        return raw.astype(np.int64)
    scores = _checked(raw, manifest, states)
    if manifest.mask:
        scores = np.where(available, scores, -np.inf)
    best: Ints = np.argmax(scores, axis=1)
    return best


def chosen_probabilities(
    raw: AnyArray, manifest: Manifest | RecurrentManifest, available: Bools, states: Ints
) -> Floats:
    """Return the action distribution of each state, [n, A] float64. Logits are converted by softmax.

    The arguments are those of `chosen_actions`.
    """
    scores = _checked(raw, manifest, states)
    if manifest.output.kind == "logits":
        scores = np.where(available, scores, -np.inf) if manifest.mask else scores
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))  # minus the largest, so that exp cannot overflow
    else:
        weights = np.where(available, scores, 0.0) if manifest.mask else scores
    sums = weights.sum(axis=1, keepdims=True)
    empty = np.flatnonzero(sums == 0)
    if empty.size:
        raise PolicyError(
            f"state {states[empty[0]]}: every available action has probability 0, so nothing is left after the mask"
        )
    chances: Floats = weights / sums
    return chances


def _checked(raw: AnyArray, manifest: Manifest | RecurrentManifest, states: Ints) -> Floats:
    scores: Floats = raw.astype(np.float64)
    bad = np.argwhere(~np.isfinite(scores))
    if bad.size:
        n, action = (int(i) for i in bad[0])
        raise PolicyError(f"state {states[n]}, action {action}: the output is {scores[n, action]}; it must be finite")
    if manifest.output.kind == "probabilities":
        _check_probabilities(scores, states, max(_SUM_TOLERANCE, float(np.finfo(raw.dtype).eps)))
    return scores


def _check_probabilities(chances: Floats, states: Ints, tolerance: float) -> None:
    negative = np.argwhere(chances < 0)
    if negative.size:
        n, action = (int(i) for i in negative[0])
        raise PolicyError(f"state {states[n]}, action {action}: the probability {chances[n, action]:g} is negative")
    sums = chances.sum(axis=1)
    off = np.flatnonzero(np.abs(sums - 1) > tolerance)
    if off.size:
        raise PolicyError(
            f"state {states[off[0]]}: the probabilities sum to {sums[off[0]]:.6g}, not 1; if the output is logits or "
            "q_values, say so in the manifest"
        )
