from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from monitor.authoring.formats.gymnasium_env import from_environment
from monitor.errors import ModelError
from monitor.model import canonical_bytes, load_model

LAKE = "gymnasium:FrozenLake-v1?map_name=8x8&is_slippery=true"
SHIPPED = Path(__file__).parents[2] / "policies" / "frozen-lake" / "model.npz"


def environment(table: dict[int, dict[int, list[tuple[float, ...]]]], **more: object) -> SimpleNamespace:
    env = SimpleNamespace(
        P=table, observation_space=SimpleNamespace(n=len(table)), action_space=SimpleNamespace(n=len(table[0])), **more
    )
    env.unwrapped = env
    return env


def test_frozen_lake_keeps_its_state_numbers() -> None:
    gymnasium = pytest.importorskip("gymnasium")
    model = load_model(LAKE)
    env = gymnasium.make("FrozenLake-v1", map_name="8x8", is_slippery=True)
    assert model.states == 64
    for state in range(64):
        for action in range(4):
            row = np.zeros(64)
            for probability, successor, _, _ in env.unwrapped.P[state][action]:
                row[successor] += probability
            successors, probabilities = model.row(state, action)
            assert np.allclose(row[successors], probabilities, rtol=0, atol=1e-15)
            assert len(successors) == np.count_nonzero(row)
    assert np.flatnonzero(model.labels["hole"]).tolist() == [19, 29, 35, 41, 42, 46, 49, 52, 54, 59]
    assert np.flatnonzero(model.labels["goal"]).tolist() == [63]
    assert np.flatnonzero(model.labels["start"]).tolist() == [0]
    assert np.array_equal(model.labels["terminal"], model.labels["hole"] | model.labels["goal"])
    assert model.action_names == ("left", "down", "right", "up")
    assert (model.reward(62, 2, 63), model.reward(62, 2, 62)) == (1.0, 0.0)
    assert model.expected_rewards[62, 2] == pytest.approx(1 / 3)
    assert model.ended_as is None  # holes and the goal stay in Gymnasium's own table: no copies
    assert canonical_bytes(load_model(SHIPPED)) == canonical_bytes(model)


def test_taxi_ends_in_copies() -> None:
    pytest.importorskip("gymnasium")
    model = load_model("gymnasium:Taxi-v4")
    ends = np.flatnonzero(model.labels["terminal"])
    assert ends.tolist() == [500, 501, 502, 503]
    assert all(model.is_absorbing(int(s)) for s in ends)
    assert model.observations is not None
    assert model.observations.shape == (504, 500)
    assert model.observations[500].argmax() < 500
    assert model.rewards.max() == 20
    assert model.ended_as is not None
    assert model.ended_as[ends].tolist() == ends.tolist()
    dropped = np.flatnonzero(model.ended_as[:500] != np.arange(500))
    assert model.ended_as[dropped].tolist() == ends.tolist()
    assert model.observations[dropped].tolist() == model.observations[ends].tolist()


def test_a_state_entered_terminated_gets_a_copy_only_where_it_goes_on() -> None:
    ends_twice: dict[int, dict[int, list[tuple[float, ...]]]] = {
        0: {0: [(0.5, 1, 2.0, True), (0.25, 2, 0.0, True), (0.25, 1, 4.0, False)]},
        1: {0: [(1.0, 0, 0.0, False)]},
        2: {0: [(0.5, 2, 0.0, True), (0.5, 2, 0.0, True)]},
    }
    model = from_environment(environment(ends_twice, initial_state_distrib=[1.0, 0.0, 0.0]), "test")
    assert model.states == 4
    assert [x.tolist() for x in model.row(0, 0)] == [[1, 2, 3], [0.25, 0.25, 0.5]]
    assert model.ended_as is not None
    assert model.ended_as.tolist() == [0, 3, 2, 3]
    assert [model.ended(state) for state in range(4)] == [0, 3, 2, 3]
    assert model.is_absorbing(3)
    assert model.is_absorbing(2)
    assert not model.rewards.any()
    assert [model.reward(0, 0, successor) for successor in (1, 2, 3)] == [4.0, 0.0, 2.0]
    assert model.reward_spread is None
    assert np.flatnonzero(model.labels["terminal"]).tolist() == [2, 3]
    assert model.initial is not None
    assert model.initial.tolist() == [1.0, 0.0, 0.0, 0.0]
    assert model.observations is not None
    assert model.observations.tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 1, 0]]


