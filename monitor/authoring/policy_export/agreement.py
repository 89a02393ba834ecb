"""Comparison of an exported network with the original policy in every state of the model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from monitor.arrays import Bools, Floats, Ints
from monitor.authoring.policy_export.original import Original
from monitor.model.mdp import MDP
from monitor.policy.manifest import Manifest
from monitor.policy.onnx_policy import table_from_onnx

TOLERANCE: Final = 1e-4
"""Largest accepted difference of a probability. Two scores are tied if they differ by at most `TOLERANCE` times (1 +
the largest score).

Networks use 32-bit arithmetic.
"""


@dataclass(frozen=True)
class Agreement:
    """Result of a comparison: numbers of states compared and left out, and the disagreements as (state, sentence).

    `compared`: name of the things that were compared, if these are not states.
    """

    states: int
    left_out: int
    differences: list[tuple[int, str]]
    compared: str = "states"


def compare(original: Original, manifest: Manifest, model: MDP, where: str) -> Agreement:
    """Evaluate the network in every state, and compare it with the original.

    With `mask`, states in which the original takes an unavailable action are left out. Raises PolicyError as
    `table_from_onnx`.
    """
    table = table_from_onnx(original.content, manifest, model.without_samples(), where)
    if table.actions is None:
        assert table.probabilities is not None
        return _of_chances(_expected_chances(original, manifest, model), table.probabilities)
    if original.actions is not None:
        usable = model.availability[np.arange(model.states), original.actions] | (not manifest.mask)
        wrong = (table.actions != original.actions) & usable
        expected = original.actions
        if original.scores is not None:
            wrong &= ~_tied(original.scores, expected, table.actions)
    else:
        assert original.scores is not None
        scores = np.where(model.availability, original.scores, -np.inf) if manifest.mask else original.scores
        expected, usable = scores.argmax(axis=1), np.ones(model.states, dtype=np.bool_)
        wrong = (table.actions != expected) & ~_tied(scores, expected, table.actions)
    found = [
        (int(s), f"the original takes {expected[s]}, the export {table.actions[s]}") for s in np.flatnonzero(wrong)
    ]
    return Agreement(int(usable.sum()), int((~usable).sum()), found)


def _tied(scores: Floats, one: Ints, other: Ints) -> Bools:
    """Return in which states the scores of two actions are equal up to rounding, [S]."""
    rows = np.arange(len(scores))
    finite = np.where(np.isfinite(scores), np.abs(scores), 0.0)
    gap = np.abs(scores[rows, one] - scores[rows, other])
    tied: Bools = gap <= TOLERANCE * (1 + finite.max(axis=1))
    return tied


def _expected_chances(original: Original, manifest: Manifest, model: MDP) -> Floats:
    assert original.scores is not None, "a stochastic policy has scores"
    scores = original.scores
    if original.kind == "logits":
        shifted = np.where(model.availability, scores, -np.inf) if manifest.mask else scores
        weights = np.exp(shifted - shifted.max(axis=1, keepdims=True))
    else:
        weights = np.where(model.availability, scores, 0.0) if manifest.mask else scores
    chances: Floats = weights / weights.sum(axis=1, keepdims=True)
    return chances


def _of_chances(expected: Floats, found: Floats) -> Agreement:
    far = np.abs(expected - found).max(axis=1)
    differences = [
        (int(s), f"a probability differs by {far[s]:.2g}: the original has {np.round(expected[s], 4).tolist()}")
        for s in np.flatnonzero(~(far <= TOLERANCE))
    ]
    return Agreement(len(expected), 0, differences)
