"""Policies on the numbers of a state: fitted to what was done in recorded states, and written as ONNX graphs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from monitor.arrays import Floats
from monitor.authoring.dynamics.fits import Fit, Kind, fitted
from monitor.authoring.dynamics.onnx_graph import GraphWriter

KINDS: Final[tuple[Kind, ...]] = ("linear", "network")
"""Fits that are compared. Trees are not: a verdict evaluates its policies some 10,000 times, and they take six times as
long as a network.
"""
LEAST: Final = 1e-6
"""Least probability of an action before they are made to sum to 1."""


@dataclass(frozen=True, eq=False)
class FittedPolicy:
    """Probabilities of actions as a function of the numbers of a state.

    `kind`: of the fit. `error`: its squared error on states that it was not fitted to, over that of always giving the
    frequency of each action (Brier 1950); 0 is perfect.
    """

    kind: Kind
    error: float
    _fit: Fit

    def probabilities(self, states: Floats) -> Floats:
        """Return the probabilities of the actions [n, A] in states [n, f]."""
        positive = np.maximum(self._fit.predict(_given(states)), LEAST)
        return np.asarray(positive / positive.sum(axis=1, keepdims=True))

    def content(self, features: int, actions: int) -> bytes:
        """Return its ONNX bytes: input `state` [batch, features], output `y` [batch, actions], both 64-bit floats."""
        graph = GraphWriter({"state": features})
        one = graph.node("Add", graph.node("MatMul", "state", np.zeros((features, 1))), np.ones((1, 1)))
        graph.given = graph.node("Concat", "state", one, axis=1)
        positive = graph.node("Max", self._fit.write(graph), np.array(LEAST))
        total = graph.node("MatMul", positive, np.ones((actions, 1)))
        return graph.content(graph.node("Div", positive, total), actions)


def fitted_policy(
    fit: tuple[Floats, Floats], held: tuple[Floats, Floats], seed: int, kinds: Sequence[Kind] = KINDS
) -> FittedPolicy:
    """Return the policy fitted to states [n, f] and distributions over actions [n, A] by least squares.

    Of several `kinds` it is the one with the lowest squared error on `held` states and distributions.
    Raises ModelError: scikit-learn is not installed.
    """
    states, wanted = held
    usual = float(((wanted - fit[1].mean(axis=0)) ** 2).sum()) + np.finfo(np.float64).tiny
    found = []
    for kind in kinds:
        policy = FittedPolicy(kind, 0.0, fitted(kind, _given(fit[0]), fit[1], seed))
        error = float(((wanted - policy.probabilities(states)) ** 2).sum())
        found.append(FittedPolicy(kind, error / usual, policy._fit))  # noqa: SLF001 - its own class
    return min(found, key=lambda policy: policy.error)


def _given(states: Floats) -> Floats:
    return np.concatenate([states, np.ones((len(states), 1))], axis=1)
