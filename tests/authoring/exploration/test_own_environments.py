"""A user's own environments: what identifies a state, what is random, hooks, limits, and what is refused."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("gymnasium")

from monitor.authoring.exploration import observation_key
from monitor.authoring.exploration.copies import CopySimulator, reseed
from monitor.authoring.exploration.enumeration import ExplorationSettings, explore
from monitor.authoring.exploration.identity import identity_of, key_of
from monitor.authoring.exploration.search import search
from monitor.authoring.exploration.walks import compare_walks
from monitor.errors import ModelError
from monitor.model import encode_state
from tests.authoring.exploration import worlds

FILE = str(Path(worlds.__file__))
CORRIDOR = f"{FILE}:corridor"


def simulated(environment: worlds.Corridor) -> CopySimulator:
    environment.reset(seed=0)
    return CopySimulator(environment, identity_of(environment, None), [0])


def test_a_corridor_is_enumerated_in_order_of_discovery() -> None:
    explored = explore(
        CORRIDOR, ExplorationSettings(walk=500, conditions=["won: terminated and reward > 0", "lost: reward < 0"])
    )
    model = explored.model
    assert model.valuations == ((2.0,), (1.0,), (3.0,), (0.0,), (4.0,))
    assert np.flatnonzero(model.labels["won"]).tolist() == [4]
    assert np.flatnonzero(model.labels["lost"]).tolist() == [3]
    assert model.labels["terminal"].tolist() == [False, False, False, True, True]
    assert model.observations is not None
    assert model.observations.tolist() == [[2], [1], [3], [0], [4]]
    assert [model.row(s, a)[0].tolist() for s in range(3) for a in range(2)] == [[1], [2], [3], [0], [0], [4]]
    assert (model.reward(1, 0, 3), model.reward(2, 1, 4), model.reward(0, 0, 1)) == (-1.0, 1.0, 0.0)
    assert all(model.is_absorbing(s) for s in (3, 4))
    assert model.initial is not None
    assert model.initial.tolist() == [1, 0, 0, 0, 0]
    assert (explored.walked, list(explored.notes)) == (500, [])


def test_a_key_that_hides_a_variable_is_found_out() -> None:
    with pytest.raises(ModelError, match=r"the observation does not identify a state: .* give --key module\.py"):
        explore(f"{FILE}:hot_corridor", ExplorationSettings())


def test_what_a_comparison_of_two_situations_misses_a_walk_finds() -> None:
    simulator = simulated(worlds.Corridor(overheats=True))
    simulator.aliasing = False
    found = search(simulator, 100)
    with pytest.raises(ModelError, match=r"departs from what was explored: after reset\(seed=0\) and actions \["):
        compare_walks(simulator, found, 1_000, 0)


@pytest.mark.parametrize(("key", "names"), [("key", ("cell", "hot")), ("key_as_mapping", ("cell", "more"))])
def test_a_key_of_ones_own_names_its_variables(key: str, names: tuple[str, ...]) -> None:
    settings = ExplorationSettings(
        key=f"{FILE}:{key}", conditions=["warm: cell == 1 or cell == 2 and not terminated"], walk=500
    )
    explored = explore(f"{FILE}:hot_corridor", settings)
    assert tuple(explored.variables) == names
    # Cells 2, 1, 3 cool, the pit and the goal; after the first visit of cell 1 the same, hot; and its second visit.
    assert encode_state(explored.model, "valuation", (2, True)) != encode_state(explored.model, "valuation", (2, False))
    assert explored.model.labels["warm"].any()


def test_a_state_in_which_an_episode_may_end_or_not_is_two() -> None:
    settings = ExplorationSettings(key=f"{FILE}:cell_only", walk=0)
    model = explore(f"{FILE}:sometimes", settings).model
    twice = encode_state(model, "valuation", (1.0,))
    assert model.ended(twice) != twice
    assert model.labels["terminal"][model.ended(twice)]
    assert model.valuations[model.ended(twice)] == ("ended 1.0",)


@pytest.mark.parametrize("slips", ["gymnasium", "numpy", "own"])
def test_a_random_environment_is_refused_whatever_its_generator(slips: str) -> None:
    with pytest.raises(ModelError, match=r"is random: action \d, repeated from one snapshot .* successors"):
        search(simulated(worlds.Corridor(slips=slips)), 100)


def test_randomness_that_snapshots_hide_is_found_by_the_walk() -> None:
    with pytest.raises(ModelError, match=r"is random|departs from what was explored"):
        explore(f"{FILE}:hidden", ExplorationSettings())


def test_global_generators_are_as_before() -> None:
    random.seed(5)
    np.random.seed(5)  # noqa: NPY002
    expected = random.random(), np.random.random()  # noqa: NPY002
    random.seed(5)
    np.random.seed(5)  # noqa: NPY002
    explore(CORRIDOR, ExplorationSettings(walk=10))
    assert (random.random(), np.random.random()) == expected  # noqa: NPY002


def test_reseeding_reaches_every_generator() -> None:
    environment = worlds.Corridor()
    environment.reset(seed=0)
    environment.old = np.random.RandomState(3)  # type: ignore[attr-defined]
    draws = []
    for seed in (1, 1, 2):
        reseed(environment, seed)
        draws.append((environment.np_random.random(), environment.mine.random(), environment.old.rand()))  # type: ignore[attr-defined]
    assert draws[0] == draws[1]
    assert all(one != other for one, other in zip(draws[0], draws[2], strict=True))


@pytest.mark.parametrize(
    ("source", "settings", "why"),
    [
        ("nowhere", {}, "give gymnasium:ID"),
        ("gymnasium:NoSuch-v0", {}, "Gymnasium cannot make it"),
        (f"{FILE}:absent", {}, "has no 'absent'"),
        ("absent.py:make_env", {}, "there is no file absent.py"),
        (f"{FILE}:nothing", {}, "is no Gymnasium environment"),
        (f"{FILE}:broken", {}, "cannot be made .*no simulator here"),
        (f"{FILE}:Closed", {}, "cannot be copied .*clone_state"),
        (f"{FILE}:Wordy", {}, "cannot identify a state"),
        (f"{FILE}:Continuous", {}, r"only Discrete\(n\)"),
        (f"{FILE}:Stuck", {}, "no action is available"),
        (f"{FILE}:Failing", {}, r"successors\(0, 0\) failed"),
        (f"{FILE}:Countless", {}, "number of actions is unknown"),
        (CORRIDOR, {"max_states": 3}, "more than 3 states"),
        (CORRIDOR, {"resets": 0}, "must be at least 1"),
        (CORRIDOR, {"slip": 1.5}, "between 0 and 1"),
        (CORRIDOR, {"key": f"{FILE}:bad_key"}, "finite numbers, Booleans and text"),
        (CORRIDOR, {"key": f"{FILE}:failing"}, "it failed .*no key of Corridor"),
        (CORRIDOR, {"key": f"{FILE}:too_long"}, "this one has 65"),
        (CORRIDOR, {"key": "cell"}, r"write module\.py:function"),
        (CORRIDOR, {"labels": f"{FILE}:failing"}, "function of the labels failed"),
        (CORRIDOR, {"labels": f"{FILE}:terminal"}, "rename it"),
        (CORRIDOR, {"conditions": ["x: reward > 5"]}, "holds in no state"),
        (CORRIDOR, {"conditions": ["x: speed > 5"]}, "is not a condition"),
    ],
)
def test_what_cannot_be_explored_is_explained(source: str, settings: dict[str, object], why: str) -> None:
    with pytest.raises(ModelError, match=why):
        explore(source, ExplorationSettings(**settings))  # type: ignore[arg-type]


def test_a_module_that_cannot_be_run_is_explained(tmp_path: Path) -> None:
    (tmp_path / "wrong_module.py").write_text("import no_such_package_at_all\n")
    with pytest.raises(ModelError, match=r"cannot be run \(ModuleNotFoundError"):
        explore(f"{tmp_path}/wrong_module.py:make_env", ExplorationSettings())


def test_an_ambiguous_label_is_refused() -> None:
    settings = ExplorationSettings(key=f"{FILE}:cell_only", conditions=["good: reward > 0"], walk=0)
    with pytest.raises(ModelError, match=r"steps into state \[1\.0\] earn \[0\.0, 5\.0\]"):
        explore(f"{FILE}:paid_once", settings)


def test_labels_by_a_function() -> None:
    model = explore(CORRIDOR, ExplorationSettings(labels=f"{FILE}:colours", walk=0)).model
    assert np.flatnonzero(model.labels["edge"]).tolist() == [3, 4]


def test_a_hook_needs_no_gymnasium() -> None:
    explored = explore(f"{FILE}:Coin", ExplorationSettings(conditions=["end: terminated"]))
    model = explored.model
    assert (model.states, model.actions, model.action_names) == (5, 2, ("toss", "stop"))
    assert model.initial is not None
    assert model.initial.tolist() == [0.75, 0.25, 0, 0, 0]
    started, ended = encode_state(model, "valuation", (0,)), encode_state(model, "valuation", ("ended 0.0",))
    assert model.ended(started) == ended
    assert model.row(started, 1)[0].tolist() == [ended]
    assert not model.available(encode_state(model, "valuation", (2,)))[1]
    assert model.labels["end"].tolist() == model.labels["terminal"].tolist()
    assert "were not tested" in explored.notes[0]
    assert model.observations is not None
    assert model.observations[started].tolist() == [0]


def test_a_hook_with_states_of_text() -> None:
    model = explore(f"{FILE}:Named2", ExplorationSettings()).model
    assert model.valuations == (("a",), ("b",))
    assert model.observations is not None
    assert model.observations.tolist() == [[97, 1], [98, 1]]
    assert (model.reward(0, 0, 1), model.reward(0, 1, 1)) == (0.0, 1.0)


def test_an_environment_with_snapshots_of_its_own() -> None:
    own, copied = (explore(f"{FILE}:{name}", ExplorationSettings(walk=200)).model for name in ("Uncopied", "corridor"))
    assert own.valuations == copied.valuations
    assert np.array_equal(own.successors, copied.successors)


def test_a_long_observation_is_a_digest() -> None:
    model = explore(f"{FILE}:Wide", ExplorationSettings(walk=50)).model
    assert model.states == 5
    assert model.observations is not None
    for state in range(5):
        assert encode_state(model, "valuation", observation_key(model.observations[state])) == state


def test_an_observation_that_remembers_needs_it_in_the_key() -> None:
    with pytest.raises(ModelError, match="observed in two ways"):
        explore(f"{FILE}:Remembering", ExplorationSettings(key=f"{FILE}:cell_only"))


def test_a_start_that_depends_on_the_seed_is_reported() -> None:
    explored = explore("gymnasium:Taxi-v4", ExplorationSettings(walk=0))
    assert "--resets N" in explored.notes[0]


@pytest.mark.parametrize("value", [float("nan"), None, [], {1, 2}, "", "x" * 257])
def test_keys_are_numbers_text_and_booleans(value: object) -> None:
    with pytest.raises(ModelError, match="a key"):
        key_of(value, "here")


def test_a_key_may_be_an_array() -> None:
    assert key_of((np.array([[1, 2]]), True, "x"), "here") == (1.0, 2.0, True, "x")
