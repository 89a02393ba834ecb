"""A manifest drafted from a network alone: what it assumes, and what it refuses."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from monitor.errors import PolicyError
from monitor.model import MDP
from monitor.policy.draft import draft_manifest
from monitor.policy.export import perceptron_onnx, table_onnx
from monitor.policy.onnx_policy import table_from_onnx
from tests.policy.test_onnx_policy import MODEL, TABLE, built, helper, onnx, tensor

EVEN = [[0.5, 0.5], [0.25, 0.75], [0.0, 1.0]]
TAKES_HIGHEST = "the agent takes the action with the highest score"


def gathered(result: str, table: Any = TABLE) -> bytes:  # noqa: ANN401
    """Return a network that looks scores up by the number of a state. `result`: the name of its output."""
    nodes = [helper.make_node("Gather", ["table", "state"], [result])]
    given, taken = [tensor("state", "INT64", ["n"])], [tensor(result, "FLOAT", ["n", 2])]
    return built(nodes, given, taken, {"table": np.asarray(table, np.float32)})


@pytest.mark.parametrize(
    ("result", "kind"), [("scores", "logits"), ("q", "q_values"), ("Q_values", "q_values"), ("Probs", "probabilities")]
)
def test_the_name_of_the_output_says_what_it_holds(result: str, kind: str) -> None:
    manifest, assumed = draft_manifest(gathered(result, EVEN), Path("here/careful.onnx"), MODEL)
    assert (manifest.input.kind, manifest.output.kind, manifest.mode, manifest.name) == (
        "index",
        kind,
        "greedy",
        "careful",
    )
    assert assumed[:1] == [f"output {result!r} holds {kind}, by its name; if not, give --output"]
    assert TAKES_HIGHEST in assumed


def test_what_is_given_is_not_assumed() -> None:
    manifest, assumed = draft_manifest(gathered("scores"), Path("p.onnx"), MODEL, kind="q_values")
    assert (manifest.output.kind, assumed) == ("q_values", [TAKES_HIGHEST])


@pytest.mark.parametrize("kind", ["action", "q_values"])
def test_only_logits_and_probabilities_are_drawn_from(kind: Any) -> None:  # noqa: ANN401
    with pytest.raises(PolicyError, match=rf"policy p\.onnx: an agent cannot draw from {kind}, only from logits"):
        draft_manifest(gathered("scores"), Path("p.onnx"), MODEL, kind=kind, stochastic=True)


def test_an_agent_that_draws_is_said_to() -> None:
    manifest, assumed = draft_manifest(gathered("logits"), Path("p.onnx"), MODEL, stochastic=True)
    assert manifest.mode == "stochastic"
    assert "the agent draws its actions" in assumed


def test_numbers_of_actions_are_actions() -> None:
    nodes = [
        helper.make_node("Gather", ["table", "state"], ["rows"]),
        helper.make_node("ArgMax", ["rows"], ["action"], axis=1, keepdims=0),
    ]
    given, taken = [tensor("state", "INT64", ["n"])], [tensor("action", "INT64", ["n"])]
    content = built(nodes, given, taken, {"table": TABLE.astype(np.float32)})
    manifest, assumed = draft_manifest(content, Path("p.onnx"), MODEL)
    assert (manifest.output.kind, manifest.mask) == ("action", False)
    assert assumed == [TAKES_HIGHEST]


def test_unavailable_actions_are_ruled_out_if_it_would_choose_them() -> None:
    wrong = np.array([[0.0, 1.0], [3.0, 3.0], [0.75, 0.25]])  # in state 2 only action 1 is available
    content = table_onnx(wrong, "index")
    manifest, assumed = draft_manifest(content, Path("p.onnx"), MODEL)
    assert manifest.mask
    assert assumed[-1].startswith("the agent rules out unavailable actions (mask: true)")
    assert np.asarray(table_from_onnx(content, manifest, MODEL, "p.onnx").actions).tolist() == [1, 0, 1]


def test_a_network_of_features_gets_them() -> None:
    content = perceptron_onnx(((np.eye(2), np.zeros(2)), (np.eye(2), np.zeros(2))))
    assert draft_manifest(content, Path("p.onnx"), MODEL)[0].input.kind == "observation"


def test_a_network_of_as_many_numbers_as_states_gets_them_one_hot() -> None:
    assert draft_manifest(table_onnx(TABLE, "one_hot"), Path("p.onnx"), MODEL)[0].input.kind == "one_hot"


@pytest.mark.parametrize(("features", "seen"), [(None, "no features"), (2, "2 features")])
def test_a_network_of_other_numbers_is_refused(features: int | None, seen: str) -> None:
    content = perceptron_onnx(((np.ones((7, 2)), np.zeros(2)), (np.eye(2), np.zeros(2))))
    model = MODEL
    if features is None:
        model = MDP.from_transitions(
            states=3, actions=2, transitions=[(s, a, s, 1.0) for s in range(3) for a in (0, 1)]
        )
    with pytest.raises(PolicyError, match=f"takes 7 numbers, but the model has 3 states and {seen}"):
        draft_manifest(content, Path("p.onnx"), model)


SCORES = np.array([[0.0, 1.0], [0.75, 0.25], [0.25, 0.75]], np.float32)  # actions 1, 0, 1
MODEL_OF_NAMES = replace(MODEL, action_names=("wait", "go"))


def classifier(
    *outputs: str,
    labels: Sequence[int] | Sequence[str] = (0, 1),
    scores: Any = SCORES,  # noqa: ANN401
    element: str = "FLOAT",
) -> bytes:
    """Return a network as converters write classifiers. `labels`: the class of each column."""
    strings = isinstance(labels[0], str)
    nodes = [
        helper.make_node("Gather", ["table", "state"], ["probabilities"]),
        helper.make_node("ArgMax", ["probabilities"], ["column"], axis=1, keepdims=0),
        helper.make_node("Gather", ["classes", "column"], ["label"]),
        helper.make_node("ReduceMax", ["probabilities"], ["value"], axes=[1], keepdims=1),
        helper.make_node("ReduceMax", ["probabilities"], ["log_probability"], axes=[1], keepdims=0),
        helper.make_node("Identity", ["probabilities"], ["again"]),
        helper.make_node("ZipMap", ["probabilities"], ["zipped"], domain="ai.onnx.ml", **(
            {"classlabels_strings": labels} if strings else {"classlabels_int64s": labels}
        )),
    ]  # fmt: skip
    kinds = {
        "label": tensor("label", "STRING" if strings else "INT64", ["n"]),
        "probabilities": tensor("probabilities", element, ["n", 2]),
        "again": tensor("again", element, ["n", None]),
        "value": tensor("value", element, ["n", 1]),
        "log_probability": tensor("log_probability", element, ["n"]),
        "zipped": helper.make_value_info(
            "zipped",
            helper.make_sequence_type_proto(
                helper.make_map_type_proto(
                    onnx.TensorProto.STRING if strings else onnx.TensorProto.INT64,
                    helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, []),
                )
            ),
        ),
    }
    wanted = [node for node in nodes if node.op_type != "ZipMap" or "zipped" in outputs]
    weights = {"table": np.asarray(scores), "classes": np.array(labels, dtype=object if strings else np.int64)}
    return built(
        wanted,
        [tensor("state", "INT64", ["n"])],
        [kinds[name] for name in outputs],
        weights,
        more=[helper.make_opsetid("ai.onnx.ml", 1)],
    )


@pytest.mark.parametrize(
    ("outputs", "more", "chosen"),
    [
        (("label", "probabilities"), {}, "probabilities"),
        (("probabilities", "label"), {"kind": "probabilities", "stochastic": True}, "probabilities"),
        (("label", "probabilities"), {"kind": "action"}, "label"),
        (("label", "probabilities"), {"output": "label"}, "label"),
        (("label", "zipped"), {}, "label"),
        (("label", "value", "log_probability"), {}, "label"),  # as stable-baselines3 documents an export
        (("probabilities", "value", "log_probability"), {}, "probabilities"),
        (("probabilities", "again"), {"output": "again", "kind": "probabilities"}, "again"),
    ],
)
def test_of_several_outputs_the_one_that_holds_the_policy(
    outputs: tuple[str, ...], more: dict[str, Any], chosen: str
) -> None:
    content = classifier(*outputs)
    manifest, assumed = draft_manifest(content, Path("p.onnx"), MODEL, **more)
    assert manifest.output.name == chosen
    assert any(chosen in each and "--output-name" in each for each in assumed) == ("output" not in more)
    table = table_from_onnx(content, manifest, MODEL, "p.onnx")
    taken = table.actions if table.probabilities is None else table.probabilities.argmax(axis=1)
    assert np.asarray(taken).tolist() == [1, 0, 1]


@pytest.mark.parametrize(
    ("outputs", "more", "why"),
    [
        (("probabilities", "again"), {}, r"several of its outputs have the shape of \[n, 2\] scores.*--output-name"),
        (("value", "log_probability"), {}, "none of its outputs has the shape of .* scores, or .* whole numbers"),
        (("label", "value"), {"kind": "logits"}, r"none of its outputs has the shape of \[n, 2\] scores: 'label'"),
        (("probabilities", "value"), {"kind": "action"}, r"none .* \[n\] whole numbers of actions: 'probabilities'"),
        (("value", "zipped"), {}, "none of its outputs has .*or convert it with zipmap=False"),
        (("label", "zipped"), {"output": "zipped"}, r"'zipped' is seq\(map\(int64.*again with zipmap=False"),
        (
            ("label", "probabilities"),
            {"output": "q"},
            r"no output 'q'; it has 'label' \(int64\)\['n'\], 'prob",
        ),
    ],
)
def test_outputs_that_do_not_show_the_policy_are_listed(
    outputs: tuple[str, ...], more: dict[str, Any], why: str
) -> None:
    with pytest.raises(PolicyError, match=why):
        draft_manifest(classifier(*outputs), Path("p.onnx"), MODEL, **more)


@pytest.mark.parametrize(
    ("labels", "model", "why"),
    [
        ((1, 2), MODEL, "in state 0 its output 'label' is 2, but 'probabilities' is largest in column 1"),
        ((1, 0), MODEL, "in state 0 its output 'label' is 0, but 'probabilities' is largest in column 1"),
        (
            ("go", "wait"),
            MODEL_OF_NAMES,
            "in state 0 its output 'label' is 'wait', but 'probabilities' is largest in column 1",
        ),
        (("go", "wait"), MODEL, "its output 'label' holds text such as 'wait', which is no action of the model"),
    ],
)
def test_columns_in_the_order_of_other_classes_are_not_taken_for_actions(
    labels: Sequence[Any], model: MDP, why: str
) -> None:
    content = classifier("label", "probabilities", labels=labels)
    with pytest.raises(PolicyError, match=f"{why}, so columns may be in another order than actions. Name the output"):
        draft_manifest(content, Path("p.onnx"), model)
    _, assumed = draft_manifest(content, Path("p.onnx"), model, output="probabilities", kind="logits")
    assert re.match(f"column k of 'probabilities' is action k, although {why}", assumed[-1])


def test_a_label_that_cannot_be_computed_is_explained() -> None:
    nodes = [
        helper.make_node("Gather", ["table", "state"], ["scores"]),
        helper.make_node("Reshape", ["state", "seven"], ["label"]),
    ]
    outputs = [tensor("label", "INT64", ["m"]), tensor("scores", "FLOAT", ["n", 2])]
    weights = {"table": SCORES, "seven": np.array([7])}
    content = built(nodes, [tensor("state", "INT64", ["n"])], outputs, weights)
    with pytest.raises(PolicyError, match=r"policy p\.onnx: onnxruntime cannot evaluate it"):
        draft_manifest(content, Path("p.onnx"), MODEL)


def test_columns_that_are_named_like_the_actions_in_order_are_these() -> None:
    content = classifier("label", "probabilities", labels=("wait", "go"))
    manifest, assumed = draft_manifest(content, Path("p.onnx"), MODEL_OF_NAMES, kind="logits")
    assert (manifest.output.name, any("column" in each for each in assumed)) == ("probabilities", False)


@pytest.mark.parametrize(("element", "dtype"), [("FLOAT16", np.float16), ("DOUBLE", np.float64)])
@pytest.mark.parametrize("kind", ["logits", "probabilities"])
def test_scores_of_16_and_64_bits(element: str, dtype: type, kind: Any) -> None:  # noqa: ANN401
    chances = np.array([[1 / 3, 2 / 3], [0.7, 0.3], [0.1, 0.9]])
    content = classifier("probabilities", scores=chances.astype(dtype), element=element)
    for stochastic in (False, True):
        manifest, _ = draft_manifest(content, Path("p.onnx"), MODEL, kind=kind, stochastic=stochastic, mask=True)
        table = table_from_onnx(content, manifest, MODEL, "p.onnx")
        taken = table.actions if table.probabilities is None else table.probabilities.argmax(axis=1)
        assert np.asarray(taken).tolist() == [1, 0, 1]
        assert manifest.mask
    if kind == "probabilities":
        assert table.probabilities is not None
        np.testing.assert_allclose(table.probabilities[:2], chances[:2], rtol=0, atol=1e-3)


def test_a_network_with_several_inputs_is_refused_with_their_shapes() -> None:
    nodes = [helper.make_node("Add", ["a", "b"], ["scores"])]
    given = [tensor("a", "FLOAT", ["n", 2]), tensor("b", "FLOAT", ["n", 2])]
    content = built(nodes, given, [tensor("scores", "FLOAT", ["n", 2])])
    with pytest.raises(PolicyError, match=r"one input is needed, it has 'a' \(float\)\['n', 2\], 'b'.*join them"):
        draft_manifest(content, Path("p.onnx"), MODEL)


def test_a_network_of_64_bits_sees_observations_of_64_bits() -> None:
    nodes = [
        helper.make_node("Greater", ["x", "bound"], ["above"]),
        helper.make_node("Cast", ["above"], ["scores"], to=onnx.TensorProto.FLOAT),
    ]
    taken = [tensor("scores", "FLOAT", ["n", 2])]
    far = replace(MODEL, observations=np.array([[5.3e8, 5.3e8 + 1], [5.3e8 + 1, 5.3e8], [5.3e8, 5.3e8 + 1]]))
    found = {}
    for element, dtype in (("DOUBLE", np.float64), ("FLOAT", np.float32)):
        bound = {"bound": np.array([5.3e8 + 0.5], dtype)}
        content = built(nodes, [tensor("x", element, ["n", 2])], taken, bound)
        manifest, _ = draft_manifest(content, Path("p.onnx"), far, kind="logits", mask=True)
        found[element] = np.asarray(table_from_onnx(content, manifest, far, "p.onnx").actions).tolist()
    assert found == {"DOUBLE": [1, 0, 1], "FLOAT": [0, 0, 1]}


def test_an_input_of_any_width_takes_the_observations_of_the_model() -> None:
    nodes = [helper.make_node("MatMul", ["x", "w"], ["scores"])]
    weights = {"w": np.array([[1.0, 0.0], [0.0, 1.0]], np.float32)}
    content = built(nodes, [tensor("x", "FLOAT", ["n", "features"])], [tensor("scores", "FLOAT", ["n", 2])], weights)
    assert draft_manifest(content, Path("p.onnx"), MODEL)[0].input.kind == "observation"


def test_another_fault_of_the_network_is_no_reason_for_a_mask() -> None:
    content = table_onnx(np.full((3, 2), np.nan), "index")
    with pytest.raises(PolicyError, match="nan"):
        draft_manifest(content, Path("p.onnx"), MODEL)
