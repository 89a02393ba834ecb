from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from monitor.errors import PolicyError
from monitor.model.mdp import MDP
from monitor.policy import network
from monitor.policy.export import perceptron_onnx, table_onnx
from monitor.policy.manifest import Manifest
from monitor.policy.onnx_policy import Actor, load_policy, table_from_onnx

onnx = pytest.importorskip("onnx")
helper = onnx.helper

# Three states, two actions; in state 2 only action 1 is available.
MODEL = MDP.from_transitions(
    states=3,
    actions=2,
    transitions=[(s, a, s, 1.0) for s in range(3) for a in range(2) if (s, a) != (2, 0)],
    observations=np.array([[1.0, 0.0], [0.0, 1.0], [2.0, 2.0]]),
)
TABLE = np.array([[0.0, 1.0], [3.0, 3.0], [0.25, 0.75]])


def manifest(kind: str = "logits", given: str = "index", mode: str = "greedy", **more: Any) -> Manifest:  # noqa: ANN401
    fields = {
        "file": "net.onnx",
        "sha256": "0" * 64,
        "input": {"name": "state", "kind": given},
        "output": {"name": "scores", "kind": kind},
        "mode": mode,
    }
    return Manifest.model_validate(fields | more)


def looked_up(scores: object, described: Manifest | None = None, model: MDP = MODEL) -> Any:  # noqa: ANN401
    content = table_onnx(np.asarray(scores), "index")
    return table_from_onnx(content, described or manifest(), model, "p.yaml")


def built(
    nodes: list[Any],
    given: list[Any],
    taken: list[Any],
    weights: dict[str, Any] | None = None,
    more: Sequence[Any] = (),
) -> bytes:
    """Return a network. `more`: versions of further domains of operators."""
    tensors = [onnx.numpy_helper.from_array(np.asarray(w), name) for name, w in (weights or {}).items()]
    graph = helper.make_graph(nodes, "g", given, taken, tensors)
    made = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17), *more])
    content: bytes = made.SerializeToString()
    return content


def tensor(name: str, element: str, shape: list[Any] | None) -> Any:  # noqa: ANN401
    return helper.make_tensor_value_info(name, getattr(onnx.TensorProto, element), shape)


def saved(folder: Path, content: bytes, **more: object) -> Path:
    (folder / "net.onnx").write_bytes(content)
    fields = manifest().model_dump(exclude_none=True) | {"sha256": hashlib.sha256(content).hexdigest()} | more
    path = folder / "p.yaml"
    path.write_text(yaml.safe_dump(fields))
    return path


# ---- what a policy does ----


def test_greedy_takes_the_highest_score_and_on_ties_the_lowest_number() -> None:
    for kind in ("logits", "q_values"):
        assert looked_up(TABLE, manifest(kind)).actions.tolist() == [1, 0, 1]


def test_greedy_probabilities_are_checked_and_the_best_is_taken() -> None:
    chances = [[0.4, 0.6], [0.5, 0.5], [0.25, 0.75]]
    assert looked_up(chances, manifest("probabilities")).actions.tolist() == [1, 0, 1]


def test_a_mask_rules_out_what_is_unavailable() -> None:
    best_is_gone = [[0.0, 1.0], [1.0, 0.0], [9.0, -9.0]]
    assert looked_up(best_is_gone, manifest(mask=True)).actions.tolist() == [1, 0, 1]


def test_stochastic_logits_are_a_softmax_in_double_precision() -> None:
    logits = np.array([[0.0, 1.0], [1000.0, 1000.0], [5.0, 1.0]])
    table = looked_up(logits, manifest(mode="stochastic", mask=True)).probabilities
    assert table[0] == pytest.approx([1 / (1 + math.e), math.e / (1 + math.e)], abs=1e-15)
    assert table[1:].tolist() == [[0.5, 0.5], [0.0, 1.0]]


def test_stochastic_probabilities_lose_their_rounding() -> None:
    chances = np.array([[1 / 3, 2 / 3], [0.1, 0.9], [0.0, 1.0]])
    table = looked_up(chances, manifest("probabilities", mode="stochastic")).probabilities
    assert np.abs(table.sum(axis=1) - 1).max() < 1e-15
    assert np.abs(table - chances).max() < 1e-7


def test_masked_probabilities_are_renormalised() -> None:
    table = looked_up([[0.5, 0.5], [0.5, 0.5], [0.9, 0.1]], manifest("probabilities", mode="stochastic", mask=True))
    assert table.probabilities[2].tolist() == [0.0, 1.0]


