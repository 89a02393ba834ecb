"""Tables, functions and classifiers as ONNX: equal to the original in every state, or refused with the reason."""

from __future__ import annotations

import io
import json
import pickle
import re
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")

from monitor.authoring.policy_export.agreement import compare
from monitor.authoring.policy_export.classifiers import of_classifier
from monitor.authoring.policy_export.convert import READERS, convert, pickled
from monitor.authoring.policy_export.original import ExportRequest, Original
from monitor.authoring.policy_export.policy_functions import of_function
from monitor.authoring.policy_export.stable_baselines import algorithm_of
from monitor.errors import PolicyError
from monitor.model import MDP
from monitor.policy.draft import draft_manifest
from monitor.policy.onnx_policy import table_from_onnx
from monitor.policy.table import PolicyTable
from tests.authoring.policy_export import sources

FILE = str(Path(sources.__file__))
MODEL = MDP.from_transitions(
    states=3,
    actions=2,
    transitions=[(s, a, (s + a) % 3, 1.0) for s in range(3) for a in range(2)],
    observations=np.array([[0.0, 5.0], [1.0, 5.0], [2.0, 5.0]]),
    state_names=["a", "b", "c"],
    action_names=["left", "right"],
    valuations=[(0.0, "x"), (1.0, "x"), (1.0, "y")],
)
BARE = MDP.from_transitions(states=3, actions=2, transitions=[(s, a, s, 1.0) for s in range(3) for a in range(2)])
ONE_WAY = MDP.from_transitions(states=2, actions=2, transitions=[(0, 0, 1, 1.0), (1, 0, 1, 1.0), (1, 1, 0, 1.0)])


def exported(request: ExportRequest, model: MDP = MODEL) -> PolicyTable:
    """The table that the monitor gets, after the comparison that the command makes."""
    return checked(convert(model, request), model)


def checked(original: Original, model: MDP = MODEL) -> PolicyTable:
    manifest, _ = draft_manifest(
        original.content, Path("p.onnx"), model, kind=original.kind, stochastic=original.stochastic
    )
    agreement = compare(original, manifest, model, "here")
    assert (agreement.states, agreement.differences) == (model.states, [])
    return table_from_onnx(original.content, manifest, model, "here")


def written(tmp_path: Path, name: str, content: str) -> ExportRequest:
    (tmp_path / name).write_text(content)
    return ExportRequest(str(tmp_path / name))


# ---- what every kind of file promises: a new one is checked once it is in `READERS` ----

NPY = io.BytesIO()
np.save(NPY, np.array([0, 1, 1]))
VOTER = pickle.dumps(sources.Voter())
EXAMPLES = {".json": b"[0, 1, 1]", ".csv": b"0\n1\nright\n", ".npy": NPY.getvalue(), ".pkl": VOTER, ".pickle": VOTER}
"""Files that take actions 0, 1, 1. Other kinds need a package each, and have tests of their own."""


@pytest.mark.parametrize("suffix", READERS)
@pytest.mark.parametrize("content", [b"", b"no policy", b"PK\x03\x04", b"\x80\x04."])
def test_a_file_that_is_no_policy_is_named(tmp_path: Path, suffix: str, content: bytes) -> None:
    file = tmp_path / f"p{suffix}"
    file.write_bytes(content)
    with pytest.raises(PolicyError, match=f"^policy {re.escape(str(file))}: "):
        convert(MODEL, ExportRequest(str(file)))


@pytest.mark.parametrize("suffix", READERS)
def test_a_policy_is_exported_as_it_decides_and_to_the_same_bytes_again(tmp_path: Path, suffix: str) -> None:
    if suffix not in EXAMPLES:
        pytest.skip("it needs a package of its own")
    file = tmp_path / f"p{suffix}"
    file.write_bytes(EXAMPLES[suffix])
    request = ExportRequest(str(file))
    assert np.asarray(exported(request).actions).tolist() == [0, 1, 1]
    assert convert(MODEL, request).content == convert(MODEL, request).content


# ---- each kind ----


@pytest.mark.parametrize(
    ("name", "content", "actions"),
    [
        ("p.json", "[[0.5, 2], [3, -1], [0, 0]]", [1, 0, 0]),
        ("p.csv", "0\n1\n\nright\n", [0, 1, 1]),
        ("p.csv", "state,action\nc,left\n0,1\nb,right\n", [1, 1, 0]),
        ("p.csv", "0.5,2\n3,-1\n0,0\n", [1, 0, 0]),
    ],
)
def test_a_table_takes_its_actions(tmp_path: Path, name: str, content: str, actions: list[int]) -> None:
    table = exported(written(tmp_path, name, content))
    assert table.actions is not None
    assert table.actions.tolist() == actions


