from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monitor.errors import ModelError
from monitor.model import MDP, canonical_bytes
from tests.tiers import examples

COIN: dict[str, Any] = {"states": 2, "actions": 1, "transitions": [(0, 0, 0, 0.5), (0, 0, 1, 0.5), (1, 0, 1, 1.0)]}


def test_rows_are_sorted_and_unavailable_actions_are_empty() -> None:
    model = MDP.from_transitions(
        states=2, actions=2, transitions=[(1, 1, 1, 0.75), (1, 1, 0, 0.25), (0, 0, 1, 1.0)], rewards=[(1, 1, 2.5)]
    )
    successors, probabilities = model.row(1, 1)
    assert successors.tolist() == [0, 1]
    assert probabilities.tolist() == [0.25, 0.75]
    assert model.row(1, 0)[0].size == 0
    assert model.available(0).tolist() == [True, False]
    assert model.available(1).tolist() == [False, True]
    assert model.rewards.tolist() == [[0.0, 0.0], [0.0, 2.5]]


def test_duplicates_are_summed_and_zeros_dropped() -> None:
    model = MDP.from_transitions(
        states=2,
        actions=1,
        transitions=[(0, 0, 1, 0.25), (0, 0, 0, 0.5), (0, 0, 1, 0.25), (1, 0, 1, 1.0), (1, 0, 0, 0.0)],
    )
    assert [x.tolist() for x in model.row(0, 0)] == [[0, 1], [0.5, 0.5]]
    assert [x.tolist() for x in model.row(1, 0)] == [[1], [1.0]]


def test_a_row_of_zeros_is_an_unavailable_action() -> None:
    model = MDP.from_transitions(states=1, actions=2, transitions=[(0, 0, 0, 1.0), (0, 1, 0, 0.0)])
    assert model.available(0).tolist() == [True, False]


def test_a_row_that_sums_to_99_percent_is_named() -> None:
    with pytest.raises(ModelError, match=r"state 1, action 0.* sums to 0\.99, not 1"):
        MDP.from_transitions(states=2, actions=1, transitions=[(0, 0, 1, 1.0), (1, 0, 0, 0.49), (1, 0, 1, 0.5)])


def test_a_row_within_the_tolerance_is_renormalised() -> None:
    model = MDP.from_transitions(
        states=2, actions=1, transitions=[(0, 0, 0, 0.5 + 5e-10), (0, 0, 1, 0.5), (1, 0, 1, 1)]
    )
    assert model.row(0, 0)[1].sum() == pytest.approx(1.0, abs=1e-15)