def test_actions_are_taken_as_they_come_flat_or_as_a_column() -> None:
    for axis_kept in (0, 1):
        nodes = [
            helper.make_node("Gather", ["table", "state"], ["rows"]),
            helper.make_node("ArgMax", ["rows"], ["scores"], axis=1, keepdims=axis_kept),
        ]
        shape = ["batch", 1] if axis_kept else ["batch"]
        content = built(
            nodes,
            [tensor("state", "INT64", ["batch"])],
            [tensor("scores", "INT64", shape)],
            {"table": TABLE.astype(np.float32)},
        )
        assert table_from_onnx(content, manifest("action"), MODEL, "p").actions.tolist() == [1, 0, 1]  # type: ignore[union-attr] # deterministic


def test_every_kind_of_input_reaches_the_network() -> None:
    one_hot = table_onnx(TABLE, "one_hot")
    assert table_from_onnx(one_hot, manifest(given="one_hot"), MODEL, "p").choices(0) == [(1, 1.0)]
    seen = perceptron_onnx(((np.eye(2), np.zeros(2)), (np.eye(2), np.zeros(2))))
    observing = manifest(given="observation", input={"name": "observation", "kind": "observation"})
    table = table_from_onnx(seen, observing.model_copy(update={"mask": True}), MODEL, "p")
    assert [table.choices(s)[0][0] for s in range(3)] == [0, 1, 1]


def test_a_model_without_observations_shows_the_one_hot_state() -> None:
    bare = MDP.from_transitions(states=3, actions=2, transitions=[(s, a, s, 1.0) for s in range(3) for a in range(2)])
    table = table_from_onnx(table_onnx(TABLE, "one_hot"), manifest(given="observation"), bare, "p")
    assert [table.choices(s)[0][0] for s in range(3)] == [1, 0, 1]


def test_a_network_that_takes_one_state_at_a_time() -> None:
    nodes = [helper.make_node("Gather", ["table", "state"], ["scores"])]
    content = built(nodes, [tensor("state", "INT32", [1])], [tensor("scores", "DOUBLE", [1, 2])], {"table": TABLE})
    assert table_from_onnx(content, manifest(), MODEL, "p").choices(2) == [(1, 1.0)]
    actor = Actor(content, manifest(), MODEL, "p")
    assert actor.decide_all(np.array([2, 0, 1]), np.random.default_rng(0)).tolist() == [1, 1, 0]


