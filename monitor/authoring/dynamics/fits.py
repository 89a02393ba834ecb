"""Fits of several numbers by least squares: linear, with boosted trees, or with a small network.

Trees and networks are fitted to the residuals of the linear fit. Outside the recorded range, each fit therefore
continues like the linear fit. Each fit writes itself as ONNX.
"""

from __future__ import annotations

import warnings
from typing import Any, Final, Literal, Protocol

import numpy as np

from monitor.arrays import Floats
from monitor.authoring.dynamics.onnx_graph import GraphWriter, HistogramTree, Leaves, written_trees
from monitor.errors import ModelError, to_install

FitKind = Literal["linear", "trees", "network"]
KINDS: Final[tuple[FitKind, ...]] = ("linear", "trees", "network")

MOST: Final = 30_000
"""Largest number of steps that trees and networks are fitted to. They are drawn at random from all steps."""


class Fit(Protocol):
    """A fitted function from [n, d] to [n, k]."""

    def predict(self, given: Floats) -> Floats:
        """Return the function's values [n, k] at the points [n, d]."""
        ...

    def write(self, graph: GraphWriter) -> str:
        """Add the function to a graph; return the name of its output."""
        ...


class _Linear:
    """Least squares. The one-hot actions take the place of a constant term."""

    def __init__(self, given: Floats, wanted: Floats) -> None:
        spread = given.std(axis=0) + (given.std(axis=0) == 0.0)
        self._weights = np.linalg.lstsq(given / spread, wanted, rcond=None)[0] / spread[:, np.newaxis]

    def predict(self, given: Floats) -> Floats:
        return np.asarray(given @ self._weights)

    def write(self, graph: GraphWriter) -> str:
        return graph.node("MatMul", graph.given, self._weights)


class _Corrected:
    """The linear fit plus a fit of its residuals, in units of their standard deviations."""

    def __init__(self, kind: FitKind, given: Floats, wanted: Floats, seed: int) -> None:
        self._linear = _Linear(given, wanted)
        left = wanted - self._linear.predict(given)
        self._unit = np.maximum(left.std(axis=0), np.finfo(np.float64).tiny)
        rows = np.random.default_rng(seed).permutation(len(given))[:MOST]
        correction = _Trees if kind == "trees" else _Network
        self._correction: Fit = correction(given[rows], (left / self._unit)[rows], seed)

    def predict(self, given: Floats) -> Floats:
        return np.asarray(self._linear.predict(given) + self._unit * self._correction.predict(given))

    def write(self, graph: GraphWriter) -> str:
        scaled = graph.node("Mul", self._correction.write(graph), self._unit)
        return graph.node("Add", self._linear.write(graph), scaled)


class _Trees:
    """Gradient boosting on histograms (Ke et al. 2017), until predictions on a held-out tenth no longer improve."""

    def __init__(self, given: Floats, wanted: Floats, seed: int) -> None:
        library = _Library()
        self._models = [
            library.trees(
                max_iter=300, learning_rate=0.2, max_depth=4, min_samples_leaf=10, early_stopping=True,
                n_iter_no_change=10, random_state=seed,
            ).fit(given, column)
            for column in wanted.T
        ]  # fmt: skip

    def predict(self, given: Floats) -> Floats:
        return np.column_stack([model.predict(given) for model in self._models])

    def write(self, graph: GraphWriter) -> str:
        # scikit-learn has no public access to these trees. Held-out steps score the written graph, not this object.
        trees = []
        for target, model in enumerate(self._models):
            for (predictor,) in model._predictors:  # noqa: SLF001
                tree = HistogramTree(predictor.nodes)
                leaf = np.flatnonzero(tree.children_left < 0)
                trees.append(Leaves(tree, leaf, np.full(len(leaf), target), predictor.nodes["value"][leaf]))
        start = np.array([float(model._baseline_prediction[0, 0]) for model in self._models])  # noqa: SLF001
        return graph.node("Add", written_trees(graph, graph.given, trees, len(self._models)), start)


class _Network:
    """Two layers of 16 tanh units, fitted to all steps at once, with weight decay."""

    def __init__(self, given: Floats, wanted: Floats, seed: int) -> None:
        library = _Library()
        self._mean, spread = given.mean(axis=0), given.std(axis=0)
        self._spread = np.where(spread > 0.0, spread, 1.0)
        model = library.network(
            hidden_layer_sizes=(16, 16), activation="tanh", solver="lbfgs", alpha=30.0, max_iter=200, random_state=seed
        )
        with warnings.catch_warnings(), library.threads(1):  # for small matrices, one thread is faster than several
            warnings.simplefilter("ignore")  # about convergence, because held-out steps judge the fit
            self._model = model.fit(
                (given - self._mean) / self._spread, wanted if wanted.shape[1] > 1 else wanted[:, 0]
            )

    def predict(self, given: Floats) -> Floats:
        return np.asarray(self._model.predict((given - self._mean) / self._spread).reshape(len(given), -1))

    def write(self, graph: GraphWriter) -> str:
        last = graph.node("Div", graph.node("Sub", graph.given, self._mean), self._spread)
        layers = list(zip(self._model.coefs_, self._model.intercepts_, strict=True))
        for n, (weights, constants) in enumerate(layers):
            last = graph.node("Add", graph.node("MatMul", last, weights), constants)
            last = last if n == len(layers) - 1 else graph.node("Tanh", last)
        return last


def fitted(kind: FitKind, given: Floats, wanted: Floats, seed: int) -> Fit:
    """Return a fit of targets `wanted` [n, k] to inputs `given` [n, d]. Raises ModelError without scikit-learn."""
    return _Linear(given, wanted) if kind == "linear" else _Corrected(kind, given, wanted, seed)


class _Library:
    """The functions used from scikit-learn. Raises ModelError if scikit-learn is not installed."""

    def __init__(self) -> None:
        try:
            from sklearn.ensemble import HistGradientBoostingRegressor  # noqa: PLC0415 - only where worlds are learned
            from sklearn.neural_network import MLPRegressor  # noqa: PLC0415 - likewise
            from threadpoolctl import threadpool_limits  # noqa: PLC0415 - likewise
        except ImportError as error:
            raise ModelError(f"--dynamics needs scikit-learn: {to_install('dynamics')}") from error
        self.trees: Any = HistGradientBoostingRegressor
        self.network: Any = MLPRegressor
        self.threads: Any = threadpool_limits