@pytest.mark.parametrize(
    ("transition", "message"),
    [
        ((2, 0, 0, 1.0), "state 2 .* outside 0..1"),
        ((-1, 0, 0, 1.0), "state -1 .* outside"),
        ((0, 1, 0, 1.0), "action 1 .* outside 0..0"),
        ((0, 0, 2, 1.0), "successor 2 .* outside"),
        ((0.5, 0, 0, 1.0), "whole numbers"),
        ((10**30, 0, 0, 1.0), "whole numbers"),
        (("a", 0, 0, 1.0), "whole numbers"),
        ((None, 0, 0, 1.0), "whole numbers"),
        ((0, 0, 0, float("nan")), "must be finite"),
        ((0, 0, 0, float("inf")), "must be finite"),
        ((0, 0, 0, "x"), "give numbers"),
        ((0, 0, 0), "needs 4 fields"),
        (7, "4-tuples"),
    ],
)
def test_a_bad_transition_is_a_model_error(transition: tuple[int, int, int, float], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        MDP.from_transitions(states=2, actions=1, transitions=[transition, (1, 0, 1, 1.0)])


def test_a_negative_probability_is_named() -> None:
    with pytest.raises(ModelError, match=r"state 0, action 0.*negative probability -0\.5"):
        MDP.from_transitions(states=2, actions=1, transitions=[(0, 0, 0, -0.5), (0, 0, 1, 1.5), (1, 0, 1, 1.0)])


def test_a_state_without_an_action_is_named() -> None:
    with pytest.raises(ModelError, match="state 1 has no available action"):
        MDP.from_transitions(states=2, actions=1, transitions=[(0, 0, 0, 1.0)])
    with pytest.raises(ModelError, match="state 0 has no available action"):
        MDP.from_transitions(states=1, actions=1, transitions=[])


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"states": 0}, "states must be"),
        ({"labels": {"ok": [[0], [0, 1]]}}, "not an array of numbers"),
        ({"labels": {"ok": [[0, 1]]}}, "flat list"),
        ({"labels": {"ok": [1e300]}}, "whole numbers"),
        ({"observations": [[1.0], [1.0, 2.0]]}, "not an array of numbers"),
        ({"observations": [[True], [False]]}, "give numbers"),
        ({"actions": True}, "actions must be"),
        ({"states": 2**30, "actions": 2**20}, "too many rows"),
        ({"rewards": [(0, 0, 1.0), (0, 0, 1.0)]}, "given twice"),
        ({"rewards": [(0, 0, float("inf"))]}, "must be finite"),
        ({"rewards": [(0, 3, 1.0)]}, "action 3"),
        ({"labels": {"bad name": [0]}}, "label 'bad name'"),
        ({"labels": {"x" * 65: [0]}}, "1 to 64"),
        ({"labels": {3: [0]}}, "label 3"),
        ({"labels": {"ok": [2]}}, "outside 0..1"),
        ({"initial": {0: 0.5}}, "sums to 0.5"),
        ({"initial": {5: 1.0}}, "outside 0..1"),
        ({"initial": {0: 1.5, 1: -0.5}}, "no negative"),
        ({"observations": [[1.0]]}, "shape"),
        ({"observations": [1.0, 2.0]}, "shape"),
        ({"observations": [[1.0], [float("nan")]]}, "must be finite"),
        ({"observations": [[1.0], [1e300]]}, "32-bit"),
        ({"state_names": ["a"]}, "name all or none"),
        ({"state_names": ["a", "a"]}, "'a' is given twice"),
        ({"state_names": ["a", ""]}, "printable"),
        ({"action_names": ["a\n"]}, "printable"),
        ({"bin_edges": [[0.0]]}, "at least two"),
        ({"bin_edges": [[0.0, 0.0]]}, "ascending"),
        ({"bin_edges": ["x"]}, "not numbers"),
        ({"bin_edges": [[0, 1, 2], [0, 1, 2]]}, "2 x 2 bins are more than the 2 states"),
        ({"bin_edges": [[0, 1, 2]], "bin_names": [["a", "b"], []]}, "bin names of 2 dimensions for bins of 1"),
        ({"bin_edges": [[0, 1, 2]], "bin_names": [["a"]]}, "its 2 bins need one different name each"),
        ({"bin_edges": [[0, 1, 2]], "bin_names": [["a", "a"]]}, "its 2 bins need one different name each"),
        ({"bin_edges": [[0, 1, 2]], "bin_names": [["a", ""]]}, "a name is text that is not empty"),
        ({"valuations": [(1,)]}, "give all or none"),
        ({"valuations": [(1,), (1, 2)]}, "same number"),
        ({"valuations": [(1,), (True,)]}, "two states"),
        ({"valuations": [(1,), (float("nan"),)]}, "finite"),
        ({"valuations": [(1,), (None,)]}, "finite number"),
    ],
)
def test_bad_annotations_are_model_errors(more: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        MDP.from_transitions(**(COIN | more))


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ({"indptr": [0, 2]}, "states \\* actions \\+ 1 = 3"),
        ({"indptr": [1, 2, 3]}, "rise from 0"),
        ({"indptr": [0, 3, 2]}, "rise from 0"),
        ({"indptr": [0, 2, 4]}, "outside 0..3"),
        ({"indptr": [[0, 2, 3]]}, "flat list"),
        ({"probabilities": [0.5, 0.5]}, "3 successors but probabilities"),
        ({"successors": [0, 1, 9]}, "outside 0..1"),
        ({"rewards": np.zeros((1, 1))}, "rewards have shape"),
        ({"initial": np.ones(3) / 3}, "has shape"),
    ],
)
def test_arrays_that_do_not_fit_are_model_errors(rows: dict[str, Any], message: str) -> None:
    good: dict[str, Any] = {"indptr": [0, 2, 3], "successors": [0, 1, 1], "probabilities": [0.5, 0.5, 1.0]}
    arrays: dict[str, Any] = {name: np.asarray(array) for name, array in (good | rows).items()}
    with pytest.raises(ModelError, match=message):
        MDP.from_rows(states=2, actions=1, **arrays)