@pytest.mark.parametrize("batch", [1, 2, 7, 1024])
def test_the_table_does_not_depend_on_the_batch(batch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    states = 50
    model = MDP.from_transitions(
        states=states,
        actions=3,
        transitions=[(s, a, s, 1.0) for s in range(states) for a in range(3)],
        observations=rng.normal(size=(states, 20)),
    )
    layers = ((rng.normal(size=(20, 33)), rng.normal(size=33)), (rng.normal(size=(33, 3)), rng.normal(size=3)))
    seen = manifest(mode="stochastic", input={"name": "observation", "kind": "observation"})
    whole = table_from_onnx(perceptron_onnx(layers), seen, model, "p").probabilities
    monkeypatch.setattr(network, "_BATCH", batch)
    again = table_from_onnx(perceptron_onnx(layers), seen, model, "p").probabilities
    assert whole is not None
    assert again is not None
    assert np.array_equal(whole, again)


# ---- what is refused ----

INDEX, SCORES = ("state", "INT64", ["batch"]), ("scores", "FLOAT", ["batch", 2])


def lookup(given: tuple[str, str, list[Any]], taken: tuple[str, str, list[Any] | None], table: object) -> bytes:
    node = helper.make_node("Gather", ["table", given[0]], [taken[0]])
    return built([node], [tensor(*given)], [tensor(*taken)], {"table": np.asarray(table, np.float32)})


@pytest.mark.parametrize(
    ("content", "described", "message"),
    [
        (b"", manifest(), "onnxruntime cannot open it"),
        (b"garbage", manifest(), "not an ONNX file"),
        (
            lookup(("s", "INT64", ["batch"]), SCORES, TABLE),
            manifest(),
            r"inputs are \['s'\], the manifest says 'state'",
        ),
        (lookup(INDEX, ("y", "FLOAT", ["batch", 2]), TABLE), manifest(), r"outputs are \['y'\], the manifest says"),
        (lookup(INDEX, ("scores", "FLOAT", ["batch", 3]), np.zeros((3, 3))), manifest(), "3 columns for 2 actions"),
        (lookup(INDEX, ("scores", "FLOAT", None), np.zeros((3, 3))), manifest(), "3 columns for 2 actions"),
        (lookup(INDEX, ("scores", "FLOAT", None), np.zeros(3)), manifest(), r"shape \(3,\) for 3 states, not \(3, 2\)"),
        (lookup(INDEX, SCORES, TABLE[:2]), manifest(), "cannot evaluate it"),
        (lookup(INDEX, SCORES, TABLE), manifest(given="one_hot"), r"needs \['batch', 3\]"),
        (lookup(INDEX, SCORES, TABLE), manifest("action"), r"is tensor\(float\), not one of tensor\(int64\)"),
        (table_onnx(TABLE, "one_hot"), manifest(), r"has shape \['batch', 3\], but kind index .* needs \['batch'\]"),
        (table_onnx(TABLE, "one_hot"), manifest(given="observation"), r"kind observation .* needs \['batch', 2\]"),
        (table_onnx(np.zeros((4, 2)), "one_hot"), manifest(given="one_hot"), r"\['batch', 4\], but kind one_hot"),
        (lookup(("state", "INT64", [5]), SCORES, TABLE), manifest(), r"has shape \[5\]"),
        (
            lookup(("state", "INT64", ["a", "b"]), ("scores", "FLOAT", None), TABLE),
            manifest(given="one_hot"),
            r"is tensor\(int64\), not one of tensor\(float\), tensor\(double\)",
        ),
    ],
)
def test_a_network_that_does_not_fit_is_refused(content: bytes, described: Manifest, message: str) -> None:
    with pytest.raises(PolicyError, match=message) as caught:
        table_from_onnx(content, described, MODEL, "p.yaml")
    assert str(caught.value).startswith("policy p.yaml: ")
    assert "\n" not in str(caught.value)


def test_a_second_input_is_refused() -> None:
    node = helper.make_node("Add", ["state", "more"], ["scores"])
    given = [tensor(name, "FLOAT", ["batch", 3]) for name in ("state", "more")]
    with pytest.raises(PolicyError, match=r"inputs are \['state', 'more'\]"):
        table_from_onnx(built([node], given, [tensor("scores", "FLOAT", None)]), manifest(given="one_hot"), MODEL, "p")


@pytest.mark.parametrize(
    ("table", "described", "message"),
    [
        ([[0, 1], [float("nan"), 0], [0, 1]], manifest(), "state 1, action 0: the output is nan; it must be finite"),
        ([[0, 1], [0, 1], [0, float("inf")]], manifest(), "state 2, action 1: the output is inf"),
        ([[float("-inf"), 1], [0, 1], [0, 1]], manifest(mask=True), "state 0, action 0: the output is -inf"),
        ([[0.5, 0.5], [0.5, 0.4], [0, 1]], manifest("probabilities"), r"state 1: the probabilities sum to 0\.9, not 1"),
        ([[0.5, 0.5], [1.5, -0.5], [0, 1]], manifest("probabilities"), "state 1, action 1: .* -0.5 is negative"),
        (
            [[0.5, 0.5], [0.5, 0.5], [1, 0]],
            manifest("probabilities", mode="stochastic", mask=True),
            "state 2: every available action has probability 0",
        ),
        ([[0, 1], [0, 1], [1, 0]], manifest(), "state 2: the policy takes action 0, which is unavailable .*mask: true"),
        (
            [[0.5, 0.5], [0.5, 0.5], [0.5, 0.5]],
            manifest("probabilities", mode="stochastic"),
            "state 2: the policy takes action 0, which is unavailable .*mask: true",
        ),
    ],
)
def test_an_output_that_means_nothing_is_refused(table: object, described: Manifest, message: str) -> None:
    with pytest.raises(PolicyError, match=message) as caught:
        looked_up(table, described)
    assert str(caught.value).startswith("policy p.yaml: ")


def test_an_action_out_of_range_is_refused() -> None:
    node = helper.make_node("Gather", ["table", "state"], ["scores"])
    content = built(
        [node], [tensor("state", "INT64", ["b"])], [tensor("scores", "INT64", ["b"])], {"table": np.array([0, 1, 7])}
    )
    with pytest.raises(PolicyError, match=r"state 2: action 7 is outside 0\.\.1"):
        table_from_onnx(content, manifest("action"), MODEL, "p")


def test_a_sequence_is_no_output() -> None:
    node = helper.make_node("SequenceConstruct", ["state"], ["scores"])
    value = helper.make_tensor_sequence_value_info("scores", onnx.TensorProto.INT64, None)
    with pytest.raises(PolicyError, match=r"output 'scores' is seq\(tensor\(int64\)\)"):
        table_from_onnx(built([node], [tensor(*INDEX)], [value]), manifest(), MODEL, "p")


# ---- files ----


def test_a_policy_is_loaded_from_its_manifest(tmp_path: Path) -> None:
    content = table_onnx(TABLE, "index")
    policy = load_policy(saved(tmp_path, content), MODEL)
    assert policy.name == "p"
    assert policy.content == content
    assert policy.sha256 == hashlib.sha256(content).hexdigest()
    assert policy.table.choices(0) == [(1, 1.0)]
    assert load_policy(saved(tmp_path, content, name="mine"), MODEL).name == "mine"


def test_missing_files_are_named(tmp_path: Path) -> None:
    path = saved(tmp_path, table_onnx(TABLE, "index"))
    (tmp_path / "net.onnx").unlink()
    with pytest.raises(PolicyError, match=r"p\.yaml: its file .*net\.onnx is missing|is missing: there is no"):
        load_policy(path, MODEL)
    with pytest.raises(PolicyError, match="is missing: there is no"):
        load_policy(tmp_path / "none.yaml", MODEL)
    with pytest.raises(PolicyError, match="cannot be read"):
        load_policy(tmp_path, MODEL)
    with pytest.raises(PolicyError, match="cannot be read"):
        load_policy(tmp_path / "a\0b", MODEL)


def test_one_altered_byte_is_seen(tmp_path: Path) -> None:
    path = saved(tmp_path, table_onnx(TABLE, "index"))
    content = bytearray((tmp_path / "net.onnx").read_bytes())
    content[-1] ^= 1
    (tmp_path / "net.onnx").write_bytes(content)
    with pytest.raises(PolicyError, match=r"net\.onnx was altered: its SHA-256 is [0-9a-f]{64}, the manifest says"):
        load_policy(path, MODEL)
    with pytest.raises(PolicyError, match="was altered"):
        Actor.load(path, MODEL)


def test_a_link_out_of_the_folder_is_refused(tmp_path: Path) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    path = saved(inside, table_onnx(TABLE, "index"))
    (inside / "net.onnx").rename(tmp_path / "net.onnx")
    (inside / "net.onnx").symlink_to(tmp_path / "net.onnx")
    with pytest.raises(PolicyError, match="link out of the manifest's folder"):
        load_policy(path, MODEL)
    (inside / "net.onnx").unlink()
    (inside / "net.onnx").symlink_to(inside / "net.onnx")
    with pytest.raises(PolicyError, match=r"cannot be read|cannot resolve"):
        load_policy(path, MODEL)


def test_files_too_large_are_not_read(tmp_path: Path) -> None:
    path = saved(tmp_path, b"")
    os.truncate(tmp_path / "net.onnx", network.MAX_ONNX_BYTES + 1)
    with pytest.raises(PolicyError, match="larger than the limit"):
        load_policy(path, MODEL)


def test_bytes_too_large_are_not_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network, "MAX_ONNX_BYTES", 10)
    with pytest.raises(PolicyError, match="larger than the limit of 10 bytes"):
        looked_up(TABLE)


