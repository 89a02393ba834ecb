"""Policies in batches: each state once, ONNX networks like their tables, memos with an end."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
from hypothesis import given
from hypothesis import strategies as st

from monitor.model.io import load_model
from monitor.policy.network import Network
from monitor.policy.session import load_policy
from monitor.sampled import Sampler, Simulated, as_decisions
from monitor.sampled.decisions import Remembered
from monitor.sampled.rows import SimulatorRows
from tests.decide.small import LAW
from tests.sampled.test_simulated import COUNT, GO, PATH, START, TEXTS, Line, policies
from tests.sampled.worlds import goal

POLICIES = Path(__file__).parents[2] / "policies"
Ints = npt.NDArray[np.int64]


@LAW
@given(st.lists(st.lists(st.integers(-(2**62), 2**62) | st.integers(0, 9), min_size=1, max_size=20), max_size=6))
def test_each_state_is_asked_once_while_there_is_room(batches: list[list[int]]) -> None:
    asked: list[int] = []

    def function(states: Ints) -> Ints:
        assert len(states) <= 3
        asked.extend(states.tolist())
        return states // 2

    remembered = Remembered(function, batch=3)
    for states in batches:
        assert remembered(np.array(states)).tolist() == [state // 2 for state in states]
    assert sorted(asked) == sorted({state for states in batches for state in states})


def test_a_memo_that_is_full_starts_anew_and_answers_the_same() -> None:
    remembered = Remembered(lambda states: states * 2, limit=5)
    for begin in (0, 3, 100, 0):
        states = np.arange(begin, begin + 4)
        assert np.array_equal(remembered(states), states * 2)
    rows = SimulatorRows(Line(), limit=5)
    for begin in (0, 3, 100, 0):
        states = np.arange(begin, begin + 4)
        entries = rows.entries(states, np.full(4, GO))
        assert np.array_equal(entries.keys[entries.begin], states)
        assert np.array_equal(entries.end - entries.begin, np.full(4, 2))


def test_a_network_decides_like_its_table() -> None:
    model = load_model(POLICIES / "icu-sepsis" / "model.npz")
    states = np.random.default_rng(0).integers(0, model.states, 3_000)
    for manifest in sorted((POLICIES / "icu-sepsis").glob("*.yaml")):
        policy = load_policy(manifest, model)
        network = as_decisions(Network(policy.content, policy.manifest, model, "test"))
        for _ in range(2):
            assert np.array_equal(network.decide(states), as_decisions(policy.table).decide(states))


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
