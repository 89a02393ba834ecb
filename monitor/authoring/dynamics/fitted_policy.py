"""Policies on the numbers of a state, or of state and inputs: fitted to actions, and written as ONNX graphs.

A tree or forest of scikit-learn is written exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np

from monitor.arrays import Floats
from monitor.authoring.dynamics.fits import Fit, FitKind, fitted
from monitor.authoring.dynamics.onnx_graph import GraphWriter, TreeFit, written_exactly

PolicyKind = FitKind | Literal["tree"]
KINDS: Final[tuple[PolicyKind, ...]] = ("linear", "network")
"""Kinds of fits that are compared for a policy.

Boosted trees are left out, because they take six times as long as a network, and a verdict evaluates its policies about
10,000 times.
"""
IMITATED: Final[tuple[PolicyKind, ...]] = (*KINDS, "tree")
"""Kinds of fits that are compared for an imitation. The imitated policy may change abruptly, so trees are included."""
LEAST: Final = 1e-6
"""Smallest value of an action's probability before the probabilities are divided by their sum."""


@dataclass(frozen=True, eq=False)
class FittedPolicy:
    """Probabilities of actions as a function of `width` numbers: those of a state, or of state and inputs.

    `kind`: kind of the fit. `error`: squared error on states that the policy was not fitted to, divided by the error of
    always predicting each action's frequency (Brier 1950); 0 is perfect.
    """

    kind: PolicyKind
    error: float
    width: int
    _fit: Fit

    def probabilities(self, states: Floats) -> Floats:
        """Return the probabilities of the actions [n, A] in states [n, f]."""
        positive = np.maximum(self._fit.predict(_given(states)), LEAST)
        return np.asarray(positive / positive.sum(axis=1, keepdims=True))

    def content(self, actions: int) -> bytes:
        """Return the policy's ONNX bytes: input `state` [batch, width], output `y` [batch, actions], 64-bit floats."""
        graph = GraphWriter({"state": self.width})
        one = graph.node("Add", graph.node("MatMul", "state", np.zeros((self.width, 1))), np.ones((1, 1)))
        graph.given = graph.node("Concat", "state", one, axis=1)
        positive = graph.node("Max", self._fit.write(graph), np.array(LEAST))
        total = graph.node("MatMul", positive, np.ones((actions, 1)))
        return graph.content(graph.node("Div", positive, total), actions)


def fitted_policy(
    fit: tuple[Floats, Floats], held: tuple[Floats, Floats], seed: int, kinds: Sequence[PolicyKind] = KINDS
) -> FittedPolicy:
    """Return the policy fitted to states [n, f] and distributions over actions [n, A] by least squares.

    If there are several `kinds`, the fit with the lowest squared error on the `held` states and distributions is
    returned. Raises ModelError if scikit-learn is not installed.
    """
    states, wanted = held
    usual = float(((wanted - fit[1].mean(axis=0)) ** 2).sum()) + np.finfo(np.float64).tiny
    found = []
    for kind in kinds:
        given = _given(fit[0])
        made: Fit = TreeFit(given, fit[1], seed) if kind == "tree" else fitted(kind, given, fit[1], seed)
        policy = FittedPolicy(kind, 0.0, states.shape[1], made)
        error = float(((wanted - policy.probabilities(states)) ** 2).sum())
        found.append(FittedPolicy(kind, error / usual, policy.width, policy._fit))  # noqa: SLF001 - its own class
    return min(found, key=lambda policy: policy.error)


def written_classifier(
    classifier: Any,  # noqa: ANN401 - scikit-learn has no types
    seen: tuple[Sequence[int], int],
    chosen: tuple[Sequence[int], int],
) -> bytes | None:
    """Return ONNX bytes that act like `predict` of a tree or forest of scikit-learn; None for other objects."""
    (columns, width), (actions, count) = seen, chosen
    trees = [each.tree_ for each in getattr(classifier, "estimators_", [classifier]) if hasattr(each, "tree_")]
    plain = type(classifier).__name__ in ("DecisionTreeClassifier", "ExtraTreeClassifier", "RandomForestClassifier",
                                          "ExtraTreesClassifier")  # fmt: skip
    if not plain or not trees or trees[0].value.shape[1] != 1:
        return None
    classes = trees[0].value.shape[2]
    graph = GraphWriter({"state": width})
    taken = np.zeros((width, len(columns)))
    taken[list(columns), np.arange(len(columns))] = 1.0
    sums = []
    for tree in trees:
        chances = tree.value[:, 0, :] / tree.value[:, 0, :].sum(axis=1, keepdims=True)
        sums.append((tree, np.eye(classes)[chances.argmax(axis=1)] if len(trees) == 1 else chances))
    scores = written_exactly(graph, graph.node("MatMul", "state", taken), sums)
    place = np.zeros((classes, count))
    place[np.arange(classes), list(actions)] = 1.0
    best = graph.node("ArgMax", scores, axis=1, keepdims=0)  # of equal scores the first, as in scikit-learn
    return graph.content(graph.node("Gather", place, best, axis=0), count)


def _given(states: Floats) -> Floats:
    return np.concatenate([states, np.ones((len(states), 1))], axis=1)