def test_external_data_is_never_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """onnxruntime itself would read it: from beside the file, or from the working directory for bytes."""
    made = onnx.load_from_string(table_onnx(np.zeros((600, 2)), "index"))
    onnx.save(made, tmp_path / "net.onnx", save_as_external_data=True, location="weights.bin")
    assert (tmp_path / "weights.bin").exists()
    monkeypatch.chdir(tmp_path)
    path = saved(tmp_path, (tmp_path / "net.onnx").read_bytes())
    with pytest.raises(PolicyError, match="keeps tensors in another file"):
        load_policy(path, MODEL)


# ---- the agent's side ----


def test_an_actor_takes_the_actions_of_the_table(tmp_path: Path) -> None:
    path = saved(tmp_path, table_onnx(TABLE, "index"))
    actor, table = Actor.load(path, MODEL), load_policy(path, MODEL).table
    rng = np.random.default_rng(0)
    before = rng.bit_generator.state
    assert [actor.decide(s, rng) for s in range(3)] == [table.choices(s)[0][0] for s in range(3)]
    assert rng.bit_generator.state == before


def test_an_actor_draws_with_the_probabilities_of_the_table() -> None:
    chances = np.array([[0.25, 0.75], [1.0, 0.0], [0.0, 1.0]])
    actor = Actor(table_onnx(chances, "index"), manifest("probabilities", mode="stochastic"), MODEL, "p")
    drawn = actor.decide_all(np.zeros(20_000, np.int64), np.random.default_rng(4))
    # Five standard deviations of a fair draw: a false alarm below 1e-6.
    assert abs(drawn.mean() - 0.75) < 5 * np.sqrt(0.25 * 0.75 / 20_000)
    assert set(actor.decide_all(np.ones(1000, np.int64), np.random.default_rng(4))) == {0}
    assert set(actor.decide_all(np.full(1000, 2), np.random.default_rng(4))) == {1}
    again = actor.decide_all(np.zeros(20_000, np.int64), np.random.default_rng(4))
    assert np.array_equal(drawn, again)


@pytest.mark.parametrize("name", ["batch", "state", "scores"])
def test_a_name_that_is_no_text_is_an_error_of_the_policy(name: str) -> None:
    content = table_onnx(TABLE, "index")
    broken = content.replace(name.encode(), b"\xff" * len(name))
    assert broken != content
    with pytest.raises(PolicyError, match=r"p\.yaml: .*"):
        table_from_onnx(broken, manifest(), MODEL, "p.yaml")