def test_rewards_are_of_transitions_only_where_they_differ() -> None:
    table: dict[int, dict[int, list[tuple[float, ...]]]] = {
        0: {
            0: [(0.5, 0, -1.0, False), (0.5, 1, -1.0, False), (0.0, 1, 7.0, False)],
            1: [(0.5, 0, -1.0, False), (0.25, 0, -100.0, False), (0.25, 1, 2.0, False)],
        },
        1: {0: [(1.0, 1, 3.0, False)], 1: []},
    }
    model = from_environment(environment(table), "test")
    assert model.rewards.tolist() == [[-1.0, 0.0], [3.0, 0.0]]
    assert model.transition_rewards is not None
    assert model.transition_rewards == pytest.approx([0.0, 0.0, -34.0, 2.0, 0.0])
    assert model.reward_spread == pytest.approx([0.0, 0.0, 66.0, 0.0, 0.0])


def test_the_cliff_is_a_place_and_not_a_mean() -> None:
    pytest.importorskip("gymnasium")
    model = load_model("gymnasium:CliffWalkingSlippery-v1")
    up, right, down, left = range(4)  # as in Gymnasium
    assert [model.reward(25, down, successor) for successor in (24, 26, 36)] == [-1.0, -1.0, -100.0]
    assert model.rewards[24, up] == -1.0
    assert model.reward_spread is not None
    varies = np.repeat(np.arange(196), np.diff(model.indptr))[model.reward_spread > 0]
    beside = [
        (36, up),
        (36, right),
        (36, down),
        (37, up),
        (37, down),
        (37, left),
    ]  # both stay in 36 and fall back to it
    assert [divmod(int(row), 4) for row in varies] == beside


def test_a_tile_labels_the_copy_as_well() -> None:
    inner = type("FrozenLakeEnv", (SimpleNamespace,), {})()
    inner.P = {s: {a: [(1.0, 1 - s, 0.0, s == 0)] for a in range(4)} for s in range(2)}
    inner.desc = np.array([[b"S", b"G"]])
    spaces = {"observation_space": SimpleNamespace(n=2), "action_space": SimpleNamespace(n=4)}
    model = from_environment(SimpleNamespace(unwrapped=inner, **spaces), "test")
    assert np.flatnonzero(model.labels["goal"]).tolist() == [1, 2]
    assert np.flatnonzero(model.labels["terminal"]).tolist() == [2]
    assert np.flatnonzero(model.labels["start"]).tolist() == [0]
    assert not model.labels["hole"].any()


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("gymnasium:", "not an environment id"),
        ("gymnasium:os:Env-v0", "not an environment id"),
        ("gymnasium:CartPole-v1", "no table P"),
        ("gymnasium:NoSuchThing-v1", "cannot make it"),
        ("gymnasium:FrozenLake-v1?colour=red", "cannot make it"),
        ("gymnasium:FrozenLake-v1?colour", "cannot make it"),
    ],
)
def test_environments_that_give_no_model(source: str, message: str) -> None:
    pytest.importorskip("gymnasium")
    with pytest.raises(ModelError, match=message):
        load_model(source)


def test_an_id_that_names_a_module_is_refused_before_anything_is_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gymnasium = pytest.importorskip("gymnasium")
    (tmp_path / "planted.py").write_text("raise SystemExit('imported')\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(SystemExit, match="imported"):
        gymnasium.make("planted:FrozenLake-v1")  # what Gymnasium itself does with such an id
    with pytest.raises(ModelError, match="not an environment id"):
        load_model("gymnasium:planted:FrozenLake-v1")


def test_a_malformed_table_names_the_source() -> None:
    with pytest.raises(ModelError, match=r"broken: .*sums to 0\.5"):
        from_environment(environment({0: {0: [(0.5, 0, 0.0, False)]}}), "broken")
    with pytest.raises(ModelError, match="no table P"):
        from_environment(environment({0: {0: [(0.5, 0)]}}), "broken")


def test_without_gymnasium_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    with pytest.raises(ModelError, match=r"pip install '\.\[models\]'"):
        load_model(LAKE)


def test_arguments_are_numbers_truths_or_text() -> None:
    pytest.importorskip("gymnasium")
    plain = load_model("gymnasium:FrozenLake-v1?is_slippery=False&map_name=4x4")
    assert plain.states == 16
    assert plain.row(0, 2)[0].tolist() == [1]