def test_a_matrix_of_probabilities_is_drawn_from(tmp_path: Path) -> None:
    chances = np.random.default_rng(3).dirichlet([1, 1], size=3)
    np.save(tmp_path / "p.npy", chances)
    request = ExportRequest(str(tmp_path / "p.npy"))
    table = exported(request)
    assert table.probabilities is not None
    np.testing.assert_allclose(table.probabilities, chances, rtol=0, atol=1e-6)
    greedy = exported(replace(request, stochastic=False))
    assert greedy.actions is not None
    assert greedy.actions.tolist() == chances.argmax(axis=1).tolist()


def test_logits_are_drawn_from_by_softmax(tmp_path: Path) -> None:
    logits = np.random.default_rng(4).normal(size=(3, 2))
    np.save(tmp_path / "p.npy", logits)
    table = exported(ExportRequest(str(tmp_path / "p.npy"), output="logits", stochastic=True))
    expected = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    assert table.probabilities is not None
    np.testing.assert_allclose(table.probabilities, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "sees", "actions"),
    [
        ("by_observation", None, [0, 1, 1]),
        ("by_index", "index", [0, 1, 0]),
        ("scores", "name", [0, 0, 0]),
        ("factory", None, [1, 1, 1]),
        ("voter", None, [0, 1, 1]),
        ("Voter", None, [0, 1, 1]),
    ],
)
def test_a_function_or_classifier_is_called_in_every_state(name: str, sees: str | None, actions: list[int]) -> None:
    table = exported(ExportRequest(f"{FILE}:{name}", sees=sees))
    assert table.actions is not None
    assert table.actions.tolist() == actions


def test_a_function_may_return_probabilities() -> None:
    table = exported(ExportRequest(f"{FILE}:by_valuation", sees="valuation"))
    assert table.probabilities is not None
    assert table.probabilities.tolist() == [[1, 0], [0.25, 0.75], [0.25, 0.75]]


def test_a_pickled_classifier_may_be_drawn_from(tmp_path: Path) -> None:
    (tmp_path / "p.pkl").write_bytes(VOTER)
    request = ExportRequest(str(tmp_path / "p.pkl"))
    drawn = exported(replace(request, stochastic=True))
    assert drawn.probabilities is not None
    assert drawn.probabilities.tolist() == [[0, 1]] * 3


@pytest.mark.parametrize("stochastic", [None, True])
@pytest.mark.parametrize(
    ("classes", "actions", "said"),
    [
        (["left", "right"], [0, 1, 1], "its classes are the names of actions"),
        (np.array(["right", "left"]), [1, 0, 0], "its classes are the names of actions"),
        (np.array(["right", "left"], dtype=object), [1, 0, 0], "its classes are the names of actions"),
        (np.array([b"left", b"right"]), [0, 1, 1], "its classes are the names of actions"),
        (["0", "1"], [0, 1, 1], "its classes are the names of actions"),
        ([False, True], [0, 1, 1], "its class False is action 0 and True action 1, unless actions have these names"),
        ([0.0, 1.0], [0, 1, 1], "its classes are the numbers of actions"),
        (np.array([1, 0], dtype=object), [1, 0, 0], "its classes are the numbers of actions"),
        (np.array([1, 0], dtype=np.uint8), [1, 0, 0], "its classes are the numbers of actions"),
    ],
)
def test_classes_are_actions_by_number_or_name(
    classes: Any,  # noqa: ANN401
    actions: list[int],
    said: str,
    stochastic: bool | None,  # noqa: FBT001 - a parameter of the test
) -> None:
    original = of_classifier(sources.Says(classes), MODEL, ExportRequest("p.joblib", stochastic=stochastic))
    table = checked(original)
    found = table.actions if table.probabilities is None else table.probabilities.argmax(axis=1)
    assert np.asarray(found).tolist() == actions
    assert said in original.assumed


def test_actions_named_false_and_true_are_these() -> None:
    model = replace(MODEL, action_names=("True", "False"))
    original = of_classifier(sources.Says([False, True]), model, ExportRequest("p.joblib"))
    assert np.asarray(checked(original, model).actions).tolist() == [1, 0, 0]


def test_a_regressor_may_predict_the_score_of_each_action() -> None:
    made: Any = sources.Two()
    del made.classes_
    made.predict = lambda features: np.stack([features[:, 0], 1.5 - features[:, 0]], axis=1)
    original = of_classifier(made, MODEL, ExportRequest("p.joblib"))
    assert np.asarray(checked(original).actions).tolist() == [1, 0, 0]
    assert "the rows hold q_values; if not, give --output" in original.assumed


