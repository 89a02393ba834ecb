"""Policies in batches: each state once, ONNX networks like their tables, memos with an end."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.errors import PolicyError
from monitor.evaluation import check
from monitor.model import MDP
from monitor.model.io import load_model
from monitor.policy.network import Network
from monitor.policy.onnx_policy import load_network, load_policy, of_network
from monitor.sampled import Sampler, Simulated, as_decisions
from monitor.sampled.decisions import CachedFunction
from monitor.sampled.particle_rows import SimulatorRows
from tests.exact.small import LAW
from tests.sampled.test_simulated import COUNT, GO, PATH, START, TEXTS, Line, policies
from tests.sampled.worlds import FALSE_ALARM, error_bound, goal

POLICIES = Path(__file__).parents[2] / "policies"
FAR, DRAWN = 10**15, 5_000
Ints = npt.NDArray[np.int64]


@LAW
@given(st.lists(st.lists(st.integers(-(2**62), 2**62) | st.integers(0, 9), min_size=1, max_size=20), max_size=6))
def test_each_state_is_asked_once_while_there_is_room(batches: list[list[int]]) -> None:
    asked: list[int] = []

    def function(states: Ints) -> Ints:
        assert len(states) <= 3
        asked.extend(states.tolist())
        return states // 2

    cached = CachedFunction(function, batch=3)
    for states in batches:
        assert cached(np.array(states)).tolist() == [state // 2 for state in states]
    assert sorted(asked) == sorted({state for states in batches for state in states})


def test_a_memo_that_is_full_starts_anew_and_answers_the_same() -> None:
    cached = CachedFunction(lambda states: states * 2, limit=5)
    for begin in (0, 3, 100, 0):
        states = np.arange(begin, begin + 4)
        assert np.array_equal(cached(states), states * 2)
    rows = SimulatorRows(Line(), limit=5)
    for begin in (0, 3, 100, 0):
        states = np.arange(begin, begin + 4)
        entries = rows.entries(states, np.full(4, GO))
        assert np.array_equal(entries.keys[entries.begin], states)
        assert np.array_equal(entries.end - entries.begin, np.full(4, 2))


def test_a_memo_keeps_what_it_knew_when_the_function_fails() -> None:
    def function(states: Ints) -> Ints:
        if states.min() < 2:
            raise PolicyError("not there")
        return states * 2

    cached = CachedFunction(function)
    cached(np.array([2, 4, 6]))
    with pytest.raises(PolicyError, match="not there"):
        cached(np.array([0, 1]))
    assert cached(np.array([6, 2, 4])).tolist() == [12, 4, 8]


def test_a_network_decides_like_its_table() -> None:
    model = load_model(POLICIES / "icu-sepsis" / "model.npz")
    states = np.random.default_rng(0).integers(0, model.states, 3_000)
    for manifest in sorted((POLICIES / "icu-sepsis").glob("*.yaml")):
        policy = load_policy(manifest, model)
        network = as_decisions(Network(policy.content, of_network(policy.manifest, manifest.name), model, "test"))
        for _ in range(2):
            assert np.array_equal(network.decide(states), as_decisions(policy.table).decide(states))


class Room:
    """An enumerated model as one that is not: numbers for states from 10**15 on, and what there is to be seen there."""

    def __init__(self, model: MDP) -> None:
        self._model = model
        self.actions, self.labels = model.actions, model.labels
        assert model.observations is not None
        self.width = model.observations.shape[1]

    def successors(self, state: int, action: int) -> tuple[Ints, npt.NDArray[np.float64]]:
        states, probabilities = self._model.row(state - FAR, action)
        return states + FAR, probabilities

    def holds(self, label: str, state: int) -> bool:
        return bool(self._model.labels[label][state - FAR])

    def reward(self, state: int, action: int) -> float:
        return float(self._model.rewards[state - FAR, action])

    def observations(self, states: Ints) -> npt.NDArray[np.float32]:
        assert self._model.observations is not None
        seen: npt.NDArray[np.float32] = self._model.observations[states - FAR]
        return seen

    def available(self, states: Ints) -> npt.NDArray[np.bool_]:
        return self._model.availability[states - FAR]


def test_a_network_acts_in_a_simulator_it_was_not_tabled_for() -> None:
    folder = POLICIES / "minigrid"
    model = load_model(folder / "empty.npz")
    room = Room(model)
    manifests = {"nominal": folder / "empty-nominal.yaml", "alt": folder / "empty-undertrained.yaml"}
    tabled = {name: load_policy(manifest, model).table for name, manifest in manifests.items()}
    scene = Simulated(room, {name: load_network(manifest, room) for name, manifest in manifests.items()})
    assert model.initial is not None
    start = int(np.argmax(model.initial))
    for text in ('nominal@0.P=? [ F<=8 "goal" ]', 'alt[3]@0.P=? [ F<=10 "goal" ]'):
        found = Sampler(scene, 1).outcomes(goal(text), [(start + FAR, None)], range(DRAWN))
        truth = check(text, model=model, path=[(start, None)], policies=tabled).value or 0.0
        assert 0.01 < truth < 0.99
        assert abs(found.mean() - truth) <= error_bound(found, 1.0, FALSE_ALARM / 2)


def test_a_network_with_a_number_for_each_state_does_not_fit_a_simulator() -> None:
    model = load_model(POLICIES / "frozen-lake" / "model.npz")
    policy = load_policy(POLICIES / "frozen-lake" / "good.yaml", model)
    manifest = of_network(policy.manifest, "good.yaml")
    one_hot = manifest.model_copy(update={"input": manifest.input.model_copy(update={"kind": "one_hot"})})
    with pytest.raises(PolicyError, match="input kind one_hot needs enumerated states"):
        Network(policy.content, one_hot, Room(load_model(POLICIES / "minigrid" / "empty.npz")), "test")


def test_what_decides_is_taken_as_it_is() -> None:
    class Restless:
        """Remembers nothing, as one might who has a memo of its own."""

        def decide(self, states: Ints) -> Ints:
            return (states - START) % 2

    line = Line()
    drawn = Sampler(Simulated(line, {**policies(), "fast": Restless()}), 4)
    outcomes = drawn.outcomes(goal(TEXTS[0]), PATH, range(COUNT))
    function = Sampler(Simulated(line, {**policies(), "fast": Restless().decide}), 4)
    assert np.array_equal(function.outcomes(goal(TEXTS[0]), PATH, range(COUNT)), outcomes)
