"""Trees and forests of scikit-learn as ONNX: they choose as their `predict`, at their thresholds too."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")

from monitor.arrays import Floats
from monitor.authoring.dynamics.fitted_policy import written_classifier
from monitor.policy.network import open_session

ensemble: Any = pytest.importorskip("sklearn.ensemble")
linear_model: Any = pytest.importorskip("sklearn.linear_model")
trees: Any = pytest.importorskip("sklearn.tree")

RNG = np.random.default_rng(7)
SEEN = RNG.normal(size=(600, 3)) * [1.0, 100.0, 1e-3]
WANTED = np.array(["half", "off", "on"])[(SEEN[:, 0] > 0.1).astype(int) + (SEEN[:, 1] * SEEN[:, 2] > 0)]
COLUMNS, WIDTH = (2, 0, 3), 5
ACTIONS = ("on", "off", "half", "never")


def at_thresholds(tree: Any) -> Floats:  # noqa: ANN401 - scikit-learn has no types
    """Points whose numbers are thresholds of a tree, and the nearest floats of 64 and 32 bits around them."""
    points: list[Floats] = []
    for feature, threshold in zip(tree.feature, tree.threshold, strict=True):
        if feature >= 0:
            near = np.float32(threshold)
            for value in (threshold, np.nextafter(threshold, np.inf), near, np.nextafter(near, np.float32(np.inf)),
                          np.nextafter(near, np.float32(-np.inf))):  # fmt: skip
                points.append(SEEN[len(points) % len(SEEN)].copy())
                points[-1][feature] = value
    return np.array(points)


@pytest.mark.parametrize(
    "made",
    [
        trees.DecisionTreeClassifier(random_state=0),
        trees.DecisionTreeClassifier(max_depth=3, class_weight="balanced", random_state=0),
        trees.ExtraTreeClassifier(random_state=0),
        ensemble.RandomForestClassifier(7, random_state=0),
        ensemble.ExtraTreesClassifier(7, max_depth=4, random_state=0),
    ],
    ids=lambda each: type(each).__name__,
)
def test_it_chooses_as_the_classifier(made: Any) -> None:  # noqa: ANN401 - likewise
    made.fit(SEEN, WANTED)
    actions = [ACTIONS.index(name) for name in made.classes_]
    content = written_classifier(made, (COLUMNS, WIDTH), (actions, len(ACTIONS)))
    assert content is not None
    points = np.concatenate(
        [SEEN, RNG.normal(size=(2000, 3)) * [1.0, 100.0, 1e-3],
         *(at_thresholds(each.tree_) for each in getattr(made, "estimators_", [made]))]
    )  # fmt: skip
    observed = np.zeros((len(points), WIDTH))
    observed[:, COLUMNS] = points
    (scores,) = open_session(content, "tree").run(None, {"state": observed})
    assert [ACTIONS[a] for a in scores.argmax(axis=1)] == made.predict(points).tolist()


def test_another_classifier_is_not_written() -> None:
    made = linear_model.LogisticRegression().fit(SEEN, WANTED)
    assert written_classifier(made, (COLUMNS, WIDTH), ((0, 1, 2), 4)) is None
    boosted = ensemble.GradientBoostingClassifier(n_estimators=2).fit(SEEN, WANTED)
    assert written_classifier(boosted, (COLUMNS, WIDTH), ((0, 1, 2), 4)) is None
