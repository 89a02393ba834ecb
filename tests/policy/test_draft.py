"""A manifest drafted from a network alone: what it assumes, and what it refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from monitor.errors import PolicyError
from monitor.model import MDP
from monitor.policy.draft import draft_manifest
from monitor.policy.export import perceptron_onnx, table_onnx
from monitor.policy.session import table_from_onnx
from tests.policy.test_policy_session import MODEL, TABLE, built, helper, tensor

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


def test_a_network_with_several_outputs_is_refused_with_their_names() -> None:
    nodes = [helper.make_node("Gather", ["table", "state"], [name]) for name in ("left", "right")]
    taken = [tensor(name, "FLOAT", ["n", 2]) for name in ("left", "right")]
    content = built(nodes, [tensor("state", "INT64", ["n"])], taken, {"table": TABLE.astype(np.float32)})
    with pytest.raises(PolicyError, match=r"one output are needed, it has \['state'\] and \['left', 'right'\]"):
        draft_manifest(content, Path("p.onnx"), MODEL)


def test_another_fault_of_the_network_is_no_reason_for_a_mask() -> None:
    content = table_onnx(np.full((3, 2), np.nan), "index")
    with pytest.raises(PolicyError, match="nan"):
        draft_manifest(content, Path("p.onnx"), MODEL)