def test_a_gap_in_the_classes_is_an_action_never_taken() -> None:
    model = MDP.from_transitions(
        states=3,
        actions=3,
        transitions=[(s, a, s, 1.0) for s in range(3) for a in range(3)],
        observations=[[0.0], [1.0], [2.0]],
    )
    made = sources.Says([0, 2], column=True)
    table = checked(of_classifier(made, model, ExportRequest("p.joblib")), model)
    assert np.asarray(table.actions).tolist() == [0, 2, 2]
    drawn = checked(of_classifier(made, model, ExportRequest("p.joblib", stochastic=True)), model)
    assert np.asarray(drawn.probabilities).tolist() == [[1, 0, 0], [0, 0, 1], [0, 0, 1]]


@pytest.mark.parametrize(
    ("made", "stochastic", "why"),
    [
        (
            sources.Says(["left", "up"]),
            None,
            r"'up' is not an action of the model \(0\.\.1, or one of \('left', ",
        ),
        (sources.Says(["left", "up"]), True, "'up' is not an action of the model"),
        (sources.Says([-1, 0]), None, r"action -1 is outside 0\.\.1"),
        (sources.Says([-1, 0]), True, r"its classes are \[-1, 0\]; actions are 0\.\.1"),
        (sources.Says([1, 2]), True, r"its classes are \[1, 2\]; actions are 0\.\.1"),
        (sources.Says([0.0, 0.37]), None, r"it gives 0\.37 where an action is needed: a whole number of 0\.\.1"),
        (sources.Says([0, np.nan]), None, "it gives nan where an action is needed"),
        (sources.Says(np.array([None, 1], dtype=object)), None, "it gives None where an action is needed"),
        (sources.Says([0, 1], probable=False), True, "Says has no predict_proba; leave --stochastic out"),
        (sources.Two(), None, r"it predicts \[3, 2\] classes; give a classifier of one output"),
        (sources.Two(), True, r"its predict_proba has shape \[2, 3, 2\] for 3 observations and 2 classes"),
    ],
)
def test_classes_that_are_no_actions_are_explained(
    made: object,
    stochastic: bool | None,  # noqa: FBT001 - a parameter of the test
    why: str,
) -> None:
    with pytest.raises(PolicyError, match=why):
        of_classifier(made, MODEL, ExportRequest("p.joblib", stochastic=stochastic))


def test_names_of_features_are_assumed_to_be_those_of_observations() -> None:
    made: Any = sources.Says([0, 1])
    made.feature_names_in_ = ["x", "speed"]
    (said,) = (each for each in of_classifier(made, MODEL, ExportRequest("p.joblib")).assumed if "sees" in each)
    assert said == "the classifier sees the observations of the model, whose columns are x, speed"


def test_a_policy_sees_numbers_that_32_bits_do_not_hold() -> None:
    far = replace(MODEL, observations=np.array([[5.3e8, 0.1], [5.3e8 + 1, 0.1], [5.3e8 + 2, 0.1]]))
    original = of_function(lambda seen: int(seen[0] > 5.3e8 and seen[1] <= 0.1), far, ExportRequest("p.py:f"))
    assert np.asarray(checked(original, far).actions).tolist() == [0, 1, 1]
    made = MDP.from_transitions(
        states=2, actions=1, transitions=[(0, 0, 1, 1.0), (1, 0, 1, 1.0)], observations=[[0.1], [0.2]]
    )
    assert made.observations is not None
    assert made.observations.tolist() == [[0.1], [0.2]]


@pytest.mark.parametrize("content", ['["left", "right", "1"]', "[false, true, 1]", "[0.0, 1.0, 1.0]"])
def test_a_table_may_name_actions(tmp_path: Path, content: str) -> None:
    assert np.asarray(exported(written(tmp_path, "p.json", content)).actions).tolist() == [0, 1, 1]


@pytest.mark.parametrize(
    ("source", "normalise", "files"),
    [
        ("a.zip", None, ["a.zip"]),
        ("a.ZIP", "seen.pkl", ["a.ZIP", "seen.pkl"]),
        ("a.joblib", "seen.npz", ["a.joblib"]),
        ("a.pickle", "none", ["a.pickle"]),
        ("mine.py:agent", "seen.pkl", ["seen.pkl"]),
        ("mine.py:agent", "none", []),
        ("a.json", None, []),
        ("a.yaml", None, []),
    ],
)
def test_files_that_run_code_when_they_are_opened(source: str, normalise: str | None, files: list[str]) -> None:
    assert pickled(ExportRequest(source, normalise=normalise)) == files


