"""A fit's graph computes what the fit predicts, and boosted trees follow what a line cannot."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("sklearn")

from monitor.authoring.dynamics.fits import KINDS, FitKind, fitted
from monitor.authoring.dynamics.onnx_graph import GraphWriter
from monitor.policy.network import open_session
from tests.tiers import heavy

RNG = np.random.default_rng(3)


def points(count: int) -> dict[str, np.ndarray]:
    """States with decimals, whole numbers and a constant; actions; inputs of another size."""
    x = np.column_stack([RNG.normal(size=count), RNG.integers(0, 9, count), np.full(count, 4.0)])
    return {"x": x, "a": np.eye(3)[RNG.integers(0, 3, count)], "w": 1e4 + 500 * RNG.normal(size=(count, 1))}


def truth(given: dict[str, np.ndarray]) -> np.ndarray:
    x, a, w = given["x"], given["a"], given["w"]
    return np.column_stack([np.abs(x[:, 0]) + a[:, 1] * (x[:, 1] > 4), 100 * x[:, 1] + w[:, 0]])


@pytest.mark.parametrize("kind", KINDS)
def test_a_graph_computes_its_fit(kind: FitKind) -> None:
    seen, new = points(2_000), points(3_000)
    fit = fitted(kind, np.column_stack([*seen.values()]), truth(seen) + RNG.normal(size=(2_000, 2)), seed=0)
    graph = GraphWriter({name: each.shape[1] for name, each in seen.items()})
    content = graph.content(fit.write(graph), 2)
    (written,) = open_session(content, "fit").run(None, new)
    np.testing.assert_allclose(written, fit.predict(np.column_stack([*new.values()])), rtol=1e-6, atol=1e-5)


@heavy
def test_trees_follow_what_a_line_cannot() -> None:
    seen, new = points(4_000), points(3_000)
    noisy = truth(seen) + 0.3 * RNG.normal(size=(4_000, 2))
    left = {
        kind: fitted(kind, np.column_stack([*seen.values()]), noisy, seed=0).predict(np.column_stack([*new.values()]))
        - truth(new)
        for kind in KINDS
    }
    spread = {kind: float(each[:, 0].std()) for kind, each in left.items()}
    assert spread["linear"] > 0.5
    assert spread["trees"] < 0.12