def test_arrays_are_read_only_and_not_the_callers() -> None:
    probabilities = np.array([0.5, 0.5, 1.0])
    model = MDP.from_rows(
        states=2, actions=1, indptr=np.array([0, 2, 3]), successors=np.array([0, 1, 1]), probabilities=probabilities[:]
    )
    probabilities[0] = 7.0
    assert model.row(0, 0)[1].tolist() == [0.5, 0.5]
    for array in (model.indptr, model.successors, model.probabilities, model.rewards, model.availability):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0


def test_an_ended_episode_stays_where_it_ended() -> None:
    model = MDP.from_transitions(
        states=3,
        actions=2,
        transitions=[(0, 0, 1, 1.0), (1, 1, 2, 0.5), (1, 1, 0, 0.5), (2, 0, 2, 1.0), (2, 1, 2, 1.0)],
        rewards=[(1, 1, 3.0), (0, 0, 1.0)],
        labels={"here": [1]},
    )
    ended = model.with_absorbing(1)
    for action in (0, 1):
        assert [x.tolist() for x in ended.row(1, action)] == [[1], [1.0]]
    assert ended.rewards[1].tolist() == [0.0, 0.0]
    assert ended.rewards[0, 0] == 1.0
    assert [x.tolist() for x in ended.row(0, 0)] == [[1], [1.0]]
    assert [x.tolist() for x in ended.row(2, 1)] == [[2], [1.0]]
    assert ended.labels["here"].tolist() == [False, True, False]
    assert ended.with_absorbing(1) is ended
    assert replace(model, ended_as=np.array([2, 1, 2])).with_absorbing(1).ended(0) == 2
    assert model.with_absorbing(2) is model
    assert not model.is_absorbing(1)


def test_a_self_loop_with_reward_is_not_absorbing_yet() -> None:
    model = MDP.from_transitions(states=1, actions=1, transitions=[(0, 0, 0, 1.0)], rewards=[(0, 0, 1.0)])
    assert not model.is_absorbing(0)
    assert model.with_absorbing(0).is_absorbing(0)


@st.composite
def weighted_rows(draw: st.DrawFn) -> tuple[int, list[tuple[int, int, int, float]]]:
    states = draw(st.integers(1, 5))
    transitions = []
    for state in range(states):
        weights = draw(st.lists(st.floats(1e-6, 1.0), min_size=1, max_size=6))
        off = 1 + draw(st.floats(-0.9e-9, 0.9e-9))
        for weight in weights:
            successor = draw(st.integers(0, states - 1))
            transitions.append((state, 0, successor, weight / sum(weights) * off))
    return states, transitions


@settings(max_examples=examples(25, 60))
@given(weighted_rows(), st.randoms(use_true_random=False))
def test_every_row_is_a_distribution_and_checking_it_again_changes_nothing(
    drawn: tuple[int, list[tuple[int, int, int, float]]], chance: random.Random
) -> None:
    states, transitions = drawn
    model = MDP.from_transitions(states=states, actions=1, transitions=transitions)
    again = MDP.from_rows(
        states=states, actions=1, indptr=model.indptr, successors=model.successors, probabilities=model.probabilities
    )
    assert canonical_bytes(again) == canonical_bytes(model)
    shuffled = list(transitions)
    chance.shuffle(shuffled)
    other = MDP.from_transitions(states=states, actions=1, transitions=shuffled)
    for state in range(states):
        successors, probabilities = model.row(state, 0)
        assert (np.diff(successors) > 0).all()
        assert (probabilities > 0).all()
        assert abs(probabilities.sum() - 1) < 1e-14
        assert np.array_equal(successors, other.row(state, 0)[0])
        assert np.allclose(probabilities, other.row(state, 0)[1], rtol=0, atol=1e-15)