@pytest.mark.parametrize(
    ("module", "settings", "algorithm"),
    [
        ("stable_baselines3.common.policies", ["clip_range", "normalize_advantage"], "PPO"),
        ("stable_baselines3.common.policies", ["normalize_advantage"], "A2C"),
        ("stable_baselines3.common.policies", ["cg_max_steps", "normalize_advantage"], "TRPO"),
        ("my_policies", ["clip_range", "normalize_advantage"], "PPO"),
        ("sb3_contrib.common.maskable.policies", ["clip_range", "normalize_advantage"], "MaskablePPO"),
        ("stable_baselines3.dqn.policies", ["exploration_fraction"], "DQN"),
        ("sb3_contrib.qrdqn.policies", ["exploration_fraction"], "QRDQN"),
        ("sb3_contrib.ars.policies", ["n_delta"], "ARS"),
    ],
)
def test_the_algorithm_is_found_in_the_settings(
    tmp_path: Path, module: str, settings: list[str], algorithm: str
) -> None:
    data = {"policy_class": {"__module__": module, ":serialized:": "not opened"}} | dict.fromkeys(settings, 0)
    with zipfile.ZipFile(tmp_path / "agent.zip", "w") as archive:
        archive.writestr("data", json.dumps(data))
    assert algorithm_of(str(tmp_path / "agent.zip")) == algorithm


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("p.json", "[0, 1]", r"it has shape \[2\]; give 3 actions"),
        ("p.json", "[[0], [1, 2], 3]", "its rows have different lengths"),
        ("p.json", "[0, 1, 2]", r"state 2: action 2 is outside 0\.\.1"),
        ("p.json", '["a", "b", "c"]', "'a' is not an action of the model"),
        ("p.json", "[{}, {}, {}]", "it gives {} where an action is needed"),
        ("p.json", "[[true, false], [true, true], [false, true]]", r"it has shape \[3, 2\]; give 3 actions"),
        ("p.json", "[0, 1", "cannot be read as a table"),
        ("p.json", "[[0, 1], [NaN, 1], [0, 1]]", "state 1, action 0: nan"),
        ("p.csv", "state,action\n0,1\n", "2 states have no action, the first is 1"),
        ("p.csv", "state,action\n0,1\n0,1\n", "line 3: state 0 occurs twice"),
        ("p.csv", "state,action\n0,1,2\n", "line 2: write state,action"),
        ("p.csv", "state,action\nz,1\n", "line 2: 'z' is not a state"),
        ("p.csv", "up\n1\n1\n", "line 1: 'up' is not an action"),
        ("p.csv", "1,x\n1,2\n1,2\n", "line 1: 'x' is not a number"),
        ("p.onnx", "", "is ONNX already"),
        ("p.bin", "", "unknown kind of file"),
    ],
)
def test_a_file_that_is_no_policy_is_explained(tmp_path: Path, name: str, content: str, why: str) -> None:
    with pytest.raises(PolicyError, match=why):
        convert(MODEL, written(tmp_path, name, content))


@pytest.mark.parametrize(
    ("name", "more", "model", "why"),
    [
        ("remembering", {}, MODEL, "it returned .* when called again.*FrameStackObservation"),
        ("sometimes_scores", {"sees": "index"}, MODEL, "an action in some states and 2 numbers in others"),
        ("failing", {}, MODEL, "state 0: it failed .*no action here"),
        ("wrong", {}, MODEL, "state 0: it returned <object"),
        ("three", {}, MODEL, "return the number or the name of an action, or 2 scores"),
        ("unknown", {}, MODEL, "which is no action"),
        ("failing_factory", {}, MODEL, "it failed .*no weights"),
        ("number", {}, MODEL, "it is int; give a function"),
        ("absent", {}, MODEL, "has no 'absent'"),
        ("by_index", {"sees": "observation"}, BARE, r"the model has no observations; it has \['index'\]"),
        ("by_index", {"sees": "index", "weights": "w.pt"}, MODEL, "are for torch modules"),
        ("by_index", {"sees": "index", "stochastic": True}, MODEL, "--stochastic needs probabilities"),
        ("scores", {"output": "action"}, MODEL, "--output action needs one action a state"),
        ("voter", {}, BARE, "the model has none"),
        ("Wide", {}, MODEL, "it takes 3 features, an observation of the model has 2"),
        ("Broken", {}, MODEL, "it failed .*not fitted for 3"),
    ],
)
def test_a_function_that_is_no_policy_is_explained(name: str, more: dict[str, str], model: MDP, why: str) -> None:
    with pytest.raises(PolicyError, match=why):
        convert(model, ExportRequest(f"{FILE}:{name}", **more))  # type: ignore[arg-type]


