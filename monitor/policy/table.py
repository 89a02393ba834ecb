"""Policies over a finite model as tables: one action, or one distribution, for each state."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from monitor.arrays import AnyArray, Floats, Ints
from monitor.errors import PolicyError
from monitor.model.mdp import MDP

__all__ = ["PolicyTable", "as_table"]

ROW_SUM_TOLERANCE = 1e-9
"""Largest accepted difference of a state's sum of probabilities from 1. Within it, probabilities are renormalised."""


@dataclass(frozen=True, eq=False)
class PolicyTable:
    """Policy as a table: its action or its distribution over actions in every state of a model.

    Exactly one of the two arrays is set (read-only): `actions` [S] int64 for a deterministic policy, `probabilities`
    [S, A] float64, rows summing to 1, for a stochastic policy.
    """

    actions: Ints | None = None
    probabilities: Floats | None = None

    @cached_property
    def repeats(self) -> Floats:
        """For each state: the probability that two draws agree, and the variance of a drawn action's probability.

        [S, 2] float64.
        """
        assert self.probabilities is not None, "the policy is stochastic"
        squares = np.einsum("sa,sa->s", self.probabilities, self.probabilities)
        cubes = np.einsum("sa,sa,sa->s", self.probabilities, self.probabilities, self.probabilities)
        return np.stack([squares, np.maximum(cubes - squares**2, 0.0)], axis=1)

    def choices(self, state: int) -> list[tuple[int, float]]:
        """Return the actions that the policy takes in `state` with positive probability, with these probabilities."""
        if self.actions is not None:
            return [(int(self.actions[state]), 1.0)]
        assert self.probabilities is not None
        row = self.probabilities[state]
        return [(int(a), float(row[a])) for a in np.flatnonzero(row)]

    def distribution(self, state: int, actions: int) -> Floats:
        """Return the choice in `state` as a distribution [A] over `actions` actions."""
        if self.probabilities is not None:
            row: Floats = self.probabilities[state]
            return row
        assert self.actions is not None
        certain = np.zeros(actions)
        certain[self.actions[state]] = 1.0
        return certain


def as_table(value: object, model: MDP) -> PolicyTable:
    """Return a checked policy; `value`: a table, a list of S actions, or an S x A matrix of action probabilities.

    Raises:
        PolicyError: a wrong shape; an action that does not exist or is unavailable in its state (the message names
            both); a probability that is negative or not finite; or a row that does not sum to 1 within
            `ROW_SUM_TOLERANCE`.

    >>> model = MDP.from_transitions(states=1, actions=2, transitions=[(0, 0, 0, 1.0), (0, 1, 0, 1.0)])
    >>> as_table([[0.25, 0.75]], model).choices(0)
    [(0, 0.25), (1, 0.75)]
    """
    if isinstance(value, PolicyTable):
        value = value.probabilities if value.actions is None else value.actions
    try:
        given = np.asarray(value)
    except (ValueError, TypeError, OverflowError) as error:
        raise PolicyError(f"a policy is {model.states} actions or a {model.states} x {model.actions} matrix") from error
    if given.ndim == 1:
        return _deterministic(given, model)
    return _stochastic(given, model)


def _deterministic(given: AnyArray, model: MDP) -> PolicyTable:
    if given.shape != (model.states,):
        raise PolicyError(f"the policy has {given.size} actions for {model.states} states")
    if given.dtype.kind not in "iu":
        raise PolicyError(f"the policy's actions must be whole numbers, got {given.dtype}")
    bad = np.flatnonzero((given < 0) | (given >= model.actions))
    if bad.size:
        raise PolicyError(f"state {bad[0]}: action {given[bad[0]]} is outside 0..{model.actions - 1}")
    actions = given.astype(np.int64)
    rows = np.arange(model.states) * model.actions + actions
    wrong = np.flatnonzero(model.indptr[rows + 1] == model.indptr[rows])
    if wrong.size:
        raise PolicyError(_unavailable(model, int(wrong[0]), int(actions[wrong[0]])))
    actions.flags.writeable = False
    return PolicyTable(actions=actions)


def _stochastic(given: AnyArray, model: MDP) -> PolicyTable:
    shape = (model.states, model.actions)
    if given.shape != shape or given.dtype.kind not in "fiu":
        raise PolicyError(
            f"the policy has shape {given.shape} ({given.dtype}), not [{shape[0]}] or [{shape[0]}, {shape[1]}]"
        )
    table = given.astype(np.float64)
    bad = np.argwhere(~np.isfinite(table) | (table < 0))
    if bad.size:
        state, action = (int(i) for i in bad[0])
        raise PolicyError(f"state {state}, action {action}: {table[state, action]} is not a probability")
    wrong = np.argwhere((table > 0) & ~model.availability)
    if wrong.size:
        raise PolicyError(_unavailable(model, int(wrong[0, 0]), int(wrong[0, 1])))
    sums = table.sum(axis=1)
    off = np.flatnonzero(np.abs(sums - 1) > ROW_SUM_TOLERANCE)
    if off.size:
        raise PolicyError(f"state {off[0]}: the action probabilities sum to {sums[off[0]]:.12g}, not 1")
    # Rows whose sum is 1 up to rounding are not changed, so that a table read from evidence is the same to the bit.
    loose = np.abs(sums - 1) > model.actions * np.finfo(np.float64).eps
    table[loose] /= sums[loose, np.newaxis]
    table.flags.writeable = False
    return PolicyTable(probabilities=table)


def _unavailable(model: MDP, state: int, action: int) -> str:
    return (
        f"state {state}: the policy takes action {action}, which is unavailable there "
        f"(available: {np.flatnonzero(model.available(state)).tolist()})"
    )
