"""Classifiers of scikit-learn, pickled or converted by skl2onnx; skipped without these packages."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")

from monitor.authoring.policy_export.convert import convert
from monitor.authoring.policy_export.original import ExportRequest
from monitor.errors import PolicyError
from monitor.model import MDP
from monitor.policy.draft import draft_manifest
from monitor.policy.onnx_policy import table_from_onnx

joblib: Any = pytest.importorskip("joblib")
pytest.importorskip("sklearn")
SEEN = np.random.default_rng(5).normal(size=(30, 2))
ACTIONS = ("brake", "steer", "wait")
MODEL = MDP.from_transitions(
    states=30,
    actions=3,
    transitions=[(s, a, s, 1.0) for s in range(30) for a in range(3)],
    observations=SEEN.astype(np.float32),
    action_names=ACTIONS,
)
FIRST = (SEEN[:, 0] > 0).astype(int) + (SEEN[:, 0] > 0.7)


def fitted(name: str, classes: Any) -> Any:  # noqa: ANN401
    """A classifier whose three (or two) classes are these."""
    ensemble = pytest.importorskip("sklearn.ensemble")
    linear = pytest.importorskip("sklearn.linear_model")
    pipeline = pytest.importorskip("sklearn.pipeline")
    preprocessing = pytest.importorskip("sklearn.preprocessing")
    tree = pytest.importorskip("sklearn.tree")
    made = {
        "tree": tree.DecisionTreeClassifier(random_state=0),
        "forest": ensemble.RandomForestClassifier(5, random_state=0),
        "logistic": linear.LogisticRegression(),
        "ridge": linear.RidgeClassifier(),
        "pipeline": pipeline.make_pipeline(preprocessing.StandardScaler(), linear.LogisticRegression()),
    }[name]
    return made.fit(SEEN.astype(np.float32), np.array(classes)[np.minimum(FIRST, len(classes) - 1)])


@pytest.mark.parametrize("name", ["tree", "forest", "logistic", "ridge", "pipeline"])
@pytest.mark.parametrize("classes", [(0, 1, 2), (0, 2), ACTIONS, ("wait", "brake"), (False, True), (0.0, 1.0, 2.0)])
def test_a_pickled_classifier_decides_as_it_predicts(tmp_path: Path, name: str, classes: tuple[Any, ...]) -> None:
    made = fitted(name, classes)
    joblib.dump(made, tmp_path / "p.joblib")
    original = convert(MODEL, ExportRequest(str(tmp_path / "p.joblib")))
    manifest, _ = draft_manifest(original.content, Path("p.onnx"), MODEL, kind=original.kind)
    found = table_from_onnx(original.content, manifest, MODEL, "here")
    said = made.predict(MODEL.observations).tolist()
    assert np.asarray(found.actions).tolist() == [ACTIONS.index(c) if isinstance(c, str) else int(c) for c in said]
    if name == "ridge":
        with pytest.raises(PolicyError, match="RidgeClassifier has no predict_proba; leave --stochastic out"):
            convert(MODEL, ExportRequest(str(tmp_path / "p.joblib"), stochastic=True))


def converted(made: Any, zipmap: object) -> bytes:  # noqa: ANN401
    skl2onnx = pytest.importorskip("skl2onnx")
    types = pytest.importorskip("skl2onnx.common.data_types")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecations of other packages
        network = skl2onnx.to_onnx(
            made,
            initial_types=[("x", types.FloatTensorType([None, 2]))],
            options={id(made): {"zipmap": zipmap}},
            target_opset=17,
        )
    content: bytes = network.SerializeToString()
    return content


@pytest.mark.parametrize("name", ["tree", "logistic", "pipeline"])
@pytest.mark.parametrize(("zipmap", "output"), [(False, "probabilities"), (True, "label"), ("columns", "label")])
def test_a_converted_classifier_decides_as_it_predicts(name: str, zipmap: object, output: str) -> None:
    made = fitted(name, (0, 1, 2))
    content = converted(made, zipmap)
    manifest, assumed = draft_manifest(content, Path("p.onnx"), MODEL)
    assert output in manifest.output.name
    assert (manifest.input.kind, any("--output-name" in each for each in assumed)) == ("observation", True)
    found = table_from_onnx(content, manifest, MODEL, "here")
    assert np.asarray(found.actions).tolist() == made.predict(MODEL.observations).tolist()


def test_a_converted_classifier_with_a_gap_has_its_label() -> None:
    made = fitted("tree", (0, 2))
    manifest, _ = draft_manifest(converted(made, zipmap=False), Path("p.onnx"), MODEL)
    assert (manifest.output.kind, "label" in manifest.output.name) == ("action", True)


@pytest.mark.parametrize("classes", [(1, 2, 3), ("wait", "steer", "brake"), ("go", "no", "so")])
def test_a_converted_classifier_of_other_classes_is_not_taken_for_the_actions(classes: tuple[Any, ...]) -> None:
    made = fitted("tree", classes)
    if classes[0] == "wait":  # sorted, the classes are the actions in order
        manifest, _ = draft_manifest(converted(made, zipmap=False), Path("p.onnx"), MODEL)
        found = table_from_onnx(converted(made, zipmap=False), manifest, MODEL, "here")
        assert [ACTIONS[a] for a in np.asarray(found.actions)] == made.predict(MODEL.observations).tolist()
        return
    with pytest.raises(PolicyError, match="so columns may be in another order than actions"):
        draft_manifest(converted(made, zipmap=False), Path("p.onnx"), MODEL)