def test_there_is_no_such_file() -> None:
    with pytest.raises(PolicyError, match="there is no such file"):
        convert(MODEL, ExportRequest("absent.json"))


def test_a_pickle_of_something_else_is_explained(tmp_path: Path) -> None:
    (tmp_path / "p.pkl").write_bytes(pickle.dumps({"weights": 1}))
    with pytest.raises(PolicyError, match="it holds dict, which has no method predict"):
        convert(MODEL, ExportRequest(str(tmp_path / "p.pkl")))


def altered(original: Original, **changes: object) -> list[tuple[int, str]]:
    """The disagreements found if the original did something else than the export."""
    manifest, _ = draft_manifest(
        original.content, Path("p.onnx"), MODEL, kind=original.kind, stochastic=original.stochastic
    )
    return compare(replace(original, **changes), manifest, MODEL, "here").differences  # type: ignore[arg-type]


def test_a_disagreement_is_found_in_its_state(tmp_path: Path) -> None:
    original = convert(MODEL, written(tmp_path, "p.json", "[0, 1, 1]"))
    assert altered(original) == []
    assert altered(original, actions=np.array([0, 0, 1])) == [(1, "the original takes 0, the export 1")]
    scored = convert(MODEL, written(tmp_path, "q.json", "[[5, 2], [3, -1], [7, 8]]"))
    assert altered(scored, scores=np.array([[5.0, 2], [3, 4], [7, 8]])) == [(1, "the original takes 1, the export 0")]
    drawn = convert(MODEL, written(tmp_path, "r.json", "[[0.5, 0.5], [0.25, 0.75], [1, 0]]"))
    (difference,) = altered(drawn, scores=np.array([[0.5, 0.5], [0.25, 0.75], [0.9, 0.1]]))
    assert difference[0] == 2
    assert "differs by 0.1" in difference[1]


def test_scores_that_tie_are_no_disagreement(tmp_path: Path) -> None:
    scored = convert(MODEL, written(tmp_path, "q.json", "[[5, 2], [3, 3], [7, 8]]"))
    assert altered(scored, scores=np.array([[5.0, 2], [3, 3 + 1e-7], [7, 8]])) == []
    assert altered(scored, actions=np.array([0, 1, 1])) == []


def test_unavailable_actions_are_ruled_out_and_left_out(tmp_path: Path) -> None:
    original = convert(ONE_WAY, written(tmp_path, "p.json", "[1, 1]"))
    manifest, assumed = draft_manifest(
        original.content, Path("p.onnx"), ONE_WAY, kind=original.kind, stochastic=original.stochastic
    )
    assert manifest.mask
    assert any("rules out unavailable actions" in each for each in assumed)
    agreement = compare(original, manifest, ONE_WAY, "here")
    assert (agreement.states, agreement.left_out, agreement.differences) == (1, 1, [])
    scored = convert(ONE_WAY, written(tmp_path, "q.json", json.dumps([[0.2, 0.8], [0.2, 0.8]])))
    for kind, stochastic in (("probabilities", True), ("logits", True), ("logits", False)):
        changed = convert(ONE_WAY, ExportRequest(str(tmp_path / "q.json"), output=kind, stochastic=stochastic))  # type: ignore[arg-type]
        made, _ = draft_manifest(changed.content, Path("p.onnx"), ONE_WAY, kind=changed.kind, stochastic=stochastic)
        assert compare(changed, made, ONE_WAY, "here").differences == []
    assert scored.kind == "probabilities"


def test_a_recurrent_policy_is_refused_before_its_pickles_are_opened(tmp_path: Path) -> None:
    settings: dict[str, dict[str, str]] = {
        "policy_class": {"__module__": "sb3_contrib.common.recurrent.policies", ":serialized:": "not opened"}
    }
    with zipfile.ZipFile(tmp_path / "agent.zip", "w") as archive:
        archive.writestr("data", json.dumps(settings))
    with pytest.raises(PolicyError, match=r"it is recurrent, so it has memory.*FrameStackObservation"):
        convert(MODEL, ExportRequest(str(tmp_path / "agent.zip")))
    settings["policy_class"]["__module__"] = "stable_baselines3.td3.policies"
    with zipfile.ZipFile(tmp_path / "other.zip", "w") as archive:
        archive.writestr("data", json.dumps(settings))
    with pytest.raises(
        PolicyError,
        match=r"td3\.policies; A2C, .* can be exported; a policy of continuous actions fits no model",
    ):
        convert(MODEL, ExportRequest(str(tmp_path / "other.zip")))
