"""A policy that sees finer observations than the states: in a state, its actions over the recorded observations."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path

import numpy as np
import pytest

import monitor
from monitor.authoring.learning.abstraction import Numbering
from monitor.authoring.learning.batch import RowBatch
from monitor.authoring.learning.columns import Roles
from monitor.authoring.learning.learner import Learner, labels_of
from monitor.authoring.learning.tally import KEPT, KEPT_NUMBERS, Tally
from monitor.authoring.policy_export.agreement import compare
from monitor.authoring.policy_export.original import ExportRequest, Original
from monitor.authoring.policy_export.policy_functions import of_function
from monitor.errors import ModelError
from monitor.model import MDP, load_model
from monitor.model.io import save_model
from monitor.model.recording_sentences import recorded_inputs
from monitor.policy.draft import draft_manifest
from monitor.policy.onnx_policy import Actor, table_from_onnx
from monitor.policy.table import as_table

onnx = pytest.importorskip("onnx")
EDGES = np.array([-np.inf, 2.0, 4.0, 6.0, np.inf])
ROLES = Roles(("level",), "action", "run", observation=("level",))
ABOVE = 5.0


def recorded(rows: int, *, size: int = 1000, seed: int = 0) -> tuple[MDP, list[float]]:
    """A model of levels in bins of two, none of them above 8, from one run; and the levels."""
    rng = np.random.default_rng(seed)
    levels = rng.uniform(0.0, 6.0, rows).round(3).tolist()
    columns = {"run": np.zeros(rows, np.int64), "level": np.array(levels), "action": rng.integers(0, 2, rows)}
    conditions = labels_of([], ["high: level >= 4"], ROLES, tuple(columns))
    learner = Learner.new(ROLES, Numbering("bins", ("level",), (EDGES,)), conditions, 1.0)
    for begin in range(0, rows, size):
        part = {name: values[begin : begin + size] for name, values in columns.items()}
        learner.read(RowBatch(part, 1 + begin, "rows"))
    learner.end_file()
    return learner.model("rows"), levels


def simulated(levels: list[float]) -> dict[int, dict[int, float]]:
    """How often the policy takes each action in each state, by running it on every recorded level."""
    taken: dict[int, Counter[int]] = defaultdict(Counter)
    for level in levels:
        taken[sum(level >= cut for cut in (2.0, 4.0, 6.0))][int(level > ABOVE)] += 1
    return {state: {a: n / counts.total() for a, n in counts.items()} for state, counts in taken.items()}


def network() -> bytes:
    """Score of action 0: 5 - level, of action 1: level - 5."""
    helper, floats = onnx.helper, onnx.TensorProto.FLOAT
    weights = helper.make_tensor("w", floats, [1, 2], [-1.0, 1.0])
    bias = helper.make_tensor("b", floats, [2], [ABOVE, -ABOVE])
    graph = helper.make_graph(
        [helper.make_node("Gemm", ["seen", "w", "b"], ["scores"])],
        "threshold",
        [helper.make_tensor_value_info("seen", floats, ["n", 1])],
        [helper.make_tensor_value_info("scores", floats, ["n", 2])],
        [weights, bias],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(model.SerializeToString())


def originals(model: MDP) -> dict[str, Original]:
    """The same policy as a function that returns actions, one that returns scores, and a network."""
    request = ExportRequest("policy")
    return {
        "function": of_function(lambda seen: int(seen[0] > ABOVE), model, request),
        "scores": of_function(lambda seen: [ABOVE - seen[0], seen[0] - ABOVE], model, request),
        "network": Original(network(), "q_values", stochastic=False, actions=None, scores=None),
    }


@pytest.mark.parametrize("kind", ["function", "scores", "network"])
def test_in_a_state_it_chooses_as_it_does_on_the_recorded_observations(kind: str) -> None:
    model, levels = recorded(60)
    original = originals(model)[kind]
    manifest, assumed = draft_manifest(
        original.content, Path("p.onnx"), model, kind=original.kind, stochastic=original.stochastic
    )
    table = table_from_onnx(original.content, manifest, model, "p")
    expected = simulated(levels)
    assert 0.0 < expected[2][1] < 1.0  # 4 to 6: some above 5
    assert table.probabilities is not None
    for state in range(3):
        for action in range(2):
            assert table.probabilities[state, action] == pytest.approx(expected[state].get(action, 0.0), abs=1e-6)
    said = " ".join([*original.assumed, *assumed])
    assert f"as often as in {max(Counter(sum(x >= c for c in (2, 4, 6)) for x in levels).values())} or fewer" in said
    assert "in 2 of 5 states none was, so there it sees the mean of all" in said  # 6 and more, and `elsewhere`
    mean = int(np.mean(levels) > ABOVE)
    assert table.probabilities[3].tolist() == pytest.approx([1 - mean, mean])


def test_the_value_is_that_of_the_distribution() -> None:
    model, levels = recorded(80, seed=4)
    original = originals(model)["function"]
    assert original.stochastic
    manifest, _ = draft_manifest(original.content, Path("p.onnx"), model, kind=original.kind, stochastic=True)
    table = table_from_onnx(original.content, manifest, model, "p")
    policies: dict[str, object] = {"nominal": table}
    verdict = monitor.check('P=? [ X "high" ]', model=model, path=[(2, None)], policies=policies)
    chances = [sum(p for s, p in zip(*model.row(2, a), strict=True) if model.labels["high"][s]) for a in range(2)]
    chosen = simulated(levels)[2]
    assert verdict.value == pytest.approx(sum(chosen.get(a, 0.0) * chances[a] for a in range(2)), abs=1e-6)


def test_a_policy_that_agrees_within_each_state_stays_deterministic() -> None:
    model, _ = recorded(60)
    original = of_function(lambda seen: int(seen[0] >= 4), model, ExportRequest("policy"))
    assert not original.stochastic
    assert original.actions is not None
    assert original.actions[:3].tolist() == [0, 0, 1]
    manifest, _ = draft_manifest(network(), Path("p.onnx"), model, kind="q_values", stochastic=False)
    coarse = model.without_samples()
    assert table_from_onnx(network(), manifest, coarse, "p").actions is not None


def test_the_actor_draws_from_the_same_distribution_and_the_export_is_compared_on_one_input() -> None:
    model, levels = recorded(60)
    manifest, _ = draft_manifest(network(), Path("p.onnx"), model, kind="q_values", stochastic=False)
    actor = Actor(network(), manifest, model, "p")
    drawn = actor.decide_all(np.full(4000, 2), np.random.default_rng(1))
    assert drawn.mean() == pytest.approx(simulated(levels)[2][1], abs=0.04)  # 5 standard errors
    seen = model.observations
    assert seen is not None
    scores = np.column_stack([ABOVE - seen[:, 0], seen[:, 0] - ABOVE]).astype(np.float64)
    original = Original(network(), "q_values", stochastic=False, actions=None, scores=scores)
    assert compare(original, manifest, model, "p").differences == []


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_what_is_kept_does_not_depend_on_batches_and_is_of_the_state(size: int) -> None:
    model, levels = recorded(400, size=size)
    whole, _ = recorded(400)
    assert model.samples is not None
    assert whole.samples is not None
    assert model.sample_states is not None
    np.testing.assert_array_equal(model.samples, whole.samples)
    counts = np.bincount(model.sample_states, minlength=model.states)
    assert counts.tolist() == [KEPT, KEPT, KEPT, 0, 0]
    kept = defaultdict(list)
    for state, (level,) in zip(model.sample_states.tolist(), model.samples.tolist(), strict=True):
        kept[state].append(level)
    for state, values in kept.items():
        there = [level for level in levels if sum(level >= cut for cut in (2, 4, 6)) == state]
        assert all(np.isclose(level, there, atol=1e-6).any() for level in values)


def test_early_and_late_observations_are_as_likely_to_be_kept() -> None:
    model, levels = recorded(400)
    assert model.samples is not None
    early = {round(level, 3) for level in levels[:200]}
    kept = [round(level, 3) in early for (level,) in model.samples.tolist()]
    assert np.mean(kept) == pytest.approx(0.5, abs=0.25)  # 5 standard errors


def test_with_many_states_fewer_are_kept() -> None:
    tally = Tally.empty(0, 2)
    tally.visited.places(np.arange(KEPT_NUMBERS // 30))
    tally._keep(np.zeros((1, 2)), np.zeros(1, np.int64), np.array([5]))  # noqa: SLF001 - a table of so many states takes minutes to fill
    assert tally.visited["priority"].shape[1] == 10
    assert tally.visited["kept"].shape[1] == 20
    tally.visited.places(np.array([KEPT_NUMBERS]))
    assert tally.visited["priority"][0, 0] == 5


def test_they_are_in_the_file_of_the_model(tmp_path: Path) -> None:
    model, _ = recorded(60)
    save_model(model, tmp_path / "m.npz")
    read = load_model(tmp_path / "m.npz")
    assert read.samples is not None
    assert model.samples is not None
    np.testing.assert_array_equal(read.samples, model.samples)
    assert recorded_inputs(read) == recorded_inputs(model)
    assert recorded_inputs(model.without_samples()) == ""
    with pytest.raises(ModelError, match="ascending sample_states"):
        MDP.from_transitions(
            states=2, actions=1, transitions=[(0, 0, 0, 1.0), (1, 0, 1, 1.0)], observations=[[0.0], [1.0]],
            samples=[[0.0], [1.0]], sample_states=[1, 0],
        )  # fmt: skip
    assert as_table([0] * model.states, model).actions is not None
